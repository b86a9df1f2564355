"""What a client does in a round: its work as data, its step as a function, its batches.

``Work`` says what each client has to do: a named local step, the tensors it needs, how long.
A *local step* is written for one client and one batch, and never knows which engine
(``pfl_lib.engines``) runs it.  Batches are keyed by (seed, round, client, epoch), never drawn in
order, so every engine sees the same ones.
"""

import copy
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pfl_lib import _check
from pfl_lib.random import keyed_generator

STEPS: dict[str, Callable] = {}
ADAM = (0.9, 0.999, 1e-8)  # decay of the mean, decay of the square, epsilon


class Batch(NamedTuple):
    """What one client sees in one step: inputs, labels, weights (0 for padding), random numbers."""

    x: Tensor
    y: Tensor
    weight: Tensor
    noise: Tensor


class Prox(NamedTuple):
    """The penalty (strength / 2)·‖w − centre‖², one centre a client.

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> x = fed.initial()
    >>> free = fed.train(x, fed.everyone)
    >>> held = fed.train(x, fed.everyone, prox=Prox(x, strength=10.0))
    >>> bool((held - x).norm() < (free - x).norm())  # on a leash
    True
    """

    centre: Tensor
    strength: float | Tensor


@dataclass(frozen=True)
class Work:
    """What the clients are asked to do: data, not a closure, so that it can also be sent away.

    ``rows`` holds one row a client (``rows["w"]`` is where each starts), ``shared`` what all of
    them get, ``numbers`` plain numbers.  ``steps`` replaces ``epochs`` where a method counts
    batches.  ``repeats`` is how often a batch is used before the next, ``group`` how many batches
    make one step, ``share`` the part of the local data that is used, ``noise`` how many uniform
    random numbers a step needs, ``moves`` the rows an optimiser moves (Adam remembers each).
    ``tag`` separates the batches of two phases of one round.

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> work = Work(rows={"w": fed.initial()}, steps=5)
    >>> fed.perform(work, fed.everyone)["w"].shape == fed.initial().shape
    True
    """

    rows: Mapping[str, Tensor]
    step: str = "descend"
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    epochs: int | None = None
    steps: int | None = None
    lr: float | None = None
    optimizer: str | None = None
    batch_size: int | None = None
    repeats: int = 1
    group: int = 1
    share: float = 1.0
    noise: int = 0
    moves: tuple[str, ...] = ("w",)
    tag: str = ""

    def __post_init__(self):
        _check.one_of("step", self.step, STEPS)
        if "w" not in self.rows:
            raise ValueError(f'rows must hold "w", the starting models; got {sorted(self.rows)}')
        _check.whole("repeats", self.repeats)
        _check.whole("group", self.group)
        _check.whole("noise", self.noise, at_least=0)
        if not _check.between("share", self.share, 0, 1) > 0:
            raise ValueError(f"share must lie in (0, 1], got {self.share!r}")
        for name, least in (("epochs", 0), ("steps", 0), ("batch_size", 1)):
            if getattr(self, name) is not None:
                _check.whole(name, getattr(self, name), at_least=least)
        if self.lr is not None:
            _check.non_negative("lr", self.lr)
        if self.optimizer is not None:
            _check.one_of("optimizer", self.optimizer, ("sgd", "adam"))


def local_step(name):
    """Register a method's own local step under ``name`` (see ``descend`` for the form).

    >>> import pfl_lib
    >>> @local_step("towards zero")
    ... def towards_zero(s, batch, client):
    ...     return {**s, "w": 0.5 * s["w"]}
    >>> fed = pfl_lib.example()
    >>> rows = {"w": torch.ones(fed.m, fed.d)}
    >>> done = fed.perform(Work(rows=rows, step="towards zero", steps=2), fed.everyone)
    >>> done["w"][0, 0]
    tensor(0.2500)
    """

    def register(function):
        STEPS[name] = function
        return function

    return register


@local_step("descend")
def descend(s, batch, client):
    """One step on the loss, plus whichever of penalty, correction and mask the work came with.

    Where the work has rows "steps", they count.
    """
    g = client.grad(s["w"], batch)
    if "centre" in s:
        g = g + s["strength"] * (s["w"] - s["centre"])
    if "correction" in s:
        g = g + s["correction"]
    if "mask" in s:
        g = g * s["mask"]
    moved = client.move(s, g)
    return moved | {"steps": s["steps"] + 1} if "steps" in s else moved


