"""The model as a function of one vector, and what a local step may ask for."""

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pfl_lib.local import optimizers
from pfl_lib.work import Batch, Settings, Work


class Network:
    """An ``nn.Module`` as a function of one flat vector of parameters."""

    def __init__(self, module: nn.Module):
        _refuse_unsupported(module)
        named = list(module.named_parameters())
        self.names = [n for n, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.lengths = [p.numel() for _, p in named]
        self.d = sum(self.lengths)
        self.module = _copied(module, _placeholder)  # structure only: values come as rows
        self.on_features = _Features(self.module)
        self.convolutional = any(isinstance(part, nn.Conv2d) for part in module.modules())
        self.channels_last = True  # how images may lie; a federation tries it out
        self.dense = _dense_layers(module)
        self._real: nn.Module | None = None
        self._spare: deque[Network] = deque()

    def copy(self) -> "Network":
        """One for another thread: ``functional_call`` swaps the module's parameters."""
        other = copy.copy(self)
        other.module = _copied(self.module, lambda parameter: parameter)
        other.on_features = _Features(other.module)
        other._real, other._spare = None, deque()
        return other

    def borrow(self) -> "Network":
        """A copy for one thread, to be given back: making one takes time."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.copy()

    def give_back(self, other: "Network") -> None:
        self._spare.append(other)

    def real(self, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """The module itself on a device, its filters channels last if they may; values are not set.

        Made once: a copy of a network is for one thread, one device and one precision.
        """
        if self._real is None:
            layout = torch.channels_last if self.channels_last else torch.contiguous_format
            self._real = self.empty(device, dtype).to(memory_format=layout)  # type: ignore[call-overload]
        return self._real

    def empty(self, device: str | torch.device, dtype: torch.dtype) -> nn.Module:
        """A module like the one given, with parameters of its own; their values are not set."""
        make = lambda p: nn.Parameter(torch.empty(p.shape, device=device, dtype=dtype))  # noqa: E731
        return _copied(self.module, make)

    def slices(self) -> Iterator[tuple[str, slice]]:
        """Ordered (parameter name, its place in the vector)."""
        begin = 0
        for name, length in zip(self.names, self.lengths):
            yield name, slice(begin, begin + length)
            begin += length

    def unflatten(self, w: Tensor) -> dict[str, Tensor]:
        """The named parameters inside the vector ``w``; one split, so that its gradient is one
        concatenation."""
        pieces = w.split(self.lengths)
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, self.shapes)}

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.func.functional_call(self.module, self.unflatten(w), (x,))

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """What the model computes before its head."""
        named = {f"module.{n}": p for n, p in self.unflatten(w).items()}
        return torch.func.functional_call(self.on_features, named, (x,))

    def loss(self, w: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy over the samples of the batch that are not padding."""
        each = F.cross_entropy(self.logits(w, batch.x), batch.y, reduction="none")
        return (each * batch.weight).sum() / batch.weight.sum()


def _copied(module: nn.Module, make: Callable[[nn.Parameter], nn.Parameter]) -> nn.Module:
    """A deep copy of a module that has ``make(p)`` wherever the module has its parameter p."""
    return copy.deepcopy(module, {id(p): make(p) for p in module.parameters()})


def _placeholder(parameter: nn.Parameter) -> nn.Parameter:
    """A parameter of the same shape that takes the memory of one number.

    The meta device would do as well, but its first use imports torch._dynamo and sympy, and that
    takes longer than all the rest of a federation's start.
    """
    return nn.Parameter(torch.zeros((), dtype=parameter.dtype).expand(parameter.shape))


def channels_last(x: Tensor) -> Tensor:
    """Images with their channels side by side in memory; anything else as it is."""
    if x.ndim != 4:
        return x
    x = x.contiguous(memory_format=torch.channels_last)
    channels, height, width = x.shape[1:]
    # of one channel every layout is both; say which is meant
    return x.as_strided(x.shape, (channels * height * width, 1, width * channels, channels))


def activation_bytes(module: nn.Module, x: Tensor, samples: int) -> int:
    """What autograd keeps in memory for a batch of ``samples`` samples like those in ``x``.

    All but the layers' weights grows with the batch, so two batches, ``x`` without and with its
    last sample, tell the rest.  Somewhat too much: a value that is kept for two purposes counts
    twice.
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


def _refuse_unsupported(module: nn.Module) -> None:
    """A client's model is one row of parameters that are trained, and nothing else."""
    for name, part in module.named_modules():
        where = f"{name or 'the model itself'}: {type(part).__name__}"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"batch normalization is not supported ({where}), since samples of a batch would "
                "change each other; use GroupNorm or LayerNorm instead"
            )
        drops = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else 0
        drops = drops or getattr(part, "dropout", 0)
        if isinstance(drops, float) and drops > 0:
            raise ValueError(
                f"dropout is not supported ({where}), since its draws would be neither keyed nor "
                "switched off in tests; leave it out, or set its rate to 0"
            )
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise ValueError(
            f"buffers are not supported ({buffers[0]}), since a client's model is one row of "
            "parameters; compute it in forward"
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
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    if frozen:
        raise ValueError(
            f"frozen parameters are not supported ({frozen[0]} has requires_grad=False): every "
            "entry of a row is trained; use a mask instead, train(fed, …, mask=…)"
        )


def _dense_layers(module: nn.Module) -> Sequence[str] | None:
    """The linear layers with nothing but ReLU between them, if the module says that it is such a
    network.  A class that inherits the word and computes something else has not said so."""
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
                "its head; models of pfl_lib.models have one"
            )
        return self.module.features(x)


class Client:
    """What a local step may ask for: loss, gradient, predictions, and one optimiser move."""

    def __init__(self, network: Network, work: Work, settings: Settings, under_vmap: bool):
        self.network = network
        self.numbers = work.numbers
        self.optimizer = work.optimizer or settings.optimizer
        self.lr = settings.lr if work.lr is None else work.lr
        self.t = 0  # how many steps this phase has made: the same for all clients of a stack
        self.grad = torch.func.grad(network.loss) if under_vmap else self._grad
        self.loss = network.loss
        self.logits = network.logits
        self.features = network.features

    def _grad(self, w: Tensor, batch: Batch) -> Tensor:
        w = w.detach().requires_grad_()
        return torch.autograd.grad(self.network.loss(w, batch), w)[0]

    def grad_of(self, objective: Callable[..., Tensor]) -> Callable[..., Any]:
        """The gradient of any scalar ``objective(w, …)`` in its first argument."""
        return torch.func.grad(objective)

    def move(self, s: Mapping[str, Tensor], g: Tensor, name: str = "w") -> dict[str, Tensor]:
        """One SGD or Adam step on ``s[name]``; Adam starts afresh in every local phase."""
        if self.optimizer == "sgd":
            return {name: optimizers.sgd(s[name], g, self.lr)}
        memory = (s[f"{name}_mean"], s[f"{name}_square"])
        moved, mean, square = optimizers.adam(s[name], g, *memory, self.lr, self.t + 1)
        return {name: moved, f"{name}_mean": mean, f"{name}_square": square}

    def move_in_place(
        self, pieces: Sequence[Mapping[str, Tensor]], gradients: Sequence[Tensor]
    ) -> None:
        """What the step "descend" does with the loss gradients of some pieces of the models.

        Counts from 1, as Adam does: ``t`` is the step that is being made.
        """
        optimizers.move_in_place(pieces, gradients, self.optimizer, self.lr, self.t)
