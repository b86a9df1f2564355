"""Partitions: each paper's own split, what it promises, and what it refuses."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pfl_lib
from pfl_lib import data, partition
from pfl_lib._dealing import cut, deal, even_quota
from pfl_lib.data import Dataset
from pfl_lib.partition import Partition

MNIST_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MNIST_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def labelled(train, test, name="toy", coarse=None):
    """A data set with so many samples of each class; its images are blank."""
    y = torch.cat([torch.arange(len(n)).repeat_interleave(torch.tensor(n)) for n in (train, test)])
    return Dataset(
        name=name,
        x=torch.zeros(1, 1, 1, 1, dtype=torch.uint8).expand(len(y), 1, 1, 1),
        y=y,
        n_train=sum(train),
        classes=tuple(map(str, range(len(train)))),
        mean=(0.0,),
        std=(1.0,),
        coarse=None if coarse is None else y // coarse,
    )


@pytest.fixture(scope="module")
def small():
    return data.load("mnist5k")


@pytest.fixture(scope="module")
def mnist():
    """The class counts of MNIST."""
    return labelled(MNIST_TRAIN, MNIST_TEST, "mnist")


def every_split(d, seed):
    """One of each kind, for ten or more clients of a ten-class data set."""
    return {
        "iid": partition.iid(d, 10, seed=seed),
        "pathological": partition.pathological(d, 10, seed=seed),
        "grouped": partition.grouped(d, group_clients=2, seed=seed),
        "dirichlet": partition.dirichlet(d, 10, 0.5, seed=seed),
        "dirichlet fedala": partition.dirichlet(d, 10, 0.5, form="fedala", seed=seed),
        "class_subset": partition.class_subset(d, seed=seed),
        "class_subset iid": partition.class_subset(d, iid=True, seed=seed),
    }


def same(a, b):
    rows = zip((*a.train, *a.test), (*b.train, *b.test))
    return a.m == b.m and all(torch.equal(x, y) for x, y in rows)


# ---- what all splits promise ----------------------------------------------------------------


def test_every_split_is_disjoint_in_training_keeps_test_apart_and_is_keyed_by_its_seed(small):
    first, again, other = (every_split(small, seed) for seed in (3, 3, 4))
    for kind, p in first.items():
        p.check(small)
        trained = torch.cat(p.train)
        assert len(trained.unique()) == len(trained), kind
        assert p.m == 10 and p.seed == 3
        if kind not in ("dirichlet fedala", "class_subset", "class_subset iid"):
            assert all(int(i.max()) < small.n_train for i in p.train), kind
            assert all(int(i.min()) >= small.n_train for i in p.test), kind
        assert same(p, again[kind]) and p.check_apart() is p, kind
        assert not same(p, other[kind]), kind


def test_check_finds_leaks_repetitions_and_foreign_indices(small):
    one, two = torch.tensor([1, 2]), torch.tensor([4001, 4002])
    Partition("ok", (one,), (two,)).check(small)
    for train, test, why in (
        (one, torch.tensor([2, 4001]), "client 0 is tested on 1 samples that it trains on"),
        (torch.tensor([1, 1]), two, "twice"),
        (one, torch.tensor([5000]), "do not fit"),
        (torch.tensor([-1]), two, "do not fit"),
        (one[:0], two, "no train sample"),
    ):
        with pytest.raises(ValueError, match=why):
            Partition("bad", (train,), (test,)).check(small)
    with pytest.raises(ValueError, match="some client trains on"):
        Partition("bad", (one, two), (torch.tensor([3]), torch.tensor([2]))).check(small)
    with pytest.raises(ValueError, match="int64"):
        Partition("bad", (one.float(),), (two,))
    with pytest.raises(ValueError, match="labels"):
        Partition("bad", (one,), (two,), labels=(torch.tensor([1]),))
    with pytest.raises(ValueError, match="2 clients"):
        Partition("bad", (one,), (two, two))


@pytest.mark.parametrize(
    ("train", "test", "why"),
    [
        (torch.arange(50), torch.arange(50), "client 1 is tested on 50 samples that it trains on"),
        (torch.tensor([1, 2, 1]), torch.tensor([3]), "client 1 holds a training sample twice"),
        (torch.tensor([1, 2]), torch.tensor([3, 3]), "client 1 holds a test sample twice"),
    ],
)
def test_a_federation_refuses_clients_that_are_tested_on_what_they_train_on(
    small, train, test, why
):
    clients = Partition("bad", [torch.tensor([9]), train], [torch.tensor([60]), test])
    with pytest.raises(ValueError, match=why):
        pfl_lib.Federation(small, clients, "logistic_regression")


def test_clients_may_share_samples_with_others(small):
    """What one trains on another may be tested on: ``check`` alone, not every run, refuses it."""
    clients = Partition("two", [torch.arange(9), torch.arange(5)], [torch.tensor([60])] * 2)
    assert clients.check_apart() is clients
    assert pfl_lib.Federation(small, clients, "logistic_regression").m == 2


@pytest.mark.parametrize(
    "split",
    [
        lambda d: partition.dirichlet(d, 4, a=1.0, form="fedala"),
        lambda d: partition.pathological(d, 5, 2, form="fedala"),
        lambda d: partition.class_subset(d, 5, 2),
    ],
)
def test_splits_that_cut_anew_refuse_data_in_order_or_in_groups(small, split):
    split(small)
    whole = data.Column(torch.arange(len(small)) // 5, tuple(map(str, range(len(small)))))
    for bound in ({"split": "time"}, {"columns": {"walk": whole}, "together": "walk"}):
        with pytest.raises(ValueError, match="data must be free to be cut anew"):
            split(replace(small, **bound))


@pytest.mark.parametrize("clients", [0, -1, 2.5, 1001, True])
def test_impossible_numbers_of_clients_are_refused(small, clients):
    for split in (partition.iid, partition.pathological, partition.class_subset):
        with pytest.raises(ValueError, match="clients"):
            split(small, clients)
    with pytest.raises(ValueError, match="clients"):
        partition.dirichlet(small, clients, 0.5)


# ---- iid ------------------------------------------------------------------------------------


def test_iid_uses_every_sample_once_in_equal_parts(small):
    p = partition.iid(small, 7)
    assert torch.equal(torch.cat(p.train).sort().values, torch.arange(4000))
    assert torch.equal(torch.cat(p.test).sort().values, torch.arange(4000, 5000))
    sizes = [len(i) for i in p.train]
    assert max(sizes) - min(sizes) <= 1
    share = p.counts(small).double() / p.counts(small).sum(1, keepdim=True)
    assert float((share - 0.1).abs().max()) < 0.06


# ---- pathological ---------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "classes"), [(100, 2), (20, 2), (7, 3), (10, 10), (33, 1)])
def test_pathological_gives_each_client_its_classes_in_training_and_test(mnist, clients, classes):
    p = partition.pathological(mnist, clients, classes)
    train, test = p.counts(mnist) > 0, p.counts(mnist, "test") > 0
    assert (train.sum(1) == classes).all() and torch.equal(train, test)
    holders = train.sum(0)
    assert int(holders.max() - holders.min()) <= 1
    assert sum(map(len, p.train)) == mnist.n_train and sum(map(len, p.test)) == mnist.n_test


def test_pathological_refuses_what_cannot_be(mnist):
    with pytest.raises(ValueError, match="at most 10"):
        partition.pathological(mnist, 10, 11)
    with pytest.raises(ValueError, match="at least 5 clients"):
        partition.pathological(mnist, 4, 2)
    scant = labelled((50,) * 10, (50,) * 9 + (2,))
    with pytest.raises(ValueError, match="class '9' of toy has 2, needed are 4 test"):
        partition.pathological(scant, 20, 2)


# ---- grouped: FedAMP's 80/20 ----------------------------------------------------------------


def test_grouped_mnist_has_the_papers_groups_and_sizes(mnist):
    p = partition.grouped(mnist)
    assert p.m == 100 and p.groups.tolist() == [i // 20 for i in range(100)]
    counts, tests = p.counts(mnist), p.counts(mnist, "test")
    for i in range(100):
        g = i // 20
        own = counts[i, 2 * g : 2 * g + 2]
        size = 500 - 100 * g
        assert int(counts[i].sum()) == size and own.tolist() == [0.4 * size] * 2
        others = torch.cat([counts[i, : 2 * g], counts[i, 2 * g + 2 :]])
        assert int(others.sum()) == 0.2 * size and int(others.max() - others.min()) <= 1
        assert int(tests[i].sum()) == 100 and tests[i, 2 * g : 2 * g + 2].tolist() == [40, 40]
    # what the paper's setting needs of each class: 4,500 of class 0, and so on
    assert counts.sum(0).tolist() == [4500, 4500, 3750, 3750, 3000, 3000, 2250, 2250, 1500, 1500]
    # 1,000 test samples of each class are wanted, MNIST has 892 fives: noted, and shared
    assert tests.sum(0).tolist() == [1000] * 10
    assert "share some test samples in 5 of 10 classes" in p.about
    assert "5 (1,000 wanted, 892 there)" in p.about
    fives = torch.cat([index[mnist.y[index] == 5] for index in p.test])
    assert len(fives.unique()) == 892
    ones = torch.cat([index[mnist.y[index] == 1] for index in p.test])
    assert len(ones.unique()) == len(ones)


def test_grouped_fashion_mnist_fits_without_sharing():
    fashion = labelled((6000,) * 10, (1000,) * 10, "fashion_mnist")
    p = partition.grouped(fashion)
    assert p.counts(fashion).sum(0)[:2].tolist() == [5500, 5500]
    assert [len(p.train[20 * g]) for g in range(5)] == [600, 500, 400, 300, 200]
    tested = torch.cat(p.test)
    assert len(tested.unique()) == len(tested) == 10_000 and "share some" not in p.about


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_grouped_cifar100_uses_every_test_image_exactly_once(seed):
    cifar = labelled((500,) * 100, (100,) * 100, "cifar100", coarse=5)
    p = partition.grouped(cifar, seed=seed)
    assert p.m == 100 and p.groups.tolist() == [i // 5 for i in range(100)]
    assert [len(p.train[i]) for i in (0, 19, 20, 99)] == [500, 500, 400, 100]
    tested = torch.cat(p.test)
    assert len(tested.unique()) == len(tested) == 10_000  # 5·80 + 95·20/19 for each superclass
    own = cifar.coarse[p.test[7]] == 1
    assert int(own.sum()) == 80
    with pytest.raises(ValueError, match="superclass"):
        partition.grouped(labelled((5,) * 100, (5,) * 100), "cifar100")


def test_grouped_emnist_has_digits_upper_and_lower_case():
    emnist = labelled((1000,) * 62, (200,) * 62, "emnist")
    p = partition.grouped(emnist)
    assert torch.bincount(p.groups).tolist() == [10, 26, 26]
    assert [len(p.train[i]) for i in (0, 10, 36)] == [1000, 700, 400]
    counts = p.counts(emnist)
    assert int(counts[0, :10].sum()) == 800 and int(counts[40, 36:].sum()) == 320


def test_grouped_refuses_what_the_data_cannot_give_and_says_what_they_can(small):
    with pytest.raises(ValueError, match=r"class '0' needs 4,500, has 400.*scale of about 0\.0889"):
        partition.grouped(small, "mnist")
    p = partition.grouped(small, "mnist", scale=0.08)
    assert [len(p.train[20 * g]) for g in range(5)] == [40, 32, 24, 16, 8] and "0.08" in p.about
    with pytest.raises(ValueError, match=r"test_size=300.*needs 120.*has 100"):
        partition.grouped(small, test_size=300)


def test_grouped_over_images_follows_rare_classes():
    rare = labelled((100, 300, 200, 200), (50,) * 4)
    groups = {"group_classes": ((0, 1), (2, 3)), "group_clients": 2, "group_sizes": 150}
    with pytest.raises(ValueError, match="class '0' needs 150, has 100"):
        partition.grouped(rare, **groups)
    p = partition.grouped(rare, over="images", **groups)
    assert p.counts(rare)[0].tolist() == [30, 90, 15, 15]
    assert p.counts(rare)[:, :2].sum(0).tolist() == [75, 225]


def test_grouped_small_form_gives_all_it_can(small):
    p = partition.grouped(small)
    assert p.m == 20 and p.counts(small).sum(0).tolist() == [400] * 10
    assert {len(i) for i in p.train} == {200} and {len(i) for i in p.test} == {100}
    digits = data.load("digits")
    q = partition.grouped(digits)
    assert "88 test samples per client" in q.about and q.check(digits)
    sizes = partition.grouped(
        small, group_clients=(1, 2, 3, 1, 1), group_sizes=(50, 40, 30, 20, 10)
    )
    assert [len(i) for i in sizes.train] == [50, 40, 40, 30, 30, 30, 20, 10]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"setting": "mnits"}, "Did you mean 'mnist'"),
        ({"setting": "emnist"}, "62 classes; mnist5k has 10"),
        ({"setting": "mnist", "group_classes": ((0,),)}, "must be None"),
        ({"share": 1.2}, "share"),
        ({"scale": 0}, "scale"),
        ({"scale": 2e6}, "scale must be at most 1,000,000"),
        ({"test_size": 0}, "test_size"),
        ({"over": "pixels"}, "over"),
        ({"group_classes": ((0, 0), (1,))}, "without repetition"),
        ({"group_classes": ((0,), (10,))}, "names class 10"),
        ({"group_classes": ((),)}, r"group_classes\[0\]"),
        ({"group_classes": (range(10),)}, "no other class is left"),
        ({"group_clients": (1, 2)}, "5 groups"),
        ({"group_sizes": -4}, "group_sizes"),
    ],
)
def test_grouped_refuses_bad_arguments(small, changes, why):
    with pytest.raises(ValueError, match=why):
        partition.grouped(small, **changes)


# ---- Dirichlet ------------------------------------------------------------------------------


def test_dirichlet_fedacs_cuts_training_and_test_part_alike(mnist):
    p = partition.dirichlet(mnist, 20, 0.5)
    assert sum(map(len, p.train)) == 60_000 and sum(map(len, p.test)) == 10_000
    train, test = (p.counts(mnist, part).double() for part in ("train", "test"))
    difference = train / train.sum(0) - test / test.sum(0)
    assert float(difference.abs().max()) < 0.002
    assert min(map(len, p.train)) >= 10


def test_dirichlet_fedala_merges_and_splits_75_25(mnist):
    p = partition.dirichlet(mnist, 20, 0.1, form="fedala")
    everything = torch.cat([*p.train, *p.test]).sort().values
    assert torch.equal(everything, torch.arange(70_000))
    for train, test in zip(p.train, p.test):
        n = len(train) + len(test)
        assert len(train) == min(n - 1, math.ceil(0.75 * n)) and n >= 10
    before = (p.counts(mnist) + p.counts(mnist, "test"))[:, :-1].sum(1)
    assert int(before.max()) <= 3500 + 7877  # the cap: fair share, plus at most one whole class


def test_dirichlet_skew_falls_with_a(mnist):
    def skew(a):
        share = partition.dirichlet(mnist, 10, a).counts(mnist).double()
        share = share / share.sum(1, keepdim=True)
        return float(share.max(1).values.mean())

    near_iid, middle, skewed = skew(100.0), skew(1.0), skew(0.1)
    assert near_iid < 0.2 < middle < skewed
    # the proportions have the Dirichlet's variance: a share is Beta(a, 9a) distributed
    p = partition.dirichlet(mnist, 10, 1.0, seed=5).counts(mnist).double()
    share = p / p.sum(0)
    assert float(share.var(correction=0)) == pytest.approx(0.1 * 0.9 / 11, rel=0.5)


def test_dirichlet_never_loops_for_ever(small):
    for form in ("fedacs", "fedala"):
        for a in (1e-6, 0.01):
            with pytest.raises(ValueError, match=r"after 5 draws.*larger a"):
                partition.dirichlet(small, 20, a, form=form, tries=5)
    with pytest.raises(ValueError, match="needs 8,000 samples; mnist5k has 4,000"):
        partition.dirichlet(small, 20, 0.5, min_size=400)
    for bad in (0, -1, math.nan, math.inf, "x"):
        with pytest.raises(ValueError, match="a must be"):
            partition.dirichlet(small, 20, bad)
    with pytest.raises(ValueError, match="fedala"):
        partition.dirichlet(small, 20, 0.5, form="fedal")


# ---- class_subset: SPFL's split -------------------------------------------------------------


def test_class_subset_iid_shares_classes_and_non_iid_does_not(mnist):
    common = partition.class_subset(mnist, iid=True)
    assert len((common.counts(mnist) > 0).unique(dim=0)) == 1
    own = partition.class_subset(mnist, iid=False)
    assert len((own.counts(mnist) > 0).unique(dim=0)) > 1
    for p in (common, own):
        assert ((p.counts(mnist) > 0).sum(1) == 6).all()
        assert torch.equal(p.counts(mnist) > 0, p.counts(mnist, "test") > 0)
    # a tenth of each class, 80/20: for 6,000 a class the 2,880 / 720 behind the paper's table
    even = labelled((6000,) * 10, (1000,) * 10)
    p = partition.class_subset(even)
    assert {(len(a), len(b)) for a, b in zip(p.train, p.test)} == {(2880, 720)}
    assert all(int(torch.cat([a, b]).max()) < even.n_train for a, b in zip(p.train, p.test))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_class_subset_leaves_everybody_something_to_train_and_to_test(mnist, share):
    p = partition.class_subset(mnist, clients=20, test_share=share)
    for part in ("train", "test"):
        assert (p.counts(mnist, part) > 0).sum(1).eq(6).all()


def test_class_subset_refuses_what_cannot_be(mnist):
    with pytest.raises(ValueError, match="at most 10"):
        partition.class_subset(mnist, classes_per_client=11)
    for share in (0, 1, -0.1, 2):
        with pytest.raises(ValueError, match="test_share"):
            partition.class_subset(mnist, test_share=share)
    scant = labelled((100,) * 9 + (5,), (50,) * 10)
    with pytest.raises(ValueError, match="class '9' of toy has 5"):
        partition.class_subset(scant)


# ---- changes --------------------------------------------------------------------------------


def test_scarce_keeps_a_part_of_each_clients_samples(small):
    p = partition.grouped(small)
    q = partition.scarce(p, 50)
    assert all(len(i) == 50 for i in q.train) and same_test(p, q)
    assert all(set(b.tolist()) <= set(a.tolist()) for a, b in zip(p.train, q.train))
    assert torch.equal(q.groups, p.groups) and "cut to 50" in q.about
    assert same(q, partition.scarce(p, 50)) and not same(q, partition.scarce(p, 50, seed=1))
    with pytest.raises(ValueError, match="20 of 20 clients have fewer, client 0 has 200"):
        partition.scarce(p, 201)
    noisy = partition.label_noise(p, small, 1.0, 0.5)
    cut_noisy = partition.scarce(noisy, 20)
    for i in range(p.m):
        believed = dict(zip(noisy.train[i].tolist(), noisy.labels[i].tolist()))
        assert [believed[j] for j in cut_noisy.train[i].tolist()] == cut_noisy.labels[i].tolist()


def same_test(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.test, b.test))


def test_label_noise_replaces_by_other_classes_uniformly(small):
    p = partition.grouped(small)
    q = partition.label_noise(p, small, client_share=0.4, label_share=0.2)
    wrong = [int((own != small.y[i]).sum()) for own, i in zip(q.labels, q.train)]
    assert sorted(wrong) == [0] * 12 + [40] * 8  # two of five clients, a fifth of their labels
    assert same(p, q) and "8 clients with 20% wrong labels" in q.about
    everywhere = partition.label_noise(p, small, 1.0, 1.0)
    step = torch.cat(
        [(own - small.y[i]) % 10 for own, i in zip(everywhere.labels, everywhere.train)]
    )
    count = torch.bincount(step, minlength=10)
    assert count[0] == 0 and float(((count[1:] - 4000 / 9) ** 2).sum() / (4000 / 9)) < 30
    none = partition.label_noise(p, small, 0.4, 0.0)
    assert all(torch.equal(own, small.y[i]) for own, i in zip(none.labels, none.train))


def test_label_noise_of_a_client_does_not_depend_on_the_others(small):
    p = partition.grouped(small)
    fewer = Partition("part", p.train[:3], p.test[:3])
    whole, part = (partition.label_noise(q, small, 1.0, 0.3, seed=9) for q in (p, fewer))
    assert all(torch.equal(a, b) for a, b in zip(part.labels, whole.labels))


def test_label_noise_refuses_bad_shares_and_a_second_helping(small):
    p = partition.iid(small, 5)
    for bad in ({"client_share": 1.5}, {"label_share": -0.1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            partition.label_noise(p, small, **bad)
    with pytest.raises(ValueError, match="already"):
        partition.label_noise(partition.label_noise(p, small), small)
    one = labelled((8,), (4,))
    with pytest.raises(ValueError, match="toy has a single class: there is no other to mistake it"):
        partition.label_noise(partition.iid(one, 2), one)


# ---- words, files, pictures -----------------------------------------------------------------


def test_describe_says_the_numbers(small):
    p = partition.label_noise(partition.grouped(small, group_sizes=(50, 40, 30, 20, 10)), small)
    words = p.describe(small)
    for part in (
        "20 clients (grouped, seed 0)",
        "10 to 50 (median 30) training samples per client, 600 in all",
        "100 test samples per client",
        "of 10 classes per client",
        "5 hidden groups of clients: 4 each",
        "8 clients have wrong labels",
    ):
        assert part in words
    assert "20 clients" in repr(p)


def test_save_and_load_give_the_same_partition(small, tmp_path):
    for number, p in enumerate(
        (partition.iid(small, 3), partition.label_noise(partition.grouped(small), small))
    ):
        path = tmp_path / f"{number}.npz"
        p.save(path)
        q = partition.load(path)
        assert same(p, q) and (q.name, q.seed, q.about) == (p.name, p.seed, p.about)
        assert (q.groups is None) == (p.groups is None)
        if p.labels is not None:
            assert all(torch.equal(a, b) for a, b in zip(p.labels, q.labels))
            assert torch.equal(p.groups, q.groups)
        np.load(path, allow_pickle=False)
    assert sorted(os.listdir(tmp_path)) == ["0.npz", "1.npz"]  # nothing left at the side


def test_load_refuses_damaged_files(small, tmp_path):
    path = tmp_path / "p.npz"
    partition.iid(small, 3).save(path)
    whole = path.read_bytes()
    arrays = dict(np.load(path))
    path.write_bytes(whole[:-50])
    with pytest.raises(ValueError, match=r"p\.npz"):
        Partition.load(path)
    for changes, why in (
        ({"train_sizes": arrays["train_sizes"] + 1}, "add up"),
        ({"train_sizes": np.array([-1, 4001, 0])}, "add up"),
        ({"train": arrays["train"].astype(float)}, "int64"),
        ({"about": np.array("[1]")}, "not a saved partition"),
        ({"about": np.array("{")}, "not a saved partition"),
        ({"about": np.array([object()])}, "pickled"),
        ({"groups": np.zeros(2, int)}, "groups"),
        ({"labels": np.zeros(2, int)}, "add up"),
    ):
        np.savez(path, **arrays | changes)
        with pytest.raises(ValueError, match=why):
            Partition.load(path)
    with pytest.raises(FileNotFoundError):
        Partition.load(tmp_path / "none.npz")


def test_a_failed_save_keeps_the_old_file(small, tmp_path, monkeypatch):
    path = tmp_path / "p.npz"
    partition.iid(small, 3).save(path)
    before = path.read_bytes()

    def breaks(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", breaks)
    with pytest.raises(OSError, match="disk full"):
        partition.iid(small, 4).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["p.npz"]


def test_bubbles_show_the_counts_and_no_text_is_small(small):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from pfl_lib.book import plots

    p = partition.grouped(small, group_sizes=(100, 80, 60, 40, 20))
    ax = plots.partition_bubbles(p, small)
    dots = ax.collections[0]
    counts = p.counts(small)
    assert len(dots.get_offsets()) == int((counts > 0).sum())
    area = {tuple(map(int, at)): size for at, size in zip(dots.get_offsets(), dots.get_sizes())}
    assert area[0, 0] / area[4, 2] == pytest.approx(40 / 32, rel=1e-6)
    assert len({tuple(c) for c in dots.get_facecolors()}) == 5
    texts = [*ax.get_xticklabels(), *ax.get_yticklabels(), ax.title, ax.xaxis.label]
    assert min(text.get_fontsize() for text in texts) >= 10
    assert "test" in plots.partition_bubbles(p, small, part="test").get_title()
    plt.close("all")


# ---- the dealing itself ---------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    classes=st.integers(2, 8),
    seed=st.integers(0, 10**6),
)
def test_even_quota_rounds_each_share_and_balances_the_totals(sizes, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(0, 4, (len(sizes), classes), generator=generator).double()
    weights[:, 0] += 1
    sizes = torch.tensor(sizes)
    counts = even_quota(sizes, weights, seed, "test")
    fair = sizes[:, None] * weights / weights.sum(1, keepdim=True)
    assert torch.equal(counts.sum(1), sizes)
    assert float((counts - fair).abs().max()) < 1 and (counts[weights == 0] == 0).all()
    assert float((counts.sum(0) - fair.sum(0)).abs().max()) < 1
    alike = even_quota(sizes, torch.ones_like(weights), seed, "test").sum(0)
    assert int(alike.max() - alike.min()) <= 1


def test_even_quota_mends_an_early_choice_that_would_not_fit():
    # the first client may take two of four classes; the second only class 1 or 3, one of each is
    # there: the first must leave it one
    weights = torch.tensor([[1.0, 1, 1, 1], [0, 1, 0, 1]])
    for seed in range(20):
        counts = even_quota(torch.tensor([2, 1]), weights, seed, "test")
        assert counts.sum(0)[[1, 3]].tolist() == [1, 1]


@given(n=st.integers(0, 1000), shares=st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_cut_sums_to_the_whole(n, shares):
    share = torch.tensor(shares, dtype=torch.float64) + 1e-6
    share = share / share.sum()
    counts = cut(n, share)
    assert int(counts.sum()) == n and int(counts.min()) >= 0
    assert float((counts - n * share).abs().max()) <= 1 + 1e-6


def test_deal_never_gives_a_client_a_sample_twice():
    labels = torch.tensor([0] * 5 + [1] * 3)
    counts = torch.tensor([[4, 1], [4, 1], [4, 1]])
    hands, shared = deal(labels, 100, counts, 0, "test")
    for hand in hands:
        assert len(hand.unique()) == 5 and int(hand.min()) >= 100
        assert (labels[hand - 100] == 0).sum() == 4
    assert shared == [(0, 12, 5)]
    with pytest.raises(ValueError, match="class 1: one client needs 4, there are 3"):
        deal(labels, 0, torch.tensor([[0, 4]]), 0, "test")


def test_official_test_holds_all_test_samples_of_the_trained_classes(mnist):
    clients = partition.class_subset(mnist, clients=5, classes_per_client=3)
    tested = partition.official_test(clients, mnist).check(mnist)
    for before, train, test in zip(clients.train, tested.train, tested.test):
        assert torch.equal(before, train) and int(test.min()) >= mnist.n_train
        own = torch.isin(mnist.y_test, mnist.y[train].unique())
        assert torch.equal(mnist.y[test], mnist.y_test[own])


def test_official_test_never_holds_what_somebody_trains_on(mnist):
    together = partition.dirichlet(mnist, 6, 0.5, form="fedala")  # deals both parts as one
    partition.official_test(together, mnist).check(mnist)


def test_official_test_refuses_clients_whose_classes_it_lacks():
    lacking = labelled((2, 2), (2, 0))
    train = (torch.tensor([0, 1]), torch.tensor([2, 3]))
    clients = Partition("mine", train=train, test=(torch.tensor([4]), torch.tensor([5])))
    with pytest.raises(ValueError, match=r"part of toy has no sample of .* of client 1"):
        partition.official_test(clients, lacking)


# ---- the papers' settings on real data, where there are some --------------------------------


@pytest.mark.skipif(not os.environ.get("PFL_DATA"), reason="PFL_DATA names no folder")
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "emnist", "cifar100"])
def test_grouped_settings_on_real_files(name):
    try:
        real = data.load(name, download=False)
    except FileNotFoundError:
        pytest.skip(f"no {name} here")
    options = {}
    if "SUBSET" in real.note:
        options = {"over": "images"} if name == "emnist" else {"scale": 0.2}
    p = partition.grouped(real, name, **options).check(real)
    trained = torch.cat(p.train)
    assert len(trained.unique()) == len(trained)


def test_conflicting_labels_rename_by_group_and_refuse_shared_samples():
    digits = data.load("digits")
    thirds = {"group_classes": [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)], "group_clients": [4] * 3}
    clients = partition.grouped(digits, **thirds, group_sizes=[40] * 3, test_size=20)
    odds = partition.conflicting_labels(clients, digits, shift=2)
    for group, index in zip(clients.groups.tolist(), clients.train):
        assert torch.equal(odds.y[index], (digits.y[index] + 2 * group) % 10)
    shared = partition.grouped(digits, **thirds, group_sizes=[40] * 3, test_size=60)
    with pytest.raises(ValueError, match="samples belong to clients of two groups"):
        partition.conflicting_labels(shared, digits)
    with pytest.raises(ValueError, match="no hidden groups"):
        partition.conflicting_labels(partition.iid(digits, 3), digits)
    with pytest.raises(ValueError, match="first conflicting_labels, then label_noise"):
        partition.conflicting_labels(partition.label_noise(clients, digits), digits)


def test_labels_are_made_noisy_once(small):
    noisy = partition.label_noise(partition.iid(small, clients=4), small)
    with pytest.raises(ValueError, match="has label noise already"):
        partition.label_noise(noisy, small)
