"""Natural clients: every sample is held by the client it comes from."""

import torch

from pfl_lib import _check
from pfl_lib._dealing import sides
from pfl_lib.data.dataset import Dataset
from pfl_lib.partition.checks import check_arguments
from pfl_lib.partition.table import Partition
from pfl_lib.random import keyed_generator


def natural(
    data: Dataset,
    by: str | None = None,
    clients: int | None = None,
    *,
    test_share: float | None = None,
    part: str = "train",
    min_samples: int = 2,
    groups: str | None = None,
    seed: int = 0,
) -> Partition:
    """Natural clients: one for each writer, person, hospital or field of the data set.

    ``by``: the column that says whose sample it is; None: the one that ``data.client`` names.
    ``test_share=None`` keeps the data set's own split: a client trains on its samples of the
    training part and is tested on its samples of the test part.  A share is drawn from each
    client's samples of one ``part`` of the data set (``"train"`` or ``"test"``), all classes alike,
    and samples that belong together (``data.together``) stay together, also where several clients
    hold them; of a data set that was split by time it is each client's last.  The other part stays
    unused, for instance for clients who come later.
    Clients with fewer than ``min_samples`` training samples, or without a test sample, are left
    out.  ``clients``: so many of the others, drawn at random; None: all.
    ``groups``: a column that is the same for all samples of a client, as its hidden group.

    >>> import numpy as np, pfl_lib
    >>> x, y, whose = np.random.rand(90, 4), np.arange(90) % 2, np.arange(90) % 5
    >>> data = pfl_lib.data.from_arrays(x, y, whose, test=0.2)
    >>> [len(rows) for rows in natural(data).train]
    [14, 14, 14, 14, 14]
    """
    check_arguments(seed, targets=True, data=data)
    _check.one_of("part", part, ("train", "test"))
    least = _check.whole("min_samples", min_samples)
    by = _client_column(data, by)
    rows = _rows_of(data.columns[by])
    if test_share is None:
        cut = [(i[i < data.n_train], i[i >= data.n_train]) for i in rows]
    else:
        share = _check.between("test_share", test_share, 0, 1, "()")
        cut = parts_of(data, rows, share, part, seed, "natural")
    kept = [c for c, (train, test) in enumerate(cut) if len(train) >= least and len(test) > 0]
    if not kept:
        raise ValueError(
            f"no {by} of {data.name} has min_samples={least} training samples and one to test on"
            + ("; say which test_share of a client's samples" if test_share is None else "")
        )
    if clients is not None:
        if _check.whole("clients", clients) > len(kept):
            raise ValueError(
                f"clients must be at most {len(kept):,}: so many {by}s of {data.name} have "
                f"min_samples={least} training samples and one to test on; got {clients}"
            )
        generator = keyed_generator(seed, "natural", "clients")
        drawn = torch.randperm(len(kept), generator=generator)[:clients]
        kept = [kept[i] for i in drawn.sort().values.tolist()]
    tested = "the data set's own split" if test_share is None else f"{test_share:.0%} for testing"
    return Partition(
        name="natural",
        train=[cut[c][0] for c in kept],
        test=[cut[c][1] for c in kept],
        groups=None if groups is None else _groups(data, groups, [rows[c] for c in kept]),
        seed=seed,
        ids=[data.columns[by].names[c] for c in kept],
        source=data.identity(),
        about=f"{data.name} by {by}, {len(kept):,} of {len(rows):,}, {tested}",
    )


def _client_column(data, by):
    there = ", ".join(data.columns) or "there are none"
    if by is None and not data.client:
        raise ValueError(
            f"by must name a column of {data.name} ({there}): the data set does not say whose "
            "sample it is"
        )
    by = data.client if by is None else by
    if not isinstance(by, str) or by not in data.columns:
        raise ValueError(f"by must name a column of {data.name} ({there}), got {by!r}")
    return by


def _rows_of(column):
    """The samples of each client, in the order of the data set."""
    order = column.values.argsort(stable=True)
    return order.split(torch.bincount(column.values, minlength=len(column.names)).tolist())


def parts_of(data, rows, share, part, *key):
    """The training and the test samples of each client, of its ``rows`` in one part of the data."""
    rows = [own[(own < data.n_train) == (part == "train")] for own in rows]
    labels = data.y if data.labeled else torch.zeros(len(data), dtype=torch.int64)
    tested = sides(labels, rows, share, *key, groups=data.groups, by_time=data.split == "time")
    return [(own[~tested[own]], own[tested[own]]) for own in rows]


def _groups(data, groups, rows):
    if not isinstance(groups, str) or groups not in data.columns:
        there = ", ".join(data.columns)
        raise ValueError(f"groups must name a column of {data.name} ({there}), got {groups!r}")
    values = data.columns[groups].values
    found = [values[i].unique() for i in rows]
    if any(len(own) != 1 for own in found):
        raise ValueError(f"groups={groups!r} differs between samples of one client")
    return torch.cat(found).unique(return_inverse=True)[1]
