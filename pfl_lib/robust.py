"""Robust averages, which a few wrong models cannot move far: median, trimmed mean, Krum.

``robust(method, rule)`` replaces the weighted mean of any method that averages by one of them.
They ignore sample counts, about which a client could lie, too.
"""

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import with_average


def coordinate_median(W):
    """The coordinate-wise median of the clients' models (the mean of the two middle values).

    Yin et al. 2018, Definition 1.

    >>> coordinate_median(torch.tensor([[1.0, 5.0], [2.0, 6.0], [900.0, -900.0]]))
    tensor([2., 5.])
    """
    _check.models("W", W)
    ordered, m = W.sort(0).values, len(W)
    return (ordered[(m - 1) // 2] + ordered[m // 2]) / 2


def trimmed_mean(W, faulty):
    """The coordinate-wise mean without the ``faulty`` smallest and largest values.

    Yin et al. 2018, Definition 2, with β = faulty / m.

    >>> trimmed_mean(torch.tensor([[1.0], [2.0], [4.0], [900.0]]), faulty=1)
    tensor([3.])
    """
    _check.models("W", W)
    m = len(W)
    faulty = _check.whole("faulty", faulty, at_least=0)
    if 2 * faulty >= m:
        raise ValueError(f"faulty must be below half of the {m} models, got {faulty}")
    return W.sort(0).values[faulty : m - faulty].mean(0)


def krum_scores(W, faulty):
    """For each model the sum of its squared distances to the m − faulty − 2 nearest others.

    Blanchard et al. 2017, Section 3.

    >>> krum_scores(torch.tensor([[0.0], [1.0], [3.0], [90.0]]), faulty=1)
    tensor([1.0000e+00, 1.0000e+00, 4.0000e+00, 7.5690e+03])
    """
    _check.models("W", W)
    m = len(W)
    faulty = _check.whole("faulty", faulty, at_least=0)
    if m - faulty - 2 < 1:
        raise ValueError(f"faulty must be at most {m - 3} for {m} models, got {faulty}")
    far = torch.cdist(W.double(), W.double()).square().fill_diagonal_(torch.inf)
    return far.sort(1).values[:, : m - faulty - 2].sum(1).to(W.dtype)


def krum(W, faulty, keep=None):
    """The mean of the ``keep`` models with the lowest scores (multi-Krum; 1 is Krum itself).

    Without ``keep`` they are m − faulty.

    >>> krum(torch.tensor([[0.0], [1.0], [3.0], [90.0]]), faulty=1)
    tensor([1.3333])
    """
    scores, m = krum_scores(W, faulty), len(W)
    keep = m - faulty if keep is None else _check.whole("keep", keep, at_most=m)
    return W[scores.argsort(stable=True)[:keep]].mean(0)


RULES = {
    "median": lambda W, faulty: coordinate_median(W),
    "trimmed mean": trimmed_mean,
    "krum": lambda W, faulty: krum(W, faulty, keep=1),
    "multi-krum": krum,
}


def robust(method, rule="median", faulty=0):
    """``method``, a method that averages, with ``rule`` in place of its weighted mean.

    ``rule`` is "median", "trimmed mean", "krum" or "multi-krum", ``faulty`` the number of wrong
    models that the last three must tolerate; a round with too few clients for that is refused.

    >>> import pfl_lib
    >>> from pfl_lib.faults import Faulty
    >>> fed = Faulty(pfl_lib.example(), clients=[0, 4], kind="scale")
    >>> plain = pfl_lib.algorithm("fedavg")
    >>> careful = robust(plain, "trimmed mean", faulty=2)
    >>> careful.label
    'FedAvg, trimmed mean'
    >>> losses = [pfl_lib.run(m, fed, 3, progress=False).loss[-1] for m in (plain, careful)]
    >>> sum(losses[0]) > 2 * sum(losses[1])
    True
    """
    _check.one_of("rule", rule, RULES)
    _check.whole("faulty", faulty, at_least=0)

    def average(self, w, weights, state, fed):
        return RULES[rule](w, faulty)

    return with_average(method, average, rule, faulty)
