"""Partitions: which client holds which samples, with the splits of each paper by name.

Samples are never copied: a client is two lists of indices into ``data.x``.  All randomness is keyed
by (seed, purpose, client), so it does not depend on the order of the draws.
"""

from pfl_lib.partition.changes import hold_out, label_noise, official_test, scarce, set_aside
from pfl_lib.partition.flower import from_flower
from pfl_lib.partition.hidden_groups import (
    conflicting_labels,
    grouped,
)
from pfl_lib.partition.natural import natural
from pfl_lib.partition.published import published
from pfl_lib.partition.splits import (
    class_subset,
    dirichlet,
    iid,
    pathological,
)
from pfl_lib.partition.table import Partition, load

__all__ = [
    "Partition",
    "class_subset",
    "conflicting_labels",
    "dirichlet",
    "from_flower",
    "grouped",
    "hold_out",
    "iid",
    "label_noise",
    "load",
    "natural",
    "official_test",
    "pathological",
    "published",
    "scarce",
    "set_aside",
]
