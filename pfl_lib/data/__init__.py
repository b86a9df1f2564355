"""Loading data sets: ``load(name)`` gives a :class:`Dataset`, ``names()`` says what there is."""

from pfl_lib import _check
from pfl_lib.data import bundled
from pfl_lib.data.dataset import Dataset

__all__ = ["Dataset", "load", "names"]

_LOADERS = {"digits": lambda root: bundled.digits(), "mnist5k": lambda root: bundled.mnist5k()}


def names():
    """The names that :func:`load` knows."""
    return tuple(_LOADERS)


def load(name, root=None):
    """The data set of that name."""
    _check.one_of("name", name, _LOADERS)
    return _LOADERS[name](root)
