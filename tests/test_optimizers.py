"""Momentum, weight decay, Adam and AdamW, clipping, schedules: torch's own, on every engine."""

import copy

import pytest
import torch
from torch.nn import functional as F

import pfl_lib
from pfl_lib import Federation, Prox, Work, algorithm, models, partition, run, train
from pfl_lib.book.what_works import BatchNormCNN
from pfl_lib.flower.federation import RemoteFederation, in_process
from pfl_lib.local.batches import batch_table

OPTIMIZERS = {
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
    "weight decay": {"weight_decay": 0.1},
    "clip": {"clip": 0.3},
    "adam with decay": {"optimizer": "adam", "weight_decay": 0.1, "clip": 1.0},
    "adamw": {"optimizer": "adamw"},
    "adamw, strong": {"optimizer": "adamw", "weight_decay": 0.5},
}


@pytest.fixture(scope="module")
def clients(data):
    order = torch.randperm(data.n_train, generator=torch.Generator().manual_seed(0))
    test = tuple(data.n_train + torch.arange(4 * i, 4 * i + 4) for i in range(3))
    return partition.Partition("unequal", order[:31].split([5, 9, 17]), test)


def federation(data, clients, engine="auto", model=None, **options):
    model = models.build("mlp", data, seed=1, hidden=(7,)) if model is None else model
    options = {"lr": 0.05, "batch_size": 8, "epochs": 3, **options}
    return Federation(
        data, clients, model, engine=engine, dtype=torch.float64, device="cpu", **options
    )


def with_everything(fed, who):
    w, draw = fed.initial()[who], torch.Generator().manual_seed(1)
    noise = torch.randn(w.shape, generator=draw, dtype=fed.dtype)
    mask = torch.rand(fed.d, generator=draw) < 0.8
    prox = Prox(w + 0.1 * noise, torch.linspace(0.1, 1, len(who), dtype=fed.dtype))
    trained = train(fed, w, who, prox=prox, correction=0.01 * noise, mask=mask, repeats=2)
    assert torch.equal(trained[:, ~mask], w[:, ~mask])  # nothing decays behind a mask
    return trained


