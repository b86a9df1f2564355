"""The parts of a given module: those that are trained, buffers that training updates, constants,
parts that draw random numbers; and the modules that are refused."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pfl_lib.random import keyed_generator

NORMALIZATION = (
    nn.modules.batchnorm._NormBase,  # batch and instance normalization
    nn.GroupNorm,
    nn.LayerNorm,
    *([nn.RMSNorm] if hasattr(nn, "RMSNorm") else []),
)
DROPOUT: dict[type, bool] = {
    nn.Dropout: False,
    nn.Dropout1d: True,
    nn.Dropout2d: True,
    nn.Dropout3d: True,
}


# ---- dropout ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DropoutKey:
    """The key of the draws of one forward pass: seed, tag, round, client and step."""

    parts: tuple[int | str, ...]

    def uniform(self, call: int, shape: Sequence[int]) -> Tensor:
        """The numbers for the ``call``-th dropout of a forward pass, drawn on the CPU."""
        return torch.rand(*shape, generator=keyed_generator(*self.parts, call))


class Draws:
    """The source of the uniform numbers of a module's dropouts in a forward pass.

    ``source`` is a key (numbers are drawn on demand), or the numbers themselves, drawn in advance
    (under vmap nothing can be drawn per client), or None: then only shapes are recorded.
    """

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, source: DropoutKey | Sequence[Tensor] | None) -> None:
        """Begin a forward pass."""
        self.source, self.shapes = source, []  # type: ignore[var-annotated]

    def __deepcopy__(self, memo: dict) -> "Draws":
        return Draws()  # another module has forward passes of its own

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        call = len(self.shapes)
        self.shapes.append(tuple(shape))
        if self.source is None:
            return like.new_ones(())
        if isinstance(self.source, DropoutKey):
            return self.source.uniform(call, shape).to(like.device)
        return self.source[call]


class KeyedDropout(nn.Module):
    """``nn.Dropout`` or one of its variants (``kind``) whose draws are keyed."""

    def __init__(self, kind: type[nn.Module], p: float, draws: Draws):
        super().__init__()
        self.kind, self.p, self.draws, self.channels = kind, p, draws, DROPOUT[kind]

    def forward(self, x):
        if not self.training:
            return x
        shape = (*x.shape[:2], *[1] * (x.ndim - 2)) if self.channels else x.shape
        keep = self.draws.uniform(shape, x) >= self.p
        return x * keep.to(x.dtype) / (1 - self.p)

    def extra_repr(self):
        return f"p={self.p}"


# ---- batch normalization ----------------------------------------------------------------------


def _also_one_value(self: Any, input: Tensor) -> Tensor:
    """Batch normalization that accepts a batch with a single value per channel.

    torch refuses it, since one value has no variance; the last batch of an epoch may be like that.
    Here it is normalized with the running statistics, which stay unchanged.
    """
    forward = nn.modules.batchnorm._BatchNorm.forward
    if not self.training or input.numel() != input.shape[1]:
        return forward(self, input)
    self.training = False
    try:
        return forward(self, input)
    finally:
        self.training = True


class BatchNorm1d(nn.BatchNorm1d):
    """``nn.BatchNorm1d`` for batches of any size."""

    forward = _also_one_value


class BatchNorm2d(nn.BatchNorm2d):
    """``nn.BatchNorm2d`` for batches of any size."""

    forward = _also_one_value


class BatchNorm3d(nn.BatchNorm3d):
    """``nn.BatchNorm3d`` for batches of any size."""

    forward = _also_one_value


BATCH_NORM = {
    nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d,
    nn.BatchNorm3d: BatchNorm3d,
}


# ---- copies -----------------------------------------------------------------------------------


def copied(module: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A deep copy of a module with ``make(t)`` in the place of each parameter or buffer t."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(t): make(t) for t in tensors})


def prepared(module: nn.Module) -> Draws | None:
    """Prepare a module in place for federated training; returns the source of its dropout draws.

    Dropouts become keyed ones, batch normalization accepts single samples and counts no batches.  A
    module that is in evaluation mode as a whole is set to training; where only parts of it are, as
    with frozen batch normalization, they stay so.
    """
    if not module.training:
        module.train()
    draws = Draws()
    _replace_parts(
        module,
        lambda part: type(part) in DROPOUT and part.p > 0,
        lambda part: KeyedDropout(type(part), part.p, draws),
    )
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            part.num_batches_tracked = None
        if type(part) in BATCH_NORM:
            part.__class__ = BATCH_NORM[type(part)]  # type: ignore[index]
    return draws if any(isinstance(part, KeyedDropout) for part in module.modules()) else None


def restored(module: nn.Module) -> nn.Module:
    """Undo ``prepared`` in place: restore torch's own parts."""
    _replace_parts(
        module, lambda part: isinstance(part, KeyedDropout), lambda part: part.kind(part.p)
    )
    for part in module.modules():
        if type(part) in BATCH_NORM.values():
            part.__class__ = type(part).__base__  # type: ignore[assignment]
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats:
            part.num_batches_tracked = torch.zeros((), dtype=torch.long)
    return module


