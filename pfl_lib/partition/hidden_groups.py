"""Hidden groups of clients: FedAMP's "practical" setting, and groups that disagree on names."""

from dataclasses import replace

import torch

from pfl_lib import _check, _groups
from pfl_lib._dealing import deal
from pfl_lib.partition.checks import check_arguments
from pfl_lib.partition.table import Partition


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
    check_arguments(seed, data=data)
    classes, clients, sizes, name = _groups.groups_of(
        data, setting, group_classes, group_clients, group_sizes, share, scale, over
    )
    member, dominating = _groups.members(data, classes, clients)
    weights = _groups.class_weights(data, over)
    train_sizes = torch.tensor(sizes)[member]
    train_counts = _groups.quota(train_sizes, dominating, weights, share, seed, "train")
    test_counts = _groups.test_quota(data, test_size, dominating, weights, share, seed)
    _groups.check_supply(data, train_counts, scale)
    train, _ = deal(data.y_train, 0, train_counts, seed, "grouped", "train")
    test, shared = deal(data.y_test, data.n_train, test_counts, seed, "grouped", "test")

    words = [
        f"{data.name} in {len(classes)} hidden groups{name}: {share:.0%} of a client's samples "
        f"from its group's classes, the others from all other classes"
    ]
    tested = int(test_counts[0].sum())
    if test_size is None and tested < _groups.TEST_SIZE:
        words.append(
            f"{tested} test samples per client, since a class has too few for the paper's 100"
        )
    if scale != 1:
        words.append(f"training sizes are {scale:g} of the paper's or the given ones")
    if shared:
        words.append(_shared_words(data, shared))
    return Partition(
        "grouped",
        train,
        test,
        groups=member,
        seed=seed,
        about="; ".join(words),
        source=data.identity(),
    )


def _shared_words(data, shared):
    listed = ", ".join(
        f"{data.classes[c]} ({wanted:,} wanted, {there:,} there)" for c, wanted, there in shared[:3]
    )
    more = " and others" if len(shared) > 3 else ""
    return (
        f"clients share some test samples in {len(shared)} of {len(data.classes)} classes, since "
        f"the test part has too few: {listed}{more}"
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
    check_arguments(partition=partition, data=data)
    if partition.groups is None:
        raise ValueError(f"the partition {partition.name!r} has no hidden groups to set at odds")
    if _check.whole("shift", shift, at_most=10**6) % len(data.classes) == 0:
        raise ValueError(
            f"shift must rename classes: {shift} is a multiple of all {len(data.classes)} of them"
        )
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
