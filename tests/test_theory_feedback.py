"""The feedback loop: its recursion is the library's FedAMP, its folds are where the end changes."""

import pytest
import torch
from torch.testing import assert_close

from pfl_lib.book import theory
from pfl_lib.book.theory import (
    critical_drift,
    critical_sigmas,
    feedback_loop,
    fit_drift,
    resting_gap,
)
from pfl_lib.methods import FedAMP
from pfl_lib.metrics import inside_share


@pytest.mark.parametrize(("m", "group"), [(6, 3), (10, 5), (8, 2)])
def test_the_recursion_is_fedamp_on_symmetric_groups(m, group):
    """Groups at the corners of a simplex, whose clients train one step from the message."""
    groups = torch.arange(m) // group
    corners = torch.eye(m // group, dtype=torch.float64) * 3 / 2**0.5  # 3 apart
    c, drift = corners[groups], 0.3
    fed = theory.DescentFederation(torch.ones_like(c), c, lr=drift)
    method = FedAMP(sigma=2.0, self_weight=0.25, begin="u", prox_beta=1e12)
    states = theory.iterate(method, fed, 12)
    apart, share = feedback_loop(2.0, 3.0, drift, rounds=12, m=m, group=group, self_weight=0.25)
    measured = torch.stack([(s.w[0] - s.w[-1]).norm() for s in states])
    assert_close(measured, apart)
    heard = [inside_share(s.xi, groups) for s in states[1:]]  # what the round before was heard with
    assert heard == pytest.approx(share[:-1].tolist())


def test_the_folds_are_where_the_end_changes():
    """A little below a critical σ and a little above it, for six settings at once."""
    settings = [(gap, drift) for gap in (1.0, 4.0) for drift in (0.05, 0.2, 0.3)]
    gap, drift = torch.tensor(settings, dtype=torch.float64).T
    common, separate = torch.tensor([critical_sigmas(*s) for s in settings], dtype=torch.float64).T
    assert (common < separate).all()
    for sigma, start in ((common, torch.zeros_like(gap)), (separate, gap)):
        below, above = (
            feedback_loop(sigma * factor, gap, drift, start, rounds=20_000).share[-1]
            for factor in (0.98, 1.02)
        )
        assert (below > above + 0.03).all(), (below, above)


def test_between_the_folds_the_start_decides_and_elsewhere_it_does_not():
    common, separate = critical_sigmas(3.0, 0.1)
    for sigma, several in ((common * 0.9, False), ((common + separate) / 2, True), (2.0, False)):
        ends = [feedback_loop(sigma, 3.0, 0.1, s, rounds=5000).apart[-1] for s in (0.0, 3.0)]
        assert (abs(ends[0] - ends[1]) > 0.1) == several


def test_models_rest_where_the_curve_says():
    y = torch.linspace(0.1, 4, 40, dtype=torch.float64)
    gap = resting_gap(y, 0.2)
    step = feedback_loop(1.0, gap, 0.2, start=y, rounds=1).apart
    assert_close(step[1], step[0])


def test_smooth_where_training_is_strong():
    assert critical_sigmas(3.0, 0.5) is None
    sigmas = torch.logspace(-1, 2, 60, dtype=torch.float64)
    ends = [feedback_loop(sigmas, 3.0, 0.5, s, rounds=3000).apart[-1] for s in (0.0, 3.0)]
    assert_close(*ends)


def test_the_fit_finds_what_made_the_distances():
    alone = 2.5 * (1 - 0.8 ** torch.arange(9, dtype=torch.float64))
    assert fit_drift(alone) == pytest.approx((2.5, 0.2), rel=0.01)
    assert fit_drift(alone[::2], rounds=range(0, 9, 2)) == pytest.approx((2.5, 0.2), rel=0.01)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"gap": -1.0}, "gap must be positive"),
        ({"drift": 1.0}, "drift must lie between 0 and 1"),
        ({"start": -1.0}, "start must not be negative"),
        ({"group": 3}, "group must divide m = 10"),
        ({"self_weight": 0.05}, "self_weight"),
    ],
)
def test_bad_input_is_named(what, message):
    with pytest.raises(ValueError, match=message):
        feedback_loop(**{"sigma": 1.0, "gap": 1.0, "drift": 0.5} | what)


def test_a_fit_needs_three_distances():
    with pytest.raises(ValueError, match="three or more distances"):
        fit_drift([0.0, 1.0])


@pytest.mark.parametrize(
    "place", [(10, 5, 0.2), (25, 5, 0.2), (12, 2, 0.5), (6, 3, 1 / 6)], ids=str
)
def test_folds_exist_exactly_below_the_critical_drift(place):
    m, group, self_weight = place
    edge = critical_drift(m, group, self_weight)
    assert critical_sigmas(3.0, 0.99 * edge, m, group, self_weight) is not None
    assert critical_sigmas(3.0, 1.01 * edge, m, group, self_weight) is None
    y = torch.linspace(0, 12, 100_001, dtype=torch.float64)
    turns = (resting_gap(y, 0.5 * edge, m, group, self_weight).diff().sign().diff() != 0).sum()
    assert turns == 2  # one maximum, one minimum, never more
