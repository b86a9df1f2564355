"""LGA and PLGA: where would a straggler's model be now? (the asynchronous half of the SPFL paper)

Four models, by the names of what happened: ``w_pull`` the global model the straggler pulled
(printed w^{t0}), ``w_next`` the global model one round later (w^{t1}), ``w_now`` the global model
at its arrival (w^{tτ}), ``w_local`` what it trained (w_k^{t0}). Vectors of d numbers, or rows.
"""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, parts, same_shape, spread


def straggler_similarity(w_pull, w_next, w_local, stages=None):
    """S = cos(w_next − w_pull, w_local − w_pull) and S̃ = e^S/(e + e^S) = 1/(1 + e^{1−S}).

    PLGA Eqs. (8), (9), (13): did the straggler go where the server went? S̃ lies in
    [1/(1 + e²), ½]. No move at all counts as S = 0. Returns (S, S̃): one number a client, and with
    stages one a stage along the last axis.

    Equation label: eq-lga-similarity

    >>> zero, there = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> straggler_similarity(zero, there, there)
    (tensor(1.), tensor(0.5000))
    """
    same_shape(w_pull=w_pull, w_next=w_next, w_local=w_local)
    server, client = w_next - w_pull, w_local - w_pull
    S = [_cosine(server[..., s], client[..., s]) for s in parts(stages)]
    S = S[0] if stages is None else torch.stack(S, -1)
    return S, torch.sigmoid(S - 1)


def leap_term(
    w_pull, w_next, w_now, w_local, rule="printed", lr=None, local_steps=None, stages=None
):
    """The correction for what the global model did meanwhile, with Δ = w_local − w_pull.

    PLGA Eqs. (10)-(11). "printed": S̃·Δ⊙Δ⊙(w_now − w_next). "delay_compensated": the Taylor term
    it stands for, −S̃/(βE)·Δ⊙Δ⊙(w_now − w_pull), since E steps of length β = ``lr`` give
    Δ ≈ −βE·g and g(w') ≈ g(w) + H(w' − w) with H ≈ diag(g⊙g). The printed one has the other sign,
    no 1/(βE), and starts from w_next. "none": zero.

    Equation label: eq-lga-leap-term

    >>> pull, next_, now, local = torch.tensor([[0.0], [0.0], [1.0], [2.0]])
    >>> leap_term(pull, next_, now, local)
    tensor([1.0758])
    """
    _check.one_of("rule", rule, ("printed", "delay_compensated", "none"))
    same_shape(w_pull=w_pull, w_next=w_next, w_now=w_now, w_local=w_local)
    moved = w_local - w_pull
    if rule == "none":
        return torch.zeros_like(moved)
    similarity = straggler_similarity(w_pull, w_next, w_local, stages)[1]
    trust = spread(similarity, stages, like=moved)
    if rule == "printed":
        return trust * moved * moved * (w_now - w_next)
    if lr is None or local_steps is None:
        raise ValueError(
            "lr and local_steps must be given for rule='delay_compensated', "
            f"got lr={lr!r}, local_steps={local_steps!r}"
        )
    lr = checked(_check.positive, "lr", lr)
    local_steps = checked(_check.whole, "local_steps", local_steps)
    return -trust / (lr * local_steps) * moved * moved * (w_now - w_pull)


def leap(
    w_pull,
    w_next,
    w_now,
    w_local,
    base="now",
    rule="printed",
    lr=None,
    local_steps=None,
    stages=None,
):
    """ŵ = base + Δ + leap term: the straggler's model, predicted for the round it arrives in.

    PLGA Eq. (11) with base "now" (w_now; the default), Eq. (10) with base "pull" (w_pull, which
    stays stale). For ``rule``, ``lr`` and ``local_steps`` see ``leap_term``. One round late
    (w_now = w_next) the printed leap is zero and ŵ = w_next + Δ.

    Equation label: eq-lga-leap

    >>> pull, next_, now, local = torch.tensor([[0.0], [0.5], [0.5], [2.0]])
    >>> leap(pull, next_, now, local)
    tensor([2.5000])
    """
    _check.one_of("base", base, ("now", "pull"))
    term = leap_term(w_pull, w_next, w_now, w_local, rule, lr, local_steps, stages)
    return (w_now if base == "now" else w_pull) + (w_local - w_pull) + term


def plga_personal(w_pred, w_now, similarity, stages=None):
    """w_p = (1 − S̃)·ŵ + S̃·w_now: between the predicted and the global model.

    PLGA Eqs. (12), (14), in which w^{t0} cancels. ``similarity`` is S̃ of ``straggler_similarity``
    for the same stages, so the global model's share never exceeds one half.

    Equation label: eq-plga-personal

    >>> plga_personal(torch.tensor([0.0]), torch.tensor([4.0]), torch.tensor(0.25))
    tensor([1.])
    """
    same_shape(w_pred=w_pred, w_now=w_now)
    share = spread(similarity, stages, like=w_pred)
    return w_pred + share * (w_now - w_pred)


def _cosine(a, b):
    product = (a * b).sum(-1)
    # Each norm on its own: the product of two squared norms would underflow for small moves.
    a, b = (a * a).sum(-1), (b * b).sum(-1)
    moved = (a > 0) & (b > 0)
    length = torch.where(moved, a, 1).sqrt() * torch.where(moved, b, 1).sqrt()
    return torch.where(moved, product / length, 0).clamp(-1, 1)
