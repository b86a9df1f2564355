"""FedAsync: the share of a late model, and arrivals in a keyed order."""

import pytest
import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from pfl_lib.book.theory import iterate
from tests.support.known_answers import assert_known
from tests.support.methods import (
    plain_federation,
    refused,
)
from tests.support.quadratics import (
    LOCAL,
    LateToy,
    X,
)


def test_eq_fedasync():
    mixing = f.fedasync_mixing(0.6, 3, a=0.5)
    assert_known(mixing, "baselines", "FedAsync alpha=.6, poly a=.5, staleness 3: mixing")
    new = f.fedasync_update(X, LOCAL[1], mixing)
    assert_known(new, "baselines", "FedAsync: new x with w_new = FedAvg local 1")
    assert f.fedasync_mixing(0.6, 0, a=0.5) == 0.6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.fedasync_mixing(1.5, 1, 0.5), r"alpha must lie in \[0, 1\]"),
        (lambda: f.fedasync_mixing(0.5, -1, 0.5), "staleness must be a non-negative"),
        (lambda: f.fedasync_update(X, X, 2), r"mixing must lie in \[0, 1\]"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_fedasync_trusts_a_late_model_less():
    """One client, two rounds late: x ← (1 − α/√3)·x + (α/√3)·w."""
    fed = LateToy(1)
    states = iterate(algorithm("fedasync", stragglers=(2,), alpha=0.6), fed, 3)
    share = f.fedasync_mixing(0.6, 2, 0.5)
    w = states[0].x - 0.1 * (states[0].x - fed.c[0])
    torch.testing.assert_close(states[3].x, (1 - share) * states[0].x + share * w)


def test_fedasync_with_alpha_one_keeps_the_last_arrival_in_a_keyed_order(data, uneven):
    fed = plain_federation(data, uneven)
    method = algorithm("fedasync", stragglers=0, alpha=1.0)
    winners = []
    for k in range(6):
        state = method.round(method.start(fed), fed.at(k), fed.everyone)
        distance = (state.w - state.x).norm(dim=1)
        assert distance.min() < 1e-12
        winners.append(int(distance.argmin()))
    assert len(set(winners)) > 1


BAD = [
    ("fedasync", {"alpha": 0.0}, r"alpha must lie in \(0, 1\], got 0.0"),
    ("fedasync", {"alpha": 1.5}, r"alpha must lie in \(0, 1\], got 1.5"),
    ("fedasync", {"staleness_power": -1.0}, "staleness_power must be a non-negative"),
    ("fedasync", {"rho": -1.0}, "rho must be a non-negative finite number, got -1.0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
