"""Models that people really have: batch normalization, dropout, frozen parts, LoRA, recurrence."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pfl_lib
from pfl_lib import Federation, Prox, Work, models, partition, train
from pfl_lib._torchvision import import_torchvision
from pfl_lib.book.what_works import (
    KINDS,
    UNMARKED,
    BatchNormCNN,
    DropoutMLP,
    Recurrent,
    in_a_table,
    what_works,
)
from pfl_lib.book.what_works import federation as what_works_federation
from pfl_lib.data.dataset import SampleForm
from pfl_lib.local.batches import batch_table, dropout_keys
from pfl_lib.local.parts import KeyedDropout, prepared
from pfl_lib.work import Batch, local_step

ENGINES = ("loop", "threads", "stacked")


@pytest.fixture(scope="module")
def clients(data):
    """Four clients with 5, 9, 17 and 2 samples: batches of 8 leave one sample over."""
    order = torch.randperm(data.n_train, generator=torch.Generator().manual_seed(0))
    test = tuple(data.n_train + torch.arange(4 * i, 4 * i + 4) for i in range(4))
    return partition.Partition("unequal", order[:33].split([5, 9, 17, 2]), test)


def federation(data, clients, module, engine="auto", **options):
    options = {"lr": 0.05, "batch_size": 8, "epochs": 2, **options}
    return Federation(
        data, clients, module, engine=engine, dtype=torch.float64, device="cpu", **options
    )


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.output = nn.Linear(8, 10)

    def forward(self, x):
        x = x.squeeze(1)
        return self.output(self.attention(x, x, x)[0].mean(1))


def made(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return KINDS[kind]()


def everything(fed, who):
    """Training with a penalty, a correction and a mask, each different for each client."""
    w = fed.initial()[who]
    draw = torch.Generator().manual_seed(1)
    noise = lambda: torch.randn(w.shape, generator=draw, dtype=fed.dtype)  # noqa: E731
    strength = torch.linspace(0.1, 1, len(who), dtype=fed.dtype)
    mask = torch.rand(fed.d, generator=draw) < 0.8
    prox = Prox(w + 0.1 * noise(), strength)
    return train(fed, w, who, prox=prox, correction=0.01 * noise(), mask=mask, repeats=2)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("who", [[0, 1, 2, 3], [2, 0]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_engines_give_one_answer(data, clients, kind, who, optimizer):
    who, answers = torch.tensor(who), []
    for engine in ENGINES:
        if engine == "stacked" and kind in ("batch normalization", "LSTM"):
            continue
        fed = federation(data, clients, made(kind), engine, optimizer=optimizer)
        w = everything(fed, who)
        answers.append((w, *fed.evaluate(w, who), *fed.evaluate(w, who, split="train")))
    assert len(answers) >= 2 and not torch.equal(answers[0][0], fed.initial()[who])
    for other in answers[1:]:
        for ours, theirs in zip(other, answers[0]):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def by_hand(fed, module, client, optimizer, k=0, key=True):
    """The client's round as one would write it in torch; its row afterwards."""
    module = copy.deepcopy(module).double().train()
    trained = [p for p in module.parameters() if p.requires_grad]
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    optimizer = kind(trained, lr=fed.settings.lr)
    work = Work({"w": fed.initial()[:1]})
    index = fed.partition.train[client]
    for t, here in enumerate(batch_table(work, fed.settings, [len(index)], [client], k)[0]):
        here = index[here[here >= 0]]
        x, y = fed.data.normalized(fed.data.x[here], torch.float64), fed.data.y[here]
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.train(len(here) > 1 or isinstance(part, nn.BatchNorm2d))
            if isinstance(part, HandDropout):
                part.key, part.call = dropout_keys(work, fed.settings, k, client, t)[0], 0
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    buffers = [b for _, b in module.named_buffers() if b.is_floating_point()]
    return torch.cat([t.detach().reshape(-1) for t in [*trained, *buffers]])


class HandDropout(nn.Module):
    """Dropout with the numbers that the library keys by client, round, step and call."""

    def forward(self, x):
        uniform = self.key.uniform(self.call, x.shape)
        self.call += 1
        return torch.where(uniform >= 0.4, x / 0.6, 0)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", KINDS)
def test_local_training_is_torchs_own(data, clients, kind, optimizer):
    module = made(kind)
    fed = federation(data, clients, module, optimizer=optimizer)
    trained = train(fed, fed.initial(), fed.everyone)
    if kind == "dropout":
        module.drop = HandDropout()
    # Two samples normalized are +1 and -1 whatever the weights: their gradient is next to nothing,
    # its rounding is not, and Adam divides by as little (plus 1e-8).  SGD does not enlarge it.
    atol = 1e-8 if (kind, optimizer) == ("batch normalization", "adam") else 1e-10
    for client in range(4):
        expected = by_hand(fed, module, client, optimizer)
        torch.testing.assert_close(trained[client], expected, rtol=0, atol=atol)


# ---- frozen parameters


