"""Who holds which samples: each paper's own way to split a data set, under a name of its own.

Samples are never copied: a client is two lists of indices into ``data.x``.  Everything random is
keyed by (seed, purpose, client), so it does not depend on the order in which it is asked for.
"""

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pfl_lib import _check, _groups
from pfl_lib._dealing import cut, deal, shuffled
from pfl_lib.data.dataset import Dataset
from pfl_lib.data.own import read_arrays
from pfl_lib.random import keyed_generator, keyed_number

__all__ = [
    "Partition",
    "class_subset",
    "conflicting_labels",
    "dirichlet",
    "grouped",
    "hold_out",
    "iid",
    "label_noise",
    "load",
    "official_test",
    "pathological",
    "scarce",
]


@dataclass(frozen=True, eq=False)
class Partition:
    """Which samples each client trains and is tested on.

    ``train`` and ``test``: one int64 tensor of indices into ``data.x`` for each client.
    ``groups``: the hidden group of each client, or None.  ``labels``: what each client believes its
    training labels are (see :func:`label_noise`), or None for the true ones.

    >>> train = [torch.tensor([0, 1]), torch.tensor([2])]
    >>> mine = Partition("mine", train, test=[torch.tensor([3]), torch.tensor([4])])
    >>> mine.m
    2
    """

    name: str
    train: tuple
    test: tuple
    groups: torch.Tensor | None = None
    labels: tuple | None = None
    seed: int = 0
    about: str = ""

    def __post_init__(self):
        for field in ("train", "test", "labels"):
            rows = getattr(self, field)
            if rows is None and field == "labels":
                continue
            rows = tuple(rows)
            object.__setattr__(self, field, rows)
            if len(rows) != len(self.train):
                raise ValueError(f"{field} is for {len(rows)} clients, train for {self.m}")
            for i, row in enumerate(rows):
                if not isinstance(row, torch.Tensor):
                    raise TypeError(f"{field}[{i}] must be a tensor of int64, got {row!r}")
                if row.dtype != torch.int64 or row.ndim != 1:
                    raise ValueError(
                        f"{field}[{i}] must be a list of int64, got {row.dtype} of shape "
                        f"{tuple(row.shape)}"
                    )
                if field == "labels" and len(row) != len(self.train[i]):
                    raise ValueError(
                        f"labels[{i}] must be one for each of the client's {len(self.train[i])} "
                        f"training samples, got {len(row)}"
                    )
        if self.groups is not None and self.groups.shape != (self.m,):
            raise ValueError(f"groups must be one number for each of {self.m} clients")

    @property
    def m(self):
        """Number of clients."""
        return len(self.train)

    def counts(self, data, part="train"):
        """How many samples of each class each client holds: an int64 (m, classes) tensor."""
        _check.one_of("part", part, ("train", "test"))
        rows = [torch.bincount(data.y[i], minlength=len(data.classes)) for i in getattr(self, part)]
        return torch.stack(rows)

    def check(self, data):
        """Raise where these indices do not fit ``data``, repeat, or leak test samples."""
        trained = torch.zeros(len(data), dtype=torch.bool)
        for part in ("train", "test"):
            for i, index in enumerate(getattr(self, part)):
                if len(index) == 0:
                    raise ValueError(f"client {i} has no {part} sample")
                low, high = int(index.min()), int(index.max())
                if low < 0 or high >= len(data):
                    raise ValueError(
                        f"client {i}: {part} indices {low}..{high} do not fit {data.name} with "
                        f"{len(data):,} samples"
                    )
                if len(index.unique()) != len(index):
                    raise ValueError(f"client {i} holds a {part} sample twice")
                if part == "train":
                    trained[index] = True
                elif bool(trained[index].any()):
                    raise ValueError(f"client {i} is tested on a sample that some client trains on")
        return self

    def describe(self, data=None):
        """In words: clients, sizes, groups; with ``data`` also classes a client and label noise."""
        lines = [f"{self.m} clients ({self.name}, seed {self.seed}): {self.about}."]
        for part, word in (("train", "training"), ("test", "test")):
            sizes = torch.tensor([len(i) for i in getattr(self, part)])
            low, high = int(sizes.min()), int(sizes.max())
            middle = float(sizes.double().quantile(0.5))
            spread = f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,g})"
            lines.append(f"{spread} {word} samples a client, {int(sizes.sum()):,} in all.")
        if data is not None:
            held = (self.counts(data) > 0).sum(1)
            low, high = int(held.min()), int(held.max())
            spread = f"{low}" if low == high else f"{low} to {high}"
            lines.append(f"{spread} of {len(data.classes)} classes a client.")
        if self.groups is not None:
            sizes = torch.bincount(self.groups).tolist()
            same = len(set(sizes)) == 1
            words = f"{sizes[0]} each" if same else ", ".join(map(str, sizes))
            lines.append(f"{len(sizes)} hidden groups of clients: {words}.")
        if self.labels is not None and data is not None:
            wrong = [int((own != data.y[i]).sum()) for own, i in zip(self.labels, self.train)]
            lines.append(
                f"{sum(w > 0 for w in wrong)} clients have wrong labels, {sum(wrong):,} in all."
            )
        return " ".join(lines)

    def draw(self, data, ax=None, part="train"):
        """A bubble for each client and class; see :func:`pfl_lib.plots.partition_bubbles`."""
        from pfl_lib.plots import partition_bubbles

        return partition_bubbles(self, data, ax=ax, part=part)

    def save(self, path):
        """Write an .npz file without pickles, to the side first and then renamed."""
        path = Path(path)
        arrays = {
            "about": np.array(json.dumps([self.name, self.seed, self.about])),
            **_joined("train", self.train),
            **_joined("test", self.test),
        }
        if self.groups is not None:
            arrays["groups"] = self.groups.numpy()
        if self.labels is not None:
            arrays["labels"] = torch.cat(self.labels).numpy()
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with open(aside, "wb") as file:
                np.savez_compressed(file, **arrays)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path):
        """Read what :meth:`save` wrote."""
        path = Path(path)
        needed = ("about", "train", "train_sizes", "test", "test_sizes")
        arrays = read_arrays(path, needed, ("groups", "labels"))
        try:
            name, seed, about = json.loads(str(arrays["about"]))
            for key in arrays.keys() - {"about"}:
                if arrays[key].dtype != np.int64 or arrays[key].ndim != 1:
                    raise ValueError(f"{key} should be a list of int64")
            parts = {"train": arrays["train"], "test": arrays["test"]}
            if "labels" in arrays:
                parts["labels"] = arrays["labels"]
            rows = {}
            for key, joined in parts.items():
                sizes = arrays["test_sizes" if key == "test" else "train_sizes"]
                if (sizes < 0).any() or sizes.sum() != len(joined):
                    raise ValueError(f"the clients' sizes do not add up to {key}")
                rows[key] = torch.from_numpy(joined).split(sizes.tolist())
            groups = torch.from_numpy(arrays["groups"]) if "groups" in arrays else None
            return cls(name=name, seed=seed, about=about, groups=groups, **rows)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: not a saved partition ({error})") from error

    def __repr__(self):
        return f"Partition({self.describe()})"


