"""MNIST, Fashion-MNIST and EMNIST: the idx format, packed with gzip or not."""

import gzip
import hashlib
import math
import string
import zlib
from typing import Any

import numpy as np
import torch

from pfl_lib._torchvision import import_torchvision
from pfl_lib.data.dataset import Dataset
from pfl_lib.data.own import DEFLATE_AT_MOST, read_arrays
from pfl_lib.data.places import about_counts, locate


def read_idx(path, axes):
    """The uint8 array in an idx file, and the md5 of its unpacked bytes.

    The size that the header declares is compared with what the file can hold before anything of
    that size is made; a wrong magic number, a short or an over-long file is refused.
    """
    packed = str(path).endswith(".gz")
    on_disk = path.stat().st_size
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            head = file.read(4 + 4 * axes)
            if head[:4] != bytes([0, 0, 8, axes]):
                raise ValueError(
                    f"{path}: not an idx file of unsigned bytes with {axes} axes "
                    f"(it starts with {head[:4].hex()}, should be 000008{axes:02x})"
                )
            if len(head) < 4 + 4 * axes:
                raise ValueError(f"{path}: ends inside its header")
            shape = np.frombuffer(head[4:], dtype=">u4").astype(int).tolist()
            declared = math.prod(shape)
            most = on_disk * DEFLATE_AT_MOST if packed else on_disk - len(head)
            if declared == 0 or declared > most:
                raise ValueError(
                    f"{path}: declares {' × '.join(map(str, shape))} = {declared:,} bytes, "
                    f"but its {on_disk:,} bytes on disk can hold at most {most:,}"
                )
            body = file.read(declared + 1)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path}: damaged ({error})") from error
    if len(body) != declared:
        size = "more" if len(body) > declared else f"only {len(body):,}"
        raise ValueError(f"{path}: declares {declared:,} bytes but has {size}")
    digest = hashlib.md5(head + body, usedforsecurity=False).hexdigest()
    return np.frombuffer(body, dtype=np.uint8).reshape(shape), digest


#: folder, file names (training images and labels, test images and labels), md5 of the unpacked
#: official files, official counts, classes, mean and deviation
_SETS: dict[str, dict[str, Any]] = {
    "mnist": {
        "folder": "MNIST",
        "stems": ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"),
        "md5": (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        "counts": (60_000, 10_000),
        "classes": tuple(string.digits),
        "mean": (0.1307,),
        "std": (0.3081,),
    },
    "fashion_mnist": {
        "folder": "FashionMNIST",
        "stems": ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"),
        "md5": (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
        "counts": (60_000, 10_000),
        "classes": (
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
        "mean": (0.2860,),
        "std": (0.3530,),
    },
    "emnist": {
        "folder": "EMNIST",
        "stems": (
            "emnist-byclass-train-images-idx3",
            "emnist-byclass-train-labels-idx1",
            "emnist-byclass-test-images-idx3",
            "emnist-byclass-test-labels-idx1",
        ),
        "md5": None,  # only the whole archive has a published checksum; a download verifies it
        "counts": (697_932, 116_323),
        "classes": tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
        "mean": (0.1736,),
        "std": (0.3317,),
        "lying": True,  # the files hold the images lying on their side
    },
    "emnist_balanced": {
        "folder": "EMNIST",
        "stems": (
            "emnist-balanced-train-images-idx3",
            "emnist-balanced-train-labels-idx1",
            "emnist-balanced-test-images-idx3",
            "emnist-balanced-test-labels-idx1",
        ),
        "md5": None,
        "counts": (112_800, 18_800),
        "classes": tuple(string.digits + string.ascii_uppercase + "abdefghnqrt"),
        "mean": (0.1751,),
        "std": (0.3332,),
        "lying": True,
        "subset": "emnist_balanced_subset.npz",
    },
}


def load(name, root=None, download=True):
    """MNIST, Fashion-MNIST or EMNIST (by class: digits, upper and lower case; or balanced)."""
    about = _SETS[name]
    subset = about.get("subset", "")
    files = locate(
        name,
        root,
        lambda base: _find(base, about),
        f"{about['folder']}/raw/ with {', '.join(s + '-ubyte.gz' for s in about['stems'])} "
        "(also without .gz)" + (f", or a part of it as {subset}" if subset else ""),
        (lambda folder: _fetch(name, folder)) if download else None,
    )
    arrays, digests = _read(files)
    x_train, y_train, x_test, y_test = arrays
    for images, labels, path in ((x_train, y_train, files[0]), (x_test, y_test, files[-2:][0])):
        if len(images) != len(labels) or images.shape[1:] != (28, 28):
            raise ValueError(
                f"{path}: {len(images):,} images of {images.shape[1]}×{images.shape[2]} do not go "
                f"with {len(labels):,} labels; wanted are 28×28 images, one label each"
            )
    x = np.concatenate([x_train, x_test])
    if about.get("lying"):
        x = np.ascontiguousarray(x.transpose(0, 2, 1))
    alike = about["md5"] is None or digests == about["md5"]
    return Dataset(
        name=name,
        x=torch.from_numpy(x)[:, None],
        y=torch.from_numpy(np.concatenate([y_train, y_test]).astype(np.int64)),
        n_train=len(x_train),
        classes=about["classes"],
        mean=about["mean"],
        std=about["std"],
        note=about_counts((len(x_train), len(x_test)), about["counts"], alike),
    )


def _read(files):
    """Images and labels of both parts, and the md5 of each file where it is an idx file."""
    if len(files) == 4:
        return zip(*(read_idx(path, axes) for path, axes in zip(files, (3, 1, 3, 1))))
    found = read_arrays(files[0], ("x_train", "y_train", "x_test", "y_test"))
    for key, array in found.items():
        if array.dtype != np.uint8 or array.ndim != (3 if key[0] == "x" else 1) or not len(array):
            raise ValueError(f"{files[0]}: {key} should be bytes, got {array.dtype} {array.shape}")
    return tuple(found.values()), ()


def _find(base, about):
    """The four files, or None.  The folder's name matters: MNIST and Fashion-MNIST share theirs."""
    folders = [base / about["folder"] / "raw", base / about["folder"]]
    if base.name == about["folder"]:
        folders += [base / "raw", base]
    for folder in folders:
        found = []
        for stem in about["stems"]:
            names = (f"{stem}-ubyte.gz", f"{stem}-ubyte")
            found += [folder / n for n in names if (folder / n).is_file()][:1]
        if len(found) == 4:
            return found
    part = base / about.get("subset", "")
    return [part] if part.is_file() else None


def _fetch(name, folder):
    sets = import_torchvision().datasets
    if name == "mnist":
        sets.MNIST(folder, download=True)
    elif name == "fashion_mnist":
        sets.FashionMNIST(folder, download=True)
    else:
        split = "balanced" if name == "emnist_balanced" else "byclass"
        sets.EMNIST(folder, split=split, download=True)
        for path in (folder / "EMNIST" / "raw").iterdir():  # the archive holds six sets
            if split not in path.name:
                path.unlink()