def test_a_row_holds_what_is_trained(data, clients):
    module = made("frozen backbone")
    fed = federation(data, clients, module)
    assert fed.d == 12 * 7 + 7 + 7 * 10 + 10 == models.parameter_count(module)
    assert [name for name, _ in fed.layers] == ["hidden.1", "output"]
    assert int(fed.head_mask.sum()) == 80
    history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 1, progress=False)
    assert history.state.x.shape == (fed.d,)
    assert pfl_lib.algorithm("fedavg").sent(fed, fed.everyone, 0) == 2 * 4 * fed.d
    w = train(fed, fed.initial(), fed.everyone)
    whole = fed.network.filled(w[2])
    assert torch.equal(whole.hidden[0].weight, module.hidden[0].weight.double())
    x = data.normalized(data.x[:5], torch.float64)
    torch.testing.assert_close(whole(x), fed.network.logits(w[2], x))


def test_another_frozen_part_is_another_federation(data, clients):
    module = made("frozen backbone")
    other = copy.deepcopy(module)
    other.hidden[0].weight.data[0, 0] += 1
    here, there = (federation(data, clients, m).describe() for m in (module, other))
    assert here["module"] != there["module"]
    assert {n: v for n, v in here.items() if n != "module"} == {
        n: v for n, v in there.items() if n != "module"
    }


def test_nothing_to_train_is_refused(data, clients):
    with pytest.raises(ValueError, match="MLP has no parameter to train"):
        federation(data, clients, models.mlp(64, 10).requires_grad_(False))


# ---- LoRA


def test_lora_begins_where_the_model_is(data):
    x = data.normalized(data.x[:5])
    for module in (models.mlp(64, 10, hidden=(12,)), models.resnet18(1, 10, width=16)):
        adapted = models.with_lora(module, rank=3, alpha=6.0)
        assert torch.equal(adapted(x), module(x))
        assert all(p.requires_grad for p in module.parameters())  # a copy is adapted


def test_lora_is_the_sum_of_two_layers():
    torch.manual_seed(0)
    x, convolution = torch.randn(2, 3, 9, 9), nn.Conv2d(3, 4, 3, stride=2, padding=1)
    layer = models.LowRank(convolution, rank=2, scale=0.5)
    layer.B.data.normal_()
    assert layer.A.shape == (2, 3, 3, 3) and layer.B.shape == (4, 2, 1, 1)
    product = torch.einsum("or,rikl->oikl", layer.B[:, :, 0, 0], layer.A)
    weight = convolution.weight + 0.5 * product
    expected = F.conv2d(x, weight, convolution.bias, stride=2, padding=1)
    torch.testing.assert_close(layer(x), expected)
    linear = models.LowRank(nn.Linear(6, 5), rank=2, scale=2.0)
    linear.B.data.normal_()
    x = torch.randn(3, 6)
    expected = F.linear(x, linear.base.weight + 2 * linear.B @ linear.A, linear.base.bias)
    torch.testing.assert_close(linear(x), expected)


@pytest.mark.parametrize(
    "layer, shape",
    [
        (nn.Conv1d(4, 6, 5, stride=2, padding=2, padding_mode="circular"), (2, 4, 11)),
        (nn.Conv2d(4, 6, 3, padding="same", groups=2), (2, 4, 7, 7)),
        (nn.Conv2d(4, 4, 3, dilation=2, groups=4, bias=False), (2, 4, 7, 7)),
        (nn.Conv3d(2, 3, 2, padding=1), (2, 2, 4, 4, 4)),
    ],
    ids=["one axis, circular", "two groups", "each channel", "three axes"],
)
def test_lora_of_every_convolution_changes_its_weight(layer, shape):
    """The addition is a change of the weight, by B·A in every group."""
    x, plain = torch.randn(shape), copy.deepcopy(layer)
    adapted = models.LowRank(layer, rank=2, scale=0.5)
    assert torch.equal(adapted(x), plain(x))
    adapted.B.data.normal_()
    B, A = (t.unflatten(0, (plain.groups, -1)) for t in (adapted.B.flatten(1), adapted.A))
    change = torch.einsum("gor,gr...->go...", B, A).flatten(0, 1)
    plain.weight.data += 0.5 * change
    torch.testing.assert_close(adapted(x), plain(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(adapted.weight, plain.weight)
    assert adapted.bias is layer.bias


def test_lora_of_a_network_for_time_series(clients):
    series = models.with_lora(models.cnn1d(6, 7), rank=2)
    assert models.parameter_count(series) == 2 * (9 * 6 + 32 + 9 * 32 + 64) + 65 * 7
    depthwise = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 8, 1))
    assert models.parameter_count(models.with_lora(depthwise, rank=1)) == 4 + 8
    assert models.parameter_count(models.with_lora(depthwise, rank=1, layers=["0"])) == 4 * 9 + 4
    with pytest.raises(TypeError, match=r"base must be one of Linear, Conv1d, .* got LSTM"):
        models.LowRank(nn.LSTM(2, 2), rank=1)


def test_lora_trains_what_it_should(data, clients):
    module = models.mlp(64, 10, hidden=(12, 7))
    adapted = models.with_lora(module, rank=2, layers=["hidden.0"])
    fed = federation(data, clients, adapted)
    assert fed.d == 2 * (64 + 12) + 7 * 10 + 10
    assert [name for name, _ in fed.layers] == ["hidden.0", "output"]
    w = train(fed, fed.initial(), fed.everyone, epochs=10)
    assert (fed.evaluate(w, split="train")[1] < fed.evaluate(fed.initial(), split="train")[1]).all()
    alone = models.with_lora(module, rank=2, head=False)
    assert models.parameter_count(alone) == 2 * (64 + 12 + 12 + 7 + 7 + 10)


