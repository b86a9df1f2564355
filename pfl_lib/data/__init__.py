"""Loading data sets: ``load(name)`` gives a :class:`Dataset`, ``names()`` says what there is."""

import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pfl_lib import _check
from pfl_lib.data import ag_news, bundled, cifar, idx, natural, own, tiny_imagenet
from pfl_lib.data.arrays import from_arrays
from pfl_lib.data.dataset import Column, Dataset
from pfl_lib.data.huggingface import from_huggingface

__all__ = ["Column", "Dataset", "from_arrays", "from_huggingface", "load", "names"]

_WITH_PACKAGES = {"digits": bundled.digits, "mnist5k": bundled.mnist5k, "watch": bundled.watch}
_FROM_FILES: dict[str, Callable[..., Dataset]] = {
    "mnist": partial(idx.load, "mnist"),
    "fashion_mnist": partial(idx.load, "fashion_mnist"),
    "emnist": partial(idx.load, "emnist"),
    "cifar10": partial(cifar.load, "cifar10"),
    "cifar100": partial(cifar.load, "cifar100"),
    "tiny_imagenet": tiny_imagenet.load,
    "ag_news": ag_news.load,
    "emnist_balanced": partial(idx.load, "emnist_balanced"),
    "mnist_writers": natural.mnist_writers,
    "har": natural.har,
    "landmine": natural.landmine,
    "heart_disease": natural.heart_disease,
    "vehicle": natural.vehicle,
    "cracker": natural.cracker,
}


def names():
    """The names that :func:`load` knows; the first three come with packages.

    >>> names()[:4]
    ('digits', 'mnist5k', 'watch', 'mnist')
    """
    return (*_WITH_PACKAGES, *_FROM_FILES)


def load(name, root=None, download=True, **options):
    """The data set of that name, or a user's own ``.npz`` file by its path.

    Files are looked for in ``root``, in the folder that the environment variable PFL_DATA names,
    and in the cache (PFL_CACHE, or ~/.cache/pfl_lib), to which a missing set is downloaded unless
    ``download=False``.
    ``options``: ``length`` and ``words`` of ``"ag_news"``; ``seconds`` and ``test`` of ``"watch"``;
    ``test`` (the share for testing), ``split`` of ``"har"``, ``missing`` of ``"heart_disease"``.
    The page on data sets says what each of them holds and what it may be used for.

    >>> load("digits")  # doctest: +ELLIPSIS
    Dataset(digits: 1,438 training and 359 test samples of 1×8×8 (image), 10 classes; ...)
    """
    _check.flag("download", download)
    if root is not None:
        root = _check.path("root", root)
    loader = {**_WITH_PACKAGES, **_FROM_FILES}.get(name) if isinstance(name, str) else None
    known = set(inspect.signature(loader).parameters) - {"root", "download"} if loader else set()
    if options.keys() - known:
        raise TypeError(
            f"load({name!r}) takes no option {', '.join(sorted(options.keys() - known))}"
            + (f"; it takes {', '.join(sorted(known))}" if known else "")
        )
    if isinstance(name, os.PathLike) or str(name).endswith(".npz"):
        path = Path(name).expanduser()
        return own.load(Path(root) / path if root and not path.is_file() else path)
    _check.one_of("name", name, names())
    if name in _WITH_PACKAGES:
        return _WITH_PACKAGES[name](**options)
    return _FROM_FILES[name](root=root, download=download, **options)
