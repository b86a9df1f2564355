"""The gradient terms of local training, written once for the formulas and for every engine."""

from collections.abc import Mapping

import torch
from torch import Tensor

AT_ONCE = 64  # samples whose gradients are in memory together
EDGE = 2.0**-25  # uniform numbers are multiples of 2⁻²⁴; 0 would become minus infinity


def gradient_with_terms(g: Tensor, s: Mapping[str, Tensor], in_place: bool = False) -> Tensor:
    """The loss gradient ``g`` at ``s["w"]`` with whichever of penalty, correction and mask ``s``
    holds: (g + strength·(w − center) + correction)·mask.

    Every engine gets its terms from here.  ``in_place`` writes into ``g``.
    """
    out = g if in_place else None
    if "center" in s:
        g = proximal_gradient(g, s["w"], s["center"], s["strength"], out=out)
    if "correction" in s:
        g = torch.add(g, s["correction"], out=out)
    if "mask" in s:
        g = torch.mul(g, s["mask"], out=out)
    return g


def proximal_gradient(
    g: Tensor, w: Tensor, center: Tensor, strength: float | Tensor, out: Tensor | None = None
) -> Tensor:
    """∇F(w) + strength·(w − center), the gradient of F(w) + (strength/2)·‖w − center‖²."""
    return torch.add(g, strength * (w - center), out=out)


def private_gradient(objective, w, batch, client, mask=None):
    """(Σ clipped(g_s) + noise·clip·g) / (rate·n) over the samples s drawn in this step.

    ``objective(w, batch)`` is a mean over samples, ``batch`` holds all n of the client's, each of
    which is sampled with probability ``rate``; g is standard normal (Abadi et al. 2016, Algorithm
    1, with Poisson sampling).  Masked coordinates neither count nor receive noise. ``batch.noise``
    is a uniform number for each sample, then one for each parameter.
    """
    clip, noise, rate = (client.numbers[f"private_{n}"] for n in ("clip", "noise", "rate"))
    n, only = len(batch.weight), torch.ones_like(batch.weight[:1])

    def loss_of(w, x, y):
        return objective(w, batch._replace(x=x[None], y=y[None], weight=only))

    each = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))
    chosen = batch.weight * (batch.noise[:n] < rate)
    total = torch.zeros_like(w)
    for at in range(0, n, AT_ONCE):
        some = slice(at, at + AT_ONCE)
        rows = each(w, batch.x[some], batch.y[some])
        rows = rows if mask is None else rows * mask
        length = rows.square().sum(1).sqrt().clamp(min=1e-30)
        total = total + (chosen[some] * (clip / length).clamp(max=1)) @ rows
    uniform = batch.noise[len(batch.noise) - len(w) :].clamp(EDGE, 1 - EDGE)
    normal = torch.special.ndtri(uniform)
    total = total + noise * clip * (normal if mask is None else normal * mask)
    return total / (rate * batch.weight.sum())