class Transformer(nn.Module):
    """Reads an image row by row; torch's fast path in tests asks its layers for their weights."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.output = nn.Linear(8, 10)

    def forward(self, x):
        return self.output(self.encoder(x.squeeze(1)).mean(1))


def test_lora_of_a_transformer_layer(data, clients):
    with pytest.warns(UserWarning, match=r"leaves encoder.self_attn \(MultiheadAttention, "):
        adapted = models.with_lora(Transformer(), rank=2)
    names = {name for name, p in adapted.named_parameters() if p.requires_grad}
    places = ("encoder.linear1", "encoder.linear2", "output")  # not inside the attention
    assert names == {f"{place}.{word}" for place in places for word in "AB"}
    fed = federation(data, clients, adapted)
    w = train(fed, fed.initial(), fed.everyone, epochs=5)
    x = data.normalized(data.x[:5], torch.float64)
    with torch.no_grad():  # by the fast path
        quick = fed.network.filled(w[1]).eval()(x)
    slow = fed.network.filled(w[1]).train()(x)
    torch.testing.assert_close(quick, slow)
    assert (slow - adapted.double()(x)).abs().max() > 1e-3
    assert torch.isfinite(fed.evaluate(w)[1]).all()


@pytest.mark.parametrize(
    "module, layers, words",
    [
        (nn.LSTM(8, 5), ["r"], r"of LSTM, which has none; got \['r'\]. What is inside LSTM"),
        (nn.LSTM(8, 5), None, "of LSTM, which has none; got None. What is inside LSTM"),
        (Attentive(), ["a"], r"one of 'output'; got 'a'"),
        (nn.MultiheadAttention(8, 2), None, "inside MultiheadAttention cannot be adapted"),
        (nn.GRU(8, 5), [], "inside GRU cannot be adapted"),
    ],
)
def test_lora_says_what_it_can_adapt(module, layers, words):
    with pytest.raises(ValueError, match=words):
        models.with_lora(module, layers=layers)


class ReadsAndThinks(nn.Module):
    """An LSTM, a linear layer on top of it, and a head."""

    head = ("output.",)

    def __init__(self):
        super().__init__()
        self.recurrent, self.hidden = nn.LSTM(8, 5, batch_first=True), nn.Linear(5, 4)
        self.output = nn.Linear(4, 10)

    def forward(self, x):
        return self.output(F.relu(self.hidden(self.recurrent(x.squeeze(1))[0][:, -1])))


def test_lora_says_what_stays_frozen_because_it_cannot_be_adapted():
    module = ReadsAndThinks()
    words = (
        r"with_lora leaves recurrent \(LSTM, 300 of 374 parameters\) frozen, since .* "
        r"It adapts hidden; layers=\['hidden'\] says that this is meant"
    )
    with pytest.warns(UserWarning, match=words) as told:
        adapted = models.with_lora(module.requires_grad_(False), rank=2)
    assert len(told) == 1 and told[0].filename == __file__
    assert {n for n, p in adapted.named_parameters() if p.requires_grad} == {
        "hidden.A", "hidden.B", "output.weight", "output.bias",
    }  # fmt: skip
    with pytest.warns(UserWarning, match=r"leaves attention \(MultiheadAttention, 288 of 378 "):
        models.with_lora(Attentive(), rank=2)
    with pytest.warns(UserWarning, match=r"cell \(GRUCell, "):
        models.with_lora(nn.ModuleDict({"cell": nn.GRUCell(3, 2), "top": nn.Linear(2, 2)}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.with_lora(module, rank=2, layers=["hidden"])  # asked for by name
        models.with_lora(models.mlp(64, 10, hidden=(12,)), rank=2)
        whole = ReadsAndThinks()
        whole.head = ("output.", "recurrent.")  # trained whole, so nothing is frozen
        models.with_lora(whole, rank=2)


# ---- a head for modules that name none


class FromElsewhere(nn.Module):
    """As torchvision writes them: batch normalization, a last layer called ``fc``, no features."""

    def __init__(self, after=None):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4)
        self.fc, self.after = nn.Linear(4, 10), after or nn.Identity()

    def forward(self, x):
        return self.after(self.fc(F.relu(self.norm(self.conv(x))).mean((2, 3))))


NEED_A_HEAD = ["fedrep", "fedbabu", "fedrod", "feddbe", "fedproto", "fedpac", "fedas"]
NEED_A_HEAD.append("label-prior")


def test_any_module_gets_a_head(data, clients):
    module = FromElsewhere()
    model = models.with_head(module, data)
    x = data.normalized(data.x[:6])
    assert torch.equal(model(x), module(x)) and model.output.weight is not module.fc.weight
    torch.testing.assert_close(model.output(model.features(x)), module(x))
    plain, fed = (federation(data, clients, one) for one in (module, model))
    assert plain.linear_head is None and not plain.head_mask.any()
    assert fed.linear_head == (4 * 9 + 2 * 4, 10, 4) and int(fed.head_mask.sum()) == 50
    assert plain.d == fed.d
    for name in NEED_A_HEAD:
        with pytest.raises(ValueError, match="with_head"):
            pfl_lib.run(pfl_lib.algorithm(name), plain, 1, progress=False)
        method = pfl_lib.algorithm(name)
        state = pfl_lib.run(method, fed, 1, progress=False).state
        moved = (method.personal(state, fed) - fed.initial()).abs()
        assert 0 < moved[:, fed.head_mask].max() < 100 and 0 < moved[:, ~fed.head_mask].max() < 100


def test_a_plain_network_is_for_most_methods_and_with_a_head_for_all(monkeypatch):
    """As the README says; who refuses the plain one says what to do."""
    digits = pfl_lib.data.load("digits")
    ((unmarked, plain),) = UNMARKED.items()
    monkeypatch.setitem(KINDS, "headed", lambda: models.with_head(plain(), digits))
    worked = what_works(kinds=(unmarked, "headed"))
    assert {name: tried["headed"] for name, tried in worked.items() if tried["headed"]} == {}
    refused = {name: tried[unmarked] for name, tried in worked.items() if tried[unmarked]}
    assert {"fedrep", "fedproto"} <= set(refused) and len(refused) < len(worked) / 2
    assert {name: why for name, why in refused.items() if "with_head" not in why} == {}
    table = in_a_table(worked)
    assert table.head == ("method", unmarked, "headed") and len(table.rows) == len(worked)
    cells = {row[0]: row[1:] for row in table.rows}
    for name, why in refused.items():
        assert cells[pfl_lib.methods.BY_NAME[name].label] == (why, "works")
    assert sum(row == ("works", "works") for row in cells.values()) == len(worked) - len(refused)


def test_what_is_frozen_stays_frozen_under_a_head(data, clients):
    module = FromElsewhere().requires_grad_(False)
    module.fc.requires_grad_(True)
    module.norm.eval()
    model = models.with_head(module, data, "fc")
    assert [n for n, p in model.named_parameters() if p.requires_grad] == [
        "output.weight",
        "output.bias",
    ]
    fed = federation(data, clients, model)
    assert fed.d == 50  # the frozen statistics are constants
    with pytest.raises(ValueError, match="Nothing but its head is trained"):
        pfl_lib.run(pfl_lib.algorithm("fedrep"), fed, 1, progress=False)
    assert models.with_head(FromElsewhere().eval(), data).training is False  # set to train as usual
    adapted = models.with_lora(models.with_head(FromElsewhere(), data), rank=1)
    assert federation(data, clients, adapted).head_mask.sum() == 50


def test_a_resnet_by_torchvision(data):
    resnet = import_torchvision().models.resnet18(num_classes=5)
    form = SampleForm("scans", "image", (3, 16, 16), tuple("abcde"))
    model = models.with_head(resnet, form)
    assert model.output.in_features == 512 and model.output.out_features == 5
    assert models.head_prefixes(model) == ("output.",)


@pytest.mark.parametrize(
    "make, options, words",
    [
        (lambda: FromElsewhere(nn.LogSoftmax(1)), {}, "something comes after 'fc'"),
        (FromElsewhere, {"name": "conv"}, "something comes after 'conv'"),
        (FromElsewhere, {"name": "head"}, "name must be a layer of FromElsewhere, such as 'fc'"),
        (lambda: nn.Sequential(nn.Flatten()), {}, "it has no linear layer"),
        (lambda: models.with_lora(FromElsewhere(), rank=1), {}, "with_head first, then with_lora"),
    ],
    ids=["softmax", "another layer", "no layer", "nothing linear", "low rank"],
)
def test_what_is_no_head_is_refused(data, make, options, words):
    with pytest.raises(ValueError, match=words):
        models.with_head(make(), data, **options)


# ---- buffers


def test_running_statistics_are_columns_after_the_parameters(data, clients):
    fed = federation(data, clients, made("batch normalization"))
    assert fed.d == models.parameter_count(BatchNormCNN()) + 2 * (3 + 6)
    assert torch.equal(fed.buffer_mask.nonzero().flatten(), torch.arange(fed.d)[-18:])
    assert fed.initial()[0][-18:].tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 6 + [1.0] * 6
    assert int(fed.norm_mask.sum()) == 4 * (3 + 6)
    assert (fed.norm_mask & fed.buffer_mask).sum() == 18
    plain = federation(data, clients, models.mlp(64, 10))
    assert not plain.buffer_mask.any() and not plain.norm_mask.any()


def test_terms_and_masks_leave_statistics_alone(data, clients):
    """Only the forward pass changes them: with nothing trained, they still become the data's."""
    for engine in ("loop", "threads"):
        fed = federation(data, clients, made("batch normalization"), engine)
        w, who = fed.initial(), fed.everyone
        held = train(fed, w, who, mask=torch.zeros(fed.d))
        prox, pull = Prox(w + 1, 3.0), torch.ones_like(w)
        pulled = train(fed, w, who, prox=prox, correction=pull, mask=torch.zeros(fed.d))
        assert torch.equal(held, pulled)
        assert torch.equal(held[:, ~fed.buffer_mask], w[:, ~fed.buffer_mask])
        assert (held[:, fed.buffer_mask] != w[:, fed.buffer_mask]).float().mean() > 0.8


