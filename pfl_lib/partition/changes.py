"""Changes to a partition: fewer samples, held-out samples, newcomers, other tests, label noise."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from pfl_lib import _check
from pfl_lib._dealing import at_home, groups_for_test, sides
from pfl_lib.partition.checks import check_arguments
from pfl_lib.partition.table import Partition
from pfl_lib.random import keyed_generator


def scarce(partition, samples, seed=0):
    """The same clients with only ``samples`` training samples each, drawn at random.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pfl_lib.partition.iid(data, clients=4)
    >>> [len(rows) for rows in scarce(clients, samples=20).train]
    [20, 20, 20, 20]
    """
    check_arguments(seed, partition=partition)
    samples = _check.whole("samples", samples)
    short = [i for i, index in enumerate(partition.train) if len(index) < samples]
    if short:
        i = min(short, key=lambda i: len(partition.train[i]))
        raise ValueError(
            f"samples={samples}: {len(short)} of {partition.m} clients have fewer, client {i} has "
            f"{len(partition.train[i])}; use fewer samples, or a partition with a larger min_size"
        )
    kept = [
        torch.randperm(len(index), generator=keyed_generator(seed, "scarce", i))[:samples]
        for i, index in enumerate(partition.train)
    ]
    labels = partition.labels
    return replace(
        partition,
        train=tuple(index[k] for index, k in zip(partition.train, kept)),
        labels=None if labels is None else tuple(own[k] for own, k in zip(labels, kept)),
        about=f"{partition.about}; cut to {samples} training samples per client",
    )


def hold_out(partition, share=0.2, seed=0, data=None):
    """A part of each client's training samples to choose on: two partitions (tested, chosen).

    Where samples of ``data`` belong together (``data.together``: overlapping windows, say), whole
    groups of them are held out, for all clients that hold them; a client whose only group it is
    alone in is cut at random.  Of a ``data`` that was split by time, each client's last samples are
    held out.  None for ``data``: at random.  Both train on the same remaining samples.

    ``tested`` keeps the test samples, ``chosen`` has the held-out ones in their place.  Batches do
    not depend on what is tested, so the same run on both gives the same models: choose a round by
    the second, report that round of the first.  Held-out samples are judged by their true labels,
    also at clients that believe wrong ones.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> tested, chosen = hold_out(pfl_lib.partition.iid(data, clients=4), share=0.25)
    >>> len(tested.train[0]), len(tested.test[0]), len(chosen.test[0])
    (270, 90, 90)
    """
    check_arguments(seed, partition=partition)
    if data is not None:
        check_arguments(data=data, targets=True)
    if not 0 < _check.between("share", share, 0, 1) < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share!r}")
    kept, held, labels = [], [], []
    planned = None if data is None else _planned(partition, data, share, seed)
    for i, index in enumerate(partition.train):
        if len(index) < 2:
            raise ValueError(
                f"client {i} has {len(index)} training sample: there is none to hold out"
            )
        chosen = None if planned is None else planned[index]
        if chosen is not None and chosen.any() and not chosen.all():
            out, left = chosen.nonzero().squeeze(1), (~chosen).nonzero().squeeze(1)
        else:
            _check_alone(partition, data, i)
            count = min(len(index) - 1, max(1, round(share * len(index))))
            order = torch.randperm(len(index), generator=keyed_generator(seed, "hold_out", i))
            out, left = order[:count], order[count:]
        held.append(index[out])
        kept.append(index[left])
        if partition.labels is not None:
            labels.append(partition.labels[i][left])
    about = f"{partition.about}; {share:.0%} of the training samples held out"
    tested = replace(partition, train=kept, labels=labels or None, about=about)
    return tested, replace(tested, test=held, about=f"{about} and tested on")


def _planned(partition, data, share, seed):
    """The samples to hold out by whole groups, or by time: a mask over the data; None: neither."""
    if data.groups is None:
        by_time = data.split == "time"
        return sides(data.y, partition.train, share, by_time=True) if by_time else None
    classes = data.y if data.labeled else torch.zeros(len(data), dtype=torch.int64)
    out = torch.zeros(len(data), dtype=torch.bool)
    for i, own in enumerate(at_home(partition.train, data.groups)):
        for labels in (classes[own], torch.zeros_like(own)):  # stratified by class if possible
            if not out[own].any():
                out[own] = groups_for_test(labels, data.groups[own], share, seed, "hold_out", i)
    return out


def _check_alone(partition, data, client):
    """Refuse to cut through a group that other clients hold, too."""
    if data is None or data.groups is None:
        return
    others = [data.groups[own] for i, own in enumerate(partition.train) if i != client]
    mine = data.groups[partition.train[client]].unique()
    shared = mine[torch.isin(mine, torch.cat([*others, mine[:0]]))].tolist()
    if shared:
        names = ", ".join(data.columns[data.together].names[g] for g in shared[:5])
        raise ValueError(
            f"client {client} has nothing to hold out by whole groups: other clients, too, hold "
            f"{data.together} {names}. hold_out without data cuts through them, at random"
        )


def set_aside(
    partition: Partition, clients: int | Sequence[int] | torch.Tensor, seed: int = 0
) -> tuple[Partition, Partition]:
    """Set some ``clients`` aside as newcomers: two partitions (members, newcomers).

    Train on the members, then serve the newcomers: see :func:`pfl_lib.serve_newcomers`.  Both keep
    their order; ``clients`` are numbers of clients, or how many of them, drawn by ``seed``; some
    member must be left.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> members, newcomers = set_aside(pfl_lib.partition.iid(data, clients=4), [1, 3])
    >>> members.m, newcomers.m
    (2, 2)
    >>> set_aside(pfl_lib.partition.iid(data, clients=4), clients=1)[0].m
    3
    """
    check_arguments(seed, partition=partition)
    if isinstance(clients, int) and not isinstance(clients, bool) and clients > 0:
        order = torch.randperm(partition.m, generator=keyed_generator(seed, "set_aside"))
        given = order[:clients]
    else:
        given = _check.numbers("clients", clients)
    if given.dtype == torch.bool or given.is_floating_point() or given.ndim != 1:
        raise TypeError(f"clients must be a list of client numbers, got {clients!r}")
    late = given.tolist()
    wrong = [i for i in late if i not in range(partition.m)]
    if wrong or len(set(late)) != len(late) or not 0 < len(late) < partition.m:
        raise ValueError(
            f"clients must be different numbers from 0 to {partition.m - 1}, and neither none nor "
            f"all, got {late}"
        )
    members = [i for i in range(partition.m) if i not in late]
    return _some(partition, members, "the members"), _some(partition, sorted(late), "the newcomers")


def _some(partition, who, word):
    """The clients ``who`` of a partition."""
    pick = lambda rows: rows and tuple(rows[i] for i in who)  # noqa: E731
    groups = partition.groups
    return replace(
        partition,
        train=pick(partition.train),
        test=pick(partition.test),
        labels=pick(partition.labels),
        groups=None if groups is None else groups[who],
        ids=pick(partition.ids),
        about=f"{partition.about}; {len(who)} of {partition.m} clients, {word}",
    )


def official_test(partition, data):
    """The same clients, each tested on all official test samples of the classes it trains on.

    For partitions that leave a client too few test samples to see a small difference, such as
    :func:`class_subset`.  Clients of one class are then tested on the same samples.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = official_test(pfl_lib.partition.pathological(data, clients=5), data)
    >>> [len(rows) for rows in clients.test]
    [71, 72, 72, 72, 72]
    """
    check_arguments(partition=partition, data=data)
    y = data.y.clone()
    y[: data.n_train] = -1  # no client is tested on training samples,
    y[torch.cat(partition.train)] = -1  # not even where both parts were dealt together
    test = [torch.isin(y, data.y[own]).nonzero().squeeze(1) for own in partition.train]
    for i, index in enumerate(test):
        if len(index) == 0:
            raise ValueError(
                f"the official test part of {data.name} has no sample of the classes of client {i}"
            )
    about = f"{partition.about}; tested on the official test samples of its classes"
    return replace(partition, test=test, about=about)


def label_noise(partition, data, client_share=0.4, label_share=0.2, seed=0):
    """Label noise: some training labels of some clients are wrong, test labels stay true.

    ``client_share`` of the clients are dirty (FedAMP: two of five).  ``label_share`` of a dirty
    client's training labels are replaced, each by one of the *other* classes, drawn uniformly.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pfl_lib.partition.iid(data, clients=5)
    >>> clients = label_noise(clients, data, client_share=0.4, label_share=0.2)
    >>> wrong = [(b != data.y[t]).sum().item() for b, t in zip(clients.labels, clients.train)]
    >>> [round(w / len(t), 1) for w, t in zip(wrong, clients.train)]
    [0.0, 0.0, 0.0, 0.2, 0.2]
    """
    check_arguments(seed, partition=partition, data=data)
    _check.between("client_share", client_share, 0, 1)
    _check.between("label_share", label_share, 0, 1)
    if partition.labels is not None:
        raise ValueError("this partition has label noise already: start from the one without")
    if len(data.classes) < 2:
        raise ValueError(f"{data.name} has a single class: there is no other to mistake it for")
    order = torch.randperm(partition.m, generator=keyed_generator(seed, "label_noise", "clients"))
    dirty = set(order[: int(client_share * partition.m + 0.5)].tolist())
    labels = []
    for i, index in enumerate(partition.train):
        own = data.y[index].clone()
        if i in dirty:
            generator = keyed_generator(seed, "label_noise", i)
            wrong = torch.randperm(len(own), generator=generator)[
                : int(label_share * len(own) + 0.5)
            ]
            step = torch.randint(1, len(data.classes), (len(wrong),), generator=generator)
            own[wrong] = (own[wrong] + step) % len(data.classes)
        labels.append(own)
    return replace(
        partition,
        labels=tuple(labels),
        about=f"{partition.about}; {len(dirty)} clients with {label_share:.0%} wrong labels",
    )