class Network:
    """An ``nn.Module`` as a function of one flat vector of parameters."""

    def __init__(self, module: nn.Module):
        _refuse_what_is_no_parameter(module)
        named = list(module.named_parameters())
        self.names = [n for n, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.lengths = [p.numel() for _, p in named]
        self.d = sum(self.lengths)
        self.module = copy.deepcopy(module).to("meta")  # structure only: values come as rows
        self.on_features = _Features(self.module)
        self.convolutional = any(isinstance(part, nn.Conv2d) for part in module.modules())
        self.channels_last = True  # how images may lie; a federation tries it out
        self.dense = _dense_layers(module)
        self._real, self._spare = None, deque()

    def copy(self):
        """One for another thread: ``functional_call`` swaps the module's parameters."""
        other = copy.copy(self)
        other.module = copy.deepcopy(self.module)
        other.on_features = _Features(other.module)
        other._real, other._spare = None, deque()
        return other

    def borrow(self):
        """A copy for one thread, to be given back: making one takes time."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.copy()

    def give_back(self, other):
        self._spare.append(other)

    def real(self, device, dtype):
        """The module itself on a device, its filters channels last if they may; values are not set.

        Made once: a copy of a network is for one thread, one device and one precision.
        """
        if self._real is None:
            module = copy.deepcopy(self.module).to_empty(device=device).to(dtype)
            layout = torch.channels_last if self.channels_last else torch.contiguous_format
            self._real = module.to(memory_format=layout)
        return self._real

    def activation_bytes(self, x):
        """What autograd keeps in memory for a batch like ``x``, found without computing it.

        Somewhat too much: a value that is kept for two purposes counts twice.
        """
        kept = []
        try:
            with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda t: t):
                self.module(x.to("meta"))
        except (RuntimeError, TypeError, ValueError):  # cannot run without numbers, or on so few
            return 0
        return sum(t.numel() * t.itemsize for t in kept if not isinstance(t, nn.Parameter))

    def slices(self):
        """Ordered (parameter name, its place in the vector)."""
        begin = 0
        for name, length in zip(self.names, self.lengths):
            yield name, slice(begin, begin + length)
            begin += length

    def unflatten(self, w):
        """The named parameters inside the vector ``w``; one split, so that its gradient is one
        concatenation."""
        pieces = w.split(self.lengths)
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, self.shapes)}

    def logits(self, w, x):
        return torch.func.functional_call(self.module, self.unflatten(w), (x,))

    def features(self, w, x):
        """What the model computes before its head."""
        named = {f"module.{n}": p for n, p in self.unflatten(w).items()}
        return torch.func.functional_call(self.on_features, named, (x,))

    def loss(self, w, batch):
        """Mean cross-entropy over the samples of the batch that are not padding."""
        each = F.cross_entropy(self.logits(w, batch.x), batch.y, reduction="none")
        return (each * batch.weight).sum() / batch.weight.sum()


def _refuse_what_is_no_parameter(module):
    """A client's model is one row of parameters that are trained, and nothing else."""
    for name, part in module.named_modules():
        where = f"{name or 'the model itself'}: {type(part).__name__}"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"the model normalises over a batch ({where}), so that samples change each other; "
                "use GroupNorm or LayerNorm instead"
            )
        drops = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else 0
        drops = drops or getattr(part, "dropout", 0)
        if isinstance(drops, float) and drops > 0:
            raise ValueError(
                f"the model drops at random ({where}), and its draws would be neither keyed nor "
                "switched off in tests; leave it out, or set its rate to 0"
            )
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise ValueError(
            f"the model keeps something that is no parameter ({buffers[0]}), which has no place "
            "in a row of parameters; compute it in forward"
        )
    seen = {}
    for name, part in module.named_modules():
        for word, parameter in part.named_parameters(recurse=False):
            full = f"{name}.{word}" if name else word
            first = seen.setdefault(id(parameter), full)
            if first != full:
                raise ValueError(
                    f"the parameters {first} and {full} are one and the same, but a row has one "
                    "place for each name; use one layer twice in forward instead"
                )
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    if frozen:
        raise ValueError(
            f"the parameter {frozen[0]} is frozen (requires_grad=False), but every entry of a row "
            "is trained; train with a mask instead (Federation.train(mask=…))"
        )


