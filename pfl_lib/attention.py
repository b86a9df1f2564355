"""Attention-inducing functions A: how much two models listen to each other, given their distance.

FedAMP (Huang et al., Definition 1) measures two models by A(t) with t = ‖w_i − w_j‖², the
*squared* distance. A grows (or stays), is concave, and A(0) = 0; its derivative A'(t) is the
weight of the message from j to i: near models speak loudly, far ones softly or not at all.

Every function here works on tensors of squared distances of any shape, under autograd and vmap.
``sigma`` sets the scale. It may be a number, or a 0-dim tensor (so that a median of distances can
be used without leaving the device).
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from pfl_lib import _check


@dataclass(frozen=True)
class Attention:
    """An attention-inducing function A of the squared distance t (FedAMP, Definition 1).

    Subclasses say ``value`` (A), ``derivative`` (A'), ``slope_at_zero`` (A'(0+), the largest
    weight two models can have) and ``convex_until``.

    Equation label: eq-attention-definition

    >>> A = by_name("negative_exponential", sigma=2.0)
    >>> isinstance(A, Attention)
    True
    >>> t = torch.tensor([0.0, 2.0, 20.0])  # squared distances
    >>> A.derivative(t)  # the nearer, the more is heard
    tensor([5.0000e-01, 1.8394e-01, 2.2700e-05])
    >>> A.slope_at_zero
    0.5
    """

    sigma: float

    name: ClassVar[str] = "attention"
    convex: ClassVar[bool] = False
    sigma_is_distance: ClassVar[bool] = False  # else σ is a squared distance, like t

    def __post_init__(self):
        if isinstance(self.sigma, torch.Tensor):
            # Looking at the number would make a GPU wait, so a tensor is checked by shape only.
            if self.sigma.ndim != 0 or not self.sigma.is_floating_point():
                raise ValueError(
                    "sigma must be a number or a floating 0-dim tensor, "
                    f"got shape {tuple(self.sigma.shape)} of {self.sigma.dtype}"
                )
        else:
            object.__setattr__(self, "sigma", _check.positive("sigma", self.sigma))

    def value(self, t):
        """A(t), zero at t = 0."""
        raise NotImplementedError

    def derivative(self, t):
        """A'(t) ≥ 0, the unscaled weight of a message over the squared distance t."""
        raise NotImplementedError

    @property
    def slope_at_zero(self):
        """A'(0+), the supremum of A'."""
        raise NotImplementedError

    @property
    def convex_until(self):
        """The largest t up to which r ↦ A(r²), r = √t, curves upwards; inf when it always does."""
        return math.inf

    def ratio(self, t, nearest):
        """A'(t) / A'(nearest), and 0 where A'(nearest) = 0.

        With ``nearest`` the smallest t of a row this is at most 1: the same thing as subtracting
        the row maximum before a softmax.
        """
        top = self.derivative(nearest)
        heard = top > 0
        return torch.where(heard, self.derivative(t) / torch.where(heard, top, 1), 0)

    def with_sigma(self, sigma):
        """The same function with another width; ``sigma`` may be a 0-dim tensor."""
        return dataclasses.replace(self, sigma=sigma)


@dataclass(frozen=True)
class NegativeExponential(Attention):
    """A(t) = 1 − e^(−t/σ), A'(t) = e^(−t/σ)/σ: the function FedAMP adopts.

    FedAMP v1, Sec. 3.2. Its Eq. (9) prints e^(−t/(2σ)), which does not follow from this A;
    ``half_kernel=True`` is that reading: A(t/2), so every t below becomes t/2.
    A(‖·‖²) is convex only up to t = σ/2 (half kernel: σ), whatever σ.

    Equation label: eq-attention-exponential

    >>> A = negative_exponential(sigma=2.0)
    >>> A.derivative(torch.tensor([0.0, 2.0, 20.0]))
    tensor([5.0000e-01, 1.8394e-01, 2.2700e-05])
    """

    half_kernel: bool = False

    def __post_init__(self):
        super().__post_init__()
        _check.flag("half_kernel", self.half_kernel)

    name: ClassVar[str] = "negative_exponential"

    @property
    def _scale(self):
        return 2 * self.sigma if self.half_kernel else self.sigma

    def value(self, t):
        return -torch.expm1(-t / self._scale)

    def derivative(self, t):
        return torch.exp(-t / self._scale) / self._scale

    @property
    def slope_at_zero(self):
        return 1 / self._scale

    @property
    def convex_until(self):
        return self._scale / 2

    def ratio(self, t, nearest):
        # Subtracting first keeps the nearest neighbour's weight at 1 however small σ is.
        return torch.exp(-(t - nearest) / self._scale)