def load(path):
    """The partition that :meth:`Partition.save` wrote.

    >>> import tempfile
    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> path = Path(tempfile.mkdtemp()) / "clients.npz"
    >>> iid(data, clients=4).save(path)
    >>> load(path).name
    'iid'
    """
    return Partition.load(path)


def _joined(name, rows):
    return {name: torch.cat(rows).numpy(), f"{name}_sizes": np.array([len(r) for r in rows])}


# ---- ways to split ---------------------------------------------------------------------------


def iid(data, clients, seed=0):
    """A uniformly random split of the training part, and one of the test part, into equal parts.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> [len(rows) for rows in iid(data, clients=4).train]
    [360, 360, 359, 359]
    """
    _door(seed, data=data)
    clients = _client_number(data, clients)
    train = torch.randperm(data.n_train, generator=keyed_generator(seed, "iid", "train"))
    test = torch.randperm(data.n_test, generator=keyed_generator(seed, "iid", "test"))
    return Partition(
        name="iid",
        train=train.tensor_split(clients),
        test=(test + data.n_train).tensor_split(clients),
        seed=seed,
        about=f"{data.name} split uniformly at random",
    )


def pathological(data, clients, classes_per_client=2, seed=0):
    """Each client holds samples of ``classes_per_client`` classes only (shards).

    Every class is cut into equal shards, as many as there are clients that hold it, which is the
    same number for all classes, or differs by one.  The test part is cut in the same way, so that
    a client is tested on its own classes.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pathological(data, clients=5, classes_per_client=2)
    >>> (clients.counts(data) > 0).sum(1)  # how many classes each client holds
    tensor([2, 2, 2, 2, 2])
    """
    _door(seed, data=data)
    clients = _client_number(data, clients)
    classes = len(data.classes)
    per_client = _check.whole("classes_per_client", classes_per_client)
    if per_client > classes:
        raise ValueError(
            f"classes_per_client must be at most {classes}, the classes of {data.name}; "
            f"got {per_client}"
        )
    if clients * per_client < classes:
        raise ValueError(
            f"{clients} clients with {per_client} classes each cannot hold all {classes} classes "
            f"of {data.name}; use at least {-(-classes // per_client)} clients"
        )
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
        _enough(data, holders, have, f"{part} samples, one for each client that holds the class")
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
        about=f"{data.name} in shards, {per_client} classes for each client",
    )


