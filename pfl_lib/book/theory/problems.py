"""FedAMP's problem on losses that can be minimised exactly, and the book's toys of it."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.attention import Attention, negative_exponential, tamed_square_root
from pfl_lib.book.theory.basics import _each, norm2
from pfl_lib.book.theory.bounds import coupling_smoothness
from pfl_lib.formulas import fedamp_gradient, fedamp_objective, proximal_step_quadratic


@dataclass(frozen=True)
class Problem:
    """FedAMP's problem G(W) = F(W) + λ𝒜(W), on losses that can be minimised exactly.

    Row i of ``c`` is where client i's loss is least. Every method takes one stack of models
    (m, d), or many at once (..., m, d). A kind of loss says ``loss``, ``loss_gradient``, ``prox``.

    >>> problem = plane_toy(negative_exponential(1.0))
    >>> isinstance(problem, Problem)
    True
    >>> bool(problem.loss(problem.c).abs().max() < 1e-9)  # the optima cost nothing in F
    True
    """

    c: torch.Tensor
    attention: Attention
    lam: float

    def loss(self, W):
        """F(W) = Σ_i F_i(w_i)."""
        raise NotImplementedError

    def loss_gradient(self, W):
        """∇F(W), row i for client i."""
        raise NotImplementedError

    def prox(self, U, beta):
        """argmin_W F(W) + ‖W − U‖²/(2β): the clients' half of a round, solved exactly."""
        raise NotImplementedError

    def price(self, W):
        """𝒜(W)."""
        return _each(lambda w: fedamp_objective(w, self.attention), W)

    def price_gradient(self, W):
        """∇𝒜(W), with its factor 2."""
        return _each(lambda w: fedamp_gradient(w, self.attention), W)

    def value(self, W):
        """G(W)."""
        return self.loss(W) + self.lam * self.price(W)

    def gradient(self, W):
        """∇G(W)."""
        return self.loss_gradient(W) + self.lam * self.price_gradient(W)

    def message(self, W, alpha):
        """W − α∇𝒜(W): the server's half of a round."""
        return W - alpha * self.price_gradient(W)

    def round(self, W, alpha):
        """One round of FedAMP with the true gradient and exact local solutions."""
        return self.prox(self.message(W, alpha), alpha / self.lam)

    def path(self, start, alpha, rounds):
        """The models after 0, 1, …, ``rounds`` rounds, as (rounds + 1, m, d)."""
        models = [start]
        for _ in range(_check.whole("rounds", rounds)):
            models.append(self.round(models[-1], alpha))
        return torch.stack(models)

    def steepest(self, path):
        """The least B for which Assumption 1 holds at these models (k, m, d)."""
        pull = self.lam**2 * norm2(self.price_gradient(path))
        return float(torch.maximum(norm2(self.loss_gradient(path)), pull).max().sqrt())

    @property
    def price_smoothness(self):
        """L_A, a Lipschitz constant of ∇𝒜."""
        return coupling_smoothness(self.attention, self.c.shape[-2])

    def settle(self, start, rounds=20_000, tolerance=1e-14):
        """Where FedAMP with the constant step 1/(2L_A) comes to rest: a stationary point of G."""
        alpha = 1 / (2 * self.price_smoothness)
        for _ in range(_check.whole("rounds", rounds)):
            new = self.round(start, alpha)
            if (new - start).abs().max() < tolerance:
                break
            start = new
        return new

    def envelope(self, W, L, rounds=200):
        """argmin_V G(V) + 2L‖V − W‖², and the minimum: v1's W̄ and Ĝ(W), Eq. (18).

        ∇G must be 2L-Lipschitz. Then each step of gradient descent halves the error, or better.
        """
        near = W
        for _ in range(rounds):
            near = near - (self.gradient(near) + 4 * L * (near - W)) / (6 * L)
        return near, self.value(near) + 2 * L * norm2(near - W)


@dataclass(frozen=True)
class Quadratics(Problem):
    """F_i(w) = ½(w − c_i)ᵀH_i(w − c_i), for which Theorem 1 can be tried.

    >>> c = torch.tensor([[0.0], [3.0]])
    >>> problem = Quadratics(c, tamed_square_root(sigma=1.0), 1.0, H=torch.ones(2, 1, 1))
    >>> problem.prox(torch.zeros(2, 1), beta=1.0)
    tensor([[0.0000],
            [1.5000]])
    """

    H: Any = None

    def __post_init__(self):
        if not isinstance(self.H, torch.Tensor) or self.H.shape[-2:] != (self.c.shape[-1],) * 2:
            raise ValueError(f"H must hold one d×d matrix per client, got {self.H!r}")

    @functools.cached_property
    def _eigen(self):
        return torch.linalg.eigh(self.H)

    def loss(self, W):
        return 0.5 * ((W - self.c) * self.loss_gradient(W)).sum((-2, -1))

    def loss_gradient(self, W):
        return (self.H @ (W - self.c)[..., None])[..., 0]

    def prox(self, U, beta):
        curvature, basis = self._eigen  # along the eigenvectors the coordinates do not interact
        turned = ((basis.mT @ v[..., None])[..., 0] for v in (U, self.c))
        u, c = turned
        return (basis @ proximal_step_quadratic(u, curvature, c, beta)[..., None])[..., 0]


