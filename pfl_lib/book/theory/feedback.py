"""The loop between attention and distance: whoever is heard comes nearer, and is heard more."""

import math
from typing import NamedTuple

import torch

from pfl_lib import _check
from pfl_lib.formulas import squared_distances


class FeedbackPath(NamedTuple):
    """What ``feedback_loop`` finds, each with one entry per round, the start first."""

    apart: torch.Tensor
    share: torch.Tensor


def _coupling(drift, m, group, self_weight):
    """R, the odds of a stranger without attention, and γ: u_A − u_B = (1 − γ·stray)(w_A − w_B)."""
    drift = torch.as_tensor(drift, dtype=torch.float64)
    if not ((drift > 0) & (drift < 1)).all():
        raise ValueError(f"drift must lie between 0 and 1, both excluded, got {drift.tolist()}")
    m = _check.whole("m", m, at_least=4)
    group = _check.whole("group", group, at_least=2)
    if m % group or m == group:
        raise ValueError(f"group must divide m = {m} into two or more groups, got {group}")
    self_weight = _check.between("self_weight", self_weight, 1 / m, 1)
    odds, groups = (m - group) / (group - 1), m // group
    return odds, groups / (groups - 1) * (1 - self_weight), drift


def feedback_loop(sigma, gap, drift, start=0.0, rounds=30, m=10, group=5, self_weight=0.2):
    """How far apart the groups' models stand, and what a client hears from its own group.

    Groups of ``group`` clients each, m in all, whose own optima are ``gap`` apart. In a round every
    client hears others with weights e^(−t/σ) that share out 1 − ``self_weight``, starts from the
    message and covers the part ``drift`` of its way to its own optimum. With x for the distance
    between two groups, that is x⁺ = (1 − drift)(1 − γ(1 − share))x + drift·gap.

    ``start`` is the distance at the beginning: 0 for a common start, ``gap`` after long separate
    training. σ, gap, drift and start may be tensors; then all their combinations run at once.

    Equation label: eq-feedback-loop

    >>> common = feedback_loop(sigma=1.5, gap=3.0, drift=0.2)
    >>> separate = feedback_loop(sigma=1.5, gap=3.0, drift=0.2, start=3.0)
    >>> round(common.share[-1].item(), 2), round(separate.share[-1].item(), 2)
    (0.54, 1.0)
    """
    odds, gamma, drift = _coupling(drift, m, group, self_weight)
    sigma, gap, start = (torch.as_tensor(v, dtype=torch.float64) for v in (sigma, gap, start))
    for name, value in (("sigma", sigma), ("gap", gap)):
        if not (value > 0).all():
            raise ValueError(f"{name} must be positive, got {value.tolist()}")
    if not (start >= 0).all():
        raise ValueError(f"start must not be negative, got {start.tolist()}")
    x, sigma, gap, drift = torch.broadcast_tensors(start, sigma, gap, drift)
    apart, shares = [], []
    for k in range(_check.whole("rounds", rounds, at_least=0) + 1):
        share = 1 / (1 + odds * torch.exp(-(x**2) / sigma))
        apart.append(x)
        shares.append(share)
        if k < rounds:
            x = (1 - drift) * (1 - gamma * (1 - share)) * x + drift * gap
    return FeedbackPath(torch.stack(apart), torch.stack(shares))


def resting_gap(y, drift, m=10, group=5, self_weight=0.2):
    """gap/√σ at which two groups rest at the distance y√σ; its folds are the hysteresis.

    Equation label: eq-feedback-rest

    >>> round(resting_gap(0.0, drift=0.2).item(), 2)
    0.0
    """
    odds, gamma, drift = _coupling(drift, m, group, self_weight)
    y = torch.as_tensor(y, dtype=torch.float64)
    stray = 1 - 1 / (1 + odds * torch.exp(-(y**2)))
    return y * (1 + (1 - drift) / drift * gamma * stray)


