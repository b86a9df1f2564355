"""Ditto: the personal step, and a global model that never sees it."""

import math

import pytest
import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
    whole_batches,
)
from tests.support.quadratics import (
    ETA,
    C,
    H,
    V,
    X,
    gradient,
    optimum,
)


def test_eq_ditto_gradient():
    step = V - ETA * f.ditto_gradient(gradient(0)(V), V, X, lam=0.1)
    assert_known(step, "baselines", "Ditto client 0, v=(0,1), lambda=.1: one step")
    assert torch.equal(f.ditto_gradient(gradient(0)(V), V, X, 0.0), gradient(0)(V))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.ditto_gradient(X, X, X, math.nan), "lam must be a non-negative finite number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_ditto(quadratics):
    fed, method = quadratics(), algorithm("ditto", personal_epochs=1)
    state = method.start(fed).put(FIRST, v=torch.tensor([[0.0, 1.0]], dtype=fed.dtype))
    new = method.round(state, fed, FIRST)
    assert_known(new.v[0], "baselines", "Ditto client 0, v=(0,1), lambda=.1: one step")


def test_ditto_without_lambda_is_separate(data, unequal):
    state = go(algorithm("ditto", lam=0.0), whole_batches(data, unequal), 3)
    alone = go(algorithm("separate"), whole_batches(data, unequal, epochs=2), 3)
    close(state.v, alone.w)


def test_rests_between_the_global_and_the_own_optimum(quadratics):
    fed, best = quadratics(sizes=[2, 2]), optimum(H)
    between = (H * C + 2 * best) / (H + 2)
    method = algorithm("ditto", lam=2.0)
    state = method.round(method.start(fed).set(x=best, v=between), fed, fed.everyone)
    close(state.v, between, 1e-12)


BAD = [
    ("ditto", {"lam": -0.1}, "lam must be a non-negative"),
    ("ditto", {"personal_epochs": 0}, "personal_epochs must be a whole number >= 1, got 0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
