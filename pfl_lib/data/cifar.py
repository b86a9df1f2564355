"""CIFAR-10 and CIFAR-100: the official Python files, or a subset in one .npz file."""

import hashlib
import io
import math
import pickle
import pickletools
import tarfile
from typing import Any

import numpy as np
import torch

from pfl_lib._torchvision import import_torchvision
from pfl_lib.data import own
from pfl_lib.data.dataset import Dataset
from pfl_lib.data.places import about_counts, locate

_SETS: dict[str, dict[str, Any]] = {
    "cifar10": {
        "folder": "cifar-10-batches-py",
        "archive": "cifar-10-python.tar.gz",
        "train": {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        },
        "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
        "meta": ("batches.meta", "label_names"),
        "labels": "labels",
        "coarse": None,
        "classes": 10,
        "mean": (0.4914, 0.4822, 0.4465),
        "std": (0.2470, 0.2435, 0.2616),
    },
    "cifar100": {
        "folder": "cifar-100-python",
        "archive": "cifar-100-python.tar.gz",
        "train": {"train": "16019d7e3df5f24257cddd939b257f8d"},
        "test": {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        "meta": ("meta", "fine_label_names"),
        "labels": "fine_labels",
        "coarse": "coarse_labels",
        "classes": 100,
        "mean": (0.5071, 0.4865, 0.4409),
        "std": (0.2673, 0.2564, 0.2762),
    },
}
_COUNTS = (50_000, 10_000)
_AT_MOST = 400_000_000  # bytes of one file in the archive; the largest official one has 155 MB


def load(name, root=None, download=True):
    """CIFAR-10 or CIFAR-100 (with its 20 superclasses in ``coarse``)."""
    about = _SETS[name]
    read = locate(
        name,
        root,
        lambda base: _find(base, name, about),
        f"the folder {about['folder']}/ or the archive {about['archive']} of the official Python "
        f"version, or {name}.npz or {name}_subset.npz with x_train, y_train, x_test, y_test",
        (lambda folder: _fetch(name, folder)) if download else None,
    )
    return read()


def _find(base, name, about):
    """A function without arguments that reads what is there, or None."""
    wanted = [*about["train"], *about["test"], about["meta"][0]]
    folder = base / about["folder"]
    if all((folder / file).is_file() for file in wanted):
        return lambda: _official(name, about, lambda file: (folder / file).read_bytes(), folder)
    archive = base / about["archive"]
    if archive.is_file():
        return lambda: _from_archive(name, about, archive)
    for file in (base / f"{name}.npz", base / f"{name}_subset.npz"):
        if file.is_file():
            return lambda: _from_npz(name, about, file)
    return None


def _from_archive(name, about, archive):
    try:
        with tarfile.open(archive) as tar:

            def read(file):
                member = tar.extractfile(f"{about['folder']}/{file}")
                if member is None:
                    raise OSError(f"{file} is not a regular file")
                raw = member.read(_AT_MOST + 1)
                if len(raw) > _AT_MOST:
                    raise OSError(f"{file} is longer than {_AT_MOST:,} bytes")
                return raw

            return _official(name, about, read, archive)
    except ValueError:
        raise
    except Exception as error:  # a hostile file may fail anywhere in tarfile
        raise ValueError(f"{archive}: damaged, or not the official archive ({error})") from error


def _official(name, about, read, where):
    parts, alike = {}, True
    for part in ("train", "test"):
        found = []
        for file, md5 in about[part].items():
            raw = read(file)
            alike &= hashlib.md5(raw, usedforsecurity=False).hexdigest() == md5
            found.append(_batch(plain_unpickle(raw, f"{where}/{file}"), about, f"{where}/{file}"))
        parts[part] = [np.concatenate(column) for column in zip(*found)]
    file, key = about["meta"]
    names = plain_unpickle(read(file), f"{where}/{file}")
    names = names.get(key) if isinstance(names, dict) else None
    if not isinstance(names, list) or len(names) != about["classes"]:
        raise ValueError(f"{where}/{file}: {key} should be {about['classes']} class names")
    train, test = parts["train"], parts["test"]
    x, y, coarse = (torch.from_numpy(np.concatenate(pair)) for pair in zip(train, test))
    return Dataset(
        name=name,
        x=x,
        y=y,
        n_train=len(train[0]),
        classes=tuple(_text(n) for n in names),
        mean=about["mean"],
        std=about["std"],
        note=about_counts((len(train[0]), len(test[0])), _COUNTS, alike),
        coarse=coarse if about["coarse"] else None,
    )


def _batch(content, about, where):
    """Images, labels and superclasses of one official file."""
    keys = ["data", about["labels"], *([about["coarse"]] if about["coarse"] else [])]
    if not isinstance(content, dict) or any(key not in content for key in keys):
        raise ValueError(f"{where}: should be a dictionary with {', '.join(keys)}")
    x = content["data"]
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != 3072:
        raise ValueError(f"{where}: data should be uint8 rows of 3,072 pixels")
    labels = []
    for key in keys[1:]:
        column = content[key]
        if not isinstance(column, list) or len(column) != len(x):
            raise ValueError(f"{where}: {key} should be a list of {len(x):,} labels")
        if not all(type(label) is int and 0 <= label < 256 for label in column):
            raise ValueError(f"{where}: {key} should hold whole numbers from 0")
        labels.append(np.array(column, dtype=np.int64))
    return x.reshape(-1, 3, 32, 32), labels[0], labels[-1]


def _from_npz(name, about, path):
    loaded = own.load(path)
    if loaded.shape != (3, 32, 32) or len(loaded.classes) != about["classes"]:
        raise ValueError(
            f"{path}: {name} has 3×32×32 images of {about['classes']} classes, got "
            f"{'×'.join(map(str, loaded.shape))} of {len(loaded.classes)}"
        )
    return Dataset(
        name=name,
        x=loaded.x,
        y=loaded.y,
        n_train=loaded.n_train,
        classes=loaded.classes,
        mean=about["mean"],
        std=about["std"],
        note=about_counts((loaded.n_train, loaded.n_test), _COUNTS),
        coarse=loaded.coarse,
    )


def _fetch(name, folder):
    sets = import_torchvision().datasets
    (sets.CIFAR10 if name == "cifar10" else sets.CIFAR100)(str(folder), download=True)
    (folder / _SETS[name]["archive"]).unlink(missing_ok=True)


# ---- a pickle that can build nothing but plain things ---------------------------------------


def plain_unpickle(raw, where):
    """The arrays, strings, numbers, lists and dictionaries in a pickle; anything else is refused.

    A pickle is a program.  Here none of the functions it may call is a real one: numpy's names lead
    to two small classes below, every other name is an error, so that no foreign code can run.
    """
    try:
        for opcode, argument, _ in pickletools.genops(raw):
            # Python makes a table as long as the largest number; honest ones count from 0
            if "PUT" in opcode.name and (argument or 0) > len(raw):
                raise pickle.UnpicklingError(f"it numbers its parts up to {argument:,}")
        content = _PlainUnpickler(io.BytesIO(raw), encoding="latin1").load()
        if isinstance(content, dict):
            return {_text(key): _real(value) for key, value in content.items()}
        return _real(content)
    except Exception as error:  # a hostile file may fail anywhere
        raise ValueError(f"{where}: not a plain pickle of arrays and lists ({error})") from error


def _text(value):
    return value.decode("latin1") if isinstance(value, bytes) else value


def _real(value):
    return value.array if isinstance(value, _Array) else value


class _Stand:
    """Stands for a name of numpy.  Nothing can be set on it."""

    __slots__ = ()

    def __setstate__(self, state):
        raise pickle.UnpicklingError("unexpected state")


class _ArrayType(_Stand):
    """Stands for numpy.ndarray, which official files only mention."""


class _DataType(_Stand):
    """Stands for numpy.dtype: bytes only, the type of all official images."""

    def __new__(cls, code, *_):
        if _text(code) not in ("u1", "|u1"):
            raise pickle.UnpicklingError(f"arrays of type {code!r} are not expected")
        return super().__new__(cls)

    def __init__(self, *_):
        pass

    def __setstate__(self, state):
        pass  # byte order and the like: means nothing for single bytes


class _Array(_Stand):
    """Stands for an array under construction; its size is that of the bytes at hand."""

    __slots__ = ("array",)

    def __new__(cls, kind, *_):
        if kind is not _ArrayType:
            raise pickle.UnpicklingError("not an ordinary array")
        return super().__new__(cls)

    def __init__(self, *_):
        self.array = None

    def __setstate__(self, state):
        _, shape, kind, by_columns, content = state
        if isinstance(content, str):
            content = content.encode("latin1")
        if not isinstance(kind, _DataType) or math.prod(shape) != len(content):
            raise pickle.UnpicklingError(f"{len(content):,} bytes do not make an array of {shape}")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.array = flat.reshape(shape, order="F") if by_columns else flat.reshape(shape)


class _Encoded(_Stand):
    """Stands for _codecs.encode, with which newer Pythons write bytes in the old format."""

    def __new__(cls, text, encoding):
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"encoding {encoding!r} is not expected")
        return text.encode("latin1")


_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _DataType,
    ("_codecs", "encode"): _Encoded,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _NAMES[module, name]