def critical_sigmas(gap, drift, m=10, group=5, self_weight=0.2, points=200_001):
    """The σ below which groups part from a common start, and below which parted groups stay so.

    None where the change is smooth: there the loop has one end for every σ.

    Equation label: eq-feedback-critical

    >>> common, separate = critical_sigmas(gap=3.0, drift=0.2)
    >>> round(common, 2), round(separate, 2)
    (0.99, 1.72)
    >>> critical_sigmas(gap=3.0, drift=0.9) is None
    True
    """
    gap = _check.positive("gap", gap)
    y = torch.linspace(0, 12, _check.whole("points", points, at_least=100), dtype=torch.float64)
    rest = resting_gap(y, drift, m, group, self_weight)
    falls = (rest.diff() < 0).nonzero().flatten()
    if not len(falls):
        return None
    top, bottom = rest[falls[0]].item(), rest[falls[-1] + 1].item()
    return (gap / top) ** 2, (gap / bottom) ** 2


def critical_drift(m=10, group=5, self_weight=0.2):
    """The drift below which groups show hysteresis; from there on one end for every σ.

    The slope of ``resting_gap`` is 1 − χq with q = (1 − p)(2zp − 1), z = y² and χ = γ(1 − δ)/δ.
    q has one maximum, where z(2p − 1) = 3/2; there it is (1 − p)(z + 1/2) = 1/χ*, and
    δ* = γ/(γ + χ*).

    Equation label: eq-feedback-fold

    >>> round(critical_drift(), 3)
    0.36
    """
    odds, gamma, _ = _coupling(0.5, m, group, self_weight)
    low, high = 0.0, 1000.0
    for _ in range(200):  # z(2p − 1) increases where it is positive
        z = (low + high) / 2
        p = 1 / (1 + odds * math.exp(-z))
        low, high = (z, high) if z * (2 * p - 1) < 1.5 else (low, z)
    return gamma * (1 - p) * (z + 0.5) / (gamma * (1 - p) * (z + 0.5) + 1)


def fit_drift(apart, rounds=None):
    """(gap, drift) for which gap·(1 − (1 − drift)^k) fits distances measured without mixing.

    ``apart`` holds the distance after k rounds alone from a common start, ``rounds`` these k (by
    default 0, 1, 2, …). For each drift on a fine grid the best gap is a least-squares quotient.

    >>> gap, drift = fit_drift([0.0, 1.0, 1.5, 1.75])
    >>> round(gap, 2), round(drift, 2)
    (2.0, 0.5)
    """
    z = torch.as_tensor(apart, dtype=torch.float64)
    k = torch.arange(len(z)) if rounds is None else torch.as_tensor(rounds)
    if z.ndim != 1 or len(z) < 3 or len(k) != len(z):
        raise ValueError(f"apart must hold three or more distances, got shape {tuple(z.shape)}")
    grid = torch.linspace(0.0005, 0.9995, 1999, dtype=torch.float64)
    curve = 1 - (1 - grid[:, None]) ** k
    gaps = (curve @ z) / (curve**2).sum(1)
    best = int(((gaps[:, None] * curve - z) ** 2).sum(1).argmin())
    return gaps[best].item(), grid[best].item()


def group_distance(W, groups):
    """How far apart the groups stand: √(mean squared distance between them − mean inside them).

    Subtracting what clients of one group differ by leaves the distance between the groups' means.

    >>> W = torch.tensor([[0.0, 1.0], [0.0, -1.0], [5.0, 1.0], [5.0, -1.0]])
    >>> round(group_distance(W, torch.tensor([0, 0, 1, 1])), 2)
    4.8
    """
    t, same = squared_distances(W), groups[:, None] == groups[None, :]
    others = ~torch.eye(len(W), dtype=torch.bool)
    return float((t[~same].mean() - t[same & others].mean()).clamp(min=0).sqrt())