def test_a_test_uses_running_statistics(data, clients):
    fed = federation(data, clients, made("batch normalization"))
    w = train(fed, fed.initial(), fed.everyone)
    x = data.normalized(data.x[:6], torch.float64)
    together = fed.network.logits(w[0], x)
    torch.testing.assert_close(fed.network.logits(w[0], x[:1]), together[:1])
    before = w.clone()
    fed.evaluate(w)
    assert torch.equal(w, before)
    other = w.clone()
    other[:, fed.buffer_mask] += 1
    assert not torch.allclose(fed.evaluate(other)[1], fed.evaluate(w)[1])


def test_a_methods_own_step_updates_statistics_too(data, clients):
    """Of each model that the step returns, and with the model as it was before the step."""

    @local_step("stand still")
    def stand_still(s, batch, client):
        return client.move(s, torch.zeros_like(s["w"])) | {"other": s["other"]}

    fed = federation(data, clients, made("batch normalization"))
    w = fed.initial()
    rows = {"w": w, "other": w + 0.01}
    done = fed.perform(Work(rows, "stand still"), fed.everyone)
    held = train(fed, w, fed.everyone, mask=torch.zeros(fed.d))
    torch.testing.assert_close(done["w"], held, rtol=0, atol=1e-10)
    assert not torch.equal(done["other"][:, fed.buffer_mask], rows["other"][:, fed.buffer_mask])
    assert torch.equal(done["other"][:, ~fed.buffer_mask], rows["other"][:, ~fed.buffer_mask])


