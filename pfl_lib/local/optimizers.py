"""The optimizers, written once for all engines.

``in_place`` updates the given tensors instead of allocating new ones, with the same operations, for
engines that own their memory.
"""

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Rule:
    """An update rule: an optimizer and its refinements."""

    optimizer: str
    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None

    @property
    def plain(self) -> bool:
        """Whether this is plain SGD or Adam."""
        refined = self.momentum or self.weight_decay or self.clip
        return self.optimizer != "adamw" and not refined

    @property
    def memory(self) -> tuple[str, ...]:
        """The names of the optimizer's buffers per row."""
        if self.optimizer == "sgd":
            return ("velocity",) if self.momentum else ()
        return ("mean", "square")


def start_memory(s: MutableMapping[str, Tensor], rule: Rule, names: Sequence[str]) -> None:
    """Add the optimizer's buffers, all zero, for the rows it updates."""
    for name in names:
        for kind in rule.memory:
            s[f"{name}_{kind}"] = torch.zeros_like(s[name])


def move(
    rule: Rule, s: Mapping[str, Tensor], g: Tensor, t: int, name: str = "w"
) -> dict[str, Tensor]:
    """Step t of ``s[name]`` along the (already clipped) ``g``, by torch.optim's formulas.

    Masked coordinates do not decay either.
    """
    w, lr = s[name], rule.lr
    decay = rule.weight_decay * w * s.get("mask", 1) if rule.weight_decay else None
    if decay is not None and rule.optimizer != "adamw":
        g = g + decay
    if rule.optimizer == "sgd":
        if not rule.momentum:
            return {name: sgd(w, g, lr)}
        velocity = rule.momentum * s[f"{name}_velocity"] + g
        along = g + rule.momentum * velocity if rule.nesterov else velocity
        return {name: sgd(w, along, lr), f"{name}_velocity": velocity}
    if decay is not None and rule.optimizer == "adamw":
        w = w - lr * decay
    moved, mean, square = adam(w, g, s[f"{name}_mean"], s[f"{name}_square"], lr, t)
    return {name: moved, f"{name}_mean": mean, f"{name}_square": square}


def clipped(gradients: Sequence[Tensor], clip: float | None, rows: bool = False) -> list[Tensor]:
    """The pieces of one client's gradient, scaled so that their joint norm is at most ``clip``.

    With ``rows`` there is one piece, whose rows are the clients' gradients.
    """
    if clip is None:
        return list(gradients)
    if rows:
        norm = torch.linalg.vector_norm(gradients[0], dim=1, keepdim=True)
    else:
        norm = torch.stack([torch.linalg.vector_norm(g) for g in gradients]).norm()
    shorter = (clip / (norm + 1e-6)).clamp(max=1)  # as torch.nn.utils.clip_grad_norm_
    return [g * shorter for g in gradients]


def move_in_place(
    pieces: Sequence[Mapping[str, Tensor]],
    gradients: Sequence[Tensor],
    rule: Rule,
    t: int,
    rows: bool = False,
) -> None:
    """Step t of some pieces of models with their gradient terms; changes pieces and gradients.

    The pieces belong to one client, or (``rows``) there is one piece with a client in each row.
    """
    gradients = [gradient_with_terms(g, s, in_place=True) for s, g in zip(pieces, gradients)]
    if not rule.plain:
        for s, g in zip(pieces, clipped(gradients, rule.clip, rows)):
            for name, value in move(rule, s, g, t).items():
                s[name].copy_(value)
    elif rule.optimizer == "sgd":
        for s, g in zip(pieces, gradients):
            sgd(s["w"], g, rule.lr, in_place=True)
    elif pieces[0]["w"].device.type in FUSED and hasattr(torch, "_fused_adam_"):
        _fused_adam(pieces, gradients, rule.lr, t)
    else:
        for s, g in zip(pieces, gradients):
            adam(s["w"], g, s["w_mean"], s["w_square"], rule.lr, t, in_place=True)


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
