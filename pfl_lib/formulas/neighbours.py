"""Clients that download other clients' models: FedFomo and APPLE (after the cited originals).

Written for one client, with the models on offer as rows (n, d).
"""

import math

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked


def fedfomo_scores(w, loss, models, losses):
    """(L_i(θ_i) − L_i(θ_n))/‖θ_n − θ_i‖ for every model on offer: the gain a unit of distance.

    FedFomo (Zhang et al. 2021). ``loss`` and ``losses`` are the client's own validation
    losses of its model ``w`` and of ``models``. A model at distance zero scores 0.

    Equation label: eq-fedfomo-scores

    >>> models = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> fedfomo_scores(torch.zeros(2), torch.tensor(2.0), models, torch.tensor([1.0, 2.0]))
    tensor([0.2000, 0.0000])
    """
    squared = ((models - w) ** 2).sum(-1)
    apart = squared > 0
    return torch.where(apart, (loss - losses) / torch.where(apart, squared, 1).sqrt(), 0)


def fedfomo_weights(scores):
    """max(0, score), normalised to sum 1; all zero when nobody helps, and then nothing moves.

    FedFomo (Zhang et al. 2021).

    Equation label: eq-fedfomo-weights

    >>> fedfomo_weights(torch.tensor([3.0, -1.0, 1.0]))
    tensor([0.7500, 0.0000, 0.2500])
    """
    good = scores.clamp(min=0)
    total = good.sum(-1, keepdim=True)
    return good / torch.where(total > 0, total, 1)


def fedfomo_update(w, models, weights):
    """θ_i ← θ_i + Σ_n weight_n(θ_n − θ_i).

    FedFomo (Zhang et al. 2021).

    Equation label: eq-fedfomo-update

    >>> fedfomo_update(torch.tensor([1.0]), torch.tensor([[3.0], [9.0]]), torch.tensor([0.5, 0.0]))
    tensor([2.])
    """
    return w + weights @ (models - w)


def apple_mix(p, core):
    """θ_i = Σ_j p_ij c_j: the personal model, made of everybody's core models (rows).

    APPLE (Luo and Wu 2022). The weights p need not be positive nor sum to 1.

    Equation label: eq-apple-mix

    >>> apple_mix(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([2., 1.])
    """
    return p @ core


def apple_gradients(grad, p, core, own, prior, mu, schedule):
    """p_ii·∇F(θ) for the own core model, and ⟨c_j, ∇F(θ)⟩ + λ(r)μ(p_j − p⁰_j) for the weights.

    APPLE (Luo and Wu 2022): the gradients of F_i(θ_i) + λ(r)(μ/2)‖p_i − p⁰‖² at
    ``grad`` = ∇F_i(θ_i). ``own`` is the client's own row in ``core``, ``prior`` p⁰ = n_j/n,
    ``schedule`` λ(r). Returns (gradient of c_i, gradient of p_i).

    Equation label: eq-apple-gradients

    >>> p, core, prior = torch.tensor([0.5, 1.0]), torch.eye(2), torch.tensor([0.5, 0.5])
    >>> apple_gradients(torch.tensor([2.0, 4.0]), p, core, 0, prior, mu=0.1, schedule=1.0)
    (tensor([1., 2.]), tensor([2.0000, 4.0500]))
    """
    mu = checked(_check.non_negative, "mu", mu)
    # Under vmap the own place is a tensor, and a tensor cannot index as a number does.
    mine = p.gather(0, own.reshape(1)) if isinstance(own, torch.Tensor) else p[own]
    return mine * grad, core @ grad + schedule * mu * (p - prior)


def apple_schedule(round, horizon):
    """λ(r) = (cos(πr/L) + 1)/2 for r < L, then 0: how long the prior holds the weights.

    APPLE (Luo and Wu 2022, the "cos" scheduler). ``round`` may be a tensor.

    Equation label: eq-apple-schedule

    >>> apple_schedule(torch.tensor([0, 200, 400, 401]), horizon=400)
    tensor([1.0000, 0.5000, 0.0000, 0.0000])
    """
    horizon = _check.positive("horizon", horizon)
    if isinstance(round, torch.Tensor):
        return (torch.cos(math.pi * (round / horizon).clamp(0, 1)) + 1) / 2
    round = _check.non_negative("round", round)
    return (math.cos(math.pi * min(round / horizon, 1)) + 1) / 2