def test_frozen_batch_normalization_keeps_its_statistics(data, clients):
    module = made("batch normalization")
    for part in (module.norm, module.norm2):
        part.eval().requires_grad_(False)
        part.running_mean.normal_()
    fed = federation(data, clients, module)
    assert fed.d == models.parameter_count(module) and not fed.buffer_mask.any()
    expected = copy.deepcopy(module).double().eval()
    x = data.normalized(data.x[:5], torch.float64)
    torch.testing.assert_close(fed.network.logits(fed.initial()[0], x), expected(x))


class Positions(nn.Module):
    """A buffer that nobody changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.linspace(0, 1, 64))
        self.register_buffer("order", torch.arange(64).flip(0))
        self.output = nn.Linear(64, 10)

    def forward(self, x):
        return self.output(x.flatten(1)[:, self.order] + self.shift)


def test_constant_buffers_are_no_part_of_a_row(data, clients):
    module = Positions()
    answers = [
        train(fed, fed.initial(), fed.everyone)
        for fed in (federation(data, clients, module, engine) for engine in ENGINES)
    ]
    assert answers[0].shape == (4, 650)
    for other in answers[1:]:
        torch.testing.assert_close(other, answers[0], rtol=0, atol=1e-10)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.output = nn.Linear(64, 10)

    def forward(self, x):
        self.calls += 1
        return self.output(x.flatten(1))


class Unkeyed(Counter):
    def forward(self, x):
        return self.output(F.dropout(x.flatten(1), 0.5, self.training))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (nn.BatchNorm1d(10, momentum=None), r"momentum=None is not supported \(2: BatchNorm1d\)"),
        (nn.BatchNorm1d(10, track_running_stats=False), "without running statistics"),
        (nn.AlphaDropout(0.5), r"AlphaDropout is not supported \(2: AlphaDropout\)"),
        (nn.Dropout(1.0), r"dropout p must lie in \[0, 1\), got 1.0 \(2: Dropout\)"),
        (nn.RReLU(), r"RReLU is not supported \(2: RReLU\): no key for its draws"),
        (nn.FractionalMaxPool2d(2, 1), r"FractionalMaxPool2d is not supported \(2: Frac"),
    ],
    ids=["momentum", "memory", "alpha", "all", "rrelu", "pool"],
)
def test_refused_by_name(data, clients, part, words):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), part)
    with pytest.raises(ValueError, match=words):
        federation(data, clients, module)


def test_what_nobody_could_key_or_mix_is_refused(data, clients):
    with pytest.raises(ValueError, match="buffer calls changes in forward, but it holds"):
        federation(data, clients, Counter())
    with pytest.raises(ValueError, match="Unkeyed draws random numbers in forward"):
        federation(data, clients, Unkeyed())
    module = Recurrent(LSTMOfMyOwn)
    module.recurrent.dropout = 0.5
    with pytest.raises(ValueError, match=r"inside a layer is not supported \(recurrent: LSTMOf"):
        federation(data, clients, module)
    module = Recurrent()
    module.recurrent.dropout = 1.0
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1.0 \(recurrent"):
        federation(data, clients, module)


class LSTMOfMyOwn(nn.LSTM):
    """It could do anything with its dropout."""


# ---- dropout


def test_dropout_is_keyed_and_off_in_tests(data, clients):
    module = made("dropout")
    fed = federation(data, clients, module)
    w, who = fed.initial(), fed.everyone
    first = train(fed, w, who)
    assert torch.equal(first, train(fed, w, who))
    still = copy.deepcopy(module)
    still.drop = nn.Dropout(0)
    assert not torch.allclose(first, train(federation(data, clients, still), w, who))
    x = data.normalized(data.x[:5], torch.float64)
    torch.testing.assert_close(fed.network.logits(w[0], x), module.double().eval()(x))
    some = torch.tensor([2, 0])
    torch.testing.assert_close(train(fed, w[some], some), first[some], rtol=0, atol=1e-12)
    assert any(isinstance(part, KeyedDropout) for part in fed.network.module.modules())
    assert type(fed.network.filled(w[0]).drop) is nn.Dropout


def test_whole_channels_are_dropped(data, clients):
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(4 * 36, 10)
    )
    answers = [
        train(fed, fed.initial(), fed.everyone)
        for fed in (federation(data, clients, module, engine) for engine in ENGINES)
    ]
    for other in answers[1:]:
        torch.testing.assert_close(other, answers[0], rtol=0, atol=1e-10)


class Layered(nn.Module):
    """A network that drops inside: between recurrent layers, or in attention and around it."""

    head = ("output.",)

    def __init__(self, inside):
        super().__init__()
        self.inside = inside
        self.output = nn.Linear(10 if getattr(inside, "bidirectional", False) else 8, 10)

    def features(self, x):
        x = self.inside(x.squeeze(1))
        return (x[0] if isinstance(x, tuple) else x)[:, -1]

    def forward(self, x):
        return self.output(self.features(x))


INSIDE = {
    "LSTM": lambda: nn.LSTM(8, 5, 3, dropout=0.5, batch_first=True, bidirectional=True),
    "GRU": lambda: nn.GRU(8, 8, 2, dropout=0.5, batch_first=True),
    "RNN": lambda: nn.RNN(8, 8, 2, dropout=0.5, batch_first=True, bias=False),
    "LSTM that projects": lambda: nn.LSTM(8, 9, 2, dropout=0.5, batch_first=True, proj_size=8),
    "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),  # drops 0.1
}


@pytest.mark.parametrize("kind", INSIDE)
def test_dropout_inside_a_layer_is_keyed_and_off_in_tests(data, clients, kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = Layered(INSIDE[kind]())
    trained = []
    for engine in ("loop", "threads", "auto"):
        fed = federation(data, clients, module, engine)
        w, some = fed.initial(), torch.tensor([2, 0])
        trained.append(train(fed, w, fed.everyone))
        close = lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=1e-10)  # noqa: E731
        close(trained[-1], trained[0])
        close(train(fed, w[some], some), trained[0][some])
    still = copy.deepcopy(module)
    for part in still.modules():
        if isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    assert not torch.allclose(
        train(federation(data, clients, still), w, fed.everyone), trained[0], atol=1e-4
    )
    x = data.normalized(data.x[:5], torch.float64)
    close(fed.network.logits(w[0], x), module.double().eval()(x))
    back = fed.network.filled(w[0])
    for one, other in zip(back.modules(), module.modules(), strict=True):
        assert type(one) is type(other)
        if isinstance(getattr(other, "dropout", None), float):
            assert one.dropout == other.dropout > 0
    history = pfl_lib.run(pfl_lib.algorithm("fedrod"), fed, 2, progress=False)
    assert torch.isfinite(history.state.x).all()


class Counted:
    """Uniform numbers that were drawn before, and how often one was asked for them."""

    def __init__(self, *numbers):
        self.numbers, self.calls = numbers, 0

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, call):
        self.calls += 1
        return self.numbers[call]


def test_known_answer_of_a_dropout_between_recurrent_layers():
    """Two torch networks of one layer each, with the mask put between them by hand."""
    torch.manual_seed(1)
    whole = nn.LSTM(3, 4, 2, dropout=0.25, batch_first=True)
    parts = nn.LSTM(3, 4, batch_first=True), nn.LSTM(4, 4, batch_first=True)
    for number, part in enumerate(parts):
        for name, p in part.named_parameters():
            p.data.copy_(getattr(whole, name.replace("_l0", f"_l{number}")))
    x, uniform = torch.randn(2, 5, 3), torch.rand(2, 5, 4)
    first, (h1, c1) = parts[0](x)
    second, (h2, c2) = parts[1](torch.where(uniform >= 0.25, first / 0.75, 0))
    source = Counted(uniform)
    prepared(whole).begin(source)
    out, (h, c) = whole(x)
    torch.testing.assert_close(out, second)
    torch.testing.assert_close((h, c), (torch.cat([h1, h2]), torch.cat([c1, c2])))
    assert source.calls == 1  # nothing is dropped after the last layer


@pytest.mark.parametrize("more", [{}, {"batch_first": True}, {"add_bias_kv": True}], ids=str)
def test_known_answer_of_a_dropout_of_attention(more):
    """softmax(qk'/√d), masked, times v: written out for each head."""
    torch.manual_seed(2)
    layer = nn.MultiheadAttention(6, 2, dropout=0.25, **more)
    layer.in_proj_bias.data.normal_()
    x = torch.randn(4, 5, 6)
    rows = x if "batch_first" in more else x.transpose(0, 1)  # (samples, positions, features)
    sources = rows.shape[1] + ("add_bias_kv" in more)
    uniform = torch.rand(len(rows), 2, rows.shape[1], sources)
    q, k, v = F.linear(rows, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
    if "add_bias_kv" in more:
        k, v = (
            torch.cat([t, b.expand(len(rows), 1, 6)], 1)
            for t, b in ((k, layer.bias_k), (v, layer.bias_v))
        )
    heads = []
    for h in (0, 1):
        of = slice(3 * h, 3 * h + 3)
        weights = (q[..., of] @ k[..., of].mT / 3**0.5).softmax(-1)
        heads.append(torch.where(uniform[:, h] >= 0.25, weights / 0.75, 0) @ v[..., of])
    expected = layer.out_proj(torch.cat(heads, -1))
    prepared(layer).begin((uniform, uniform))
    out, weights = layer(x, x, x)
    torch.testing.assert_close(out, expected if "batch_first" in more else expected.transpose(0, 1))
    assert weights.shape == (len(rows), rows.shape[1], sources)


def test_without_draws_a_keyed_layer_is_torchs_own():
    """Sequences of unequal length, given starts, causal masks, one sample alone."""
    torch.manual_seed(0)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        plain = kind(4, 5, 3, bidirectional=True, dropout=0.5)
        keyed = copy.deepcopy(plain)
        prepared(keyed)
        keyed.rate = 0.0
        plain.dropout = 0.0
        x, h = torch.randn(7, 6, 4), torch.randn(6, 6, 5)
        start = (h, h + 1) if kind is nn.LSTM else h
        lengths = [7, 2, 5, 1, 3, 3]
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        for given in ((x,), (x, start), (packed,), (packed, start), (x[:, 0],)):
            for one, other in zip(plain(*given), keyed(*given)):
                torch.testing.assert_close(one, other)
    for more in ({"kdim": 3, "vdim": 7}, {"bias": False}, {"add_zero_attn": True}):
        plain = nn.MultiheadAttention(6, 2, dropout=0.5, **more)
        keyed = copy.deepcopy(plain)
        prepared(keyed)
        keyed.rate = 0.0
        plain.dropout = 0.0
        q, k, v = (torch.randn(5, 4, w) for w in (6, more.get("kdim", 6), more.get("vdim", 6)))
        causal = nn.Transformer.generate_square_subsequent_mask(5)
        for options in ({}, {"attn_mask": causal}, {"average_attn_weights": False}):
            for one, other in zip(plain(q, k, v, **options), keyed(q, k, v, **options)):
                torch.testing.assert_close(one, other)
        one, other = (part(q[:, 0], k[:, 0], v[:, 0]) for part in (plain, keyed))
        torch.testing.assert_close(one, other)
        assert keyed(q, k, v, need_weights=False)[1] is None


def test_parts_that_are_in_evaluation_mode_stay_so(data, clients):
    """As where someone calls eval() on a pretrained network, and train() on its new head."""
    module = FromElsewhere().eval()
    assert int(federation(data, clients, module).buffer_mask.sum()) == 8  # eval() as a whole
    module.fc.train()
    fed = federation(data, clients, module)
    assert fed.d == 4 * 9 + 2 * 4 + 50 and not fed.buffer_mask.any()


# ---- what cannot be stacked


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Recurrent(nn.LSTM), "cannot stack it"),
        (lambda: Recurrent(nn.GRU), "cannot stack it"),
        (BatchNormCNN, "must not see the padding"),
    ],
    ids=["LSTM", "GRU", "batch normalization"],
)
def test_what_cannot_be_stacked_runs_on_threads(data, clients, make, why):
    fed = federation(data, clients, make())
    assert "engine 'threads' (chosen)" in fed.plan()
    assert why in fed.plan() or make is BatchNormCNN
    with pytest.raises(ValueError, match=f"engine must be 'auto'.*got 'stacked': .*{why}"):
        federation(data, clients, make(), "stacked")


