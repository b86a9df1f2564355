"""FedACS: the scheme of its theorem and the one it runs."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.book.theory.basics import norm2
from pfl_lib.formulas import cosine_similarities


def balanced(S):
    """A positive symmetric matrix scaled, rows and columns alike, until every row sums to 1.

    >>> balanced(torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    tensor([[0.6667, 0.3333],
            [0.3333, 0.6667]])
    """
    if not (S > 0).all() or not torch.equal(S, S.T):
        raise ValueError("S must be symmetric with positive entries")
    for _ in range(1000):
        r = S.sum(1).rsqrt()
        S = r[:, None] * S * r
    return S


@dataclass(frozen=True)
class PulledQuadratics:
    """FedACS's problem F + λR, R(W) = Σ_ij s_ij‖w_i − w_j‖², with s frozen and quadratic losses.

    F_i(w) = ½Σ_q h_iq(w_q − c_iq)²; s is symmetric. Models are (m, d), or many at once (..., m, d).

    >>> problem, start = fedacs_toy()
    >>> isinstance(problem, PulledQuadratics)
    True
    """

    h: torch.Tensor
    c: torch.Tensor
    s: torch.Tensor
    lam: float

    def __post_init__(self):
        if not torch.allclose(self.s, self.s.T):
            raise ValueError("s must be symmetric; R's gradient is another one otherwise")

    @functools.cached_property
    def _laplacian(self):
        return torch.diag(self.s.sum(1)) - self.s

    def loss_gradient(self, W):
        """∇F(W)."""
        return self.h * (W - self.c)

    def pull(self, W):
        """R(W).

        Equation label: eq-fedacs-regulariser
        """
        return 2 * (W * (self._laplacian @ W)).sum((-2, -1))

    def pull_gradient(self, W):
        """∇R(W) = 4Σ_j s_ij(w_i − w_j), row i.

        Equation label: eq-fedacs-regulariser-gradient
        """
        return 4 * self._laplacian @ W

    def value(self, W):
        """F_λ(W)."""
        loss = 0.5 * (self.h * (W - self.c) ** 2).sum((-2, -1))
        return loss + self.lam * self.pull(W)

    def gradient(self, W):
        """∇F_λ(W)."""
        return self.loss_gradient(W) + self.lam * self.pull_gradient(W)

    @property
    def smoothness(self):
        """L = max(L_F, λL_R)."""
        of_pull = 4 * torch.linalg.eigvalsh(self._laplacian)[-1]
        return max(float(self.h.max()), self.lam * float(of_pull))

    def near(self, W, strength):
        """argmin_Z F_λ(Z) + (strength/2)‖Z − W‖², exactly; strength 0 gives the minimiser."""
        system = torch.diag_embed(self.h.T + strength) + 4 * self.lam * self._laplacian
        right = self.h * self.c + strength * W
        return torch.linalg.solve(system, right.mT[..., None])[..., 0].mT

    def path(self, start, alpha, beta, rounds):
        """U = W − α∇R(W), W⁺ = U − β∇F(U): all W (rounds + 1, m, d) and all U (rounds, m, d).

        The theorem takes α = λ/√K and β = 1/√K. The algorithm mixes, U = sW: for unit rows that
        is α = ¼, whatever λ and K.
        """
        W, U = [start], []
        for _ in range(_check.whole("rounds", rounds)):
            U.append(W[-1] - alpha * self.pull_gradient(W[-1]))
            W.append(U[-1] - beta * self.loss_gradient(U[-1]))
        return torch.stack(W), torch.stack(U)

    def slope_bound(self, W, U):
        """B ≥ ‖∇F‖, λ‖∇R‖ wherever the proof looks: the iterates, their envelope points, between.

        Both gradients are affine here, so their norms are largest at the ends of a segment.
        """
        ends = torch.cat([W, U])
        ends = torch.cat([ends, self.near(ends, 4 * self.smoothness)])
        slopes = torch.cat([self.loss_gradient(ends), self.lam * self.pull_gradient(ends)])
        return float(norm2(slopes).max().sqrt())


#: (a, e, f) of a·(excess + 16LB²)/√K + e·L²B²/K + f·B² in FedACS's theorem.
FEDACS_THEOREM = {"repaired": (6, 240, 0), "by (17)": (18, 720, 0), "by (13)": (6, 0, 3)}


def fedacs_theorem_bound(excess, L, B, rounds, form="repaired"):
    """A bound on the mean (so on the least) ‖∇F_λ‖² of the analysed scheme.

    "by (13)" is what the printed proof gives when its sum is done with care, "by (17)" what its
    last inequality gives, "repaired" that one with the strong convexity of the envelope problem.

    Equation label: eq-fedacs-theorem

    >>> fedacs_theorem_bound(excess=0.0, L=1.0, B=1.0, rounds=16)
    39.0
    """
    a, e, f = FEDACS_THEOREM[_check.one_of("form", form, FEDACS_THEOREM)]
    rounds = _check.whole("rounds", rounds)
    return a * (excess + 16 * L * B**2) / math.sqrt(rounds) + e * (L * B) ** 2 / rounds + f * B**2


def fedacs_toy():
    """Two groups of three clients with frozen similarities of unit rows, and a start.

    >>> problem, start = fedacs_toy()
    >>> problem.c.shape, problem.s.shape
    (torch.Size([6, 3]), torch.Size([6, 6]))
    """
    random = np.random.default_rng(2)
    h = random.uniform(0.3, 1.5, (6, 3))
    c = 2 + np.vstack([random.normal(-1, 0.3, (3, 3)), random.normal(1, 0.3, (3, 3))])
    start = random.normal(2, 1.5, (6, 3))
    centers = torch.from_numpy(c)
    s = balanced(cosine_similarities(centers).clamp(min=0.05))
    return PulledQuadratics(torch.from_numpy(h), centers, s, lam=0.2), torch.from_numpy(start)
