"""The terms of local training, once: for the formulas and for every engine."""

from collections.abc import Mapping

import torch
from torch import Tensor


def gradient_with_terms(g: Tensor, s: Mapping[str, Tensor], in_place: bool = False) -> Tensor:
    """The loss gradient ``g`` at ``s["w"]`` with whichever of penalty, correction and mask ``s``
    holds: (g + strength·(w − centre) + correction)·mask.

    The one place where local training gets its terms, for every engine.  ``in_place`` writes into
    ``g``.
    """
    out = g if in_place else None
    if "centre" in s:
        g = proximal_gradient(g, s["w"], s["centre"], s["strength"], out=out)
    if "correction" in s:
        g = torch.add(g, s["correction"], out=out)
    if "mask" in s:
        g = torch.mul(g, s["mask"], out=out)
    return g


def proximal_gradient(
    g: Tensor, w: Tensor, centre: Tensor, strength: float | Tensor, out: Tensor | None = None
) -> Tensor:
    """∇F(w) + strength·(w − centre), the gradient of F(w) + (strength/2)·‖w − centre‖²."""
    return torch.add(g, strength * (w - centre), out=out)
