"""Each optimizer once, for every engine.

``in_place`` changes the tensors it is given instead of making new ones: the same operations on the
same numbers, for engines that own their memory.
"""

import math
from collections.abc import Mapping, MutableMapping, Sequence

import torch
from torch import Tensor

from pfl_lib._terms import gradient_with_terms

ADAM = (0.9, 0.999, 1e-8)  # decay of the mean, decay of the square, epsilon
FUSED = ("cpu", "cuda")  # devices for which torch has Adam as one kernel


def sgd(w: Tensor, g: Tensor, lr: float, in_place: bool = False) -> Tensor:
    """w − lr·g."""
    return w.sub_(g, alpha=lr) if in_place else w - lr * g


def adam(
    w: Tensor, g: Tensor, mean: Tensor, square: Tensor, lr: float, t: int, in_place: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Step t (from 1) of Adam (Kingma & Ba 2015, Algorithm 1): the new w, mean and square."""
    decay, decay_square, epsilon = ADAM
    mean = torch.add(decay * mean, (1 - decay) * g, out=mean if in_place else None)
    square = torch.add(
        decay_square * square, (1 - decay_square) * g * g, out=square if in_place else None
    )
    scale = lr / (1 - decay**t)
    root = square.sqrt() / math.sqrt(1 - decay_square**t) + epsilon
    return torch.sub(w, scale * mean / root, out=w if in_place else None), mean, square


def start_memory(s: MutableMapping[str, Tensor], optimizer: str, names: Sequence[str]) -> None:
    """Put what the optimizer remembers beside the rows it moves; Adam starts at zero."""
    if optimizer == "adam":
        for name in names:
            s[f"{name}_mean"] = torch.zeros_like(s[name])
            s[f"{name}_square"] = torch.zeros_like(s[name])


def move_in_place(
    pieces: Sequence[Mapping[str, Tensor]],
    gradients: Sequence[Tensor],
    optimizer: str,
    lr: float,
    t: int,
) -> None:
    """Step t of some pieces of models with terms of their own, in place on pieces and gradients."""
    gradients = [gradient_with_terms(g, s, in_place=True) for s, g in zip(pieces, gradients)]
    if optimizer == "sgd":
        for s, g in zip(pieces, gradients):
            sgd(s["w"], g, lr, in_place=True)
    elif pieces[0]["w"].device.type in FUSED and hasattr(torch, "_fused_adam_"):
        _fused_adam(pieces, gradients, lr, t)
    else:
        for s, g in zip(pieces, gradients):
            adam(s["w"], g, s["w_mean"], s["w_square"], lr, t, in_place=True)


def _fused_adam(
    pieces: Sequence[Mapping[str, Tensor]], gradients: Sequence[Tensor], lr: float, t: int
) -> None:
    """``adam`` for all pieces, in one pass over memory: torch's own kernel.

    It reads raw memory, so the layouts of parameters and gradients must agree.
    """
    decay, decay_square, epsilon = ADAM
    w = [s["w"] for s in pieces]
    g = [
        g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
        for p, g in zip(w, gradients)
    ]
    mean, square = ([s[name] for s in pieces] for name in ("w_mean", "w_square"))
    step = torch.full((), float(t), device=w[0].device)
    torch._fused_adam_(
        w, g, mean, square, [], [step] * len(pieces),
        lr=lr, beta1=decay, beta2=decay_square, eps=epsilon, weight_decay=0.0,
        amsgrad=False, maximize=False,
    )  # fmt: skip
