"""How stacks of dense networks store their matrices: one answer, the faster way, kept by a run."""

import itertools
import time
from types import SimpleNamespace

import pytest
import torch

import pfl_lib
from pfl_lib import Federation, Prox, partition, run, train
from pfl_lib.devices import OnDevices
from pfl_lib.local import layout
from tests.support.runs import FEDAMP, linear_federation, same

WEIGHTS = ["hidden.0.weight", "output.weight"]


def federation(data, transposed=(), **options):
    fed = Federation(data, partition.iid(data, 5), "mlp", lr=0.05, device="cpu", **options)
    fed.network.transposed[:] = transposed
    return fed


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("penalty", [False, True])
def test_every_layout_gives_one_answer(data, optimizer, penalty):
    options = {"dtype": torch.float64, "optimizer": optimizer, "batch_size": 16}

    def trained(fed):
        w = fed.initial()
        prox = Prox(w + 0.1, torch.linspace(0.1, 1, fed.m, dtype=fed.dtype)) if penalty else None
        return train(fed, w, fed.everyone, prox=prox)

    expected = trained(federation(data, engine="loop", **options))
    for some in ([], WEIGHTS[:1], WEIGHTS[1:], WEIGHTS):
        fed = federation(data, some, **options)
        assert [name for name in fed.network.names if "weight" in name] == WEIGHTS
        torch.testing.assert_close(trained(fed), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("factor", "pays"), [(0.5, False), (1.0, False), (1.3, False), (2.0, True)]
)
def test_transposed_only_where_it_is_faster_by_far(monkeypatch, factor, pays):
    """The clock is made so that transposed matrices are ``factor`` times as fast."""
    now = itertools.accumulate(itertools.cycle((1.0, factor, 1.0, 1.0)))
    monkeypatch.setattr(layout, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    layout.transposed_pays.cache_clear()
    try:
        assert layout.transposed_pays(4, 6, 3, True, torch.float32) is pays
        assert layout.transposed_pays(4, 6, 3, True, torch.float32) is pays  # the clock goes on
        assert not layout.transposed_pays(100, 3000, 1000, True, torch.float32)  # not tried
    finally:
        layout.transposed_pays.cache_clear()


def test_a_run_keeps_the_layout_that_it_began_with(data, tmp_path):
    """A process that resumes a run may find another layout faster; the run goes on as it began."""
    fed = linear_federation(data)
    fed.network.transposed[:] = ["output.weight"]
    assert "matrices of output transposed, which was faster when tried" in fed.plan()
    whole = run(FEDAMP, fed, 4, progress=False)
    run(FEDAMP, fed, 2, checkpoint=tmp_path, progress=False)
    other = linear_federation(data)
    other.network.transposed[:] = []
    assert "matrices stored as torch does" in other.plan()
    train(other, other.initial(), other.everyone)  # threads have their copies of the network
    resumed = run(FEDAMP, other, 4, checkpoint=tmp_path, progress=False)
    assert other.network.transposed == ["output.weight"]
    same(whole, resumed)


def test_a_resumed_run_restores_the_layout_on_every_device(data, tmp_path):
    feds = [OnDevices(linear_federation(data), ["cpu", "cpu"]) for _ in range(2)]
    for fed, names in zip(feds, (["output.weight"], [])):
        fed.network.transposed[:] = names
    run(FEDAMP, feds[0], 1, checkpoint=tmp_path, progress=False)
    run(FEDAMP, feds[1], 2, checkpoint=tmp_path, progress=False)
    for fed in feds[1]._copies:
        assert fed.network.transposed == ["output.weight"]


def test_the_faster_layout_is_the_one_that_was_chosen():
    """No stopwatch of this test decides by less than a factor of two."""
    data = pfl_lib.data.load("mnist5k")
    clients = partition.iid(data, 20)
    chosen = Federation(data, clients, "logistic_regression", batch_size=10, chunk=20, device="cpu")
    other = chosen.replace()
    names = ["output.weight"]
    other.network.transposed[:] = [n for n in names if n not in chosen.network.transposed]
    best = {}
    for _ in range(5):
        for fed in (chosen, other):
            began = time.process_time()
            train(fed, fed.initial(), fed.everyone)
            best[fed] = min(best.get(fed, 99), time.process_time() - began)
    assert best[chosen] < 2 * best[other]


def test_other_networks_have_no_layout_to_choose(data):
    clients = partition.iid(data, 5)
    for options in ({"model": "fedala_cnn"}, {"engine": "loop"}, {"precision": "bf16"}):
        fed = Federation(data, clients, **{"model": "mlp", "device": "cpu", **options})
        assert fed.network.transposed == [] and "matrices" not in fed.plan()
