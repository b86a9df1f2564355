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
    batch_size = settings.batch_size if work.batch_size is None else work.batch_size
    return math.ceil(_used(work, n) / batch_size)


def _used(work: Work, n: int) -> int:
    return n if work.share == 1 else max(1, round(work.share * n))


def batch_table(
    work: Work, settings: Settings, sizes: Sequence[int], who: Sequence[int], k: int
) -> list[Tensor]:
    """For each client the positions (in its own data) of every batch, one row per batch; −1 pads.

    As wide as the largest batch.  Drawn on the CPU, so that every device gets the same numbers.
    """
    batch_size = settings.batch_size if work.batch_size is None else work.batch_size
    width = min(batch_size, max(_used(work, n) for n in sizes))
    tables: dict[int, Tensor] = {}
    alike: dict[tuple[int, int], list[int]] = {}
    for row, shape in enumerate(zip(sizes, step_counts(work, settings, sizes))):
        alike.setdefault(shape, []).append(row)

    def filled(table: Tensor, width: int) -> Tensor:
        missing = width - table.shape[-1]
        return F.pad(table, (0, missing), value=-1) if missing else table

    for (n, steps), rows in alike.items():  # clients with equal tables are built together
        used, per_epoch = _used(work, n), batches_per_epoch(work, settings, n)
        size, length = min(batch_size, used), steps * work.group
        if not settings.shuffle:
            for row in rows:
                mine = _in_order(work, settings, n, who[row], k)
                mine = filled(filled(mine, per_epoch * size).view(per_epoch, size), width)
                # continues where the last round stopped
                tables[row] = mine[(k * length + torch.arange(length)) % per_epoch]
            continue
        passes = math.ceil(length / per_epoch)
        if (
            work.group > 1 and work.steps is None
        ):  # the last group is completed from the first batches
            passes = settings.epochs if work.epochs is None else work.epochs
        orders = torch.empty(len(rows), passes, used, dtype=torch.long)
        for row, mine in zip(rows, orders):
            key = (settings.seed, work.tag, k, who[row])
            for epoch, order in enumerate(mine.unbind()):
                generator = keyed_generator(*key, "batches", epoch)
                torch.randperm(used, generator=generator, out=order)
            if work.share < 1:
                pool = torch.randperm(n, generator=keyed_generator(*key, "share"))[:used]
                mine.copy_(pool[mine])
        table = filled(
            filled(orders, per_epoch * size).view(len(rows), passes * per_epoch, size), width
        )
        if length > passes * per_epoch:
            table = table[:, torch.arange(length) % (passes * per_epoch)]
        for row, mine in zip(rows, table[:, :length]):
            tables[row] = mine
    return [tables[row] for row in range(len(who))]


def _in_order(work: Work, settings: Settings, n: int, client: int, k: int) -> Tensor:
    """The positions that are used, in the order of the client's data."""
    if work.share == 1:
        return torch.arange(n)
    generator = keyed_generator(settings.seed, work.tag, k, client, "share")
    return torch.randperm(n, generator=generator)[: _used(work, n)].sort().values


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