def _dense_layers(module):
    """The linear layers with nothing but ReLU between them, if the module says that it is such a
    network.  A class that inherits the word and computes something else has not said so."""
    kind = type(module)
    says = next((c for c in kind.__mro__ if "dense_layers" in vars(c)), None)
    parts = ("forward", "features")
    if says is None or any(getattr(kind, n, None) is not getattr(says, n, None) for n in parts):
        return None
    names = module.dense_layers()
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

    def __init__(self, network, work, settings, under_vmap):
        self.network = network
        self.numbers = work.numbers
        self.optimizer = work.optimizer or settings.optimizer
        self.lr = settings.lr if work.lr is None else work.lr
        self.t = 0  # how many steps this phase has made: the same for all clients of a stack
        self.grad = torch.func.grad(network.loss) if under_vmap else self._grad
        self.loss = network.loss
        self.logits = network.logits
        self.features = network.features

    def _grad(self, w, batch):
        w = w.detach().requires_grad_()
        return torch.autograd.grad(self.network.loss(w, batch), w)[0]

    def grad_of(self, objective):
        """The gradient of any scalar ``objective(w, …)`` in its first argument."""
        return torch.func.grad(objective)

    def move(self, s, g, name="w"):
        """One SGD or Adam step on ``s[name]``; Adam starts afresh in every local phase."""
        if self.optimizer == "sgd":
            return {name: s[name] - self.lr * g}
        decay, decay_square, epsilon = ADAM
        t = self.t + 1
        mean = decay * s[f"{name}_mean"] + (1 - decay) * g
        square = decay_square * s[f"{name}_square"] + (1 - decay_square) * g * g
        scale = self.lr / (1 - decay**t)
        root = square.sqrt() / math.sqrt(1 - decay_square**t) + epsilon
        moved = s[name] - scale * mean / root
        return {name: moved, f"{name}_mean": mean, f"{name}_square": square}


@dataclass(frozen=True)
class Settings:
    """The defaults a federation trains with."""

    lr: float
    optimizer: str
    batch_size: int
    epochs: int
    seed: int


class Samples(NamedTuple):
    """Where the clients' samples are: a gather of inputs, and each client's indices and labels."""

    inputs: Callable[[Tensor], Tensor]
    index: tuple[Tensor, ...]
    labels: tuple[Tensor, ...]

    def sizes(self, who):
        """How many samples each of these clients has."""
        return [self.index[i].shape[0] for i in who]  # len() of a tensor takes ten times as long


def step_counts(work, settings, sizes):
    """How many steps clients with these numbers of samples make."""
    if work.steps is not None:
        return [work.steps] * len(sizes)
    epochs = settings.epochs if work.epochs is None else work.epochs
    return [math.ceil(epochs * _a_pass(work, settings, n) / work.group) for n in sizes]


def _a_pass(work, settings, n):
    """How many batches one pass over (the used share of) n samples takes."""
    batch_size = settings.batch_size if work.batch_size is None else work.batch_size
    return math.ceil(_used(work, n) / batch_size)


def _used(work, n):
    return n if work.share == 1 else max(1, round(work.share * n))


def batch_table(work, settings, sizes, who, round_):
    """For each client the positions (in its own data) of every batch, one row a batch; −1 pads.

    As wide as the largest batch that occurs.  Kept on the CPU: the draws must be the same on every
    device.
    """
    batch_size = settings.batch_size if work.batch_size is None else work.batch_size
    width = min(batch_size, max(_used(work, n) for n in sizes))
    tables, alike = [None] * len(who), {}
    for row, shape in enumerate(zip(sizes, step_counts(work, settings, sizes))):
        alike.setdefault(shape, []).append(row)

    def filled(table, width):
        missing = width - table.shape[-1]
        return F.pad(table, (0, missing), value=-1) if missing else table

    for (n, steps), rows in alike.items():  # those with as much to do are dealt with together
        used, a_pass = _used(work, n), _a_pass(work, settings, n)
        size, length = min(batch_size, used), steps * work.group
        passes = math.ceil(length / a_pass)
        if work.group > 1 and work.steps is None:  # the last group is filled from the beginning
            passes = settings.epochs if work.epochs is None else work.epochs
        orders = torch.empty(len(rows), passes, used, dtype=torch.long)
        for row, mine in zip(rows, orders):
            key = (settings.seed, work.tag, round_, who[row])
            for epoch, order in enumerate(mine.unbind()):
                generator = keyed_generator(*key, "batches", epoch)
                torch.randperm(used, generator=generator, out=order)
            if work.share < 1:
                pool = torch.randperm(n, generator=keyed_generator(*key, "share"))[:used]
                mine.copy_(pool[mine])
        table = filled(filled(orders, a_pass * size).view(len(rows), passes * a_pass, size), width)
        if length > passes * a_pass:
            table = table[:, torch.arange(length) % (passes * a_pass)]
        for row, mine in zip(rows, table[:, :length]):
            tables[row] = mine
    return tables


def draw_noise(work, settings, steps, who, round_):
    """Uniform random numbers for each step of each client, keyed like the batches."""
    if not work.noise:
        return [torch.empty(count, 0) for count in steps]
    drawn = []
    for client, count in zip(who, steps):
        generator = keyed_generator(settings.seed, work.tag, round_, client, "noise")
        drawn.append(torch.rand(count, work.noise, generator=generator))
    return drawn


def start_rows(work, optimizer):
    """The rows of the work, with the optimiser's memory beside them."""
    rows = dict(work.rows)
    if optimizer == "adam":
        for name in work.moves:
            rows[f"{name}_mean"] = torch.zeros_like(rows[name])
            rows[f"{name}_square"] = torch.zeros_like(rows[name])
    return rows
