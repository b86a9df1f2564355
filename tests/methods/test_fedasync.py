"""FedAsync: the share of a late model, and arrivals in a keyed order."""

import pytest
import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from pfl_lib.book.theory import iterate
from pfl_lib.random import keyed_generator
from tests.support.known_answers import assert_known
from tests.support.methods import (
    last,
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


def test_staleness_may_count_the_servers_updates():
    """By hand: client 0 comes every round, client 1 one round late; two arrive in round 1."""
    fed = LateToy(2)
    method = algorithm("fedasync", stragglers=(0, 1), alpha=0.6, staleness="updates")
    states = iterate(method, fed, 2)
    first, x = states[1].x, states[1].x
    order = torch.randperm(2, generator=keyed_generator(fed.settings.seed, "arrivals", 1))
    since = {0: 0, 1: 1}  # updates before round 1: client 0 pulled in it, client 1 before round 0
    for place, i in enumerate(order.tolist()):
        start = first if i == 0 else states[0].x
        w = start - 0.1 * (start - fed.c[i])
        x = f.fedasync_update(x, w, f.fedasync_mixing(0.6, since[i] + place, 0.5))
    torch.testing.assert_close(states[2].x, x)
    by_rounds = iterate(algorithm("fedasync", stragglers=(0, 1), alpha=0.6), fed, 2)
    assert not torch.equal(by_rounds[2].x, states[2].x)


def test_mixing_late_models_alone_and_averaging():
    """As the SPFL paper's public code runs it: a late model first goes towards the global one."""
    fed = LateToy(2)
    method = algorithm("fedasync", stragglers=(0, 2), mixing="late")
    states = iterate(method, fed, 3)
    fresh = states[2].x - 0.1 * (states[2].x - fed.c[0])
    late = states[0].x - 0.1 * (states[0].x - fed.c[1])
    late = f.fedasync_update(states[2].x, late, 0.8 * 3**-0.5)
    torch.testing.assert_close(states[3].x, (fresh + late) / 2)


def test_mixing_late_models_with_nobody_late_is_fedavg(data, uneven):
    fed = plain_federation(data, uneven)
    mixed = last(algorithm("fedasync", stragglers=0, mixing="late"), fed, 2)
    torch.testing.assert_close(mixed.x, last(algorithm("fedavg"), fed, 2).x, rtol=0, atol=1e-12)


BAD = [
    (
        "fedasync",
        {"mixing": "late", "staleness": "updates"},
        "staleness must be 'rounds' with mixing='late'",
    ),
    ("fedasync", {"alpha": 0.0}, r"alpha must lie in \(0, 1\], got 0.0"),
    ("fedasync", {"alpha": 1.5}, r"alpha must lie in \(0, 1\], got 1.5"),
    ("fedasync", {"staleness_power": -1.0}, "staleness_power must be a non-negative"),
    ("fedasync", {"rho": -1.0}, "rho must be a non-negative finite number, got -1.0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
