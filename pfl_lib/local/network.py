"""The model as a function of one vector, and the interface of a local step."""

import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MethodType
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pfl_lib.local import optimizers
from pfl_lib.local.batches import Samples
from pfl_lib.local.parts import as_it_was, copied, draws_of, prepared, refuse_unsupported, restored
from pfl_lib.local.precision import in_precision
from pfl_lib.work import Batch, Settings, Work


class Network:
    """An ``nn.Module`` as a function of one flat vector: a client's row.

    A row holds the trainable parameters and, after them, the buffers that training updates
    (``state``, such as the running statistics of batch normalization).  Frozen parameters and other
    buffers are the same for all clients and are kept here, once.
    """

    def __init__(
        self,
        module: nn.Module,
        state: Sequence[str] = (),
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
    ):
        refuse_unsupported(module)
        trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        columns = trained + [(n, b) for n, b in module.named_buffers() if n in state]
        self.names = [n for n, _ in columns]
        self.shapes = [t.shape for _, t in columns]
        self.lengths = [t.numel() for _, t in columns]
        self.d = sum(self.lengths)
        self.state = self.names[len(trained) :]
        self.trained = sum(self.lengths[: len(trained)])  # columns; the state follows
        self.module = copied(module, self._structure({id(t) for _, t in columns}, device, dtype))
        self.draws = prepared(self.module)
        self.dropout_shapes: Sequence[tuple[int, ...]] = ()  # of each call, for one sample
        self._set_modes()
        convolutions = (nn.Conv1d, nn.Conv2d)
        self.convolutional = any(isinstance(part, convolutions) for part in module.modules())
        self.channels_last = True  # set by a federation, which tries it
        self.recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
        everything = sum(1 for _ in module.parameters()) + sum(1 for _ in module.buffers())
        plain = self.draws is None and everything == len(trained)
        self.dense = _dense_layers(module) if plain else None
        self.transposed: list[str] = []  # matrices of stacks; shared by copies; see layout.py
        self.objective = "cross_entropy"  # the loss; set by a federation
        self.precision = "full"  # of arithmetic in training; set by a federation
        self.compile: str | None = None  # torch.compile's mode for the gradient of a stack
        self._compiled: Callable[[Tensor, Batch], Tensor] | None = None
        self._real: nn.Module | None = None
        self._spare: deque[Network] = deque()

    @property
    def by_hand(self) -> bool:
        """Whether the gradient of a stack is written out: for dense networks and cross-entropy."""
        usual = self.objective == "cross_entropy" and self.precision == "full"
        return self.dense is not None and usual and not self.compile

    @staticmethod
    def _structure(
        columns: set[int], device: str | torch.device, dtype: torch.dtype | None
    ) -> Callable[[Tensor], Tensor]:
        """Placeholders for the columns of a row; constants as they are, on the right device."""

        def make(t: Tensor) -> Tensor:
            if id(t) in columns:
                return _placeholder(t)
            constant = t.detach().to(device, dtype if t.is_floating_point() else None, copy=True)
            return nn.Parameter(constant, False) if isinstance(t, nn.Parameter) else constant

        return make

    def _set_modes(self) -> None:
        """The same structure in evaluation mode: running statistics, no dropout."""
        self.tested = copied(self.module, lambda t: t).eval()
        self.on_features, self.on_tested_features = _Features(self.module), _Features(self.tested)

    def copy(self) -> "Network":
        """A copy for another thread, since ``functional_call`` swaps the module's parameters."""
        other = copy.copy(self)
        other.module = copied(self.module, lambda t: t)
        other.draws = draws_of(other.module)
        other._set_modes()
        other._real, other._compiled, other._spare = None, None, deque()
        return other

    def borrow(self) -> "Network":
        """A copy for one thread, to be given back and reused."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.copy()

    def give_back(self, other: "Network") -> None:
        self._spare.append(other)

    def real(self, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """The module on a device, with channels-last filters where possible; values are not set.

        Made once, since a copy of a network serves one thread, one device and one precision.
        """
        if self._real is None:
            layout = torch.channels_last if self.channels_last else torch.contiguous_format
            self._real = self.empty(device, dtype).to(memory_format=layout)  # type: ignore[call-overload]
            for part in self._real.modules():
                if type(part) is nn.Conv1d and part.padding_mode == "zeros":
                    vars(part)["_conv_forward"] = MethodType(_conv_over_time, part)
        return self._real

    def empty(self, device: str | torch.device, dtype: torch.dtype) -> nn.Module:
        """A module like the given one with its own, uninitialized columns."""
        named = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        mine = {id(named[name]) for name in self.names}
        # looked up: functional_call leaves plain tensors in a layer that a module holds twice
        parameters = {id(t) for t in self.module.parameters()}

        def make(t: Tensor) -> Tensor:
            fresh = (
                torch.empty(t.shape, device=device, dtype=dtype) if id(t) in mine else t.detach()
            )
            return nn.Parameter(fresh, id(t) in mine) if id(t) in parameters else fresh

        return copied(self.module, make)

    @torch.no_grad()
    def filled(self, w: Tensor) -> nn.Module:
        """A standalone module with the values of the row ``w``, on the CPU."""
        module = copied(
            self.empty("cpu", w.dtype), lambda t: as_it_was(t, t.detach().cpu().clone())
        )
        for column, values in zip(self.columns_of(module), self.unflatten(w).values()):
            column.copy_(values)
        return restored(module)

    def columns_of(self, module: nn.Module) -> list[Tensor]:
        """The tensors of a module made by ``empty``, in the order of a row."""
        named = dict(module.named_parameters()) | dict(module.named_buffers())
        return [named[name] for name in self.names]

    def constants(self) -> Iterator[tuple[str, Tensor]]:
        """Ordered (name, value) of frozen parameters and constant buffers, which no row holds."""
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        return ((name, t) for name, t in named if name not in set(self.names))

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Ordered (name, columns) of parameters and buffers."""
        begin = 0
        for name, length in zip(self.names, self.lengths):
            yield name, slice(begin, begin + length)
            begin += length

    def unflatten(self, w: Tensor) -> dict[str, Tensor]:
        """The named parameters inside the vector ``w``; one split, so that its gradient is one
        concatenation."""
        pieces = w.split(self.lengths)
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, self.shapes)}

    def _named(self, w: Tensor) -> dict[str, Tensor]:
        """Named tensors for a forward pass, which may change buffers in place, but not ``w``."""
        named = self.unflatten(w)
        return named | {n: named[n].detach().clone() for n in self.state}

    def loss_above(self, below: Tensor, top: Tensor, batch: Batch) -> Tensor:
        """The loss of the model (below, top), cut between two parameters, in training.  Its
        gradient in ``top`` needs no gradient of the parameters below, which a cut through one
        vector would compute."""
        cut = [*itertools.accumulate(self.lengths, initial=0)].index(len(below))
        pieces = [*below.split(self.lengths[:cut]), *top.split(self.lengths[cut:])]
        named = {n: p.view(s) for n, p, s in zip(self.names, pieces, self.shapes)}
        named |= {n: named[n].detach().clone() for n in self.state}
        return self.loss_of(self._in_training(named, batch), batch)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """The output in evaluation mode."""
        return torch.func.functional_call(self.tested, self._named(w), (x,))

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """The input of the head, in evaluation mode."""
        return torch.func.functional_call(self.on_tested_features, self._inside(w), (x,))

    def features_and_logits(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The input of the head, and the output, in training mode: of one pass, if it calls
        ``features``, and else of two with the same draws."""
        seen: Any = []
        own, features = vars(self.module), cast(Any, self.module).features
        own["features"] = lambda x: seen.append(features(x)) or seen[-1]
        try:
            out = self.in_training(w, batch)
        finally:
            del own["features"]
        seen = seen or [self._in_training(self._inside(w), batch, self.on_features)]
        return seen[-1].to(out.dtype), out

    def _inside(self, w: Tensor) -> dict[str, Tensor]:
        return {f"module.{name}": tensor for name, tensor in self._named(w).items()}

    def loss(self, w: Tensor, batch: Batch) -> Tensor:
        """Mean loss over the samples of the batch (not its padding), in training mode."""
        return self.loss_of(self.in_training(w, batch), batch)

    def stack_gradient(self) -> Callable[[Tensor, Batch], Tensor]:
        """The gradient of ``loss`` for a stack of models, compiled if so configured."""
        gradient = torch.func.vmap(torch.func.grad(self.loss))
        if not self.compile:
            return gradient
        if self._compiled is None:
            self._compiled = torch.compile(gradient, mode=self.compile)
        return self._compiled

    def in_training(self, w: Tensor, batch: Batch) -> Tensor:
        """The output in training mode: batch statistics, dropout."""
        return self._in_training(self._named(w), batch)

    def tested_loss(self, w: Tensor, batch: Batch) -> Tensor:
        """Mean loss in evaluation mode."""
        return self.loss_of(self.logits(w, batch.x), batch)

    @torch.no_grad()
    def state_after(self, w: Tensor, batches: Sequence[Batch]) -> Tensor:
        """The buffers of the row ``w`` after a training forward pass on each batch."""
        named = self._named(w)
        for batch in batches:
            self._in_training(named, batch)
        return torch.cat([named[name].reshape(-1) for name in self.state])

    def _in_training(self, named: dict[str, Tensor], batch: Batch, module: Any = None) -> Tensor:
        if self.draws is not None:
            self.draws.begin(batch.dropout)
        call = (module or self.module, named, (batch.x,))
        return in_precision(self.precision, batch.x.device, torch.func.functional_call, *call)

    def loss_of(self, out: Tensor, batch: Batch) -> Tensor:
        """Mean loss of an output over the samples of the batch."""
        each = loss_of_each(self.objective, out, batch.y)
        return (each * batch.weight).sum() / batch.weight.sum()


class Task(NamedTuple):
    """An engine's input: who does what in round ``k``, with which network and data."""

    network: Network
    work: Work
    settings: Settings
    samples: Samples
    who: Sequence[int]
    k: int


def loss_of_each(objective: str, out: Tensor, y: Tensor) -> Tensor:
    """One loss per sample; for targets in several columns the mean over the columns."""
    if objective == "cross_entropy":
        # as F.cross_entropy, which under vmap takes twelve launches to look for ignored labels
        return -out.log_softmax(-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
    if objective == "mse":
        return (out - y).square().mean(-1)
    return F.binary_cross_entropy_with_logits(out, y, reduction="none").mean(-1)


def mean_loss(objective: str, out: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean over samples, weighted where there are weights."""
    if weight is not None:
        return (loss_of_each(objective, out, y) * weight).sum() / weight.sum()
    if objective == "cross_entropy":
        return F.cross_entropy(out, y)  # fused: this is on the hot path of a thread
    return loss_of_each(objective, out, y).mean()


def _placeholder(t: Tensor) -> Tensor:
    """A parameter or buffer of the same shape in the memory of one number.

    The meta device would do, too, but its first use imports torch._dynamo and sympy, which takes
    longer than all other steps of building a federation.
    """
    empty = torch.zeros((), dtype=t.dtype).expand(t.shape)
    return nn.Parameter(empty) if isinstance(t, nn.Parameter) else empty


def channels_last(x: Tensor) -> Tensor:
    """Images in channels-last layout; other inputs unchanged."""
    if x.ndim != 4:
        return x
    x = x.contiguous(memory_format=torch.channels_last)
    channels, height, width = x.shape[1:]
    # with one channel both layouts coincide; choose the strides of channels last
    return x.as_strided(x.shape, (channels * height * width, 1, width * channels, channels))


def _conv_over_time(layer: nn.Conv1d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What ``layer`` computes, with channels side by side in memory: on a CPU a quarter faster.

    torch has such kernels for images only, so a series is an image of height 1 here.
    """
    x = x.transpose(-2, -1).contiguous().transpose(-2, -1).unsqueeze(-2)
    padding: Any = layer.padding if isinstance(layer.padding, str) else (0, *layer.padding)
    stride, dilation = (1, *layer.stride), (1, *layer.dilation)
    filters = weight.unsqueeze(2)
    return F.conv2d(x, filters, bias, stride, padding, dilation, layer.groups).squeeze(-2)


def activation_bytes(module: nn.Module, x: Tensor, samples: int) -> int:
    """The bytes that autograd keeps for a batch of ``samples`` samples like those in ``x``.

    All but the layers' weights grows linearly with the batch, so it is extrapolated from two
    batches, ``x`` without and with its last sample.  An upper estimate: a value that is saved
    twice counts twice.
    """

    def kept(x: Tensor) -> int:
        sizes: list[int] = []

        def note(t: Tensor) -> Tensor:
            sizes.append(0 if isinstance(t, nn.Parameter) else t.nbytes)
            return t

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            module(x)
        return sum(sizes)

    fewer, more = kept(x[:-1]), kept(x)
    return max(0, more + (samples - len(x)) * (more - fewer))


def _dense_layers(module: nn.Module) -> Sequence[str] | None:
    """The linear layers, if the module declares (``dense_layers``) that nothing but ReLU is between
    them.  A subclass that overrides ``forward`` does not inherit the declaration."""
    kind = type(module)
    says = next((c for c in kind.__mro__ if "dense_layers" in vars(c)), None)
    parts = ("forward", "features")
    if says is None or any(getattr(kind, n, None) is not getattr(says, n, None) for n in parts):
        return None
    names: Sequence[str] = module.dense_layers()  # type: ignore[operator]
    layers = [module.get_submodule(name) for name in names]
    plain = all(type(layer) is nn.Linear and layer.bias is not None for layer in layers)
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    return names if plain and not hooked else None


class _Features(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        if not hasattr(self.module, "features"):
            raise TypeError(
                f"{type(self.module).__name__} has no method features(x), what it computes before "
                "its head; pfl_lib.models.with_head makes a model that has one"
            )
        return self.module.features(x)


class Client:
    """The ``StepClient`` of this machine's engines: it runs a network."""

    def __init__(self, network: Network, work: Work, settings: Settings, under_vmap: bool):
        self.network = network
        self.numbers = work.numbers
        self.lr = settings.lr if work.lr is None else work.lr
        # an optimizer named by the method is plain
        refined = {} if work.optimizer else settings.refinements
        self.rule = optimizers.Rule(work.optimizer or settings.optimizer, self.lr, **refined)
        self.under_vmap = under_vmap
        self.t = 0  # steps made in this phase, equal for all clients of a stack
        self.grad = torch.func.grad(network.loss) if under_vmap else self._grad
        self.loss, self.loss_of, self.loss_above = network.loss, network.loss_of, network.loss_above
        self.features_and_logits = network.features_and_logits
        self.tested_loss, self.in_training = network.tested_loss, network.in_training
        self.logits, self.features = network.logits, network.features
        self.lengths: Sequence[int] = network.lengths

    def _grad(self, w: Tensor, batch: Batch) -> Tensor:
        w = w.detach().requires_grad_()
        return torch.autograd.grad(self.network.loss(w, batch), w)[0]

    def grad_of(self, objective: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        """The gradient of any scalar ``objective(w, …)`` in its first argument."""
        return torch.func.grad(objective, has_aux=has_aux)

    def of_each_sample(self, function: Callable[..., Tensor], *samples: Tensor) -> Tensor:
        """``function`` of each sample: of eight at once, where torch can stack the model."""
        with suppress(RuntimeError):
            if not self.network.recurrent:
                return torch.func.vmap(function, chunk_size=8)(*samples)
        return torch.stack([function(*one) for one in zip(*samples)])

    def grad_and_loss(self, objective: Callable[[Tensor], Tensor], w: Tensor) -> tuple[Any, Any]:
        """The gradient of a scalar ``objective`` at ``w``, and its value.

        One client at a time needs no torch.func, whose first use imports torch._dynamo: seconds of
        processor time, in which a client over a network would not answer.
        """
        if self.under_vmap:
            return torch.func.grad_and_value(objective)(w)
        w = w.detach().requires_grad_()
        loss = objective(w)
        return torch.autograd.grad(loss, w)[0], loss.detach()

    def losses(self, models: Tensor, batch: Batch) -> Tensor:
        """The loss of each of some models, in evaluation mode."""
        if self.under_vmap:
            return torch.func.vmap(self.tested_loss, in_dims=(0, None))(models, batch)
        return torch.stack([self.tested_loss(w, batch) for w in models])

    def move(self, s: Mapping[str, Tensor], g: Tensor, name: str = "w") -> dict[str, Tensor]:
        """One step of the optimizer on ``s[name]``; its buffers start afresh in every local phase.

        The model's own buffers do not move, since they have no gradient.
        """
        trained, d = self.network.trained, self.network.d
        if trained < d:
            read = (name, "mask", *(f"{name}_{kind}" for kind in self.rule.memory))
            buffers = s[name][trained:]
            s = s | {n: s[n][:trained] for n in read if n in s}  # type: ignore[operator]
            moved = self._move(s, g[:trained], name)
            kept = {n: F.pad(r, (0, d - trained)) for n, r in moved.items() if n != name}
            return kept | {name: torch.cat([moved[name], buffers])}
        return self._move(s, g, name)

    def _move(self, s: Mapping[str, Tensor], g: Tensor, name: str) -> dict[str, Tensor]:
        (g,) = optimizers.clipped([g], self.rule.clip)
        return optimizers.move(self.rule, s, g, self.t + 1, name)

    def move_in_place(
        self,
        pieces: Sequence[Mapping[str, Tensor]],
        gradients: Sequence[Tensor],
        rows: bool = False,
    ) -> None:
        """The update of the step "descend" for some pieces of the models, given loss gradients.

        ``t`` is the current step, counted from 1 as in Adam.
        """
        optimizers.move_in_place(pieces, gradients, self.rule, self.t, rows)
