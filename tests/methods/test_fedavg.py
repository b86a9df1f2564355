"""FedAvg and FedAvg-2step: the weighted mean, and two steps on each batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import algorithm, train
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known
from tests.support.methods import (
    close,
    go,
    refused,
    small_federation,
    whole_batches,
)
from tests.support.quadratics import (
    LOCAL,
    SIZES,
)
from tests.support.strategies import models, quick


def test_eq_fedavg():
    assert_known(LOCAL, "baselines", "FedAvg: local models, 2 steps")
    assert_known(f.weighted_average(LOCAL, SIZES), "baselines", "FedAvg: aggregate (n-weighted)")
    assert_known(f.weighted_average(LOCAL), "baselines", "uniform aggregate")


@quick
@given(models(), st.floats(0.01, 100))
def test_weighted_average_properties(W, scale):
    sizes = torch.arange(1, len(W) + 1, dtype=torch.float64)
    average = f.weighted_average(W, sizes)
    torch.testing.assert_close(average, f.weighted_average(W, scale * sizes))
    torch.testing.assert_close(average, (sizes[:, None] * W).sum(0) / sizes.sum())
    torch.testing.assert_close(f.weighted_average(W), W.mean(0))
    order = torch.arange(len(W) - 1, -1, -1)
    torch.testing.assert_close(average, f.weighted_average(W[order], sizes[order]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.weighted_average(LOCAL, SIZES[:1]), "sizes must be a tensor with one number"),
        (lambda: f.weighted_average(LOCAL, [1.0, 2.0]), "sizes must be a tensor with one number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answer_of_a_round(quadratics):
    fed = quadratics(epochs=2)
    assert_known(go(algorithm("fedavg"), fed, 1).x, "baselines", "FedAvg: aggregate (n-weighted)")


def test_a_round_is_the_weighted_mean_of_what_clients_trained(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedavg")
    average = method.round(method.start(fed), fed, fed.everyone)
    trained = train(fed, fed.initial(), fed.everyone)
    mean = (fed.sizes[:, None] * trained).sum(0) / fed.sizes.sum()
    torch.testing.assert_close(average.x, mean)


def test_two_steps_on_the_whole_data_are_two_epochs(data, unequal):
    twice = go(algorithm("fedavg-2step"), whole_batches(data, unequal), 2)
    close(twice.x, go(algorithm("fedavg"), whole_batches(data, unequal, epochs=2), 2).x)


BAD = [
    ("fedavg-2step", {"repeats": 0}, "repeats must be a whole number >= 1, got 0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
