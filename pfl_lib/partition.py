"""Who holds which samples: each paper's own way to split a data set, under a name of its own.

Samples are never copied: a client is two lists of indices into ``data.x``.  Everything random is
keyed by (seed, purpose, client), so it does not depend on the order in which it is asked for.
"""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib._dealing import deal, even_quota
from pfl_lib.random import keyed_generator


@dataclass(frozen=True, eq=False)
class Partition:
    """Which samples each client trains and is tested on.

    ``train`` and ``test``: one int64 tensor of indices into ``data.x`` for each client.
    ``groups``: the hidden group of each client, or None.  ``labels``: what each client believes its
    training labels are (see ``label_noise``), or None for the true ones.
    """

    name: str
    train: tuple
    test: tuple
    groups: torch.Tensor | None = None
    labels: tuple | None = None
    seed: int = 0
    about: str = ""

    @property
    def m(self):
        """Number of clients."""
        return len(self.train)

    def counts(self, data, part="train"):
        """How many samples of each class each client holds: an int64 (m, classes) tensor."""
        _check.one_of("part", part, ("train", "test"))
        rows = [torch.bincount(data.y[i], minlength=len(data.classes)) for i in getattr(self, part)]
        return torch.stack(rows)


def iid(data, clients, seed=0):
    """A uniformly random split of the training part, and one of the test part, into equal parts."""
    clients = _check.whole("clients", clients)
    if clients > min(data.n_train, data.n_test):
        raise ValueError(
            f"clients must be at most {min(data.n_train, data.n_test):,}, the smaller of "
            f"{data.name}'s {data.n_train:,} training and {data.n_test:,} test samples; "
            f"got {clients:,}"
        )
    train = torch.randperm(data.n_train, generator=keyed_generator(seed, "iid", "train"))
    test = torch.randperm(data.n_test, generator=keyed_generator(seed, "iid", "test"))
    return Partition(
        name="iid",
        train=train.tensor_split(clients),
        test=(test + data.n_train).tensor_split(clients),
        seed=seed,
        about=f"{data.name} split uniformly at random over {clients} clients",
    )


