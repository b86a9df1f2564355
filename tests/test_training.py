"""The engine: three ways to train, one answer; and each part of the work really acts."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

import pfl_lib
from pfl_lib import Federation, Prox, Work, local_step, partition, train
from pfl_lib.data.dataset import Dataset
from pfl_lib.flower.federation import in_process
from pfl_lib.local import engines
from pfl_lib.local.batches import batch_table
from pfl_lib.work import STEPS, Batch


@pytest.fixture(scope="module")
def unequal(data):
    """Seven clients with 3 to 90 samples."""
    order = torch.randperm(data.n_train, generator=torch.Generator().manual_seed(0))
    train = order[: 3 + 10 + 17 + 32 + 33 + 64 + 90].split([3, 10, 17, 32, 33, 64, 90])
    test = tuple(data.n_train + torch.arange(5 * i, 5 * i + 5) for i in range(7))
    return partition.Partition("unequal", train, test)


def federation(data, clients, engine, model="mlp", dtype=torch.float64, **options):
    options = {"lr": 0.05, "batch_size": 16, "epochs": 2, **options}
    return Federation(data, clients, model, engine=engine, dtype=dtype, device="cpu", **options)


def everything(fed, who):
    """Training with a penalty, a correction and a mask, each different for each client."""
    w = fed.initial()[who]
    draw = torch.Generator().manual_seed(1)
    center = w + 0.1 * torch.randn(w.shape, generator=draw, dtype=fed.dtype)
    correction = 0.01 * torch.randn(w.shape, generator=draw, dtype=fed.dtype)
    strength = torch.linspace(0.1, 1, len(who), dtype=fed.dtype)
    mask = torch.rand(fed.d, generator=draw) < 0.8
    return train(fed, w, who, prox=Prox(center, strength), correction=correction, mask=mask)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("who", [[0, 1, 2, 3, 4, 5, 6], [6, 0, 3], [2]], ids=str)
def test_three_engines_give_one_answer(data, unequal, optimizer, who):
    who = torch.tensor(who)
    done = {
        engine: everything(federation(data, unequal, engine, optimizer=optimizer), who)
        for engine in ("loop", "stacked", "threads")
    }
    torch.testing.assert_close(done["stacked"], done["loop"], rtol=0, atol=1e-10)
    torch.testing.assert_close(done["threads"], done["loop"], rtol=0, atol=1e-10)


def words():
    """Sixty sentences of up to eight words out of twenty."""
    draw = torch.Generator().manual_seed(2)
    x = torch.randint(0, 20, (60, 8), generator=draw)
    y = torch.randint(0, 3, (60,), generator=draw)
    return Dataset("words", x, y, 40, ("a", "b", "c"), kind="text", vocabulary=20)


def waves():
    """Sixty windows of three channels over ten moments."""
    draw = torch.Generator().manual_seed(3)
    x, y = torch.randn(60, 3, 10, generator=draw), torch.randint(0, 3, (60,), generator=draw)
    scale = {"mean": (0.0, 0.1, 0.2), "std": (1.0, 0.9, 0.8)}
    return Dataset("waves", x, y, 40, ("a", "b", "c"), kind="series", **scale)


def build(model, data):
    # a ResNet so wide that no group of its normalisation holds a single value, which would come
    # out as 0 give or take a rounding, and fall on either side of the ReLU
    options = {"resnet18": {"width": 16}, "fasttext": {"dim": 4}}.get(model, {})
    return pfl_lib.models.build(model, data, seed=0, **options)


@pytest.mark.parametrize("model", pfl_lib.models.names())
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_every_model_in_every_engine_and_chunk(data, model, optimizer):
    data = {"fasttext": words, "cnn1d": waves}.get(model, lambda: data)()
    order = torch.arange(17)
    clients = partition.Partition(
        "small",
        (order[:6], order[6:9], order[9:]),
        (20 + order[:9], 20 + order[9:11], 20 + order[11:]),
    )
    module = build(model, data)
    answers = []
    for engine, chunk in [("loop", None), ("threads", None), *[("stacked", c) for c in (1, 2)]]:
        fed = federation(
            data, clients, engine, module, optimizer=optimizer, batch_size=4, chunk=chunk
        )
        w = everything(fed, fed.everyone)
        answers.append((w, *fed.evaluate(w), *fed.evaluate(w, split="train")))
    for other in answers[1:]:
        for ours, theirs in zip(other, answers[0]):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "bias": False},
        {"padding": "same", "dilation": 2, "groups": 3},
        {"padding": 1, "padding_mode": "circular"},
    ],
)
def test_convolutions_over_time(options):
    """On threads torch's kernels for images do them; the loop has torch's own for series."""
    torch.manual_seed(0)
    parts = [nn.Conv1d(3, 6, 3, **options), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    module, data = nn.Sequential(*parts, nn.Linear(6, 3)), waves()
    clients = partition.Partition(
        "two", (torch.arange(9), torch.arange(9, 14)), (torch.arange(20, 29),) * 2
    )
    fed = federation(data, clients, "threads", module)
    layer = fed.network.real(fed.device, fed.dtype)[0]
    assert ("_conv_forward" in vars(layer)) == (options.get("padding_mode") != "circular")
    loop = federation(data, clients, "loop", module)
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(*(train(f, f.initial(), f.everyone) for f in (fed, loop)), **close)


def test_results_do_not_depend_on_the_chunk(data, unequal):
    some = torch.tensor([6, 0, 3, 5])
    whole = everything(federation(data, unequal, "stacked", chunk=4), some)
    for chunk in (1, 2, 3, 100):
        parts = everything(federation(data, unequal, "stacked", chunk=chunk), some)
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="chunk must be"):
        federation(data, unequal, "stacked", chunk=0)
    for engine in ("loop", "threads"):
        with pytest.raises(ValueError, match=f"chunk must be None with engine='{engine}'"):
            federation(data, unequal, engine, chunk=2)


@pytest.mark.parametrize("engine", ["stacked", "threads"])
@pytest.mark.parametrize("model", ["mlp", "fedala_cnn"])
def test_evaluation_together_is_evaluation_one_by_one(data, engine, model):
    """Clients with 1 to 300 samples: padding and blocks leave no trace."""
    sizes = [1, 300, 7, 256, 31]
    index = tuple(torch.arange(n) for n in sizes)
    clients = partition.Partition("sizes", index, [own + 400 for own in index])
    chunk = 2 if engine == "stacked" else None
    fed = federation(data, clients, engine, model, dtype=torch.float32, chunk=chunk)
    w = fed.initial() + 0.1 * torch.randn(5, fed.d, generator=torch.Generator().manual_seed(0))
    some = torch.tensor([4, 1, 0])
    plain = federation(data, clients, "loop", model, dtype=torch.float32)
    for split in ("test", "train"):
        for ours, theirs in zip(fed.evaluate(w, split=split), plain.evaluate(w, split=split)):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(fed.evaluate(w[some], some), plain.evaluate(w[some], some)):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
def test_steps_are_counted(data, unequal, engine):
    fed = federation(data, unequal, engine)
    rows = {"w": fed.initial(), "steps": torch.ones(fed.m, dtype=fed.dtype)}
    done = fed.perform(Work(rows, repeats=2), fed.everyone)
    assert done["steps"].tolist() == [1 + 2 * 2 * -(-len(i) // 16) for i in unequal.train]


def test_a_round_touches_only_those_who_take_part(data):
    """500 clients, 50 of them take part: nobody else's samples or models are read or trained."""
    index = tuple(torch.tensor([i, i + 500]) for i in range(500))
    test = [own[:1] + 1000 for own in index]
    fed = federation(data, partition.Partition("many", index, test), "stacked")
    who = torch.arange(0, 500, 10)
    seen, rows = set(), []
    samples, settings = fed._train_samples, fed.settings

    def watched(asked):
        seen.update(asked.flatten().tolist())
        rows.append(len(asked))
        return samples.inputs(asked)

    fed._train_samples = replace(samples, inputs=watched)
    w = train(fed, fed.initial()[who], who)
    assert w.shape == (50, fed.d)
    assert seen == {int(j) for i in who for j in index[i]}
    assert sum(rows) == 50 * settings.epochs  # one batch per client and epoch


