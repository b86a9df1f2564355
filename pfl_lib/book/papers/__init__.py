"""What the papers print: their settings (``settings``) and their result tables (``table``)."""

from pfl_lib.book.papers._given import DATA, HOME, PARTITIONS, Schedule
from pfl_lib.book.papers._settings import Settings, search_grid, settings
from pfl_lib.book.papers._tables import PAPERS, Cell, Table, table, tables

__all__ = [
    "PAPERS",
    "Cell",
    "Schedule",
    "Settings",
    "Table",
    "names",
    "search_grid",
    "settings",
    "table",
    "tables",
]


def names():
    """Every name that ``settings`` and ``table`` understand, by kind.

    >>> names()["data"]
    ('mnist', 'fashion_mnist', 'emnist', 'cifar10', 'cifar100', 'tiny_imagenet', 'ag_news')
    """
    return {
        "methods": tuple(sorted(HOME)),
        "data": DATA,
        "partitions": PARTITIONS,
        "tables": tables(),
    }