#: FedAMP's grouped settings: classes of each group, its clients, training samples of one client.
GROUPED = {
    "mnist": {
        "classes": tuple((2 * g, 2 * g + 1) for g in range(5)),
        "clients": (20,) * 5,
        "sizes": (500, 400, 300, 200, 100),
    },
    "fashion_mnist": {
        "classes": tuple((2 * g, 2 * g + 1) for g in range(5)),
        "clients": (20,) * 5,
        "sizes": (600, 500, 400, 300, 200),
    },
    "emnist": {
        "classes": (tuple(range(10)), tuple(range(10, 36)), tuple(range(36, 62))),
        "clients": (10, 26, 26),
        "sizes": (1000, 700, 400),
    },
    "cifar100": {
        "classes": None,  # the 20 superclasses, read from the data
        "clients": (5,) * 20,
        "sizes": tuple(500 - 100 * (g // 4) for g in range(20)),
    },
}


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
    """
    classes, clients, sizes, name = _groups(
        data, setting, group_classes, group_clients, group_sizes, share, scale, over
    )
    member, dominating = _members(data, classes, clients)
    weights = _class_weights(data, over)
    train_sizes = torch.tensor(sizes)[member]
    train_counts = _group_quota(train_sizes, dominating, weights, share, seed, "train")
    test_counts = _group_test_quota(data, test_size, dominating, weights, share, seed)
    _must_suffice(data, train_counts, scale)
    train, _ = deal(data.y_train, 0, train_counts, seed, "grouped", "train")
    test, shared = deal(data.y_test, data.n_train, test_counts, seed, "grouped", "test")

    words = [
        f"{data.name} in {len(classes)} hidden groups{name}: {share:.0%} of a client's samples "
        f"from its group's classes, the others from all other classes"
    ]
    if scale != 1:
        words.append(f"training sizes are {scale:g} of the paper's or the given ones")
    if shared:
        listed = ", ".join(f"{data.classes[c]} ({need} wanted, {have})" for c, need, have in shared)
        words.append(
            "test samples of some classes are shared between clients, since the test part has too "
            f"few: {listed}"
        )
    return Partition("grouped", train, test, groups=member, seed=seed, about="; ".join(words))


def _groups(data, setting, classes, clients, sizes, share, scale, over):
    """The arguments of :func:`grouped`, checked: classes, clients and sizes of each group."""
    _check.between("share", share, 0, 1)
    _check.positive("scale", scale)
    _check.one_of("over", over, ("classes", "images"))
    own = (classes, clients, sizes)
    if setting is None and data.name in GROUPED and all(part is None for part in own):
        setting = data.name
    name = ""
    if setting is not None:
        _check.one_of("setting", setting, GROUPED)
        if classes is not None:
            raise ValueError("group_classes must be None when a setting is named: it has its own")
        paper = GROUPED[setting]
        classes = paper["classes"] or _superclasses(data)
        clients = paper["clients"] if clients is None else clients
        sizes = paper["sizes"] if sizes is None else sizes
        name = f" as FedAMP's {setting} setting"
        needed = 1 + max(max(group) for group in classes)
        if len(data.classes) != needed:
            raise ValueError(
                f"setting {setting!r} is for {needed} classes; {data.name} has {len(data.classes)}"
            )
    if classes is None:
        parts = torch.arange(len(data.classes)).tensor_split(min(5, len(data.classes)))
        classes = tuple(tuple(part.tolist()) for part in parts)
    classes = tuple(tuple(int(c) for c in group) for group in classes)
    for g, group in enumerate(classes):
        if not group or len(set(group)) != len(group):
            raise ValueError(f"group_classes[{g}] must hold classes without repetition: {group!r}")
        for c in group:
            if not 0 <= c < len(data.classes):
                raise ValueError(
                    f"group_classes[{g}] names class {c}; {data.name} has classes "
                    f"0..{len(data.classes) - 1}"
                )
        if len(group) == len(data.classes) and share < 1:
            raise ValueError(
                f"group_classes[{g}] holds every class: no other class is left for the remaining "
                f"{1 - share:.0%} (share={share})"
            )
    clients = _for_each_group("group_clients", 4 if clients is None else clients, len(classes))
    if sizes is None:
        sizes = _largest_even_size(data, classes, clients, share, over)
    sizes = _for_each_group("group_sizes", sizes, len(classes))
    sizes = tuple(max(1, round(scale * size)) for size in sizes)
    return classes, clients, sizes, name


def _for_each_group(name, value, groups):
    values = [value] * groups if not hasattr(value, "__len__") else list(value)
    if len(values) != groups:
        raise ValueError(
            f"{name} must be one number, or one for each of {groups} groups: {value!r}"
        )
    return tuple(_check.whole(name, v) for v in values)


def _superclasses(data):
    if data.coarse is None:
        raise ValueError(f"setting 'cifar100' groups by superclass; {data.name} has none (coarse)")
    pairs = sorted(set(zip(data.coarse.tolist(), data.y.tolist())))
    found = {}
    for superclass, c in pairs:
        found.setdefault(superclass, []).append(c)
    return tuple(tuple(found[s]) for s in sorted(found))


def _members(data, classes, clients):
    """The group of each client, and which classes dominate it: (m,) and (m, classes)."""
    member = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor(clients))
    dominating = torch.zeros(len(classes), len(data.classes), dtype=torch.bool)
    for g, of_group in enumerate(classes):
        dominating[g, list(of_group)] = True
    return member, dominating[member]


def _class_weights(data, over):
    have = torch.bincount(data.y_train, minlength=len(data.classes)).double()
    return torch.ones_like(have) if over == "classes" else have


def _group_quota(sizes, dominating, weights, share, seed, part):
    own = (share * sizes.double() + 0.5).floor().long()
    inside = even_quota(own, weights * dominating, seed, "grouped", part, "own")
    return inside + even_quota(sizes - own, weights * ~dominating, seed, "grouped", part, "others")


def _group_test_quota(data, test_size, dominating, weights, share, seed):
    """Test samples of each client; a client may not hold one twice, clients may share them."""
    asked = test_size is not None
    test_size = _check.whole("test_size", test_size) if asked else 100
    have = torch.bincount(data.y_test, minlength=len(data.classes))
    while test_size > 0:
        sizes = torch.full((len(dominating),), test_size)
        counts = _group_quota(sizes, dominating, weights, share, seed, "test")
        most = counts.max(0).values
        if bool((most <= have).all()):
            return counts
        if asked:
            break
        test_size -= 1
    c = int((most - have).argmax())
    raise ValueError(
        f"test_size={test_size}: one client needs {int(most[c]):,} different test samples of class "
        f"{data.classes[c]!r}, {data.name} has {int(have[c]):,}"
    )


def _largest_even_size(data, classes, clients, share, over):
    """The most training samples that every client can have."""
    member, dominating = _members(data, classes, clients)
    weights = _class_weights(data, over)
    have = torch.bincount(data.y_train, minlength=len(data.classes))
    size = data.n_train // len(member)
    while size > 0:
        sizes = torch.full((len(member),), size)
        need = _group_quota(sizes, dominating, weights, share, 0, "train").sum(0)
        if bool((need <= have).all()):
            return size
        # jump to the size that fits on average, then step down over the rounding
        size = min(size - 1, int(size * float((have / need.clamp_min(1)).min())) + 1)
    raise ValueError(f"{data.name} has too few samples for {len(member)} clients in these groups")


def _must_suffice(data, counts, scale):
    need = counts.sum(0)
    have = torch.bincount(data.y_train, minlength=len(data.classes))
    short = (need > have).nonzero().squeeze(1).tolist()
    if not short:
        return
    listed = ", ".join(
        f"class {data.classes[c]!r} needs {int(need[c]):,}, has {int(have[c]):,}" for c in short[:5]
    )
    more = f", and {len(short) - 5} more classes" if len(short) > 5 else ""
    largest = scale * float((have / need.clamp_min(1)).min())
    raise ValueError(
        f"{data.name} has too few training samples to give each to one client only: "
        f"{listed}{more}. Use scale of about {largest:.3g} or less, smaller group_sizes, "
        "fewer clients, or over='images'"
    )
