"""Data sets of Hugging Face's package ``datasets``, read into memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfl_lib.data.arrays import from_arrays
from pfl_lib.data.dataset import Dataset


def from_huggingface(
    table: Any,
    x: str | Sequence[str],
    y: str,
    client: str | None = None,
    *,
    columns: Sequence[str] = (),
    **options: Any,
) -> Dataset:
    """A :class:`Dataset` from a ``datasets.Dataset``, or a ``DatasetDict`` with "train" and "test".

    ``x`` names the column of inputs (images, series, token ids), or several columns of numbers that
    are features; ``y`` that of the labels, whose names are kept; ``client`` the one that says whose
    sample it is; ``columns`` others to keep.  The rest goes to :func:`from_arrays`: ``test``,
    ``split``, ``group`` (a column that is kept), ``kind``, ``missing``.  A DatasetDict keeps its
    own split.

        table = datasets.load_dataset("ylecun/mnist")
        data = pfl_lib.data.from_huggingface(table, x="image", y="label")

    >>> class Table:  # what is asked of a datasets.Dataset
    ...     column_names, features = ["a", "b", "sick", "ward"], {}
    ...     def with_format(self, kind):
    ...         return {name: np.arange(8.0) for name in "ab"} | {
    ...             "sick": np.arange(8) % 2, "ward": np.arange(8) // 4}
    >>> data = from_huggingface(Table(), x=["a", "b"], y="sick", client="ward")
    >>> data.n_train, data.shape, data.columns["ward"].names
    (6, (2,), ('0', '1'))
    """
    parts, options = _parts(table, options)
    inputs = [x] if isinstance(x, str) else _names("x", x)
    group = options.get("group")
    named = (client, group if isinstance(group, str) else None)
    kept = dict.fromkeys([*_names("columns", columns), *(n for n in named if n is not None)])
    for name in (*inputs, y, *kept):
        for part in parts:
            if name not in part.column_names:
                there = ", ".join(part.column_names)
                raise ValueError(f"table must have a column {name!r}; it has {there}")

    def read(name):
        return np.concatenate([np.asarray(part.with_format("numpy")[name][:]) for part in parts])

    arrays = [read(name) for name in inputs]
    for name, array in zip(inputs, arrays):
        if array.dtype == object:
            raise ValueError(
                f"column {name!r} must hold numbers, all of one shape; make images the same size, "
                "or pad series, with table.map(...) first"
            )
    values = arrays[0] if isinstance(x, str) else np.column_stack(arrays)
    if values.ndim == 4 and values.shape[-1] in (1, 3, 4):  # pictures come with channels last
        values = np.moveaxis(values, -1, 1)
    names = getattr(parts[0].features.get(y), "names", None)
    return from_arrays(
        values,
        read(y),
        client,
        columns={name: read(name) for name in kept},
        **{"classes": names, "name": "huggingface", **options},
    )


def _names(argument, value):
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{argument} must be names of columns, got {value!r}")
    return list(value)


def _parts(table, options):
    """The parts of a table, and the options with their split where there are two."""
    if isinstance(table, Mapping):
        if not {"train", "test"} <= set(table):
            raise ValueError(
                "table must have the parts 'train' and 'test', or be one of its parts; it has "
                f"{', '.join(map(repr, table))}"
            )
        if "test" in options or "split" in options:
            raise ValueError(
                "test and split must not be given where table has parts 'train' and 'test' already"
            )
        parts = [table["train"], table["test"]]
    else:
        parts = [table]
    for part in parts:
        if not hasattr(part, "with_format") or not hasattr(part, "column_names"):
            raise TypeError(
                "table must be a datasets.Dataset or DatasetDict of Hugging Face, got "
                f"{type(part).__name__}"
            )
    if len(parts) == 2:
        sizes = [len(part) for part in parts]
        options = {**options, "test": np.repeat([False, True], sizes)}
    return parts, options