class Reads(nn.Module):
    """Looks at a value in forward, which torch cannot do for a stack."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, x):
        return self.output(x.flatten(1)) * (1 if x.sum().item() > 0 else 2)


def test_the_reason_why_a_model_cannot_be_stacked_is_a_whole_sentence(data, clients):
    plan = federation(data, clients, Reads()).plan()
    assert "torch cannot stack it (vmap): It looks like" in plan
    assert plan.endswith("encountering this error in PyTorch internals")  # its first full stop


def test_attention_runs(data, clients):
    plain, fed = (federation(data, clients, Attentive(), engine) for engine in ("loop", "auto"))
    w = plain.initial()
    trained = train(plain, w, plain.everyone)
    torch.testing.assert_close(train(fed, w, fed.everyone), trained, rtol=0, atol=1e-10)
    torch.testing.assert_close(fed.evaluate(trained)[1], plain.evaluate(trained)[1])


class Centred(nn.Module):
    """Samples of a batch change each other, and no layer says so."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, x):
        x = x.flatten(1)
        return self.output(x - x.mean(0) if self.training else x)


def test_samples_that_change_each_other_are_never_padded(data, clients):
    fed = federation(data, clients, Centred())
    assert "the samples of a batch change each other" in fed.plan()
    plain = federation(data, clients, Centred(), "loop")
    w = plain.initial()
    torch.testing.assert_close(
        train(fed, w, fed.everyone), train(plain, w, plain.everyone), rtol=0, atol=1e-10
    )


