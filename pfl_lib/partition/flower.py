"""Clients made by a partitioner of Flower Datasets (``pip install flwr-datasets``)."""

from typing import Any

import torch

from pfl_lib import _check
from pfl_lib.data.dataset import Dataset
from pfl_lib.partition.checks import check_arguments
from pfl_lib.partition.natural import parts_of
from pfl_lib.partition.table import Partition


def from_flower(
    data: Dataset,
    partitioner: Any,
    *,
    test_share: float = 0.25,
    min_samples: int = 2,
    seed: int = 0,
) -> Partition:
    """Any partitioner of ``flwr_datasets.partitioner`` deals the training part of ``data``.

    It is given a table with the columns ``row``, ``label`` (a number) and those of
    ``data.columns``; so ``partition_by`` names "label" or one of them.  Of each client's samples
    ``test_share`` are for testing, all classes alike; those that belong together stay together.
    Clients with fewer than ``min_samples`` training samples, or without a test sample, are left
    out.  The partitioner has a seed of its own; it must not have a data set yet.

        from flwr_datasets.partitioner import DirichletPartitioner
        dirichlet = DirichletPartitioner(20, partition_by="label", alpha=0.1)
        clients = pfl_lib.partition.from_flower(data, dirichlet)

    >>> import pfl_lib
    >>> from_flower(pfl_lib.data.load("digits"), "dirichlet")
    Traceback (most recent call last):
    TypeError: partitioner must be one of flwr_datasets.partitioner, got 'dirichlet'
    """
    check_arguments(seed, targets=True, data=data)
    share = _check.between("test_share", test_share, 0, 1, "()")
    least = _check.whole("min_samples", min_samples)
    if not hasattr(partitioner, "load_partition") or isinstance(partitioner, type):
        raise TypeError(
            f"partitioner must be one of flwr_datasets.partitioner, got {partitioner!r}"
        )
    if partitioner.is_dataset_assigned():
        raise ValueError("partitioner must be a fresh one: it has been given a data set already")
    partitioner.dataset = _table(data)
    name = type(partitioner).__name__
    ids = getattr(partitioner, "partition_id_to_natural_id", None) or {}
    rows = [
        torch.as_tensor(list(partitioner.load_partition(number)["row"]), dtype=torch.int64)
        for number in range(partitioner.num_partitions)
    ]
    kept = [
        (str(ids.get(number, number)), train, test)
        for number, (train, test) in enumerate(parts_of(data, rows, share, "train", seed, "flower"))
        if len(train) >= least and len(test) > 0
    ]
    if not kept:
        raise ValueError(
            f"{name} gives no client min_samples={least} training samples and one for testing"
        )
    return Partition(
        name="flower",
        train=[train for _, train, _ in kept],
        test=[test for _, _, test in kept],
        seed=seed,
        ids=[who for who, _, _ in kept],
        source=data.identity(),
        about=f"{data.name} by Flower's {name}, {len(kept):,} clients, {share:.0%} for testing",
    )


def _table(data):
    """The training part without its inputs, as Flower's partitioners read it."""
    datasets = _check.optional("datasets", "from_flower", "flwr-datasets")
    own = {
        name: [column.names[v] for v in column.values[: data.n_train].tolist()]
        for name, column in data.columns.items()
    }
    label = {"label": data.y[: data.n_train].tolist()} if data.labeled else {}
    return datasets.Dataset.from_dict({"row": list(range(data.n_train)), **label, **own})