def _replace_parts(module: nn.Module, which: Callable[[Any], bool], make: Callable) -> None:
    """Put ``make(part)`` in the place of every part for which ``which(part)`` holds."""
    made: dict[int, nn.Module] = {}
    for parent in list(module.modules()):
        for name, part in list(parent._modules.items()):
            if part is not None and which(part):
                new = made.setdefault(id(part), make(part).train(part.training))
                setattr(parent, name, new)


def draws_of(module: nn.Module) -> Draws | None:
    """The source of draws that the dropouts of a prepared module share."""
    return next((part.draws for part in module.modules() if isinstance(part, KeyedDropout)), None)


# ---- state, and refused modules --------------------------------------------------------


@torch.no_grad()
def state_buffers(module: nn.Module, x: Tensor) -> tuple[str, ...]:
    """The names of the buffers that a training forward pass changes, such as running statistics:
    each client has its own.  All other buffers are constants.

    Modules whose random draws cannot be keyed are refused.
    """
    module = copied(module, lambda t: as_it_was(t, t.detach().clone().float() if _real(t) else t))
    prepared(module)
    for part in module.modules():
        part.requires_grad_(False)
    before = {name: b.clone() for name, b in module.named_buffers()}
    state = torch.random.get_rng_state()
    try:
        module(x)
        drawn = not torch.equal(state, torch.random.get_rng_state())
    finally:
        torch.random.set_rng_state(state)
    if drawn:
        raise ValueError(
            f"{type(module).__name__} draws random numbers in forward that cannot be keyed by "
            "client and round; use nn.Dropout, whose draws are"
        )
    changed = {n for n, b in module.named_buffers() if not torch.equal(b, before[n])}
    counted = sorted(n for n in changed if not _real(before[n]))
    if counted:
        raise ValueError(
            f"buffer {counted[0]} changes in forward, but it holds {before[counted[0]].dtype}: "
            "what each client has of its own must be floating-point numbers"
        )
    homes = {name.rpartition(".")[0] for name in changed}  # all buffers of a layer, or none
    return tuple(n for n, b in before.items() if n.rpartition(".")[0] in homes and _real(b))


def _real(t: Tensor) -> bool:
    return t.is_floating_point()


def as_it_was(old: Tensor, new: Tensor) -> Tensor:
    """``new`` as a parameter or plain tensor, as ``old`` is."""
    return nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new


def refuse_unsupported(module: nn.Module) -> None:
    """Refuse modules that cannot be one row of numbers with keyed draws."""
    for name, part in module.named_modules():
        where = f"{name or 'the model itself'}: {type(part).__name__}"
        _refuse_draws(part, where)
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            raise ValueError(
                f"batch normalization without running statistics is not supported ({where}), since "
                "what it says of a sample would depend on which others are tested with it; leave "
                "track_running_stats as it is"
            )
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.momentum is None:
            raise ValueError(
                f"momentum=None is not supported ({where}), since it counts batches over all "
                "rounds; give batch normalization a momentum, such as 0.1"
            )
    seen: dict[int, str] = {}
    for name, part in module.named_modules():
        for word, parameter in part.named_parameters(recurse=False):
            full = f"{name}.{word}" if name else word
            first = seen.setdefault(id(parameter), full)
            if first != full:
                raise ValueError(
                    f"tied parameters are not supported ({first} and {full} are one and the same): "
                    "a row has one place for each name; use one layer twice in forward instead"
                )
    if not any(p.requires_grad for p in module.parameters()):
        raise ValueError(
            f"{type(module).__name__} has no parameter to train: requires_grad is False for all"
        )


def _refuse_draws(part: nn.Module, where: str) -> None:
    if isinstance(part, (nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)):
        raise ValueError(f"{type(part).__name__} is not supported ({where}): no key for its draws")
    if isinstance(part, nn.modules.dropout._DropoutNd):
        if type(part) not in DROPOUT and part.p > 0:
            raise ValueError(
                f"{type(part).__name__} is not supported ({where}); use nn.Dropout, or set its "
                "rate to 0"
            )
        if part.p >= 1:
            raise ValueError(f"dropout p must lie in [0, 1), got {part.p} ({where})")
        return
    drops: Any = getattr(part, "dropout", 0)
    if isinstance(drops, float) and drops > 0:
        raise ValueError(
            f"dropout inside a layer is not supported ({where}), since its draws could not be "
            "keyed; set its rate to 0 and put an nn.Dropout beside it"
        )