# ---- features in training


class DropoutBeforeTheHead(DropoutMLP):
    """Its forward drops something between the features and the head."""

    def features(self, x):
        return F.relu(self.hidden(self.drop(x.flatten(1))))

    def forward(self, x):
        return self.output(self.drop(self.features(x)))


class AnotherWay(DropoutMLP):
    """Its forward does not call ``features``."""

    def forward(self, x):
        return self.output(self.drop(F.relu(self.hidden(self.drop(x.flatten(1))))))


IDLE = [("fedrod", {"gamma": 0.0}), ("feddbe", {"kappa": 0.0, "memory": False})]
IDLE += [("fedphp", {"lam": 0.0, "transfer": t}) for t in ("features", "predictions")]


@pytest.mark.parametrize("make", [BatchNormCNN, DropoutMLP, DropoutBeforeTheHead, AnotherWay])
def test_a_method_whose_own_term_is_off_trains_as_fedavg(data, clients, make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fed = federation(data, clients, make())
    plain = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 3, progress=False).state.x
    assert (plain - fed.initial()[0]).norm() > 0.1
    for name, off in IDLE:
        x = pfl_lib.run(pfl_lib.algorithm(name, **off), fed, 3, progress=False).state.x
        torch.testing.assert_close(x, plain, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize(
    "name", ["fedrod", "feddbe", "fedpac", "fedproto", "fedphp", "fedas", "fedbabu"]
)
def test_dropout_acts_in_every_method_with_features(data, clients, name):
    ends = []
    for p in (0.0, 0.6):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            fed = federation(data, clients, DropoutMLP(p))
        method = pfl_lib.algorithm(name)
        ends.append(method.personal(pfl_lib.run(method, fed, 2, progress=False).state, fed))
    assert (ends[0] - ends[1]).norm() > 1e-2


@pytest.mark.parametrize("make", [DropoutMLP, DropoutBeforeTheHead, AnotherWay, BatchNormCNN])
def test_features_and_logits_are_those_of_the_training_pass(data, clients, make):
    fed, w = federation(data, clients, make()), None
    x = fed.data.normalized(fed.data.x[:6], torch.float64)
    key = dropout_keys(Work({"w": fed.initial()}), fed.settings, 0, 0, 0)[0]
    batch = Batch(x, fed.data.y[:6], torch.ones(6, dtype=torch.float64), x[:0], key)
    w = fed.initial()[0]
    features, logits = fed.network.features_and_logits(w, batch)
    assert torch.equal(logits, fed.network.in_training(w, batch))
    assert not torch.allclose(features, fed.network.features(w, x))  # in evaluation mode
    assert "features" not in vars(fed.network.module)
    if make is not DropoutBeforeTheHead:
        first, classes, width = fed.linear_head
        matrix, bias = w[first : first + classes * (width + 1)].split([classes * width, classes])
        torch.testing.assert_close(features @ matrix.view(classes, width).T + bias, logits)


class Gated(Recurrent):
    """Its way through ``features`` depends on the numbers, which torch cannot stack."""

    def features(self, x):
        return super().features(x) if bool(x.sum() > -1e9) else x[:, 0, :5]


@pytest.mark.parametrize("make", [Recurrent, Gated, lambda: Recurrent(nn.GRU)])
def test_fisher_traces_where_samples_cannot_be_stacked(data, clients, make):
    fed = federation(data, clients, make())
    w = fed.initial()[:1]
    work = Work(
        {"w": w, "trace": w.new_zeros(1)}, "fisher trace", numbers={"batches": False},
        epochs=1, optimizer="sgd", tag="fisher",
    )  # fmt: skip
    found = fed.perform(work, torch.tensor([0]))["trace"].item()
    module, total = fed.network.filled(w[0]), 0.0
    for index in clients.train[0]:
        x = fed.data.normalized(fed.data.x[index][None], torch.float64)
        loss = F.cross_entropy(module.eval()(x), fed.data.y[index][None])
        total += sum(g.square().sum() for g in torch.autograd.grad(loss, [*module.parameters()]))
    assert found == pytest.approx(float(total), rel=1e-9)


# ---- every method


@pytest.mark.parametrize("kind", KINDS)
def test_engines_agree_for_every_method(kind):
    feds = [what_works_federation(kind, engine=e, dtype=torch.float64) for e in ("loop", "auto")]
    for name, method in pfl_lib.methods.BY_NAME.items():
        one, other = (
            pfl_lib.run(method(**method.needs), fed, 2, progress=False).state for fed in feds
        )
        for key in one:
            torch.testing.assert_close(
                one[key], other[key], rtol=1e-8, atol=1e-8, equal_nan=True, msg=f"{name}: {key}"
            )


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_trains_it_or_says_why_not(kind):
    reasons = {name: row[kind] for name, row in what_works(kinds=[kind]).items()}
    assert {name: why for name, why in reasons.items() if why} == {}