def test_torchs_threads_are_left_as_they_were(data, unequal):
    before = torch.get_num_threads()
    for engine in ("stacked", "threads"):
        fed = federation(data, unequal, engine)
        fed.evaluate(train(fed, fed.initial(), fed.everyone))
    assert torch.get_num_threads() == before


def test_the_plan_says_what_will_happen(data, unequal):
    assert "engine 'stacked' (chosen) on cpu" in federation(data, unequal, "auto").plan()
    assert "2 of 7 clients at once" in federation(data, unequal, "stacked", chunk=2).plan()
    assert "engine 'threads' (chosen)" in federation(data, unequal, "auto", "fedala_cnn").plan()
    assert "readable reference" in federation(data, unequal, "loop").plan()


def test_little_memory_means_small_chunks(data, unequal, monkeypatch):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    fed = federation(data, unequal, "stacked", module)
    assert "7 of 7 clients at once" in fed.plan()
    monkeypatch.setattr("pfl_lib.local.federation.free_memory", lambda device: 80 * fed.d * 8)
    assert "4 of 7 clients at once" in fed.plan()
    monkeypatch.setattr("pfl_lib.local.federation.free_memory", lambda device: 0)
    assert "1 of 7 clients at once" in fed.plan()


def test_a_chunk_has_room_for_adams_memory():
    """Models and what Adam remembers of them are kept in the processor's cache together."""
    data = pfl_lib.data.load("mnist5k")
    clients = partition.iid(data, clients=100)
    sgd, adam = (
        pfl_lib.Federation(data, clients, "mlp", optimizer=kind, device="cpu")
        for kind in ("sgd", "adam")
    )
    with threads(1):
        assert "13 of 100 clients at once" in sgd.plan()
        assert "6 of 100 clients at once" in adam.plan()
    rows = {"w": torch.empty(100, adam.d)}
    assert adam._chunk(100, Work(rows=rows, optimizer="sgd")) == sgd._chunk(100)


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_few_cores_take_shards_of_their_own():
    """Two threads that share an operator wait for each other; two shards do not.  A small stack
    is not worth two threads, and many cores share the operators again."""
    data = pfl_lib.data.load("mnist5k")
    fed = pfl_lib.Federation(data, partition.iid(data, clients=100), "logistic_regression", lr=0.1)
    who = fed.everyone
    with threads(2):
        assert fed._chunk(100) == (50, 2) and "on each of 2 threads" in fed.plan()
        assert fed._chunk(8) == (8, 2)
        two = pfl_lib.train(fed, fed.initial(), who)
    with threads(8):
        assert fed._chunk(100) == (100, 1)
    with threads(1):
        assert fed._chunk(100) == (100, 1)
        one = pfl_lib.train(fed, fed.initial(), who)
    assert torch.allclose(one, two, atol=1e-6)