def grouped(
    data,
    setting=None,
    group_classes=None,
    group_clients=None,
    group_sizes=None,
    share=0.8,
    test_size=None,
    scale=1.0,
    over="classes",
    seed=0,
):
    """Hidden groups of clients (FedAMP's "practical" setting, 80/20).

    ``share`` of a client's samples are uniform over the dominating classes of its group, the others
    uniform over all other classes; its ``test_size`` test samples have the same mix.

    ``setting``: ``"mnist"``, ``"fashion_mnist"``, ``"emnist"`` or ``"cifar100"`` takes groups,
    clients and sizes from the paper.  Without it (and for data of another name) say
    ``group_classes`` (one tuple of classes for each group; if None, the classes in order, cut in
    five), ``group_clients`` (clients in each group, default 4) and ``group_sizes`` (training
    samples of one client; if None, the most that the data can give to all); one number serves all
    groups.  ``test_size=None`` means the paper's 100, or the most that the test part can give.
    ``scale`` multiplies the training sizes.  ``over="classes"`` gives every class of a block
    the same share; ``over="images"`` gives it a share in proportion to its training images, which
    is what drawing uniformly from the images does.

    A training sample belongs to one client only.  Test samples come from the official test part
    and are shared between clients only in classes where it is too small; never within a client.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = grouped(data, group_clients=[2] * 5, group_sizes=[50] * 5, test_size=10)
    >>> clients.groups
    tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    """
    _door(seed, data=data)
    classes, clients, sizes, name = _groups.groups_of(
        data, setting, group_classes, group_clients, group_sizes, share, scale, over
    )
    member, dominating = _groups.members(data, classes, clients)
    weights = _groups.class_weights(data, over)
    train_sizes = torch.tensor(sizes)[member]
    train_counts = _groups.quota(train_sizes, dominating, weights, share, seed, "train")
    test_counts = _groups.test_quota(data, test_size, dominating, weights, share, seed)
    _groups.must_suffice(data, train_counts, scale)
    train, _ = deal(data.y_train, 0, train_counts, seed, "grouped", "train")
    test, shared = deal(data.y_test, data.n_train, test_counts, seed, "grouped", "test")

    words = [
        f"{data.name} in {len(classes)} hidden groups{name}: {share:.0%} of a client's samples "
        f"from its group's classes, the others from all other classes"
    ]
    tested = int(test_counts[0].sum())
    if test_size is None and tested < _groups.TEST_SIZE:
        words.append(
            f"{tested} test samples a client, since a class has too few for the paper's 100"
        )
    if scale != 1:
        words.append(f"training sizes are {scale:g} of the paper's or the given ones")
    if shared:
        words.append(_shared_words(data, shared))
    return Partition("grouped", train, test, groups=member, seed=seed, about="; ".join(words))


