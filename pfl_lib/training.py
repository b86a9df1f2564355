"""The engine: the local work of many clients, said as data and done in one of three ways.

``Work`` says what each client has to do: a named local step, the tensors it needs, how long.
A *local step* is written for one client and one batch, and never knows which engine runs it:

* ``loop``     one client after the other, one batch after the other: the reference to read;
* ``stacked``  all clients at once: the same step under ``torch.func.vmap``;
* ``threads``  the loop, clients shared out over threads with one core each.

All three draw the same batches, because randomness is keyed by (seed, round, client, epoch) and
never drawn in order; so they give the same models up to rounding.
"""

import copy
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
    """The penalty (strength / 2)·‖w − centre‖², one centre a client."""

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
        if not 0 < self.share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {self.share!r}")


def local_step(name):
    """Register a method's own local step under ``name`` (see ``descend`` for the form)."""

    def register(function):
        STEPS[name] = function
        return function

    return register


@local_step("descend")
def descend(s, batch, client):
    """One step on the loss, plus whichever of penalty, correction and mask the work came with."""
    g = client.grad(s["w"], batch)
    if "centre" in s:
        g = g + s["strength"] * (s["w"] - s["centre"])
    if "correction" in s:
        g = g + s["correction"]
    if "mask" in s:
        g = g * s["mask"]
    return client.move(s, g)


