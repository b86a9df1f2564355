"""Partitions: clients and classes as circles, drawn by the library itself."""

import functools

import torch
import traitlets

from pfl_lib import partition
from pfl_lib.book.explore.base import Explorer, Word
from pfl_lib.data.dataset import Dataset

CLIENTS, CLASSES, DRAWS = 10, 10, 3
SHARES = (0.2, 0.5, 0.8, 0.95, 1.0)  # as in partitions.js
PER_CLIENT = (1, 2, 3, 4, 6, 8, 10)
CONCENTRATIONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
LEVELS = {
    "grouped": ("share", SHARES),
    "pathological": ("classes_per_client", PER_CLIENT),
    "dirichlet": ("a", CONCENTRATIONS),
    "class_subset": ("classes_per_client", PER_CLIENT),
}


class Partitions(Explorer):
    """Who holds which classes: grouped, pathological, Dirichlet(a) and class subsets.

    Ten clients share 10,000 training samples of ten classes. Every table is drawn by
    ``pfl_lib.partition``; ``draw`` is its seed.

    >>> Partitions(kind="pathological", classes_per_client=2).compute()["classes"]
    [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """

    modules = ("partitions.js",)

    kind = Word("dirichlet", LEVELS)
    share = Word(0.8, SHARES)
    classes_per_client = Word(2, PER_CLIENT)
    a = Word(0.3, CONCENTRATIONS)
    draw = Word("0", tuple(str(k) for k in range(DRAWS)))
    names = traitlets.List(traitlets.Unicode(), default_value=[str(c) for c in range(CLASSES)])
    tables = traitlets.Dict(read_only=True)

    def __init__(self, **settings):
        settings.pop("tables", None)  # they come from the library only
        self.set_trait("tables", _tables())
        super().__init__(**settings)

    def check(self):
        if len(self.names) != CLASSES:
            raise ValueError(f"names must be {CLASSES} words, got {len(self.names)}")

    def compute(self):
        level = getattr(self, LEVELS[self.kind][0])
        counts = _drawn(self.kind, level, int(self.draw)).double()
        share = counts / counts.sum(1, keepdim=True)
        pooled = counts.sum(0) / counts.sum()
        return {
            "counts": counts.long().tolist(),
            "sizes": counts.long().sum(1).tolist(),
            "classes": (counts > 0).sum(1).tolist(),
            "effective": torch.special.entr(share).sum(1).exp().tolist(),
            "skew": float(0.5 * (share - pooled).abs().sum(1).mean()),
        }


@functools.cache
def _samples():
    """Labels are all that matters here: 1,000 training and 200 test samples per class."""
    y = torch.cat([torch.arange(CLASSES).repeat(1000), torch.arange(CLASSES).repeat(200)])
    x = torch.zeros(len(y), 1, 1, 1, dtype=torch.uint8)
    classes = tuple(str(c) for c in range(CLASSES))
    return Dataset("toy", x, y, 1000 * CLASSES, classes, mean=(0.0,), std=(1.0,))


@functools.cache
def _drawn(kind, level, seed):
    data = _samples()
    if kind == "grouped":
        sizes = (500, 400, 300, 200, 100)  # FedAMP's, on MNIST
        drawn = partition.grouped(data, group_clients=2, group_sizes=sizes, share=level, seed=seed)
    elif kind == "dirichlet":
        drawn = partition.dirichlet(data, CLIENTS, level, seed=seed)
    else:
        drawn = getattr(partition, kind)(data, CLIENTS, level, seed=seed)
    return drawn.counts(data)


@functools.cache
def _tables():
    return {
        kind: [[_drawn(kind, level, seed).tolist() for seed in range(DRAWS)] for level in levels]
        for kind, (_, levels) in LEVELS.items()
    }