def _shared_words(data, shared):
    listed = ", ".join(
        f"{data.classes[c]} ({wanted:,} wanted, {there:,} there)" for c, wanted, there in shared[:3]
    )
    more = " and others" if len(shared) > 3 else ""
    return (
        f"clients share some test samples in {len(shared)} of {len(data.classes)} classes, since "
        f"the test part has too few: {listed}{more}"
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
    _door(seed, data=data)
    clients = _client_number(data, clients)
    a = _check.positive("a", a)
    _check.one_of("form", form, ("fedacs", "fedala"))
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
        cuts = [min(len(hand) - 1, math.ceil(0.75 * len(hand))) for hand in train]
        test = tuple(hand[k:] for hand, k in zip(train, cuts))
        train = tuple(hand[:k] for hand, k in zip(train, cuts))
    else:
        test, _ = deal(data.y_test, data.n_train, counts["test"], seed, "dirichlet", "test")
    how = "both parts merged, then 75/25" if form == "fedala" else "training and test part alike"
    return Partition(
        name="dirichlet",
        train=train,
        test=test,
        seed=seed,
        about=f"{data.name} by class proportions from Dirichlet({a:g}), {how}",
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
    of each class are for testing.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = class_subset(data, clients=5, classes_per_client=4)
    >>> (clients.counts(data) > 0).sum(1)
    tensor([4, 4, 4, 4, 4])
    """
    _door(seed, data=data)
    clients = _client_number(data, clients)
    classes = len(data.classes)
    per_client = _check.whole("classes_per_client", classes_per_client)
    if per_client > classes:
        raise ValueError(
            f"classes_per_client must be at most {classes}, the classes of {data.name}; "
            f"got {per_client}"
        )
    if not 0 < _check.between("test_share", test_share, 0, 1) < 1:
        raise ValueError(f"test_share must lie between 0 and 1, got {test_share!r}")
    have = torch.bincount(data.y_train, minlength=classes)
    tested = torch.round(test_share * (have // clients)).long().clamp_min(1)
    _enough(
        data,
        torch.full_like(have, 2 * clients),
        have,
        "training samples, one to train and one to test for each client",
    )
    trained = have // clients - tested
    holds = torch.zeros(clients, classes, dtype=torch.bool)
    for i in range(clients):
        of = "all" if iid else i
        order = torch.randperm(classes, generator=keyed_generator(seed, "class_subset", of))
        holds[i, order[:per_client]] = True
    train, test = [[] for _ in range(clients)], [[] for _ in range(clients)]
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
        about=f"{data.name} in {clients} equal parts of a class, {per_client} classes a client, "
        f"{kind}; {test_share:.0%} for testing",
    )


# ---- changes to a partition ------------------------------------------------------------------


def scarce(partition, samples, seed=0):
    """The same clients with only ``samples`` training samples each, drawn at random.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> [len(rows) for rows in scarce(iid(data, clients=4), samples=20).train]
    [20, 20, 20, 20]
    """
    _door(seed, partition=partition)
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
        about=f"{partition.about}; cut to {samples} training samples a client",
    )


def hold_out(partition, share=0.2, seed=0):
    """A part of each client's training samples to choose on: two partitions (tested, chosen).

    Both train on the same remaining samples.  ``tested`` keeps the test samples, ``chosen`` has the
    held-out ones in their place.  Batches do not depend on what is tested, so the same run on both
    gives the same models: choose a round by the second, report that round of the first.  Held-out
    samples are judged by their true labels, also at clients that believe wrong ones.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> tested, chosen = hold_out(iid(data, clients=4), share=0.25)
    >>> len(tested.train[0]), len(tested.test[0]), len(chosen.test[0])
    (270, 90, 90)
    """
    _door(seed, partition=partition)
    if not 0 < _check.between("share", share, 0, 1) < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share!r}")
    kept, held, labels = [], [], []
    for i, index in enumerate(partition.train):
        if len(index) < 2:
            raise ValueError(
                f"client {i} has {len(index)} training sample: there is none to hold out"
            )
        count = min(len(index) - 1, max(1, round(share * len(index))))
        order = torch.randperm(len(index), generator=keyed_generator(seed, "hold_out", i))
        held.append(index[order[:count]])
        kept.append(index[order[count:]])
        if partition.labels is not None:
            labels.append(partition.labels[i][order[count:]])
    about = f"{partition.about}; {share:.0%} of the training samples held out"
    tested = replace(partition, train=kept, labels=labels or None, about=about)
    return tested, replace(tested, test=held, about=f"{about} and tested on")


def official_test(partition, data):
    """The same clients, each tested on all official test samples of the classes it trains on.

    For partitions that leave a client too few test samples to see a small difference, such as
    :func:`class_subset`.  Clients of one class are then tested on the same samples.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = official_test(pathological(data, clients=5), data)
    >>> [len(rows) for rows in clients.test]
    [71, 72, 72, 72, 72]
    """
    _door(partition=partition, data=data)
    y = data.y.clone()
    y[: data.n_train] = -1  # nobody is tested on training samples,
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
    """Some clients believe some wrong labels; what clients are tested on stays true.

    ``client_share`` of the clients are dirty (FedAMP: two of five).  ``label_share`` of a dirty
    client's training labels are replaced, each by one of the *other* classes, drawn uniformly.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = label_noise(iid(data, clients=5), data, client_share=0.4, label_share=0.2)
    >>> wrong = [(b != data.y[t]).sum().item() for b, t in zip(clients.labels, clients.train)]
    >>> [round(w / len(t), 1) for w, t in zip(wrong, clients.train)]
    [0.0, 0.0, 0.0, 0.2, 0.2]
    """
    _door(seed, partition=partition, data=data)
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


def _door(seed=0, **given):
    """Refuse what is no data set, no partition or no seed."""
    kinds = {"data": Dataset, "partition": Partition}
    for name, value in given.items():
        if not isinstance(value, kinds[name]):
            raise TypeError(f"{name} must be a {kinds[name].__name__}, got {value!r}")
    _check.whole("seed", seed, at_least=0)


def _client_number(data, clients):
    clients = _check.whole("clients", clients)
    most = min(data.n_train, data.n_test)
    if clients > most:
        raise ValueError(
            f"clients must be at most {most:,}, the smaller of {data.name}'s {data.n_train:,} "
            f"training and {data.n_test:,} test samples; got {clients:,}"
        )
    return clients


def _enough(data, need, have, what):
    short = (need > have).nonzero().squeeze(1).tolist()
    if short:
        c = short[0]
        raise ValueError(
            f"class {data.classes[c]!r} of {data.name} has {int(have[c]):,}, needed are "
            f"{int(need[c]):,} {what}; use fewer clients"
        )


def conflicting_labels(partition, data, shift=2):
    """The data set in which each hidden group calls the classes by other names.

    In group g class y is called (y + shift·g) mod the number of classes, in training and in
    testing.  The pictures stay as they are, so no single model can please two groups.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = grouped(data, group_clients=[2] * 5, group_sizes=[50] * 5, test_size=10)
    >>> other = conflicting_labels(clients, data)
    >>> (other.y != data.y).any().item()
    True
    """
    _door(partition=partition, data=data)
    if partition.groups is None:
        raise ValueError(f"the partition {partition.name!r} has no hidden groups to set at odds")
    _check.whole("shift", shift)
    if partition.labels is not None:
        raise ValueError(
            "the partition has label noise, whose wrong labels would keep the old names; first "
            "conflicting_labels, then label_noise"
        )
    y, owner = data.y.clone(), torch.full_like(data.y, -1)
    for group, train, test in zip(partition.groups.tolist(), partition.train, partition.test):
        for samples in (train, test):
            shared = (owner[samples] >= 0) & (owner[samples] != group)
            if shared.any():
                raise ValueError(
                    f"{int(shared.sum())} samples belong to clients of two groups and cannot have "
                    "two names; a smaller test_size leaves each sample to one client"
                )
            owner[samples] = group
            y[samples] = (data.y[samples] + shift * group) % len(data.classes)
    return replace(data, y=y, note=f"{data.note}; groups disagree on the names of the classes")