@dataclass(frozen=True)
class TamedSquareRoot(Attention):
    """A(t) = t/(2σ) up to t = σ², then √t − σ/2; A'(t) = 1/(2·max(σ, √t)).

    FedAMP v1, Sec. 3.2. A(r²) is the Huber function of r divided by σ, so A(‖·‖²) is convex and
    Theorem 1 applies; its attention is never sharp. Here σ is a distance, not a squared one.

    Equation label: eq-attention-tamed-square-root

    >>> tamed_square_root(sigma=1.0).derivative(torch.tensor([0.5, 4.0]))
    tensor([0.5000, 0.2500])
    """

    name: ClassVar[str] = "tamed_square_root"
    convex: ClassVar[bool] = True
    sigma_is_distance: ClassVar[bool] = True

    def _tamed(self, t):
        return torch.sqrt(torch.clamp(t, min=self.sigma * self.sigma))

    def value(self, t):
        root = self._tamed(t)
        return torch.where(
            t <= self.sigma * self.sigma, t / (2 * self.sigma), root - self.sigma / 2
        )

    def derivative(self, t):
        return 0.5 / self._tamed(t)

    @property
    def slope_at_zero(self):
        return 1 / (2 * self.sigma)


@dataclass(frozen=True)
class SCAD(Attention):
    """The smoothly clipped absolute deviation of s = t/σ (FedAMP names it; no formula printed)::

        A(t) = s                              for s ≤ 1
             = (2as − s² − 1) / (2(a − 1))    for 1 < s ≤ a
             = (a + 1)/2                      for s > a

    A'(t) = clip((a − s)/(a − 1), 0, 1)/σ: full weight up to t = σ, exactly none beyond t = aσ.
    That exact zero is a hard selection of neighbours.

    Equation label: eq-attention-scad

    >>> scad(sigma=1.0).derivative(torch.tensor([0.5, 1.0, 2.35, 3.7, 9.0]))
    tensor([1.0000, 1.0000, 0.5000, 0.0000, 0.0000])
    """

    a: float = 3.7

    name: ClassVar[str] = "scad"

    def __post_init__(self):
        super().__post_init__()
        if not _check.positive("a", self.a) > 1:
            raise ValueError(f"a must be above 1, got {self.a!r}")

    def value(self, t):
        s = torch.clamp(t / self.sigma, max=self.a)
        bent = (2 * self.a * s - s * s - 1) / (2 * (self.a - 1))
        return torch.where(s <= 1, s, bent)

    def derivative(self, t):
        return torch.clamp((self.a - t / self.sigma) / (self.a - 1), 0, 1) / self.sigma

    @property
    def slope_at_zero(self):
        return 1 / self.sigma

    @property
    def convex_until(self):
        return self.sigma * max(1.0, self.a / 3)


@dataclass(frozen=True)
class MCP(Attention):
    """The minimax concave penalty of s = t/σ (FedAMP names it; no formula printed).

    A(t) = s − s²/(2γ) for s ≤ γ, then γ/2; A'(t) = max(0, 1 − s/γ)/σ: the weight falls along a
    straight line and is exactly zero beyond t = γσ, a hard selection of neighbours.

    Equation label: eq-attention-mcp

    >>> mcp(sigma=1.0, gamma=2.0).derivative(torch.tensor([0.0, 1.0, 2.0, 9.0]))
    tensor([1.0000, 0.5000, 0.0000, 0.0000])
    """

    gamma: float = 2.0

    name: ClassVar[str] = "mcp"

    def __post_init__(self):
        super().__post_init__()
        _check.positive("gamma", self.gamma)

    def value(self, t):
        s = torch.clamp(t / self.sigma, max=self.gamma)
        return s - s * s / (2 * self.gamma)

    def derivative(self, t):
        return torch.clamp(1 - t / (self.gamma * self.sigma), min=0) / self.sigma

    @property
    def slope_at_zero(self):
        return 1 / self.sigma

    @property
    def convex_until(self):
        return self.gamma * self.sigma / 3


@dataclass(frozen=True)
class PseudoHuber(Attention):
    """A(t) = √(σ² + t) − σ, A'(t) = 1/(2√(σ² + t)): the tamed square root without its corner.

    Not in the papers; it satisfies Definition 1 and A(‖·‖²) is convex and smooth.

    Equation label: eq-attention-pseudo-huber

    >>> pseudo_huber(sigma=3.0).value(torch.tensor([0.0, 16.0]))
    tensor([0., 2.])
    """

    name: ClassVar[str] = "pseudo_huber"
    convex: ClassVar[bool] = True
    sigma_is_distance: ClassVar[bool] = True

    def _root(self, t):
        return torch.sqrt(self.sigma * self.sigma + t)

    def value(self, t):
        return t / (self._root(t) + self.sigma)  # the same number, without cancellation near 0

    def derivative(self, t):
        return 0.5 / self._root(t)

    @property
    def slope_at_zero(self):
        return 1 / (2 * self.sigma)


# The names one writes: fedamp_weights(W, negative_exponential(sigma=2.0), alpha=0.5).
negative_exponential = NegativeExponential
tamed_square_root = TamedSquareRoot
scad = SCAD
mcp = MCP
pseudo_huber = PseudoHuber

KINDS: dict[str, Any] = {
    kind.name: kind for kind in (NegativeExponential, TamedSquareRoot, SCAD, MCP, PseudoHuber)
}


def by_name(name, sigma):
    """The attention-inducing function of that name, with its other parameters at their defaults.

    >>> by_name("mcp", sigma=0.5)
    MCP(sigma=0.5, gamma=2.0)
    """
    return KINDS[_check.one_of("name", name, KINDS)](sigma=sigma)