MEMORY = """
import os, sys, torch, pfl_lib
from pathlib import Path
from pfl_lib import Federation, partition, train


def memory(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def peak(model, m, engine, bound):
    torch.set_num_threads(2)
    data = pfl_lib.data.load("mnist5k")
    index = tuple(torch.arange(4 * i, 4 * i + 4) for i in range(m))
    test = [own + 2000 for own in index]
    fed = Federation(data, partition.Partition("m", index, test), model, optimizer="adam",
                     batch_size=2, engine=engine, device="cpu")
    few = fed.everyone[:2]
    train(fed, torch.stack([fed._initial] * 2), few)  # torch's own libraries and buffers, once
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = memory("VmRSS")
    w = fed.initial()
    train(fed, w, fed.everyone)
    stack = fed.m * fed.d * 4
    used = memory('VmHWM') - before
    assert used > 1.5 * stack, "the measurement sees at least start and result"
    assert used <= bound * stack + fed.m * fed._activations, f"{used / stack:.2f} stacks"


for case in sys.argv[1:]:  # each in a process of its own, which has imported everything
    model, m, engine = case.split()
    child = os.fork()
    if child == 0:
        try:
            peak(model, int(m), engine, 6)
            os._exit(0)
        except BaseException as error:
            print(case, repr(error), flush=True)
            os._exit(1)
    os.waitpid(child, 0)
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in Linux's way")
def test_peak_memory():
    """With Adam: at most six stacks of models, and the activations."""
    cases = ["mlp 300 stacked", "fedala_cnn 60 threads", "fedala_cnn 40 stacked"]
    command = [sys.executable, "-c", MEMORY, *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n") == ["done", ""], done.stdout + done.stderr


def test_twenty_resnets_fit_into_eight_gigabytes(monkeypatch):
    """In chunks: what a chunk needs by the rule above is less than what is free."""
    data = pfl_lib.data.load("digits")
    index = tuple(torch.arange(4 * i, 4 * i + 4) for i in range(20))
    monkeypatch.setattr("pfl_lib.local.federation.free_memory", lambda device: 8 * 2**30)
    clients = partition.Partition("twenty", index, [own + 400 for own in index])
    fed = federation(data, clients, "stacked", "resnet18", dtype=torch.float32, optimizer="adam")
    chunk, _ = fed._chunk(20, Work(rows={"w": torch.empty(20, fed.d)}))
    a_model = 4 * fed.d
    assert 20 * 2 * a_model + chunk * (4 * a_model + fed._activations) < 8 * 2**30
    assert chunk >= 5  # and no smaller than need be


@pytest.mark.parametrize("model", ["logistic_regression", "mlp", "fedala_cnn"])
def test_engines_agree_in_single_precision(model):
    data = pfl_lib.data.load("mnist5k")
    clients = partition.scarce(partition.iid(data, 3), 12)
    done = []
    for engine in ("loop", "stacked", "threads"):
        fed = federation(data, clients, engine, model, dtype=torch.float32, epochs=1)
        done.append(train(fed, fed.initial(), fed.everyone))
    torch.testing.assert_close(done[1], done[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(done[2], done[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_local_training_is_torchs_own(data, unequal, engine, optimizer):
    """One client, whole-batch training, against nn.Module, autograd and torch.optim."""
    fed = federation(data, unequal, engine, optimizer=optimizer, batch_size=100, epochs=5)
    client = torch.tensor([4])
    trained = train(fed, fed.initial()[client], client)

    module = pfl_lib.models.build("mlp", data).double()
    torch.nn.utils.vector_to_parameters(fed.initial()[4], module.parameters())
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    optimiser = kind(module.parameters(), lr=0.05)
    x = data.normalized(data.x[unequal.train[4]], torch.float64)
    for _ in range(5):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), data.y[unequal.train[4]]).backward()
        optimiser.step()
    expected = torch.nn.utils.parameters_to_vector(module.parameters())
    torch.testing.assert_close(trained[0], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_prox_moves_the_result_towards_its_centre(data, unequal, engine):
    fed = federation(data, unequal, engine)
    w, who = fed.initial(), fed.everyone
    plain = train(fed, w, who)
    near = train(fed, w, who, prox=Prox(w + 1, 2.0))
    nearer = train(fed, w, who, prox=Prox(w + 1, 8.0))
    gap = lambda a: (a - (w + 1)).norm(dim=1)  # noqa: E731
    assert (gap(near) < gap(plain)).all() and (gap(nearer) < gap(near)).all()


def test_mask_freezes_and_correction_shifts(data, unequal):
    fed = federation(data, unequal, "stacked")
    w, who = fed.initial(), fed.everyone
    masked = train(fed, w, who, mask=fed.head_mask)
    assert torch.equal(masked[:, ~fed.head_mask], w[:, ~fed.head_mask])
    assert not torch.equal(masked[:, fed.head_mask], w[:, fed.head_mask])
    one_step = {"steps": 1, "epochs": None}
    shift = train(fed, w, who, correction=torch.ones_like(w), **one_step)
    torch.testing.assert_close(shift, train(fed, w, who, **one_step) - fed.settings.lr)


def test_a_client_does_not_notice_the_others(data, unequal):
    """Another order, or fewer clients, changes nothing for those that train."""
    for engine in ("loop", "stacked"):
        fed = federation(data, unequal, engine)
        w = fed.initial()
        whole = train(fed, w, fed.everyone)
        backwards = train(fed, w.flip(0), fed.everyone.flip(0)).flip(0)
        some = torch.tensor([5, 2])
        torch.testing.assert_close(backwards, whole, rtol=0, atol=1e-12)
        torch.testing.assert_close(train(fed, w[some], some), whole[some], rtol=0, atol=1e-12)


def test_rounds_seeds_and_tags_draw_other_batches(data, unequal):
    fed = federation(data, unequal, "stacked")
    w, who = fed.initial(), fed.everyone
    first = train(fed, w, who)
    assert torch.equal(first, train(fed, w, who))
    assert not torch.equal(first, train(fed.at(1), w, who))
    assert not torch.equal(first, train(fed, w, who, tag="again"))
    other = federation(data, unequal, "stacked", seed=1, init_seed=0)
    assert torch.equal(other.initial(), w) and not torch.equal(first, train(other, w, who))


def test_unshuffled_samples_come_as_listed_and_the_next_round_goes_on(data, unequal):
    """By hand: 17 samples are batches of 5, 5, 5 and 2; three steps a round."""

    def seen(k, **options):
        fed = federation(data, unequal, "loop", batch_size=5, shuffle=False)
        work = Work(rows={"w": fed.initial()[2:3]}, **options)
        (table,) = batch_table(work, fed.settings, [17], [2], k)
        return [[i for i in row if i >= 0] for row in table.tolist()]

    batches = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16]]
    assert seen(0, steps=3) == batches[:3]
    assert seen(1, steps=3) == [batches[3], *batches[:2]]
    assert seen(2, steps=3) == [*batches[2:], batches[0]]
    assert seen(0) == seen(5) == 2 * batches  # whole epochs
    part = [i for row in seen(0, share=0.5, epochs=1) for i in row]
    assert len(part) == 8 and part == sorted(set(part))


def test_unshuffled_training_agrees_between_engines_and_is_recorded(data, unequal):
    feds = {
        engine: federation(data, unequal, engine, shuffle=False).at(3)
        for engine in ("loop", "stacked", "threads")
    }
    done = {engine: everything(fed, fed.everyone) for engine, fed in feds.items()}
    torch.testing.assert_close(done["stacked"], done["loop"], rtol=0, atol=1e-10)
    torch.testing.assert_close(done["threads"], done["loop"], rtol=0, atol=1e-10)
    usual = federation(data, unequal, "loop").at(3)
    assert not torch.equal(done["loop"], everything(usual, usual.everyone))
    assert feds["loop"].describe() == {**usual.describe(), "shuffle": False}
    assert "shuffle" not in usual.describe()  # runs of earlier versions can be resumed
    remote = in_process(feds["loop"]).clients[1]
    mine = train(remote.at(3), remote.initial()[:1], torch.tensor([1]))
    plain = train(feds["loop"], feds["loop"].initial()[1:2], torch.tensor([1]))
    torch.testing.assert_close(mine, plain, rtol=0, atol=1e-12)


def test_every_sample_once_an_epoch(data, unequal):
    """The batches of an epoch are the client's data, each sample once."""

    @local_step("count samples")
    def count(s, batch, client):
        pixels = (batch.x.flatten(1).sum(1) * batch.weight).sum()
        return {"seen": s["seen"] + batch.weight.sum(), "pixels": s["pixels"] + pixels}

    for engine in ("loop", "stacked"):
        fed = federation(data, unequal, engine)
        zero = torch.zeros(fed.m, dtype=fed.dtype)
        work = Work(
            rows={"w": fed.initial(), "seen": zero, "pixels": zero},
            step="count samples",
            epochs=3,
        )
        done = fed.perform(work, fed.everyone)
        assert done["seen"].tolist() == [3.0 * len(i) for i in unequal.train]
        total = [data.normalized(data.x[i], fed.dtype).sum() for i in unequal.train]
        torch.testing.assert_close(done["pixels"], 3 * torch.stack(total))


