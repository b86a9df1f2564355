"""The arithmetic behind ``partition.grouped``: which group, how many samples of which class."""

from typing import Any

import torch

from pfl_lib import _check
from pfl_lib._dealing import even_quota

#: FedAMP's test samples of one client
TEST_SIZE = 100

#: FedAMP's grouped settings: classes of each group, its clients, training samples of one client.
GROUPED: dict[str, dict[str, Any]] = {
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


def groups_of(data, setting, classes, clients, sizes, share, scale, over):
    """The arguments of :func:`grouped`, checked: classes, clients and sizes of each group."""
    _check.between("share", share, 0, 1)
    scale = _check.positive("scale", scale)
    if scale > 1e6:
        raise ValueError(f"scale must be at most 1,000,000, got {scale!r}")
    _check.one_of("over", over, ("classes", "images"))
    name = ""
    if setting is None and data.name in GROUPED and classes is clients is sizes is None:
        setting = data.name
    if setting is not None:
        classes, clients, sizes, name = _of_setting(data, setting, classes, clients, sizes)
    elif classes is None:
        parts = torch.arange(len(data.classes)).tensor_split(min(5, len(data.classes)))
        classes = tuple(tuple(part.tolist()) for part in parts)
    classes = _check.several("group_classes", classes, "tuples of classes")
    classes = tuple(_class_numbers(f"group_classes[{g}]", group) for g, group in enumerate(classes))
    if not classes:
        raise ValueError("group_classes must name the classes of one group or more, got none")
    for g, group in enumerate(classes):
        _check_group(f"group_classes[{g}]", group, data, share)
    clients = _for_each_group("group_clients", 4 if clients is None else clients, len(classes))
    if sizes is None:
        sizes = _largest_even_size(data, classes, clients, share, over)
    sizes = _for_each_group("group_sizes", sizes, len(classes))
    sizes = tuple(max(1, round(scale * size)) for size in sizes)
    return classes, clients, sizes, name


def _of_setting(data, setting, classes, clients, sizes):
    """Classes, clients and sizes of one of FedAMP's settings, and what to call it."""
    _check.one_of("setting", setting, GROUPED)
    if classes is not None:
        raise ValueError("group_classes must be None when a setting is named: it has its own")
    paper = GROUPED[setting]
    classes = paper["classes"] or _superclasses(data)
    needed = 1 + max(max(group) for group in classes)
    if len(data.classes) != needed:
        raise ValueError(
            f"setting {setting!r} is for {needed} classes; {data.name} has {len(data.classes)}"
        )
    clients = paper["clients"] if clients is None else clients
    sizes = paper["sizes"] if sizes is None else sizes
    name = f" as FedAMP's {setting} setting"
    if (clients, sizes) != (paper["clients"], paper["sizes"]):
        name += " with other numbers of clients or samples"
    return classes, clients, sizes, name


def _class_numbers(name, group):
    """The classes of one group, which must be whole numbers."""
    named = _check.several(name, group, "classes")
    return tuple(_check.whole(name, c, at_least=-_check.MOST) for c in named)


def _check_group(name, group, data, share):
    """Classes that exist, none twice, and some left over for the others' share."""
    if not group or len(set(group)) != len(group):
        raise ValueError(f"{name} must hold classes without repetition: {group!r}")
    for c in group:
        if not 0 <= c < len(data.classes):
            raise ValueError(
                f"{name} names class {c}; {data.name} has classes 0..{len(data.classes) - 1}"
            )
    if len(group) == len(data.classes) and share < 1:
        raise ValueError(
            f"{name} holds every class: no other class is left for the remaining "
            f"{1 - share:.0%} (share={share})"
        )


def _for_each_group(name, value, groups):
    try:
        values = list(value)
    except TypeError:  # one number for all
        values = [value] * groups
    if len(values) != groups:
        raise ValueError(
            f"{name} must be one number, or one for each of {groups} groups: {value!r}"
        )
    return tuple(_check.whole(name, v, at_most=10**9) for v in values)


def _superclasses(data):
    if data.coarse is None:
        raise ValueError(f"setting 'cifar100' groups by superclass; {data.name} has none (coarse)")
    pairs = sorted(set(zip(data.coarse.tolist(), data.y.tolist())))
    found: dict[int, list[int]] = {}
    for superclass, c in pairs:
        found.setdefault(superclass, []).append(c)
    return tuple(tuple(found[s]) for s in sorted(found))


def members(data, classes, clients):
    """The group of each client, and which classes dominate it: (m,) and (m, classes)."""
    member = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor(clients))
    dominating = torch.zeros(len(classes), len(data.classes), dtype=torch.bool)
    for g, of_group in enumerate(classes):
        dominating[g, list(of_group)] = True
    return member, dominating[member]


def class_weights(data, over):
    have = torch.bincount(data.y_train, minlength=len(data.classes)).double()
    return torch.ones_like(have) if over == "classes" else have


def quota(sizes, dominating, weights, share, seed, part):
    own = (share * sizes.double() + 0.5).floor().long()
    inside = even_quota(own, weights * dominating, seed, "grouped", part, "own")
    return inside + even_quota(sizes - own, weights * ~dominating, seed, "grouped", part, "others")


def test_quota(data, test_size, dominating, weights, share, seed):
    """Test samples of each client; a client may not hold one twice, clients may share them."""
    given = test_size is not None
    test_size = _check.whole("test_size", test_size, at_most=10**9) if given else TEST_SIZE
    have = torch.bincount(data.y_test, minlength=len(data.classes))
    while test_size > 0:
        sizes = torch.full((len(dominating),), test_size)
        counts = quota(sizes, dominating, weights, share, seed, "test")
        most = counts.max(0).values
        if bool((most <= have).all()):
            return counts
        if given:
            break
        # jump to the size that fits on average, then step down over the rounding
        test_size = min(test_size - 1, int(test_size * float((have / most.clamp_min(1)).min())) + 1)
    c = int((most - have).argmax())
    raise ValueError(
        f"test_size={test_size}: one client needs {int(most[c]):,} different test samples of class "
        f"{data.classes[c]!r}, {data.name} has {int(have[c]):,}"
    )


def _largest_even_size(data, classes, clients, share, over):
    """The most training samples that every client can have."""
    member, dominating = members(data, classes, clients)
    weights = class_weights(data, over)
    have = torch.bincount(data.y_train, minlength=len(data.classes))
    size = data.n_train // len(member)
    while size > 0:
        sizes = torch.full((len(member),), size)
        need = quota(sizes, dominating, weights, share, 0, "train").sum(0)
        if bool((need <= have).all()):
            return size
        # jump to the size that fits on average, then step down over the rounding
        size = min(size - 1, int(size * float((have / need.clamp_min(1)).min())) + 1)
    raise ValueError(f"{data.name} has too few samples for {len(member)} clients in these groups")


def check_supply(data, counts, scale):
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
