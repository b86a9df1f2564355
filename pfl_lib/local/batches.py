"""Which samples each client uses in each step.

Batches are keyed by (seed, tag, round, client, epoch), never drawn in order, so that every engine
sees the same ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_lib.local.parts import DropoutKey
from pfl_lib.random import keyed_generator
from pfl_lib.work import Settings, Work


@dataclass(frozen=True)
class Samples:
    """The clients' samples: a gather of inputs, and each client's indices and labels.

    ``weights`` are the training weights of all samples in the pool; None means equal weights.
    """

    inputs: Callable[[Tensor], Tensor]
    index: Sequence[Tensor] | Mapping[int, Tensor]
    labels: Sequence[Tensor] | Mapping[int, Tensor]
    weights: Tensor | None = None

    def sizes(self, who: Sequence[int]) -> list[int]:
        """The number of samples of each of these clients."""
        return [self.index[i].shape[0] for i in who]  # len() of a tensor takes ten times as long


def step_counts(work: Work, settings: Settings, sizes: Sequence[int]) -> list[int]:
    """The number of steps made by clients with these numbers of samples."""
    if work.steps is not None:
        return [work.steps] * len(sizes)
    epochs = settings.epochs if work.epochs is None else work.epochs
    return [math.ceil(epochs * batches_per_epoch(work, settings, n) / work.group) for n in sizes]


def batches_per_epoch(work: Work, settings: Settings, n: int) -> int:
    """The number of batches in one pass over (the used share of) n samples."""
    return math.ceil(_used(work, n) / _batch_size(work, settings))


def _batch_size(work: Work, settings: Settings) -> int:
    return settings.batch_size if work.batch_size is None else work.batch_size


def _used(work: Work, n: int) -> int:
    return n if work.share == 1 else max(1, round(work.share * n))


def batch_table(
    work: Work, settings: Settings, sizes: Sequence[int], who: Sequence[int], k: int
) -> list[Tensor]:
    """For each client the positions (in its own data) of every batch, one row per batch; −1 pads.

    As wide as the largest batch.  Drawn on the CPU, so that every device gets the same numbers.
    """
    width = min(_batch_size(work, settings), max(_used(work, n) for n in sizes))
    alike: dict[tuple[int, int], list[int]] = {}
    for row, shape in enumerate(zip(sizes, step_counts(work, settings, sizes))):
        alike.setdefault(shape, []).append(row)
    batches_of = _shuffled if settings.shuffle else _in_order
    tables: dict[int, Tensor] = {}
    for (n, steps), rows in alike.items():  # tables of one shape are built together
        batches = batches_of(work, settings, n, steps * work.group, [who[row] for row in rows], k)
        tables.update(zip(rows, _padded(batches, width)))
    return [tables[row] for row in range(len(who))]


def _shuffled(
    work: Work, settings: Settings, n: int, count: int, clients: Sequence[int], k: int
) -> Tensor:
    """``count`` batches for each of some clients with n samples, each pass in a new order."""
    used, passes = _used(work, n), math.ceil(count / batches_per_epoch(work, settings, n))
    if work.group > 1 and work.steps is None:  # the last group is completed from the first batches
        passes = settings.epochs if work.epochs is None else work.epochs
    orders = torch.empty(len(clients), passes, used, dtype=torch.long)
    for client, mine in zip(clients, orders):
        key = (settings.seed, work.tag, k, client)
        for epoch, order in enumerate(mine.unbind()):
            generator = keyed_generator(*key, "batches", epoch)
            torch.randperm(used, generator=generator, out=order)
        if work.share < 1:
            pool = torch.randperm(n, generator=keyed_generator(*key, "share"))[:used]
            mine.copy_(pool[mine])
    batches = _cut(orders, work, settings, n).flatten(1, 2)
    if count > batches.shape[1]:
        batches = batches[:, torch.arange(count) % batches.shape[1]]
    return batches[:, :count]


def _in_order(
    work: Work, settings: Settings, n: int, count: int, clients: Sequence[int], k: int
) -> Tensor:
    """``count`` batches for each client in the order of its data; rounds continue each other."""
    used, per_epoch = torch.arange(n).expand(len(clients), -1), batches_per_epoch(work, settings, n)
    if work.share < 1:
        keys = [(settings.seed, work.tag, k, client, "share") for client in clients]
        drawn = [torch.randperm(n, generator=keyed_generator(*key)) for key in keys]
        used = torch.stack(drawn)[:, : _used(work, n)].sort(1).values
    return _cut(used, work, settings, n)[:, (k * count + torch.arange(count)) % per_epoch]


def _cut(orders: Tensor, work: Work, settings: Settings, n: int) -> Tensor:
    """Orders (…, samples) of n samples cut into batches (…, batches, batch size)."""
    size = min(_batch_size(work, settings), _used(work, n))
    per_epoch = batches_per_epoch(work, settings, n)
    return _padded(orders, per_epoch * size).unflatten(-1, (per_epoch, size))


def _padded(table: Tensor, width: int) -> Tensor:
    missing = width - table.shape[-1]
    return F.pad(table, (0, missing), value=-1) if missing else table


def draw_noise(
    work: Work, settings: Settings, steps: Sequence[int], who: Sequence[int], k: int
) -> list[Tensor]:
    """Uniform random numbers for each step of each client, keyed like the batches."""
    if not work.noise:
        return [torch.empty(count, 0) for count in steps]
    drawn = []
    for client, count in zip(who, steps):
        generator = keyed_generator(settings.seed, work.tag, k, client, "noise")
        drawn.append(torch.rand(count, work.noise, generator=generator))
    return drawn


def dropout_keys(
    work: Work, settings: Settings, k: int, client: int, step: int
) -> list[DropoutKey]:
    """The keys of this client's dropout draws in this step, one per batch."""
    key = (settings.seed, work.tag, k, client, "dropout", step)
    return [DropoutKey((*key, batch)) for batch in range(work.group)]