def test_steps_share_repeats_group_and_noise(data, unequal):
    @local_step("look")
    def look(s, batch, client):
        batches = [batch] if isinstance(batch, Batch) else batch
        seen = sum(b.weight.sum() for b in batches)
        return {"calls": s["calls"] + 1, "seen": s["seen"] + seen, "noise": batches[0].noise}

    def asked(engine, **options):
        fed = federation(data, unequal, engine)
        zero = torch.zeros(fed.m, dtype=fed.dtype)
        noise = torch.zeros(fed.m, options.get("noise", 0), dtype=fed.dtype)
        rows = {"w": fed.initial(), "calls": zero, "seen": zero, "noise": noise}
        return fed.perform(Work(rows=rows, step="look", **options), fed.everyone)

    for engine in ("loop", "stacked"):
        assert asked(engine, steps=4)["calls"].tolist() == [4.0] * 7
        twice = asked(engine, epochs=1, repeats=2)
        assert twice["calls"].tolist() == [2, 2, 4, 4, 6, 8, 12]
        half = asked(engine, epochs=1, share=0.5)
        assert half["seen"].tolist() == [2, 5, 8, 16, 16, 32, 45]
        pairs = asked(engine, epochs=1, group=2)
        assert pairs["calls"].tolist() == [1, 1, 1, 1, 2, 2, 3]
    noise = [asked(engine, epochs=1, noise=5)["noise"] for engine in ("loop", "stacked")]
    torch.testing.assert_close(noise[0], noise[1])
    assert noise[0].min() > 0 and noise[0].max() < 1 and len(noise[0].unique()) == 35


