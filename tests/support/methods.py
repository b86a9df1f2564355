"""What the tests of the methods share: small federations, rounds, and a look at what was asked."""

import copy

import pytest
import torch

import pfl_lib
from pfl_lib import Federation, algorithm, run
from pfl_lib.work import Settings

ENGINES = ("loop", "stacked")
FIRST = torch.tensor([0])
LATE = (0, 0, 1, 2, 3)  # delays of five clients, three of them late


def go(method, fed, rounds, who=None):
    """The state after some rounds."""
    state = method.start(fed)
    for k in range(rounds):
        state = method.round(state, fed.at(k), fed.everyone if who is None else who)
    return state


def last(method, fed, rounds, **options):
    """The state after a run."""
    return run(method, fed, rounds, evaluate_every=rounds, progress=False, **options).state


def close(a, b, atol=1e-10):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def all_close(a, b, atol=1e-10):
    assert set(a) == set(b)
    for tensor in a:
        close(a[tensor], b[tensor], atol)


def small_federation(data, clients, **options):
    """An MLP with eight hidden units, in double precision."""
    options = {
        "lr": 0.1, "batch_size": 8, "engine": "stacked", "dtype": torch.float64, **options
    }  # fmt: skip
    model = pfl_lib.models.build("mlp", data, seed=3, hidden=(8,))
    return Federation(data, clients, model, device="cpu", **options)


def whole_batches(data, clients, **options):
    """One batch per client: the order of the samples no longer matters."""
    return small_federation(data, clients, batch_size=50, **options)


def plain_federation(data, clients, model="mlp", **options):
    """The library's own models, in double precision."""
    options = {"lr": 0.1, "batch_size": 16, "dtype": torch.float64, "device": "cpu", **options}
    return Federation(data, clients, model, **options)


def quick_ala():
    """Hyper-parameters of ALA with which a client's first time is three passes."""
    return {"tol": 1e9, "window": 2}


def watched(fed):
    """The federation, and a list of all (work, clients) it is asked for."""
    asked, here = [], copy.copy(fed)

    def perform(work, who):
        asked.append((work, who.tolist()))
        return fed.perform(work, who)

    here.perform = perform
    return here, asked


def refused(cases):
    """Parametrize over (name, hyper-parameters, message); ``check()`` sees them refused."""

    def check(name, hyper, message):
        with pytest.raises(ValueError, match=message):
            algorithm(name, **hyper)

    checks = [lambda case=case: check(*case) for case in cases]
    return pytest.mark.parametrize("check", checks, ids=[f"{n} {h}"[:40] for n, h, _ in cases])


def settings(**values):
    """The settings of a toy federation, for which only some of them matter."""
    usual = {"lr": 0.1, "optimizer": "sgd", "batch_size": 1, "epochs": 1, "seed": 0}
    return Settings(**{**usual, **values})
