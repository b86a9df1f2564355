"""FedPHP: the moving average, and what it teaches."""

import pytest
import torch

import pfl_lib
from pfl_lib import algorithm, train
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
)
from tests.support.quadratics import (
    LOCAL,
    V,
)


def test_lambda_has_the_precision_of_the_models(monkeypatch):
    """It was float32 in runs of float64."""
    seen = []
    fed = pfl_lib.example(dtype=torch.float64)
    perform = type(fed).perform
    monkeypatch.setattr(
        type(fed), "perform", lambda *given: seen.append(given[1].rows["lam"]) or perform(*given)
    )
    method = algorithm("fedphp", lam=0.01)
    state = method.round(method.start(fed), fed, fed.everyone)
    method.round(state, fed.at(1), fed.everyone)
    assert seen[0].dtype == torch.float64
    assert seen[0].unique().tolist() == [0.0] and seen[1].unique().tolist() == [0.01]


def test_eq_fedphp():
    momentum = f.fedphp_momentum(0.9, 50, expected=100)
    assert momentum == pytest.approx(0.45)
    new = f.fedphp_update(V, LOCAL[0], momentum)
    assert_known(new, "baselines", "FedPHP mu_t=.45: HPM from old (0,1) and new local 0")
    assert f.fedphp_momentum(0.9, 0, expected=100) == 0
    assert f.fedphp_momentum(0.9, 500, expected=100) == 0.9


def test_fedphp_rows_with_their_own_momentum():
    taken = torch.tensor([0, 100])
    momentum = f.fedphp_momentum(1.0, taken, expected=100)
    new = f.fedphp_update(V.expand(2, -1), LOCAL, momentum)
    torch.testing.assert_close(new, torch.stack([LOCAL[0], V]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.fedphp_momentum(2, 1, 10), r"mu must lie in \[0, 1\]"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_fedphp(quadratics):
    fed, method = quadratics(epochs=2), algorithm("fedphp", lam=0.0, transfer="predictions")
    fed.network.logits = lambda w, x: w.expand(len(x), -1)
    fed.network.in_training = lambda w, batch: w.expand(len(batch.x), -1)
    fed.network.loss_of = fed.network.loss
    old = torch.tensor([[0.0, 1.0]], dtype=fed.dtype)
    state = method.start(fed).put(FIRST, h=old, taken=50 * fed.sizes[FIRST])
    new = method.round(state, fed, FIRST)
    key = "FedPHP mu_t=.45: HPM from old (0,1) and new local 0"
    assert_known(new.h[0], "baselines", key)
    assert new.taken.tolist() == [51, 0]


def test_fedphp_without_transfer_is_fedavg_and_the_inherited_model_a_moving_average(federation):
    fed, method = federation(), algorithm("fedphp", lam=0.0, mu=0.8, expected=4)
    states = [go(method, fed, k) for k in range(4)]
    close(states[3].x, go(algorithm("fedavg"), fed, 3).x)
    h = fed.initial()
    for k in range(3):
        trained = train(fed.at(k), states[k].x.expand(fed.m, -1), fed.everyone)
        share = 0.8 * k / 4
        h = share * h + (1 - share) * trained
        close(states[k + 1].h, h)


@pytest.mark.parametrize("transfer", ["features", "predictions"])
def test_fedphp_is_drawn_to_what_it_inherited(federation, transfer):
    fed = federation()
    method = algorithm("fedphp", lam=1.0, transfer=transfer)
    state = go(algorithm("fedphp", lam=0.0), fed, 2)
    h = state.h[FIRST]
    rows = {"w": state.x[None], "h": h, "lam": fed.sizes[FIRST] ** 0}
    numbers = {"features": transfer == "features"}
    work = pfl_lib.Work(rows, "fedphp", numbers=numbers, lr=0.05, epochs=40)
    new = fed.perform(work, FIRST)["w"]
    x = fed._train_samples.inputs(fed._train_samples.index[0])
    see = fed.network.features if transfer == "features" else fed.network.logits
    before, after = ((see(w, x) - see(h[0], x)).norm() for w in (state.x, new[0]))
    assert after < before
    first = method.round(method.start(fed), fed, fed.everyone)  # nothing to inherit yet
    close(first.x, go(algorithm("fedavg"), fed, 1).x)


BAD = [
    ("fedphp", {"mu": 1.1}, r"mu must lie in \[0, 1\], got 1.1"),
    ("fedphp", {"expected": 0}, "expected must be a whole number >= 1, got 0"),
    ("fedphp", {"transfer": "feature"}, "Did you mean 'features'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