def test_bad_work_is_refused(data, unequal):
    fed = federation(data, unequal, "stacked")
    w = fed.initial()
    with pytest.raises(ValueError, match=r"step must be one of .*'decsend'.*'descend'"):
        Work(rows={"w": w}, step="decsend")
    with pytest.raises(ValueError, match="rows must hold"):
        Work(rows={"v": w})
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\], got 0"):
        Work(rows={"w": w}, share=0)
    with pytest.raises(ValueError, match="different client numbers from 0 to 6"):
        train(fed, w[:2], torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="different client numbers from 0 to 6"):
        train(fed, w[:1], torch.tensor([7]))
    with pytest.raises(ValueError, match="one row for each of the 2 clients"):
        train(fed, w, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="models must have"):
        train(fed, w[:, :5], fed.everyone)


def test_dropout_of_nothing_is_taken(data, unequal):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout(0))
    assert Federation(data, unequal, module).d == 650


class Tanh(pfl_lib.models.MLP):
    """It inherits the word that says "ReLU between linear layers", and computes something else."""

    def features(self, x):
        x = x.flatten(1)
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return x


def test_a_subclass_that_computes_something_else_is_trained_as_what_it_is(data, unequal):
    module = Tanh(64, 10, (8,))
    plain, stacked = (federation(data, unequal, e, module) for e in ("loop", "stacked"))
    w = train(plain, plain.initial(), plain.everyone)
    torch.testing.assert_close(train(stacked, stacked.initial(), stacked.everyone), w)
    torch.testing.assert_close(stacked.evaluate(w)[1], plain.evaluate(w)[1])


