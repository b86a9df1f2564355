"""Data sets with natural clients, and published splits: small files, then real ones."""

import importlib.util
import os

import numpy as np
import pytest
import torch

import pfl_lib
from pfl_lib import data, partition
from pfl_lib.data import idx
from tests.support.data_files import natural_files

REAL = os.environ.get("PFL_DATA")
real_files = pytest.mark.skipif(not REAL, reason="PFL_DATA names no folder with real data")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder with a small file for each data set, and no other to look in."""
    monkeypatch.delenv("PFL_DATA", raising=False)
    monkeypatch.setenv("PFL_CACHE", str(tmp_path / "cache"))
    natural_files(tmp_path)
    return tmp_path


def load(name, root, **options):
    return data.load(name, root=root, download=False, **options)


# ---- small files ----------------------------------------------------------------------------


def test_mnist_writers_know_who_wrote_what(small):
    loaded = load("mnist_writers", small)
    assert (loaded.n_train, loaded.n_test, loaded.client) == (20, 6, "writer")
    clients = partition.natural(loaded, test_share=0.25, groups="hsf")
    assert clients.ids == ("3", "7") and [len(i) for i in clients.test] == [3, 2]
    assert loaded.columns["hsf"].names == ("staff", "pupils") and clients.groups.tolist() == [1, 0]
    assert partition.natural(loaded, test_share=0.5, part="test").ids == ("9",)
    with pytest.raises(ValueError, match="say which test_share"):
        partition.natural(loaded)
    arrays = dict(np.load(small / "mnist_writers.npz"))
    arrays["label"] = arrays["label"][::-1]
    np.savez(small / "mnist_writers.npz", **arrays)
    with pytest.raises(ValueError, match="labels are not those of the MNIST files"):
        load("mnist_writers", small)


def test_har_keeps_bouts_whole_and_says_when_it_leaks(small):
    loaded = load("har", small)
    assert loaded.kind == "series" and loaded.shape == (9, 16) and loaded.together == "bout"
    assert loaded.classes == ("walking", "sitting")
    bout, n = loaded.columns["bout"].values, loaded.n_train
    assert not set(bout[:n].tolist()) & set(bout[n:].tolist())
    clients = partition.natural(loaded)
    assert clients.ids == ("1", "2") and [len(i) for i in clients.test] == [6, 6]
    assert load("har", small, seed=1).checksum() != loaded.checksum()
    leaking = load("har", small, split="pfllib")
    bout, n = leaking.columns["bout"].values, leaking.n_train
    assert "LEAKS" in leaking.note and set(bout[:n].tolist()) & set(bout[n:].tolist())
    # whoever draws test samples from it again does not tear a bout
    for train, test in zip(
        *(getattr(partition.natural(leaking, test_share=0.3), part) for part in ("train", "test"))
    ):
        assert not set(bout[train].tolist()) & set(bout[test].tolist())
    official = load("har", small, split="official")
    assert set(official.columns["subject"].values[: official.n_train].tolist()) == {0}
    with pytest.raises(ValueError, match="split must be one of 'bout'"):
        load("har", small, split="random")


def test_landmine_fields_have_a_terrain_and_their_share_of_mines(small):
    loaded = load("landmine", small, test=0.25)
    clients = partition.natural(loaded, groups="terrain")
    assert clients.m == 3 and clients.groups.tolist() == [1, 1, 0]
    assert clients.counts(loaded).tolist() == [[12, 3]] * 3
    with pytest.raises(ValueError, match="test must lie"):
        load("landmine", small, test=2)


def test_vehicle_and_cracker(small):
    vehicle = load("vehicle", small)
    assert vehicle.classes == ("-1", "1") and partition.natural(vehicle).ids == ("0", "4")
    cracker = load("cracker", small)
    assert cracker.shape == (12,) and cracker.classes[0] == "sunshine"
    clients = partition.natural(cracker)
    assert [len(i) for i in clients.test] == [2, 2]
    # the last two purchases of each household: nabisco, private
    assert [cracker.y[i].tolist() for i in clients.test] == [[2, 3], [2, 3]]


def test_heart_disease_fills_what_is_missing(small):
    loaded = load("heart_disease", small)
    assert loaded.shape == (9 + 4 + 3 + 3 + 3,) and torch.isfinite(loaded.x).all()
    assert partition.natural(loaded).ids == ("cleveland", "hungarian", "switzerland", "va")
    hospital = loaded.columns["hospital"].values
    cholesterol = loaded.x[:, 3]
    known = cholesterol[: loaded.n_train][hospital[: loaded.n_train] != 2]
    assert torch.allclose(cholesterol[hospital == 2], known.mean(), atol=1e-3)  # 0 was missing
    slope = loaded.x[:, 16:19]  # all 0 where missing
    assert slope[hospital == 0].sum(1).unique().tolist() == [1.0]
    assert slope[hospital != 0].abs().sum() == 0
    flagged = load("heart_disease", small, missing="flag")
    assert flagged.shape == (22 + 2,)  # cholesterol and vessels
    sick = [int(loaded.y[hospital == h].sum()) for h in range(4)]
    assert sick == [6, 7, 8, 8]


def test_emnist_balanced_is_called_a_subset_where_it_is_one(small, monkeypatch):
    loaded = load("emnist_balanced", small)
    assert loaded.note.startswith("SUBSET: 94 + 47") and len(loaded.classes) == 47
    with np.load(small / "emnist_balanced_subset.npz") as arrays:
        assert np.array_equal(loaded.x[0, 0].numpy().T, arrays["x_train"][0])  # upright
        parts = [arrays[f"{key}_{part}"] for part in ("train", "test") for key in "xy"]
    from tests.support.data_files import idx_bytes

    raw = small / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    for stem, array in zip(idx._SETS["emnist_balanced"]["stems"], parts):
        (raw / f"{stem}-ubyte").write_bytes(idx_bytes(array))
    (small / "emnist_balanced_subset.npz").unlink()
    assert load("emnist_balanced", small).checksum() == loaded.checksum()


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("har", "uci_har.npz", b"garbage"),
        ("landmine", "landmine.npz", b""),
        ("vehicle", "vehicle_ditto_train.npz", b"PK\x03\x04"),
        ("cracker", "cracker.csv.gz", b"garbage"),
        ("heart_disease", "heart_disease/processed.va.data", b"1,2,3\n"),
        ("heart_disease", "heart_disease/processed.va.data", b"a,1,1,1,1,1,1,1,1,1,1,1,1,1\n"),
        ("mnist_writers", "mnist_writers.npz", b"garbage"),
        ("emnist_balanced", "emnist_balanced_subset.npz", b"garbage"),
    ],
)
def test_damaged_files_are_named(small, name, file, content):
    (small / file).write_bytes(content)
    with pytest.raises(ValueError, match=os.path.basename(file).split(".")[0]):
        load(name, small)


def test_a_file_with_the_wrong_arrays_is_named(small):
    np.savez(small / "landmine.npz", X=np.zeros((4, 9)), y=np.zeros(3, int), field=np.zeros(4, int))
    with pytest.raises(ValueError, match=r"landmine\.npz: y must be one for each of 4"):
        load("landmine", small)
    (small / "cracker.csv.gz").unlink()
    (small / "cracker.csv").write_text("id,choice\n1,private\n")
    with pytest.raises(ValueError, match=r"should have the columns disp\.sunshine"):
        load("cracker", small)


def test_options_belong_to_a_data_set(small):
    with pytest.raises(TypeError, match=r"takes no option length; it takes missing, seed, test"):
        load("heart_disease", small, length=3)
    with pytest.raises(TypeError, match=r"load\('digits'\) takes no option test"):
        data.load("digits", test=0.5)


# ---- ten people with a smart watch ----------------------------------------------------------


@pytest.fixture(scope="module")
def watch():
    return data.load("watch")


def test_watch_has_ten_people_and_windows_that_share_no_moment(watch):
    assert (watch.n_train, watch.n_test, watch.shape) == (1070, 416, (6, 150))
    clients = partition.natural(watch)
    clients.check(watch)
    assert clients.ids == tuple(map(str, range(1, 11)))
    assert (clients.counts(watch) > 0).all() and (clients.counts(watch, "test") > 0).all()
    flat = {window.tobytes() for window in watch.x.numpy()}
    assert len(flat) == len(watch)
    recorded = importlib.import_module("seglearn.datasets").load_watch()
    row = int(watch.columns["recording"].values[0])
    assert np.allclose(watch.x[0].numpy(), recorded["X"][row][:150].T, atol=1e-4)
    first_test = (watch.columns["recording"].values[watch.n_train :] == row).nonzero()[0, 0]
    cut = round(0.7 * len(recorded["X"][row]))
    found = watch.x[watch.n_train + int(first_test)].numpy()
    assert np.allclose(found, recorded["X"][row][cut : cut + 150].T, atol=1e-4)


def test_watch_can_be_cut_otherwise():
    short = data.load("watch", seconds=6, test=0.5)
    assert short.shape == (6, 300) and short.n_train < 600
    with pytest.raises(ValueError, match="seconds=500 leaves no window"):
        data.load("watch", seconds=500)
    with pytest.raises(ValueError, match="seconds must be"):
        data.load("watch", seconds=0)


def test_a_small_network_learns_the_exercises(watch):
    fed = pfl_lib.Federation(
        watch, partition.natural(watch, clients=3), "cnn1d", lr=0.01, optimizer="adam", epochs=2
    )
    history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, rounds=4, progress=False)
    first, last = (sum(history.accuracy[k]) / fed.m for k in (0, -1))
    assert last > 0.6 and last > first + 0.1


def test_watch_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "seglearn" else find(name)
    )
    with pytest.raises(ModuleNotFoundError, match="pip install seglearn"):
        data.load("watch")


# ---- published splits -----------------------------------------------------------------------


def test_a_published_split_is_read_and_checked(small):
    mnist = load("mnist", small)
    clients = partition.published("fedala-mnist", mnist, root=small)
    clients.check(mnist)
    assert [len(i) for i in (*clients.train, *clients.test)] == [8, 8, 4, 6]
    assert clients.name == "fedala-mnist" and clients.source == mnist.identity()
    again = partition.published("fedala-mnist", load("mnist_writers", small), root=small)
    assert torch.equal(again.train[0], clients.train[0])
    with pytest.raises(ValueError, match="data must be fashion_mnist"):
        partition.published("dbe-fmnist", mnist, root=small)
    with pytest.raises(FileNotFoundError, match=r"pfllib_mnist_dir01\.npz"):
        partition.published("pfllib-mnist", mnist, root=small)
    with np.load(small / "fedala_mnist_dir01.npz") as arrays:
        changed = {**arrays, "test_1": arrays["test_1"][:-1]}
    np.savez(small / "fedala_mnist_dir01.npz", **changed)
    with pytest.raises(ValueError, match="25 indices; wanted is each of the 26 samples"):
        partition.published("fedala-mnist", mnist, root=small)
    changed.pop("test_1")
    np.savez(small / "fedala_mnist_dir01.npz", **changed)
    with pytest.raises(ValueError, match="not every client has"):
        partition.published("fedala-mnist", mnist, root=small)


def test_the_authors_pathological_split_comes_in_blocks():
    digits = data.load("digits")
    clients = partition.pathological(digits, 20, form="fedala", seed=1)
    clients.check(digits)
    counts = clients.counts(digits) + clients.counts(digits, "test")
    assert torch.equal(counts.sum(0), torch.bincount(digits.y))  # every sample is dealt once
    for i in range(20):
        first = 2 * (i // 4)
        assert counts[i].nonzero().squeeze(1).tolist() == [first, first + 1]
        low, high = torch.bincount(digits.y) // 40, torch.bincount(digits.y) // 4
        inside = ((counts[i] >= low) & (counts[i] <= high))[[first, first + 1]]
        assert inside.all() or i % 4 == 3  # the last of a block takes the rest
    for train, test in zip(clients.train, clients.test):
        assert abs(len(train) - 0.75 * (len(train) + len(test))) <= 1
    with pytest.raises(ValueError, match="must be a multiple of the 10 classes"):
        partition.pathological(digits, 7, 3, form="fedala")
    shards = partition.pathological(digits, 20, seed=1)
    assert torch.equal(shards.train[0], partition.pathological(digits, 20, 2, 1).train[0])


# ---- real files, where there are some -------------------------------------------------------


def real(call):
    try:
        return call()
    except FileNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


@real_files
@pytest.mark.parametrize(
    ("name", "of", "sizes", "totals"),
    [
        ("fedala-mnist", "mnist", (374, 4641, 125, 1548), (52_492, 17_508)),
        ("pfllib-mnist", "mnist", (374, 4641, 125, 1548), (52_492, 17_508)),
        ("dbe-fmnist", "fashion_mnist", (61, 6413, 21, 2138), (52_493, 17_507)),
    ],
)
def test_published_splits_have_their_sizes(name, of, sizes, totals):
    loaded = real(lambda: data.load(of, download=False))
    clients = real(lambda: partition.published(name, loaded))
    train, test = ([len(i) for i in part] for part in (clients.train, clients.test))
    assert clients.m == 20 and (sum(train), sum(test)) == totals
    assert (min(train), max(train), min(test), max(test)) == sizes


@real_files
def test_real_writers_people_fields_and_households():
    expected = {
        "mnist_writers": (539, 70_000),
        "har": (30, 10_299),
        "landmine": (29, 14_820),
        "heart_disease": (4, 920),
        "vehicle": (23, 1860),
        "cracker": (136, 3292),
    }
    for name, (people, samples) in expected.items():
        loaded = real(lambda name=name: data.load(name, download=False))
        share = 0.25 if name == "mnist_writers" else None
        clients = partition.natural(loaded, test_share=share)
        clients.check(loaded)
        assert (clients.m, len(loaded)) == (people, samples), name


@real_files
def test_no_window_of_har_is_seen_on_both_sides():
    loaded = real(lambda: data.load("har", download=False))

    def halves(part):
        return {
            half.tobytes() for x in part.numpy() for half in (x[:, :64].copy(), x[:, 64:].copy())
        }

    assert not halves(loaded.x_train) & halves(loaded.x_test)
    leaking = data.load("har", download=False, split="pfllib")
    known = halves(leaking.x_train)
    torn = sum(
        x[:, :64].tobytes() in known or x[:, 64:].tobytes() in known for x in leaking.x_test.numpy()
    )
    assert torn == 2342  # of 2,584, as the page says
