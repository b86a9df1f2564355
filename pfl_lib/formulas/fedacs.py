"""FedACS: listen only to the clients whose cosine is above a quantile of all cosines."""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, own
from pfl_lib.formulas.similarity import cosine_similarities


def fedacs_threshold(S, p):
    """δ, the p-quantile of all entries of the similarity matrix, its diagonal included.

    FedACS Sec. 2.2 ("p-quantile of all elements"), read with linear interpolation.

    Equation label: eq-fedacs-threshold

    >>> fedacs_threshold(torch.tensor([[1.0, 0.2], [0.2, 1.0]]), p=0.5)
    tensor(0.6000)
    """
    p = _check.between("p", p, 0, 1)
    entries = S.flatten().sort().values
    place = p * (len(entries) - 1)
    below = int(place)
    above = min(below + 1, len(entries) - 1)
    return entries[below] + (place - below) * (entries[above] - entries[below])


def fedacs_select(S, delta, negatives="drop"):
    """Row i: s_ij where s_ij > δ or j = i, and zero elsewhere, divided by the row's sum.

    FedACS Eq. (4). Itself a client always hears: the printed strict test loses even s_ii = 1 at
    δ = 1, e.g. when all models are equal, and divides 0 by 0. Negative cosines would give weights
    outside [0, 1]: "drop" leaves them out (default), "keep" is the printed form, except in rows
    whose sum is not positive, where they are dropped all the same. A zero model hears itself.

    Equation label: eq-fedacs-select

    >>> S = torch.tensor([[1.0, 0.6, -0.2], [0.6, 1.0, 0.0], [-0.2, 0.0, 1.0]])
    >>> fedacs_select(S, delta=0.1)
    tensor([[0.6250, 0.3750, 0.0000],
            [0.3750, 0.6250, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """
    _check.one_of("negatives", negatives, ("drop", "keep"))
    me = own(S)
    kept = torch.where((delta < S) | me, S, 0)
    positive = kept.clamp(min=0)
    if negatives == "keep":
        sound = kept.sum(1, keepdim=True) > torch.finfo(S.dtype).eps
        kept = torch.where(sound, kept, positive)
    else:
        kept = positive
    total = kept.sum(1, keepdim=True)
    some = total > 0
    return torch.where(some, kept / torch.where(some, total, 1), me.to(S.dtype))


def fedacs_weights(W, p, negatives="drop"):
    """The weights of u_i = Σ_j ξ_ij w_j, and the threshold δ: cosines, quantile, selection.

    FedACS Eq. (4) with Sec. 2.2; see ``fedacs_threshold`` and ``fedacs_select``. Returns
    (weights, delta), delta a 0-dim tensor.

    Equation label: eq-fedacs-weights

    >>> W = torch.tensor([[2.0, 0.0], [0.9, 0.5], [0.2, 1.5], [-0.7, 0.9]])
    >>> weights, delta = fedacs_weights(W, p=0.5)
    >>> weights[0], delta
    (tensor([0.5336, 0.4664, 0.0000, 0.0000]), tensor(0.6491))
    """
    S = cosine_similarities(W)
    delta = fedacs_threshold(S, p)
    return fedacs_select(S, delta, negatives), delta


def fedacs_local(u, grad, lr):
    """w = u − β∇F_i(u): the printed client step, one gradient step from the message.

    FedACS Eq. (5). The text speaks of several steps, which is ordinary local training from u.

    Equation label: eq-fedacs-local

    >>> fedacs_local(torch.tensor([1.0]), torch.tensor([2.0]), lr=0.1)
    tensor([0.8000])
    """
    lr = checked(_check.positive, "lr", lr)
    return u - lr * grad