@dataclass(frozen=True)
class FlatBowls(Problem):
    """F_i(w) = Σ_q ρ(w_q − c_iq) with ρ(x) = x²/(1 + x²): smooth, not convex, flat far away.

    ``|ρ'| ≤ 9/(8√3)`` and −½ ≤ ρ'' ≤ 2 everywhere, so the constants of Theorem 2 are known.

    >>> problem = FlatBowls(torch.zeros(1, 1), tamed_square_root(sigma=1.0), 1.0)
    >>> problem.prox(torch.ones(1, 1), beta=0.5)
    tensor([[0.6823]])
    """

    def loss(self, W):
        square = (W - self.c) ** 2
        return (square / (1 + square)).sum((-2, -1))

    def loss_gradient(self, W):
        x = W - self.c
        return 2 * x / (1 + x * x) ** 2

    def prox(self, U, beta):
        """Newton's method for each coordinate, kept between u and c by bisection."""
        if not beta < 2:
            raise ValueError(f"beta must be below 2 for the local problem to be convex, got {beta}")
        low, high, w = torch.minimum(U, self.c), torch.maximum(U, self.c), U
        for _ in range(100):
            square = (w - self.c) ** 2
            slope = self.loss_gradient(w) + (w - U) / beta
            low, high = torch.where(slope < 0, w, low), torch.where(slope > 0, w, high)
            new = w - slope / ((2 - 6 * square) / (1 + square) ** 3 + 1 / beta)
            new = torch.where((new < low) | (new > high), (low + high) / 2, new)
            if (new - w).abs().max() < 4e-15:
                break
            w = new
        return new

    @property
    def smoothness(self):
        """L = max(L_F, λL_A)."""
        return max(2.0, self.lam * self.price_smoothness)

    @property
    def slope_bound(self):
        """B ≥ ‖∇F‖, λ‖∇𝒜‖ at every W; for the exponential only."""
        m, d = self.c.shape[-2:]
        steepest = math.sqrt(2 * self.attention.slope_at_zero / math.e)  # of r ↦ A(r²)
        of_price = self.lam * math.sqrt(m) * (m - 1) * steepest
        return max(9 / (8 * math.sqrt(3)) * math.sqrt(m * d), of_price)


def plane_toy(attention, lam=1.0):
    """Six clients in two groups who each have a noisy estimate of a point in the plane.

    >>> problem = plane_toy(negative_exponential(1.0))
    >>> problem.c.shape
    torch.Size([6, 2])
    """
    truth = torch.tensor([[-2.0, 1.0]] * 3 + [[2.0, -1.0]] * 3, dtype=torch.float64)
    random = torch.Generator().manual_seed(1)
    noise = torch.randn(6, 2, generator=random, dtype=torch.float64)
    return Quadratics(truth + 0.9 * noise, attention, lam, H=torch.eye(2, dtype=torch.float64))


def random_starts(count, like, spread, seed=0):
    """``count`` stacks of models of the shape of ``like``, normal with this spread.

    >>> random_starts(3, like=torch.zeros(6, 2), spread=1.0).shape
    torch.Size([3, 6, 2])
    """
    random = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, *like.shape, generator=random, dtype=like.dtype)


def convex_toy(seed=0, m=6, d=4, sigma=0.5, lam=0.3):
    """Quadratics in two groups with the tamed square root, and a start: all of Theorem 1 holds.

    >>> problem, start = convex_toy()
    >>> bool(problem.value(problem.round(start, 0.1)) < problem.value(start))
    True
    """
    random = np.random.default_rng(seed)
    H = []
    for _ in range(m):
        basis = np.linalg.qr(random.normal(size=(d, d)))[0]
        H.append(basis @ np.diag(random.uniform(0.2, 2, d)) @ basis.T)
    c = np.vstack([random.normal(-1, 0.2, (m // 2, d)), random.normal(1, 0.2, (m - m // 2, d))])
    start = np.random.default_rng(100 + seed).normal(0, 2, (m, d))
    curvatures = torch.from_numpy(np.stack(H))
    problem = Quadratics(torch.from_numpy(c), tamed_square_root(sigma), lam, H=curvatures)
    return problem, torch.from_numpy(start)


def nonconvex_toy(sigma=2.0, lam=0.15):
    """Flat bowls in two groups with the exponential, and a start: all of Theorem 2 holds.

    >>> problem, start = nonconvex_toy()
    >>> type(problem).__name__, tuple(start.shape)
    ('FlatBowls', (5, 3))
    """
    random = np.random.default_rng(3)
    c = np.vstack([random.normal(-1.2, 0.3, (3, 3)), random.normal(1.2, 0.3, (2, 3))])
    start = torch.from_numpy(random.normal(0, 1.5, (5, 3)))
    return FlatBowls(torch.from_numpy(c), negative_exponential(sigma), lam), start
