"""Splits that others have published, sample by sample."""

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.data.dataset import Dataset
from pfl_lib.data.own import read_arrays
from pfl_lib.data.places import NOT_OFFERED, locate
from pfl_lib.partition.checks import check_arguments
from pfl_lib.partition.table import Partition

_MNIST, _FASHION = ("mnist", "mnist_writers"), ("fashion_mnist",)
#: name: file, data sets whose samples it counts, whose it is
PUBLISHED = {
    "fedala-mnist": ("fedala_mnist_dir01.npz", _MNIST, "FedALA's"),
    "pfllib-mnist": ("pfllib_mnist_dir01.npz", _MNIST, "PFLlib's"),
    "dbe-fmnist": ("dbe_fmnist_dir01.npz", _FASHION, "DBE's"),
}
_MOST = 1000  # clients in one file


def published(name: str, data: Dataset, root: str | None = None) -> Partition:
    """The very split that a paper's authors published: twenty clients, Dirichlet(0.1), 75/25.

    ``name``: ``"fedala-mnist"`` (FedCP and GPFL publish the same one), ``"pfllib-mnist"`` (the same
    number of labels for each client, other images) or ``"dbe-fmnist"``.  A file ``train_i``,
    ``test_i`` holds indices into the official training part followed by the official test part;
    it is looked for where :func:`pfl_lib.data.load` looks.

    >>> import pfl_lib
    >>> try:
    ...     published("fedala-mnist", pfl_lib.data.load("digits"))
    ... except ValueError as error:
    ...     print(error)
    data must be mnist or mnist_writers for 'fedala-mnist', got digits
    """
    check_arguments(data=data)
    _check.one_of("name", name, PUBLISHED)
    file, sets, whose = PUBLISHED[name]
    if data.name not in sets:
        raise ValueError(f"data must be {' or '.join(sets)} for {name!r}, got {data.name}")
    path = locate(
        name,
        root,
        lambda base: base / file if (base / file).is_file() else None,
        f"{file} with train_0, test_0, train_1, ...: indices into {sets[0]}, training part first",
        why_not=NOT_OFFERED,
    )
    parts = {part: _rows(path, part) for part in ("train", "test")}
    if len(parts["train"]) != len(parts["test"]):
        raise ValueError(f"{path}: not every client has a training and a test part")
    seen = torch.cat([*parts["train"], *parts["test"]])
    if not torch.equal(seen.sort().values, torch.arange(len(data))):
        raise ValueError(
            f"{path}: holds {len(seen):,} indices; wanted is each of the {len(data):,} samples of "
            f"{data.name} once"
        )
    about = f"{data.name} as {whose} authors published it, Dirichlet(0.1), 75/25"
    return Partition(name, **parts, about=about, source=data.identity())


def _rows(path, part):
    names = [f"{part}_{i}" for i in range(_MOST)]
    arrays = read_arrays(path, names[:1], names[1:])
    found = [arrays[name] for name in names if name in arrays]
    for name, rows in zip(names, found):
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError(f"{path}: {name} should be a list of whole numbers, got {rows.dtype}")
    return [torch.from_numpy(rows.astype(np.int64)) for rows in found]