@pytest.mark.parametrize("who", [[0, 1, 2], [2, 0]], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_engines_give_one_answer(data, clients, name, who):
    who = torch.tensor(who)
    loop, stacked, threads = (
        with_everything(federation(data, clients, engine, **OPTIMIZERS[name]), who)
        for engine in ("loop", "stacked", "threads")
    )
    torch.testing.assert_close(stacked, loop, rtol=0, atol=1e-10)
    torch.testing.assert_close(threads, loop, rtol=0, atol=1e-10)


def by_hand(fed, module, client, options):
    module = copy.deepcopy(module).double()
    options = dict(options)
    clip, name = options.pop("clip", None), options.pop("optimizer", "sgd")
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    optimizer = kind(module.parameters(), lr=fed.settings.lr, **options)
    index = fed.partition.train[client]
    work = Work({"w": fed.initial()[:1]})
    for here in batch_table(work, fed.settings, [len(index)], [client], 0)[0]:
        here = index[here[here >= 0]]
        x = fed.data.normalized(fed.data.x[here], torch.float64)
        optimizer.zero_grad()
        F.cross_entropy(module(x), fed.data.y[here]).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_torchs_own(data, clients, name):
    module = models.build("mlp", data, seed=1, hidden=(7,))
    fed = federation(data, clients, model=module, **OPTIMIZERS[name])
    trained = train(fed, fed.initial(), fed.everyone)
    plain = federation(
        data, clients, model=module, optimizer=OPTIMIZERS[name].get("optimizer", "sgd")[:4]
    )
    for client in range(3):
        expected = by_hand(fed, module, client, OPTIMIZERS[name])
        torch.testing.assert_close(trained[client], expected, rtol=0, atol=1e-10)
    assert not torch.allclose(trained, train(plain, plain.initial(), plain.everyone))


@pytest.mark.parametrize("name", ["nesterov", "adamw, strong"])
def test_statistics_neither_decay_nor_have_momentum(data, clients, name):
    loop, threads = (
        federation(data, clients, engine, BatchNormCNN(), **OPTIMIZERS[name])
        for engine in ("loop", "threads")
    )
    w = loop.initial()
    trained = with_everything_but_mask(loop, w)
    torch.testing.assert_close(with_everything_but_mask(threads, w), trained, rtol=0, atol=1e-10)


def with_everything_but_mask(fed, w):
    return train(fed, w, fed.everyone, prox=Prox(w + 0.1, 0.5))


def test_a_method_that_names_an_optimizer_gets_it_plain(data, clients):
    fed, plain = federation(data, clients, momentum=0.9), federation(data, clients)
    w, who = fed.initial(), fed.everyone
    asked = train(fed, w, who, optimizer="sgd")
    assert torch.equal(asked, train(plain, w, who, optimizer="sgd"))
    with pytest.raises(
        ValueError, match=r"APFL is defined by plain SGD.*'sgd', momentum=0\.9: give"
    ):
        run(algorithm("apfl"), fed, 1, progress=False)
    run(algorithm("apfl", lr=0.05), fed, 1, progress=False)


def test_the_learning_rate_follows_its_schedule(data, clients):
    fed = federation(data, clients, lr=(0.08, 0.5, 2))
    assert [fed.at(k).settings.lr for k in range(5)] == [0.08, 0.08, 0.04, 0.04, 0.02]
    late = federation(data, clients, lr=0.02)
    w = fed.initial()
    here, there = (train(f.at(4), w, fed.everyone) for f in (fed, late))
    assert torch.equal(here, there)
    assert fed.describe()["lr"] == fed.at(3).describe()["lr"] == [0.08, 0.5, 2]


def test_a_cosine_falls_as_torch_has_it_and_then_stays(data, clients):
    fed = federation(data, clients, lr=("cosine", 0.08, 5))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.08)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
    for k in range(5):
        assert fed.at(k).settings.lr == pytest.approx(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert fed.at(9).settings.lr == fed.at(4).settings.lr > 0


def test_a_warmup_rises_to_its_schedule(data, clients):
    fed = federation(data, clients, lr=["warmup", 4, ["power", 0.08, 1.0]])
    rates = [fed.at(k).settings.lr for k in range(6)]
    assert rates == pytest.approx([0.02, 0.02, 0.02, 0.02, 0.016, 0.08 / 6])


def test_a_run_with_a_schedule_resumes(data, clients, tmp_path):
    fed = federation(data, clients, lr=("warmup", 2, ("cosine", 0.08, 4)))
    whole = run(algorithm("fedavg"), fed, 4, progress=False)
    run(algorithm("fedavg"), fed, 2, checkpoint=tmp_path, progress=False)
    resumed = run(algorithm("fedavg"), fed, 4, checkpoint=tmp_path, progress=False)
    assert torch.equal(resumed.state.x, whole.state.x)
    other = federation(data, clients, lr=("warmup", 2, ("cosine", 0.08, 5)))
    with pytest.raises(ValueError, match="lr"):
        run(algorithm("fedavg"), other, 5, checkpoint=tmp_path, progress=False)


def test_only_what_differs_is_recorded(data, clients):
    names = {"momentum", "nesterov", "weight_decay", "clip"}
    assert not names & set(federation(data, clients).describe())
    refined = federation(data, clients, momentum=0.9, clip=2.0).describe()
    assert {n: refined[n] for n in names & set(refined)} == {"momentum": 0.9, "clip": 2.0}


def test_it_travels(data, clients):
    options = {"momentum": 0.9, "clip": 1.0, "lr": (0.08, 0.5, 1)}
    near = federation(data, clients, **options)
    transport = in_process(near)
    model = near.network.filled(near.initial()[0])
    far = RemoteFederation(
        transport, model, clients=3, batch_size=8, epochs=3, dtype=torch.float64, **options
    )
    here, there = (run(algorithm("fedavg"), f, 2, progress=False).state.x for f in (near, far))
    torch.testing.assert_close(here, there, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"momentum": 1.0}, "momentum must"),
        ({"momentum": 0.9, "optimizer": "adam"}, "momentum must be 0 with optimizer='adam'"),
        ({"nesterov": True}, "nesterov must be False where momentum is 0"),
        ({"weight_decay": -1.0}, "weight_decay must"),
        ({"clip": 0}, "clip must"),
        ({"lr": (0.1, 0.5)}, r"lr must be a number, \(first, factor, every\)"),
        ({"lr": (0.1, 0.5, 0)}, "the rounds between steps of lr must"),
        ({"lr": ("cosine", 0.1, 0)}, "the rounds of lr must"),
        ({"lr": ("warmup", 2, -1.0)}, "lr must"),
        ({"lr": ("clients", 0.1, 0.2)}, "lr must be a number, "),
    ],
)
def test_bad_settings_are_refused(data, clients, options, words):
    with pytest.raises(ValueError, match=words):
        pfl_lib.Federation(data, clients, "mlp", **options)