class Network:
    """An ``nn.Module`` as a function of one flat vector of parameters."""

    def __init__(self, module: nn.Module):
        floating = [n for n, b in module.named_buffers() if b.is_floating_point()]
        if floating:
            raise ValueError(
                f"the model keeps running statistics ({floating[0]}, …), which have no place in a "
                "row of parameters; use GroupNorm or LayerNorm instead of BatchNorm"
            )
        named = list(module.named_parameters())
        self.names = [n for n, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.lengths = [p.numel() for _, p in named]
        self.d = sum(self.lengths)
        self.module = copy.deepcopy(module).to("meta")  # structure only: values come as rows
        self.on_features = _Features(self.module)
        self.convolutional = any(isinstance(part, nn.Conv2d) for part in module.modules())

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


class _Features(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
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


def batch_table(work, settings, sizes, who, round_):
    """For each client the positions (in its own data) of every batch, one row a batch; −1 pads.

    Kept on the CPU: the draws must be the same on every device.
    """
    epochs = settings.epochs if work.epochs is None else work.epochs
    batch_size = settings.batch_size if work.batch_size is None else work.batch_size
    tables = []
    for client, n in zip(who, sizes):
        key = (settings.seed, work.tag, round_, client)
        pool = torch.arange(n)
        if work.share < 1:
            keep = max(1, round(work.share * n))
            pool = torch.randperm(n, generator=keyed_generator(*key, "share"))[:keep]
        size = min(batch_size, len(pool))
        a_pass = math.ceil(len(pool) / size)
        passes = epochs if work.steps is None else math.ceil(work.steps * work.group / a_pass)
        table = torch.full((passes * a_pass, batch_size), -1)
        for epoch in range(passes):
            order = torch.randperm(len(pool), generator=keyed_generator(*key, "batches", epoch))
            padded = torch.full((a_pass * size,), -1)
            padded[: len(pool)] = pool[order]
            table[epoch * a_pass : (epoch + 1) * a_pass, :size] = padded.view(a_pass, size)
        if work.group > 1:  # whole groups only: the last one is filled from the beginning
            rows = math.ceil(len(table) / work.group) * work.group
            table = table[torch.arange(rows) % len(table)] if len(table) else table
        if work.steps is not None:
            table = table[: work.steps * work.group]
        tables.append(table)
    return tables


def draw_noise(work, settings, steps, who, round_):
    """Uniform random numbers for each step of each client, keyed like the batches."""
    drawn = []
    for client, count in zip(who, steps):
        generator = keyed_generator(settings.seed, work.tag, round_, client, "noise")
        drawn.append(torch.rand(count, work.noise, generator=generator))
    return drawn


def _start(work, client):
    """The rows of the work, with the optimiser's memory beside them."""
    rows = dict(work.rows)
    if client.optimizer == "adam":
        for name in work.moves:
            rows[f"{name}_mean"] = torch.zeros_like(rows[name])
            rows[f"{name}_square"] = torch.zeros_like(rows[name])
    return rows


def loop(network, work, settings, samples, who, round_):
    """One client after the other: what every other engine must agree with."""
    sizes = [len(samples.index[i]) for i in who]
    tables = batch_table(work, settings, sizes, who, round_)
    noise = draw_noise(work, settings, [len(t) // work.group for t in tables], who, round_)
    step = STEPS[work.step]
    results = []
    start = _start(work, Client(network, work, settings, under_vmap=False))
    for row, i in enumerate(who):
        client = Client(network, work, settings, under_vmap=False)
        s = {name: rows[row] for name, rows in start.items()} | dict(work.shared)
        device = s["w"].device
        batches = []
        for positions in tables[row]:
            here = positions[positions >= 0].to(device)
            x, y = samples.inputs(samples.index[i][here]), samples.labels[i][here]
            batches.append((x, y, torch.ones(len(here), dtype=s["w"].dtype, device=device)))
        for t in range(len(batches) // work.group):
            random = noise[row][t].to(device, s["w"].dtype)
            some = [Batch(*b, random) for b in batches[t * work.group : (t + 1) * work.group]]
            for _ in range(work.repeats):
                s |= step(s, some[0] if work.group == 1 else tuple(some), client)
                client.t += 1
        results.append({name: s[name] for name in work.rows})
    return {name: torch.stack([r[name] for r in results]) for name in work.rows}


def stacked(network, work, settings, samples, who, round_):
    """All clients at once.  Those with most to do come first, so the busy ones are a prefix."""
    sizes = [len(samples.index[i]) for i in who]
    tables = batch_table(work, settings, sizes, who, round_)
    steps = [len(t) // work.group for t in tables]
    noise = draw_noise(work, settings, steps, who, round_)
    order = sorted(range(len(who)), key=lambda row: (-steps[row], row))
    steps = [steps[row] for row in order]

    client = Client(network, work, settings, under_vmap=True)
    device, dtype = work.rows["w"].device, work.rows["w"].dtype
    arrange = torch.tensor(order, device=device)
    s = {name: rows[arrange] for name, rows in _start(work, client).items()}
    positions = nn.utils.rnn.pad_sequence([tables[r] for r in order], True, -1).to(device)
    random = nn.utils.rnn.pad_sequence([noise[r] for r in order], True).to(device, dtype)
    index = nn.utils.rnn.pad_sequence([samples.index[who[r]] for r in order], True)
    labels = nn.utils.rnn.pad_sequence([samples.labels[who[r]] for r in order], True)
    width = max((int((t >= 0).sum(1).max()) for t in tables if len(t)), default=1)
    positions = positions[:, :, :width]

    one = STEPS[work.step]

    def step(s, batch):
        return one(s | dict(work.shared), batch, client)

    everyone_at_once = torch.func.vmap(step)
    finished = []
    busy = len(steps)
    for t in range(steps[0] if steps else 0):
        still = sum(count > t for count in steps)
        if still < busy:  # those who are done leave the stack
            finished.append({name: rows[still:] for name, rows in s.items()})
            s = {name: rows[:still] for name, rows in s.items()}
            busy = still
        some = []
        for at in range(t * work.group, (t + 1) * work.group):
            here = positions[:busy, at]
            weight = (here >= 0).to(dtype)
            here = here.clamp(min=0)
            x = samples.inputs(index[:busy].gather(1, here))
            y = labels[:busy].gather(1, here)
            some.append(Batch(x, y, weight, random[:busy, t]))
        for _ in range(work.repeats):
            s |= everyone_at_once(s, some[0] if work.group == 1 else tuple(some))
            client.t += 1
    finished.append(s)
    back = torch.argsort(arrange)
    return {name: torch.cat([f[name] for f in reversed(finished)])[back] for name in work.rows}


def threads(network, work, settings, samples, who, round_, workers):
    """The loop, its clients dealt out to ``workers`` threads with one core each."""
    workers = min(workers, len(who))
    hands = [list(range(w, len(who), workers)) for w in range(workers)]

    def one_hand(rows):
        torch.set_num_threads(1)  # per thread: two-core kernels would fight each other
        part = {name: tensor[rows] for name, tensor in work.rows.items()}
        mine = copy.copy(network)
        mine.module = copy.deepcopy(network.module)  # functional_call swaps its parameters
        mine.on_features = _Features(mine.module)
        mine_work = _with_rows(work, part)
        return loop(mine, mine_work, settings, samples, [who[r] for r in rows], round_)

    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(one_hand, hands))
    back = torch.argsort(torch.tensor([row for hand in hands for row in hand]))
    result = {name: torch.cat([part[name] for part in done]) for name in work.rows}
    return {name: rows[back.to(rows.device)] for name, rows in result.items()}


def _with_rows(work, rows):
    changed = copy.copy(work)
    object.__setattr__(changed, "rows", rows)
    return changed
