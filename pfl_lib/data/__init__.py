"""Loading data sets: ``load(name)`` gives a :class:`Dataset`, ``names()`` says what there is."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pfl_lib import _check
from pfl_lib.data import ag_news, bundled, cifar, idx, own, tiny_imagenet
from pfl_lib.data.arrays import from_arrays
from pfl_lib.data.dataset import Column, Dataset

__all__ = ["Column", "Dataset", "from_arrays", "load", "names"]

_WITH_PACKAGES = {"digits": bundled.digits, "mnist5k": bundled.mnist5k}
_FROM_FILES: dict[str, Callable[..., Dataset]] = {
    "mnist": partial(idx.load, "mnist"),
    "fashion_mnist": partial(idx.load, "fashion_mnist"),
    "emnist": partial(idx.load, "emnist"),
    "cifar10": partial(cifar.load, "cifar10"),
    "cifar100": partial(cifar.load, "cifar100"),
    "tiny_imagenet": tiny_imagenet.load,
    "ag_news": ag_news.load,
}


def names():
    """The names that :func:`load` knows; the first two need no download.

    >>> names()[:4]
    ('digits', 'mnist5k', 'mnist', 'fashion_mnist')
    """
    return (*_WITH_PACKAGES, *_FROM_FILES)


def load(name, root=None, download=True, **options):
    """The data set of that name, or a user's own ``.npz`` file by its path.

    Files are looked for in ``root``, in the folder that the environment variable PFL_DATA names,
    and in the cache (PFL_CACHE, or ~/.cache/pfl_lib), to which a missing set is downloaded unless
    ``download=False``.
    ``options`` are for ``"ag_news"``: ``length`` and ``words``.

    >>> load("digits")  # doctest: +ELLIPSIS
    Dataset(digits: 1,438 training and 359 test samples of 1×8×8 (image), 10 classes; ...)
    """
    if options and name != "ag_news":
        raise TypeError(f"load({name!r}) takes no option {', '.join(sorted(options))}")
    if isinstance(name, os.PathLike) or str(name).endswith(".npz"):
        path = Path(name).expanduser()
        return own.load(Path(root) / path if root and not path.is_file() else path)
    _check.one_of("name", name, names())
    if name in _WITH_PACKAGES:
        return _WITH_PACKAGES[name]()
    return _FROM_FILES[name](root=root, download=download, **options)