class Idle(nn.Module):
    """A part of it is never used."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(64, 10), nn.Linear(3, 3)

    def forward(self, x):
        return self.used(x.flatten(1))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_parameters_that_the_loss_does_not_use_stay(data, unequal, optimizer):
    module = Idle()
    feds = [
        federation(data, unequal, engine, module, optimizer=optimizer)
        for engine in ("loop", "stacked", "threads")
    ]
    done = [train(fed, fed.initial(), fed.everyone) for fed in feds]
    torch.testing.assert_close(done[1], done[0])
    torch.testing.assert_close(done[2], done[0])
    assert torch.equal(done[2][:, 650:], feds[0].initial()[:, 650:])


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
def test_rows_that_descending_does_not_know_come_back_as_they_were(data, unequal, engine):
    fed = federation(data, unequal, engine)
    note = torch.arange(7.0)
    done = fed.perform(Work(rows={"w": fed.initial(), "note": note}), fed.everyone)
    assert torch.equal(done["note"], note)
    torch.testing.assert_close(done["w"], train(fed, fed.initial(), fed.everyone))


def test_a_mask_may_be_each_clients_own(data, unequal):
    done = []
    for engine in ("loop", "stacked", "threads"):
        fed = federation(data, unequal, engine)
        w, free = fed.initial(), torch.rand(7, fed.d, generator=torch.Generator().manual_seed(3))
        rows = {"w": w, "mask": (free < 0.5).to(fed.dtype)}
        done.append(fed.perform(Work(rows=rows), fed.everyone)["w"])
        assert torch.equal(done[-1] != w, (rows["mask"] == 1) & (done[-1] != w))
    assert (done[0] != w).any()
    torch.testing.assert_close(done[1], done[0])
    torch.testing.assert_close(done[2], done[0])


class Parts(nn.Module):
    """A body and a head that goes by several names."""

    def __init__(self, head):
        super().__init__()
        self.conv, self.fc = nn.Linear(64, 16), nn.Linear(16, 10)
        if head == "module":
            self.head, self.fc = self.fc, nn.Identity()
        elif head is not None:
            self.head = head

    def forward(self, x):
        last = self.head if isinstance(getattr(self, "head", None), nn.Module) else self.fc
        return last(self.conv(x.flatten(1)))


@pytest.mark.parametrize(
    ("head", "size"),
    [("module", 170), ("fc.", 170), (("fc.",), 170), (["conv.", "fc."], 1210), (None, 0)],
    ids=str,
)
def test_the_head_may_be_a_part_or_names(data, unequal, head, size):
    assert int(Federation(data, unequal, Parts(head)).head_mask.sum()) == size


def test_two_modules_of_one_class_are_not_taken_for_each_other(data, unequal):
    def described(between):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), between, nn.Linear(8, 10))
        return Federation(data, unequal, module).describe()

    assert described(nn.ReLU()) == described(nn.ReLU())
    assert described(nn.ReLU()) != described(nn.Tanh())
    assert "module" not in Federation(data, unequal, "mlp").describe()


def test_nobody_is_evaluated_as_nobody_is_trained(data, unequal):
    fed = federation(data, unequal, "stacked")
    nobody = torch.tensor([], dtype=torch.long)
    accuracy, loss = fed.evaluate(fed.initial()[:0], nobody)
    assert accuracy.shape == loss.shape == (0,)
    assert train(fed, fed.initial()[:0], nobody).shape == (0, fed.d)


def test_a_partition_that_points_outside_is_told_where(data):
    clients = partition.Partition("mine", (torch.tensor([5, -1]),), (torch.tensor([7]),))
    with pytest.raises(ValueError, match="points at training sample -1, "):
        Federation(data, clients, "mlp")


def test_an_error_in_one_client_ends_all_work_and_leaves_the_threads_usable(data, unequal):
    fed = federation(data, unequal, "threads")
    done = train(fed, fed.initial(), fed.everyone)
    worked = []

    def task(network, job):
        worked.append(job)
        if job == 1:
            raise RuntimeError("client 1 is ill")
        time.sleep(0.02)  # there is work left when it falls ill
        return network

    with pytest.raises(RuntimeError, match="client 1 is ill"):
        engines.on_threads(task, fed.network, list(range(40)), 2)
    count = len(worked)
    assert engines.on_threads(lambda network, job: job, fed.network, [3, 4, 5], 2) == [3, 4, 5]
    assert len(worked) == count  # nobody went on working
    assert torch.equal(train(fed, fed.initial(), fed.everyone), done)


def test_two_threads_never_share_a_network(data, unequal):
    fed = federation(data, unequal, "threads")
    both = threading.Barrier(2)

    def task(network, job):
        both.wait(timeout=60)  # both jobs have one at the same time
        return network

    first, second = engines.on_threads(task, fed.network, [0, 1], 2)
    assert first is not second and fed.network not in (first, second)
    again = engines.on_threads(task, fed.network, [0, 1], 2)
    assert {id(n) for n in again} == {id(first), id(second)}  # and the copies are used again


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("before", [False, True])
def test_tiny_numbers_count_as_zero_while_clients_train_and_only_then(
    data, unequal, workers, before
):
    """They are right, but slow, and a model that fits its data perfectly is full of them."""
    network = federation(data, unequal, "threads").network
    tiny = torch.tensor(1e-39)
    torch.set_flush_denormal(before)
    try:
        found = engines.on_threads(lambda *_: (tiny * 1).item(), network, [0, 1, 2], workers)
        after = (tiny * 1).item()
    finally:
        torch.set_flush_denormal(False)
    assert found == [0.0, 0.0, 0.0]
    assert (after == 0) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are a matter of Unix")
def test_a_fork_makes_its_own_threads(data, unequal):
    fed = federation(data, unequal, "threads")
    engines.on_threads(lambda network, job: job, fed.network, [0, 1], 2)
    child = os.fork()
    if child == 0:  # a pool whose threads are gone would wait for ever
        signal.alarm(60)
        answers = engines.on_threads(lambda network, job: job, fed.network, [0, 1], 2)
        os._exit(0 if answers == [0, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0


# ---- your own modules ----------------------------------------------------------------------


class Textbook(nn.Module):
    """A small network whose forward has ``view``, as many textbooks write it."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(64, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv(x).relu(), 2)
        return self.out(x.view(x.size(0), -1))


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_forward_with_view_trains_on_every_engine(data, unequal, chunk):
    torch.manual_seed(0)
    module = Textbook()
    done = {}
    for engine in ("loop", "threads", "stacked", "auto"):
        options = {"chunk": chunk} if engine == "stacked" else {}
        fed = federation(data, unequal, engine, module, **options)
        w = train(fed, fed.initial(), fed.everyone)
        done[engine] = (w, *fed.evaluate(w))
    for engine in ("threads", "stacked", "auto"):
        for ours, plain in zip(done[engine], done["loop"]):
            torch.testing.assert_close(ours, plain, rtol=0, atol=1e-10)


