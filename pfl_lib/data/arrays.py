"""Data in memory: NumPy, torch or pandas, with or without natural clients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib._dealing import sides
from pfl_lib.data.dataset import KINDS, SPLITS, Column, Dataset
from pfl_lib.data.own import image_array, moments


def from_arrays(
    x: Any,
    y: Any,
    client: Any = None,
    *,
    name: str = "own",
    kind: str | None = None,
    test: Any = 0.25,
    split: str = "random",
    group: Any = None,
    columns: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    missing: str = "refuse",
    vocabulary: int | None = None,
    weight: Any = None,
    note: str = "",
    seed: int = 0,
) -> Dataset:
    """A :class:`Dataset` from arrays: NumPy or torch, or a pandas DataFrame of features.

    ``x``: features (n, features), time series (n, channels, time), images (n, height, width) or
    (n, channels, height, width) as whole numbers 0..255 or numbers in 0..1, or token ids
    (n, length).  ``kind`` says which: ``"tabular"``, ``"series"``, ``"image"`` or ``"text"``; it
    has to be given only for whole numbers of shape (n, k), which may be features or token ids.
    ``y``: one label for each sample, whole numbers or words; ``classes`` names them in order.  Or
    targets of type float, (n,) or (n, k): numbers to be predicted (``loss="mse"``), or several
    labels at once, each 0.0 or 1.0 (``loss="bce"``); ``classes`` then names their columns.  Targets
    stay as they are; a share for testing is drawn without a look at them.
    ``client``: whose sample it is, whole numbers or words; ``columns``: what else is known about
    each sample, by name.  ``weight``: how much each sample counts in its client's training, a
    positive number; it changes the loss that is minimized, and neither the test nor how much a
    client counts among others.  ``y``, ``client``, ``group`` and ``weight`` may name a column, too;
    of a DataFrame every column that is not named is a feature.

    Rows are matched by position; pandas objects must have the same index.

    ``test``: the share for testing, or a mask that says which samples are.  ``split`` says how a
    share is cut, client by client: ``"random"`` (every class alike), ``"time"`` (the last samples
    of each client, in the order given) or ``"group"``: whole groups of samples that belong
    together, such as overlapping windows of one recording or the scans of one patient, so that none
    lies on both sides, also where several clients hold samples of it.  What is later held out of
    the training part (``hold_out``, ``tune``) is cut in the same way.

    Features and series are standardised by the training part alone, each feature or channel by
    itself; what is constant becomes 0.  ``missing``: what becomes of NaN in features: ``"refuse"``,
    ``"mean"`` (the mean of the training part) or ``"flag"`` (the mean, and one more feature that is
    1 where the value was missing).

    >>> import numpy as np
    >>> x, y = np.arange(24.0).reshape(12, 2), np.array(["no", "yes"] * 6)
    >>> data = from_arrays(x, y, client=["ann", "bob", "cid"] * 4, name="toy")
    >>> data.n_train, data.n_test, data.kind, data.classes
    (9, 3, 'tabular', ('no', 'yes'))
    >>> data.columns["client"].names
    ('ann', 'bob', 'cid')
    """
    for what, text in (("name", name), ("note", note)):
        if not isinstance(text, str):
            raise TypeError(f"{what} must be text, got {text!r}")
    if vocabulary is not None:
        _check.whole("vocabulary", vocabulary)
    if classes is not None:
        classes = _check.several("classes", classes, "names")
        if not all(isinstance(name, (str, int, float, np.generic)) for name in classes):
            raise TypeError(f"classes must be names, as text or numbers, got {classes!r}")
        if len(set(map(str, classes))) < len(classes):
            raise ValueError(f"classes must differ from one another, got {classes!r}")
    arguments = {"y": y, "client": client, "group": group, "weight": weight}
    _check_indexes(columns, x=x, test=test, **arguments)
    x, taken = _table(x, arguments, columns)
    weights = None if weight is None else _weights(taken.pop("weight"))
    kind = _kind(x, kind)
    label_names, y = _labels_or_targets(taken.pop("y"), classes)
    n = len(x)
    own = {key: _column(key, values) for key, values in taken.items()}
    each = {"y": y, **{key: column.values for key, column in own.items()}}
    for what, values in (each if weights is None else {**each, "weight": weights}).items():
        if len(values) != n:
            raise ValueError(
                f"{what} must be one for each of {n:,} samples in x, got {len(values):,}"
            )
    client_column = _named("client", client)
    whose = own[client_column].values if client_column else torch.zeros(n, dtype=torch.int64)
    among = own[_named("group", group)].values if group is not None else None
    _check.whole("seed", seed, at_least=0)
    classes_of = torch.zeros(n, dtype=torch.int64) if y.is_floating_point() else y
    tested = _tested(test, split, classes_of, whose, among, seed)
    if kind == "tabular":
        x = _filled(x, tested, missing)
    order = torch.cat([(~tested).nonzero().squeeze(1), tested.nonzero().squeeze(1)])
    x, more = _samples(x[order.numpy()], kind, int((~tested).sum()), vocabulary)
    if more.get("note"):
        note = "; ".join(filter(None, (note, more.pop("note"))))
    return Dataset(
        name=name,
        x=x,
        y=y[order],
        n_train=int((~tested).sum()),
        classes=label_names,
        kind=kind,
        columns={key: Column(c.values[order], c.names) for key, c in own.items()},
        client=client_column,
        together=_named("group", group),
        split=split,
        weights=None if weights is None else weights[order],
        **{"note": note, **more},
    )


def _named(argument, value):
    """Under which name a column is kept: its own, or that of the argument."""
    if value is None:
        return ""
    return value if isinstance(value, str) else argument


def _check_indexes(columns, **given):
    """Refuse pandas objects whose rows would be matched by position against their indexes."""
    if not isinstance(columns, (Mapping, type(None))):
        raise TypeError(f"columns must be a dictionary of columns, got {columns!r}")
    first, *others = [
        (name, value)
        for name, value in {**given, **(columns or {})}.items()
        if hasattr(value, "iloc") and hasattr(value, "index")
    ] or [("", None)]
    for name, value in others:
        if len(value) == len(first[1]) and not value.index.equals(first[1].index):
            raise ValueError(
                f"{name} must have the index of {first[0]}: rows are matched by position. Give "
                f"{name}.loc[{first[0]}.index], or {name}.to_numpy() if positions are meant"
            )


def _table(x, arguments, columns):
    """The inputs as an array, and the columns that were given or named, label included."""
    known = dict(columns or {})
    frame = hasattr(x, "columns") and hasattr(x, "to_numpy")
    taken = dict(known)
    for argument, value in arguments.items():
        if value is None and argument != "y":
            continue
        kept_as = argument if argument in ("y", "weight") else value
        if not isinstance(value, str):
            taken[argument] = value
        elif value in known:
            taken[kept_as] = known[value]
        elif frame and value in x.columns:
            taken[kept_as] = x[value].to_numpy()
        else:
            there = [*known, *(map(str, x.columns) if frame else ())]
            raise ValueError(
                f"{argument} must be one value for each sample or the name of a column "
                f"({', '.join(there) or 'there are none'}), got {value!r}"
            )
    if not frame:
        return _array("x", x), taken
    twice = x.columns[x.columns.duplicated()].unique()
    if len(twice):
        raise ValueError(
            f"x must name each column once; several are called {', '.join(map(str, twice))}"
        )
    named = {value for value in arguments.values() if isinstance(value, str)}
    features = x[[column for column in x.columns if column not in named]]
    other = [f"{c} ({features[c].dtype})" for c in features if features[c].dtype.kind not in "biuf"]
    if other:
        raise TypeError(
            f"x must hold numbers; columns that do not: {', '.join(other)}. Write words as numbers "
            "(pandas.get_dummies) and dates as days since one of them, or drop these columns"
        )
    return features.to_numpy(dtype=np.float64), taken


def _array(argument, value):
    if isinstance(value, torch.Tensor):
        value = _check.numbers(argument, value).detach().cpu()
        value = (value.float() if value.dtype is torch.bfloat16 else value).numpy()
    if isinstance(value, np.ma.MaskedArray):  # what is masked is not there
        if value.dtype.kind != "f":
            _refuse_missing(argument, np.ma.getmaskarray(value).reshape(len(value), -1).any(1))
        value = value.filled(np.nan) if value.dtype.kind == "f" else value.data
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == object and array.ndim == 1:
        _refuse_missing(argument, [_is_missing(v) for v in array])
        if all(isinstance(v, str) for v in array):
            array = array.astype(str)  # as pandas keeps words
    if array.ndim == 0 or array.dtype.kind not in "biufUS" or len(array) == 0:
        raise TypeError(
            f"{argument} must be an array, a tensor or a list with one entry for each sample, "
            f"got {type(value).__name__}"
            + (
                f" of {type(array.flat[0]).__name__}; [str(v) for v in ...] makes words of them"
                if array.ndim == 1 and array.size and array.dtype.kind in "OMm"
                else f" of {array.dtype}" * (array.ndim > 1)
            )
        )
    return array


def _is_missing(v):
    """What stands for a value that is not there: None, NaN, and what pandas has for it."""
    gone = isinstance(v, float) and v != v
    return v is None or gone or type(v).__name__ in ("NAType", "NaTType")


def _refuse_missing(argument, missing):
    if any(missing):
        raise ValueError(
            f"{argument} must have a value for each sample, {sum(missing):,} of {len(missing):,} "
            "are missing: drop these samples, or fill them in"
        )


def _kind(x, kind):
    if kind is not None:
        _check.one_of("kind", kind, KINDS)
    whole = x.dtype.kind in "biu"
    if kind is None:
        by_axes = {3: "image" if whole else "series", 4: "image"}
        if x.ndim == 2 and whole:
            raise ValueError(
                "kind must be given for whole numbers of shape (n, k): 'tabular' for features, "
                "'text' for token ids"
            )
        kind = "tabular" if x.ndim == 2 else by_axes.get(x.ndim)
    axes = {"tabular": (2,), "text": (2,), "series": (3,), "image": (3, 4)}
    if kind is None or x.ndim not in axes[kind] or x.dtype.kind not in "biuf" or not x.size:
        raise ValueError(
            "x must be numbers: features (n, features), series (n, channels, time), images "
            "(n, height, width) or (n, channels, height, width), or token ids (n, length); got "
            f"{x.dtype} of shape {x.shape}" + (f" for kind={kind!r}" if kind else "")
        )
    return kind


def _labels_or_targets(values, classes):
    """Names and labels (int64), or names of the columns and targets (float32)."""
    y = _array("y", values)
    if y.dtype.kind != "f":
        return _labels(values, classes)
    if y.ndim in (1, 2):
        _refuse_missing("y", np.isnan(y).reshape(len(y), -1).any(1).tolist())
    if y.ndim not in (1, 2) or y.size == 0 or not np.isfinite(y).all():
        raise ValueError(
            "y must be finite where it is of type float, targets of shape (n,) or (n, k); got "
            f"{y.dtype} of shape {y.shape}"
        )
    if np.abs(y).max() > _check.LARGEST:
        raise ValueError(f"y must hold numbers that float32 can, got {np.abs(y).max():g}")
    columns = 1 if y.ndim == 1 else y.shape[1]
    names = tuple(map(str, range(columns) if classes is None else classes))
    if len(names) != columns:
        raise ValueError(f"classes must name the {columns} columns of y, got {len(names)} names")
    return names, torch.from_numpy(y.astype(np.float32))


def _labels(values, classes):
    """Names of the classes, and labels as int64."""
    y = _array("y", values)
    if y.ndim != 1:
        raise ValueError(
            "y must be one label for each sample, whole numbers or words, or targets of type "
            f"float (y.astype(float)); got {y.dtype} of shape {y.shape}"
        )
    whole = y.dtype.kind in "biu"
    if classes is None:
        found = np.unique(y)
        if whole and int(found[0]) >= 0 and int(found[-1]) < 2 * len(found):
            return tuple(map(str, range(int(found[-1]) + 1))), torch.from_numpy(y.astype(np.int64))
        classes = tuple(map(str, found))
        return classes, torch.from_numpy(np.searchsorted(found, y).astype(np.int64))
    classes = tuple(map(str, classes))
    if whole:
        if int(y.min()) < 0 or int(y.max()) >= len(classes):
            raise ValueError(
                f"y must lie in 0..{len(classes) - 1}, the numbers of classes; "
                f"got {y.min()}..{y.max()}"
            )
        return classes, torch.from_numpy(y.astype(np.int64))
    number = {label: i for i, label in enumerate(classes)}
    strange = sorted({str(label) for label in y} - set(number))
    if strange:
        raise ValueError(f"y has labels that classes does not name: {', '.join(strange[:5])}")
    return classes, torch.tensor([number[str(label)] for label in y])


def _weights(values):
    """How much each sample counts, as float32."""
    w = _array("weight", values)
    if w.ndim != 1 or w.dtype.kind not in "iuf" or not (np.isfinite(w) & (w > 0)).all():
        raise ValueError(
            "weight must be one positive finite number for each sample, got "
            + (f"{w.min()} to {w.max()}" if w.dtype.kind in "iuf" else str(w.dtype))
            + f", of shape {w.shape}"
        )
    return torch.from_numpy(w.astype(np.float32))


def _column(name, values):
    values = _array(name, values)
    if values.ndim == 1 and values.dtype.kind == "f":  # whole numbers with gaps, in pandas
        _refuse_missing(name, np.isnan(values).tolist())
    if values.ndim != 1 or values.dtype.kind == "f":
        raise ValueError(
            f"{name} must be one whole number or word for each sample, got {values.dtype} of shape "
            f"{values.shape}"
        )
    found, codes = np.unique(values, return_inverse=True)
    return Column(torch.from_numpy(codes.astype(np.int64)), tuple(map(str, found)))


def _tested(test, split, y, whose, among, seed):
    """Which samples are for testing, as a mask."""
    _check.one_of("split", split, SPLITS)
    if not np.isscalar(test):
        mask = _array("test", test)
        if mask.dtype != bool or mask.shape != (len(y),) or mask.all():
            raise ValueError(
                f"test must be a share or a mask of shape ({len(y)},) that leaves something to "
                f"train on, got {mask.dtype} of shape {mask.shape}"
            )
        return torch.from_numpy(mask.copy())  # pandas hands out arrays that are read-only
    if (split == "group") != (among is not None):
        raise ValueError(
            "group must say which samples belong together if and only if split='group'; "
            f"got split={split!r}" + ("" if among is None else " with a group")
        )
    share = _check.between("test", test, 0, 1, "()")
    rows = [(whose == i).nonzero().squeeze(1) for i in range(int(whose.max()) + 1)]
    options = {"groups": among, "by_time": split == "time"}
    return sides(y, rows, share, seed, "from_arrays", **options)


def _filled(x, tested, missing):
    """Features without NaN."""
    _check.one_of("missing", missing, ("refuse", "mean", "flag"))
    x = x.astype(np.float64)
    gone = np.isnan(x)
    if not gone.any():
        return x
    if missing == "refuse":
        raise ValueError(
            f"missing='refuse': x has {int(gone.sum()):,} missing values (NaN); say missing='mean' "
            "or missing='flag', or fill them yourself"
        )
    seen = np.where(gone, 0.0, x)[~tested.numpy()]
    count = (~gone)[~tested.numpy()].sum(0)
    mean = seen.sum(0) / np.maximum(count, 1)
    flags = gone[:, gone.any(0)].astype(np.float64) if missing == "flag" else x[:, :0]
    return np.concatenate([np.where(gone, mean, x), flags], axis=1)


def _refuse_fine(x, axes, std):
    """Features that do vary, but by so little for their size that float32 would lose it."""
    largest = np.abs(x).max(axes)
    lost = (std > 1e-13 * largest) & (std <= 1e-6 * np.maximum(np.abs(x.mean(axes)), 1e-6))
    if lost.any():
        which = ", ".join(map(str, lost.nonzero()[0][:5].tolist()))
        first = lost.nonzero()[0][0]
        raise ValueError(
            f"x: feature {which} varies by less than float32 can tell apart ({std[first]:.2g} at "
            f"numbers up to {largest[first]:.3g}); subtract its mean and divide by its spread, or "
            "drop it"
        )


def _samples(x, kind, n_train, vocabulary):
    """The inputs as a tensor, and what a data set of that kind must know of them."""
    if kind == "text":
        if x.dtype.kind not in "iu":
            raise ValueError(f"x must hold whole numbers as token ids, got {x.dtype}")
        known = int(x.max()) + 1 if vocabulary is None else _check.whole("vocabulary", vocabulary)
        if int(x.min()) < 0 or int(x.max()) >= known:
            ids = "be 0 or more" if vocabulary is None else f"lie in 0..{known - 1}"
            raise ValueError(f"x: token ids must {ids}, got {x.min()}..{x.max()}")
        return torch.from_numpy(x.astype(np.int64)), {"vocabulary": known}
    if kind == "image":
        pixels, note = image_array("x", x)
        tensor = torch.from_numpy(pixels)
        mean, std = moments(tensor[:n_train])
        return tensor, {"mean": mean, "std": std, "note": note}
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        raise ValueError("x must hold finite numbers, got NaN or infinity")
    if np.abs(x).max() > _check.LARGEST:
        raise ValueError(f"x must hold numbers that float32 can, got {np.abs(x).max():g}")
    axes = (0,) if kind == "tabular" else (0, 2)
    mean, std = x[:n_train].mean(axes), x[:n_train].std(axes)
    _refuse_fine(x[:n_train], axes, std)
    std[std <= 1e-6 * np.maximum(np.abs(mean), 1e-6)] = 1.0  # what is constant becomes 0
    tensor = torch.from_numpy(x.astype(np.float32))
    return tensor, {"mean": tuple(mean.tolist()), "std": tuple(std.tolist())}
