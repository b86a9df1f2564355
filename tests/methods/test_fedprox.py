"""FedProx: the penalty, in the equation and in what runs."""

import pytest
import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known, known
from tests.support.methods import (
    close,
    go,
    refused,
    small_federation,
)
from tests.support.quadratics import (
    LOCAL,
    X,
    descend,
    gradient,
)


def test_eq_fedprox_gradient():
    local = descend(lambda i, w: f.fedprox_gradient(gradient(i)(w), w, X, mu=0.5))
    assert_known(local, "baselines", "FedProx mu=0.5: local models, 2 steps")
    assert torch.equal(descend(lambda i, w: f.fedprox_gradient(gradient(i)(w), w, X, 0.0)), LOCAL)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.fedprox_gradient(X, X, X, -1), "mu must be a non-negative finite number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_rounds(quadratics):
    fed = quadratics(epochs=2)
    local = known("baselines", "FedProx mu=0.5: local models, 2 steps")
    for i in (0, 1):
        alone = go(algorithm("fedprox", mu=0.5), fed, 1, who=torch.tensor([i]))
        close(alone.x, local[i], 1e-12)
    both = go(algorithm("fedprox", mu=0.5), fed, 1)
    close(both.x, (local[0] + 3 * local[1]) / 4, 1e-12)


def test_a_larger_mu_keeps_clients_nearer(data, unequal):
    fed = small_federation(data, unequal, epochs=4)
    x = fed.initial()[0]
    moved = [(go(algorithm("fedprox", mu=mu), fed, 1).x - x).norm() for mu in (0.0, 0.5, 2.0)]
    assert moved[0] > 1.1 * moved[1] > 1.2 * moved[2]


BAD = [
    ("fedprox", {"mu": -1.0}, "mu must be a non-negative finite number, got -1.0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
