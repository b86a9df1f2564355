"""The parts of a given module: those that are trained, buffers that training updates, constants,
parts that draw random numbers; and the modules that are refused."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

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


def _dropped(part: Any, x: Tensor) -> Tensor:
    """``x`` with keyed dropout at the rate of a part that drops inside."""
    keep = part.draws.uniform(x.shape, x) >= part.rate
    return x * keep.to(x.dtype) / (1 - part.rate)


def _layer_by_layer(self: Any, input: Any, hx: Any = None) -> tuple[Any, Any]:
    """A recurrent network with keyed dropout on what each layer hands to the next one."""
    kind: Any = type(self).__base__
    if not self.training or self.num_layers == 1:
        return kind.forward(self, input, hx)
    directions, pairs, ends = 1 + self.bidirectional, isinstance(hx, tuple), []
    for number in range(self.num_layers):
        rows = slice(number * directions, (number + 1) * directions)
        begin = hx if hx is None else tuple(h[rows] for h in hx) if pairs else hx[rows]
        if number:
            packed = isinstance(input, PackedSequence)
            x = _dropped(self, input.data if packed else input)
            input = PackedSequence(x, *input[1:]) if packed else x
        input, end = _layer(self, kind, number, rows).forward(input, begin)
        ends.append(end)
    whole = isinstance(ends[0], torch.Tensor)
    return input, torch.cat(ends) if whole else tuple(torch.cat(one) for one in zip(*ends))


def _layer(whole: Any, kind: Any, number: int, rows: slice) -> Any:
    """One layer of a recurrent network, with the whole one's own weights."""
    layer = kind.__new__(kind)
    layer.__dict__ = dict(whole.__dict__)
    layer._flat_weights_names = [name for some in whole._all_weights[rows] for name in some]
    layer._flat_weights = [getattr(whole, name) for name in layer._flat_weights_names]
    layer._flat_weight_refs = [None] * len(layer._flat_weights)  # nothing has changed since
    wide = (1 + whole.bidirectional) * (whole.proj_size or whole.hidden_size)
    layer.num_layers, layer.input_size = 1, wide if number else whole.input_size
    return layer


class KeyedAttention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` whose dropout of attention weights is keyed."""

    def forward(
        self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
        average_attn_weights=True, is_causal=False,
    ):  # fmt: skip
        given = query, key, value, key_padding_mask, need_weights or self.training, attn_mask
        if not self.training:
            return super().forward(*given, average_attn_weights, is_causal)
        # torch's weights, before dropout; its output, without dropout, is not used
        weights: Any = super().forward(*given, False, is_causal)[1]
        batched, first = query.ndim == 3, self.batch_first
        weights = _dropped(self, weights if batched else weights[None])
        out = weights @ self._values(value.transpose(0, 1) if batched and not first else value)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        out = (out if first else out.transpose(0, 1)) if batched else out[0]
        if not need_weights:
            return out, None
        weights = weights.mean(1) if average_attn_weights else weights
        return out, weights if batched else weights[0]

    def _values(self, value):
        """What attention averages: (samples, heads, sources, features)."""
        at, same = slice(2 * self.embed_dim, None), self._qkv_same_embed_dim
        matrix = self.in_proj_weight[at] if same else self.v_proj_weight
        bias = None if self.in_proj_bias is None else self.in_proj_bias[at]
        v = nn.functional.linear(value if value.ndim == 3 else value[None], matrix, bias)
        if self.bias_v is not None:
            v = torch.cat([v, self.bias_v.expand(len(v), -1, -1)], 1)
        if self.add_zero_attn:
            v = nn.functional.pad(v, (0, 0, 0, 1))
        return v.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


DROPS_INSIDE: dict[type, type] = {
    kind: type(f"Keyed{kind.__name__}", (kind,), {"forward": _layer_by_layer})
    for kind in (nn.RNN, nn.LSTM, nn.GRU)
} | {nn.MultiheadAttention: KeyedAttention}


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


BATCH_NORM: dict[type, type] = {
    kind: type(kind.__name__, (kind,), {"forward": _also_one_value})
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
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
    if not any(part.training for part in module.modules()):
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
            part.__class__ = BATCH_NORM[type(part)]
        if type(part) in DROPS_INSIDE and (rate := getattr(part, "dropout", 0.0)) > 0:
            part.__class__ = DROPS_INSIDE[type(part)]
            vars(part).update(rate=rate, dropout=0.0, draws=draws)
    return draws_of(module)


def restored(module: nn.Module) -> nn.Module:
    """Undo ``prepared`` in place: restore torch's own parts."""
    _replace_parts(
        module, lambda part: isinstance(part, KeyedDropout), lambda part: part.kind(part.p)
    )
    for part in module.modules():
        if type(part) in (*BATCH_NORM.values(), *DROPS_INSIDE.values()):
            part.__class__ = type(part).__base__  # type: ignore[assignment]
        if "rate" in vars(part):
            vars(part).update(dropout=vars(part).pop("rate"))
            del part.draws
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
    own = (getattr(part, "draws", None) for part in module.modules())
    return next((draws for draws in own if isinstance(draws, Draws)), None)


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
    if isinstance(drops, float) and drops > 0 and type(part) not in DROPS_INSIDE:
        raise ValueError(
            f"dropout inside a layer is not supported ({where}), since its draws could not be "
            "keyed; set its rate to 0 and put an nn.Dropout beside it"
        )
    if isinstance(drops, float) and drops >= 1:
        raise ValueError(f"dropout must lie in [0, 1), got {drops} ({where})")