def test_a_library_network_lies_channels_last(data, unequal):
    assert federation(data, unequal, "threads", "fedala_cnn").network.channels_last
    assert not federation(data, unequal, "threads", Textbook()).network.channels_last


class Tenth(nn.Linear):
    def forward(self, x):
        return 0.1 * super().forward(x)


CHANGES = {
    "another layer": lambda m: m.hidden.__setitem__(0, Tenth(64, 100)),
    "a layer more": lambda m: m.hidden.__setitem__(0, nn.Sequential(nn.Linear(64, 100), nn.Tanh())),
    "no bias": lambda m: setattr(m, "output", nn.Linear(100, 10, bias=False)),
    "a hook": lambda m: m.hidden[0].register_forward_hook(lambda part, given, out: 0.1 * out),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_mlp_is_trained_as_what_it_is(data, unequal, change):
    torch.manual_seed(0)
    module = pfl_lib.models.mlp(64, 10)
    CHANGES[change](module)
    fed = {engine: federation(data, unequal, engine, module) for engine in ("loop", "stacked")}
    assert fed["stacked"].network.dense is None
    loop, stacked = (train(f, f.initial(), f.everyone) for f in fed.values())
    torch.testing.assert_close(stacked, loop, rtol=0, atol=1e-10)


def test_tied_parameters_are_refused_and_a_layer_used_twice_is_not(data, unequal):
    class Tied(nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.a, self.b, self.out = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
            if tied:
                self.b.weight = self.a.weight
            else:
                self.b = self.a

        def forward(self, x):
            return self.out(self.b(self.a(x.flatten(1)).relu()).relu())

    with pytest.raises(ValueError, match=r"a\.weight and b\.weight are one and the same"):
        federation(data, unequal, "loop", Tied(tied=True))
    torch.manual_seed(0)
    module = Tied(tied=False)
    loop, stacked, threads = (
        train(f, f.initial(), f.everyone)
        for f in (federation(data, unequal, e, module) for e in ("loop", "stacked", "threads"))
    )
    torch.testing.assert_close(stacked, loop, rtol=0, atol=1e-10)
    torch.testing.assert_close(threads, loop, rtol=0, atol=1e-10)


def test_a_module_that_does_not_fit_the_data_is_refused_at_once(data, unequal):
    with pytest.raises(ValueError, match=r"must give 10 numbers .* \(3, 4\) for 3 samples"):
        federation(data, unequal, "loop", nn.Sequential(nn.Flatten(), nn.Linear(64, 4)))
    with pytest.raises(ValueError, match=r"cannot take samples of digits, .* \(3, 1, 8, 8\)"):
        federation(data, unequal, "loop", nn.Sequential(nn.Flatten(), nn.Linear(60, 10)))


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
def test_wrong_rows_are_named_by_every_engine(data, unequal, engine):
    fed = federation(data, unequal, engine)
    w, who = fed.initial(), fed.everyone
    for wrong, options in {
        "center must have the models' shape": {"prox": Prox(w[:, :1], 1.0)},
        "correction must have the models' shape": {"correction": w[:, :1]},
        r"mask must have shape \(7510,\)": {"mask": torch.ones_like(w)},
        "mask must be a tensor or a list": {"mask": "all"},
    }.items():
        with pytest.raises((TypeError, ValueError), match=wrong):
            train(fed, w, who, **options)
    train(fed, w, who, mask=[1] * fed.d)
    for call in (lambda w: train(fed, w, who), lambda w: fed.evaluate(w, who)):
        with pytest.raises(TypeError, match=r"must be torch\.float64 .* got torch\.float32"):
            call(w.float())
    for wrong in ([0.0, 1.0], torch.ones(7, dtype=torch.bool)):
        with pytest.raises(TypeError, match="who must be client numbers"):
            train(fed, w[: len(wrong)], wrong)


def test_a_pull_that_makes_sgd_overshoot_is_said(data, unequal):
    fed = federation(data, unequal, "stacked")  # lr = 0.05
    w, who = fed.initial(), fed.everyone
    with pytest.warns(UserWarning, match="strength 50 .* lr = 0.05 overshoot .* lr <= 0.02"):
        train(fed, w, who, prox=Prox(w, 50.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(fed, w, who, prox=Prox(w, 39.0))
        train(fed, w, who, prox=Prox(w, 50.0), optimizer="adam")


def test_a_taken_step_name_is_refused_and_a_reload_is_not():
    def shrink(s, batch, client):
        return {"w": 0.5 * s["w"]}

    first = local_step("shrink, for a test")(shrink)
    try:
        assert local_step("shrink, for a test")(shrink) is first  # a cell that is run twice
        with pytest.raises(ValueError, match=r"'descend' is already registered by pfl_lib\.work"):
            local_step("descend")(shrink)
    finally:
        del STEPS["shrink, for a test"]


def test_the_former_method_train_still_works_and_warns():
    fed = pfl_lib.example()
    with pytest.warns(DeprecationWarning, match=r"pfl_lib\.train\(fed"):
        former = fed.train(fed.initial(), fed.everyone, steps=1)
    assert torch.equal(former, train(fed, fed.initial(), fed.everyone, steps=1))


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_accuracies_of_bfloat16_models_are_counted_exactly(engine):
    fed = pfl_lib.example(dtype=torch.bfloat16, engine=engine)
    accuracy, _ = fed.evaluate(fed.initial())
    right = accuracy.double() * torch.tensor([len(rows) for rows in fed.partition.test])
    assert torch.allclose(right, right.round(), atol=1e-4)
