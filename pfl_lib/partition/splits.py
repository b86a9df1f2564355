"""Clients made from a data set without clients: uniform, by classes, by Dirichlet proportions."""

import math

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib._dealing import cut, deal, shuffled
from pfl_lib.partition.checks import check_arguments, check_supply, checked_count
from pfl_lib.partition.table import Partition
from pfl_lib.random import keyed_generator, keyed_number


def iid(data, clients, seed=0):
    """A uniformly random split of the training part, and one of the test part, into equal parts.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> [len(rows) for rows in iid(data, clients=4).train]
    [360, 360, 359, 359]
    """
    check_arguments(seed, targets=True, data=data)
    clients = checked_count(data, clients)
    train = torch.randperm(data.n_train, generator=keyed_generator(seed, "iid", "train"))
    test = torch.randperm(data.n_test, generator=keyed_generator(seed, "iid", "test"))
    return Partition(
        name="iid",
        train=train.tensor_split(clients),
        test=(test + data.n_train).tensor_split(clients),
        seed=seed,
        source=data.identity(),
        about=f"{data.name} split uniformly at random",
    )


def pathological(data, clients, classes_per_client=2, seed=0, form="shards"):
    """Each client holds samples of ``classes_per_client`` classes only.

    ``form="shards"``: every class is cut into equal shards, as many as there are clients that hold
    it, which is the same number for all classes, or differs by one.  The test part is cut in the
    same way, so that a client is tested on its own classes.
    ``form="fedala"``, as the FedALA authors' generator makes it: both parts merged; clients in a
    block share the same classes (20 clients with 2 of 10 classes: five blocks of four, with the
    classes 0 and 1, 2 and 3, ...), in unequal sizes: all but the last client of a block get between
    a tenth of a fair share and a fair share, the last one gets the rest; then 75 % of a client's
    samples are for training, 25 % for testing.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pathological(data, clients=5, classes_per_client=2)
    >>> (clients.counts(data) > 0).sum(1)  # how many classes each client holds
    tensor([2, 2, 2, 2, 2])
    """
    form = _check.one_of("form", form, ("shards", "fedala"))
    check_arguments(seed, data=data, recut=form == "fedala")
    clients = checked_count(data, clients)
    classes = len(data.classes)
    per_client = _classes_per_client(data, classes_per_client)
    if clients * per_client < classes:
        raise ValueError(
            f"{clients} clients with {per_client} classes each cannot hold all {classes} classes "
            f"of {data.name}; use at least {-(-classes // per_client)} clients"
        )
    if form == "fedala":
        return _in_blocks(data, clients, per_client, seed)
    order = torch.randperm(classes, generator=keyed_generator(seed, "pathological", "classes"))
    left = torch.full((classes,), clients * per_client // classes)
    left[order[: clients * per_client % classes]] += 1
    holders = left.clone()
    holds = torch.zeros(clients, classes, dtype=torch.bool)
    for i in range(clients):
        # the classes with the most free places, ties at random: then nobody is left without
        chance = torch.rand(classes, generator=keyed_generator(seed, "pathological", "choice", i))
        chosen = (left + 0.5 * chance).topk(per_client).indices
        holds[i, chosen] = True
        left[chosen] -= 1
    parts = {}
    for part, labels, offset in (("train", data.y_train, 0), ("test", data.y_test, data.n_train)):
        have = torch.bincount(labels, minlength=classes)
        check_supply(
            data, holders, have, f"{part} samples, one for each client that holds the class"
        )
        counts = torch.zeros(clients, classes, dtype=torch.int64)
        for c in range(classes):
            shards = torch.full((int(holders[c]),), int(have[c] // holders[c]))
            shards[: int(have[c] % holders[c])] += 1
            counts[holds[:, c], c] = shards
        parts[part], _ = deal(labels, offset, counts, seed, "pathological", part)
    return Partition(
        name="pathological",
        **parts,
        seed=seed,
        source=data.identity(),
        about=f"{data.name} in shards, {per_client} classes for each client",
    )


def _in_blocks(data, clients, per_client, seed):
    """The FedALA authors' pathological split; see :func:`pathological`."""
    classes = len(data.classes)
    if clients * per_client % classes:
        raise ValueError(
            f"clients × classes_per_client must be a multiple of the {classes} classes of "
            f"{data.name} in form='fedala', got {clients} × {per_client}"
        )
    block = clients * per_client // classes  # clients that hold a class
    free = [per_client] * clients
    counts = torch.zeros(clients, classes, dtype=torch.int64)
    for c in range(classes):
        have = int((data.y == c).sum())
        fair, least = have // block, max(1, have // block // 10)
        if fair <= least:
            raise ValueError(
                f"class {data.classes[c]!r} of {data.name} has {have:,} samples for {block} "
                "clients; use fewer clients"
            )
        generator = keyed_generator(seed, "pathological", "fedala", c)
        sizes = torch.randint(least, fair, (block - 1,), generator=generator).tolist()
        # the first clients that still lack a class take it: so they come in blocks
        holders = [i for i in range(clients) if free[i]][:block]
        for i, size in zip(holders, [*sizes, have - sum(sizes)]):
            counts[i, c] = size
            free[i] -= 1
    hands, _ = deal(data.y, 0, counts, seed, "pathological", "fedala")
    train, test = _three_quarters(hands)
    return Partition(
        name="pathological",
        train=train,
        test=test,
        seed=seed,
        source=data.identity(),
        about=f"{data.name} in blocks of clients with the same {per_client} classes and unequal "
        "sizes, both parts merged, then 75/25",
    )


def _three_quarters(hands):
    """FedALA's cut of shuffled samples into training and test part."""
    cuts = [min(len(hand) - 1, math.ceil(0.75 * len(hand))) for hand in hands]
    return (
        tuple(hand[:k] for hand, k in zip(hands, cuts)),
        tuple(hand[k:] for hand, k in zip(hands, cuts)),
    )


def dirichlet(data, clients, a, form="fedacs", min_size=10, tries=100, seed=0):
    """Label skew: each class is shared out in proportions drawn from a Dirichlet distribution.

    A small ``a`` gives a class to few clients, a large one to all alike.

    ``form="fedacs"``: the training part, and by the same proportions the test part.
    ``form="fedala"``: both parts merged; a client that already has its fair share of all samples
    gets none of the next class; then 75 % of a client's samples are for training, 25 % for testing.

    Proportions are drawn again, at most ``tries`` times, until every client has ``min_size``
    training samples (``"fedala"``: samples in all) and one test sample.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = dirichlet(data, clients=6, a=0.3)
    >>> clients.counts(data).sum() == data.n_train
    tensor(True)
    """
    form = _check.one_of("form", form, ("fedacs", "fedala"))
    check_arguments(seed, data=data, recut=form == "fedala")
    clients = checked_count(data, clients)
    a = _check.positive("a", a)
    least = _check.whole("min_size", min_size)
    if form == "fedala":
        least = max(least, 2)
    pool = data.n_train if form == "fedacs" else len(data)
    if least * clients > pool:
        raise ValueError(
            f"min_size={least} for {clients} clients needs {least * clients:,} samples; "
            f"{data.name} has {pool:,}"
        )
    merged = {"train": data.y if form == "fedala" else data.y_train, "test": data.y_test}
    best = 0
    for attempt in range(_check.whole("tries", tries)):
        counts = _dirichlet_counts(data, clients, a, form == "fedala", merged, (seed, attempt))
        sizes = counts["train"].sum(1)
        best = max(best, int(sizes.min()))
        if int(sizes.min()) >= least and (form == "fedala" or int(counts["test"].sum(1).min()) > 0):
            break
    else:
        other = "" if form == "fedala" else ", or form='fedala', which caps large clients"
        raise ValueError(
            f"after {tries} draws with a={a:g} some of {clients} clients had fewer than "
            f"min_size={least} samples or no test sample (the best draw gave {best}): use a larger "
            f"a, fewer clients, a smaller min_size{other}"
        )
    train, _ = deal(merged["train"], 0, counts["train"], seed, "dirichlet", "train")
    if form == "fedala":
        train, test = _three_quarters(train)
    else:
        test, _ = deal(data.y_test, data.n_train, counts["test"], seed, "dirichlet", "test")
    split = "both parts merged, then 75/25" if form == "fedala" else "training and test part alike"
    return Partition(
        name="dirichlet",
        train=train,
        test=test,
        seed=seed,
        source=data.identity(),
        about=f"{data.name} by class proportions from Dirichlet({a:g}), {split}",
    )


def _dirichlet_counts(data, clients, a, capped, merged, key):
    """How many samples of each class each client gets, by one draw of the proportions."""
    classes = len(data.classes)
    counts = {p: torch.zeros(clients, classes, dtype=torch.int64) for p in ("train", "test")}
    fair = len(merged["train"]) / clients
    for c in range(classes):
        seed, attempt = key
        random = np.random.default_rng(keyed_number(seed, "dirichlet", attempt, c))
        share = torch.from_numpy(random.dirichlet(np.full(clients, a))).nan_to_num(0.0)
        room = torch.ones(clients, dtype=torch.float64)
        if capped:
            room = (counts["train"].sum(1) < fair).double()
        if float((share * room).sum()) < 1e-12:  # a is so small that all of it went elsewhere
            share = torch.zeros_like(room)
            share[random.choice(room.nonzero().squeeze(1).numpy())] = 1.0
        share = share * room / (share * room).sum()
        for part, labels in merged.items():
            counts[part][:, c] = cut(int((labels == c).sum()), share)
    return counts


def class_subset(data, clients=10, classes_per_client=6, iid=False, test_share=0.2, seed=0):
    """Each client holds one of ``clients`` equal parts of some classes (the SPFL paper's split).

    ``iid=True``: one common random subset of classes for all clients; ``iid=False``: every client
    draws its own.  The official training part alone is used; ``test_share`` of a client's samples
    of each class are for testing, at least one and never all.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = class_subset(data, clients=5, classes_per_client=4)
    >>> (clients.counts(data) > 0).sum(1)
    tensor([4, 4, 4, 4, 4])
    """
    check_arguments(seed, data=data, recut=True)
    clients = checked_count(data, clients)
    classes = len(data.classes)
    per_client = _classes_per_client(data, classes_per_client)
    if not 0 < _check.between("test_share", test_share, 0, 1) < 1:
        raise ValueError(f"test_share must lie between 0 and 1, got {test_share!r}")
    _check.flag("iid", iid)
    have = torch.bincount(data.y_train, minlength=classes)
    each = have // clients
    tested = torch.round(test_share * each).long().clamp_min(1).minimum(each - 1)
    check_supply(
        data,
        torch.full_like(have, 2 * clients),
        have,
        "training samples, one to train and one to test for each client",
    )
    trained = each - tested
    holds = torch.zeros(clients, classes, dtype=torch.bool)
    for i in range(clients):
        of = "all" if iid else i
        order = torch.randperm(classes, generator=keyed_generator(seed, "class_subset", of))
        holds[i, order[:per_client]] = True
    train: list[list] = [[] for _ in range(clients)]
    test: list[list] = [[] for _ in range(clients)]
    for c in range(classes):
        pool = (data.y_train == c).nonzero().squeeze(1)
        generator = keyed_generator(seed, "class_subset", "class", c)
        pool = pool[torch.randperm(len(pool), generator=generator)]
        for i, part in enumerate(pool.split(len(pool) // clients)[:clients]):
            if holds[i, c]:
                train[i].append(part[: int(trained[c])])
                test[i].append(part[int(trained[c]) :])
    kind = "the same random classes for all" if iid else "random classes of its own for each"
    return Partition(
        name="class_subset",
        train=[shuffled(p, 0, seed, "class_subset", "train", i) for i, p in enumerate(train)],
        test=[shuffled(p, 0, seed, "class_subset", "test", i) for i, p in enumerate(test)],
        seed=seed,
        source=data.identity(),
        about=f"{data.name} in {clients} equal parts of a class, {per_client} classes per client, "
        f"{kind}; {test_share:.0%} for testing",
    )


def _classes_per_client(data, value):
    """A whole number of classes, no more than there are."""
    if _check.whole("classes_per_client", value) > len(data.classes):
        raise ValueError(
            f"classes_per_client must be at most {len(data.classes)}, the classes of {data.name}; "
            f"got {value}"
        )
    return int(value)
