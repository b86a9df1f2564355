"""How many ends FedAMP has, and what its width does."""

import math

import numpy as np
import torch

from pfl_lib.attention import negative_exponential
from pfl_lib.book.theory.basics import _each, norm2
from pfl_lib.book.theory.bounds import coupling_smoothness
from pfl_lib.book.theory.problems import Quadratics
from pfl_lib.formulas import attention_weights, fedamp_gradient, proximal_step_quadratic


def bistable_centers(mu, lam, sigma, m):
    """Optima (m, 1) of one client against m − 1 equal ones, at the most ambiguous distance.

    With F_i = (μ/2)(w − c_i)² and the exponential, two stationary points are first possible where
    the curvature of A(r²) is least, at r² = 3σ/2; the distance of the optima is such that the
    models stand at this r when they are at rest.

    >>> bistable_centers(mu=1.0, lam=1.0, sigma=1.0, m=3).round(decimals=2)
    tensor([[2.8600],
            [0.0000],
            [0.0000]], dtype=torch.float64)
    """
    r = math.sqrt(1.5 * sigma)
    gap = r * (1 + 2 * lam * m / (mu * sigma) * math.exp(-1.5))
    c = torch.zeros(m, 1, dtype=torch.float64)
    c[0] = gap
    return c


def count_limits(mu, lam, sigma=1.0, m=4, starts=6, rounds=2000, tolerance=0.02, seed=0):
    """How many different places FedAMP comes to rest in, from several starts, for each (μ, λ).

    The clients are those of ``bistable_centers``; the local solutions are exact.

    >>> count_limits(mu=[1.0, 1.0], lam=[0.1, 2.0], starts=4, rounds=200)
    tensor([1, 2])
    """
    mu, lam = torch.broadcast_tensors(*(torch.as_tensor(v, dtype=torch.float64) for v in (mu, lam)))
    pairs = torch.stack([mu.flatten(), lam.flatten()], 1)
    c = torch.stack([bistable_centers(a, b, sigma, m) for a, b in pairs.tolist()])[:, None]
    random = torch.Generator().manual_seed(seed)
    noise = torch.rand(len(pairs), starts, m, 1, generator=random, dtype=torch.float64)
    way = torch.linspace(0, 1, starts, dtype=torch.float64)[:, None, None]
    W = c * way + 0.1 * noise  # the lone client from beside the others to its own optimum
    A = negative_exponential(sigma)
    alpha = 1 / coupling_smoothness(A, m)
    h, weight = pairs.T[..., None, None, None]
    for _ in range(rounds):
        U = W - alpha * _each(lambda w: fedamp_gradient(w, A), W)
        W = proximal_step_quadratic(U, h, c, alpha / weight)
    counts = torch.tensor([_distinct(limits, tolerance) for limits in W.flatten(2)])
    return counts.reshape(mu.shape)


def _distinct(points, tolerance):
    """How many of these points (n, d) are farther than ``tolerance`` from all counted before."""
    kept: list[torch.Tensor] = []
    for point in points:
        if all((point - other).abs().max() > tolerance for other in kept):
            kept.append(point)
    return len(kept)


def width_sweep(sigmas, seeds=20, m=10, d=5, separation=4.0, noise=0.7, coupling=1.0, rounds=400):
    """FedAMP on two noisy groups for each width σ, the coupling 2λA'(0) held fixed.

    Mean squared distance to the truth, and the share of attention inside one's own group; beside
    them what training alone, one mean for all, and the mean of the true group would give.

    >>> found = width_sweep([1.0, 10.0], seeds=3, rounds=50)
    >>> sorted(found)
    ['error', 'inside', 'one mean', 'separate', 'true groups']
    >>> found["true groups"] < found["separate"]
    True
    """
    group = torch.arange(m) * 2 // m
    truth = torch.zeros(m, d, dtype=torch.float64)
    truth[group == 1, 0] = separation
    drawn = np.stack([np.random.default_rng(seed).normal(size=(m, d)) for seed in range(seeds)])
    own = truth + noise * torch.from_numpy(drawn)
    same = (group[:, None] == group[None]).double()

    def error(models):
        return float(norm2(models - truth).mean() / m)

    found = {
        "separate": error(own),
        "one mean": error(own.mean(1, keepdim=True).expand_as(own)),
        "true groups": error(same @ own / same.sum(1, keepdim=True)),
        "error": [],
        "inside": [],
    }
    for sigma in sigmas:
        A, eye = negative_exponential(sigma), torch.eye(d, dtype=torch.float64)
        problem = Quadratics(own, A, coupling * sigma / 2, H=eye)
        W = own
        for _ in range(rounds):
            W = problem.round(W, 1 / problem.price_smoothness)
        xi = _each(lambda w, A=A: attention_weights(w, A, 0.0), W)
        found["error"].append(error(W))
        found["inside"].append(float((xi * same).sum(-1).mean()))
    return found
