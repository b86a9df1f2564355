"""What every loader returns: one pool of samples, the official training part first."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from pfl_lib import _check, _deprecated


@dataclass(frozen=True)
class SampleForm:
    """What a model must know of a data set to be built: the form of a sample, and the classes.

    >>> import pfl_lib
    >>> pfl_lib.data.load("digits").form.blank(3).shape
    torch.Size([3, 1, 8, 8])
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    classes: tuple
    vocabulary: int = 0

    def blank(self, count: int) -> torch.Tensor:
        """A batch of ``count`` samples as a model reads them, all zero."""
        dtype = torch.int64 if self.kind == "text" else torch.float32
        return torch.zeros(count, *self.shape, dtype=dtype)


#: kind of data: type and number of axes of ``x``
KINDS = {
    "image": (torch.uint8, 4),
    "text": (torch.int64, 2),
    "tabular": (torch.float32, 2),
    "series": (torch.float32, 3),
}
#: How a data set's test part was cut off, which later cuts repeat.
SPLITS = ("random", "time", "group")


class Column(NamedTuple):
    """What is known about each sample beside its label: who wrote it, where it was taken.

    ``values``: int64 of shape (n,), numbers from 0.  ``names``: what each number stands for.

    >>> Column(torch.tensor([0, 1, 0]), ("ann", "bob")).names[1]
    'bob'
    """

    values: torch.Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples of one data set, held once in memory.

    ``x``: images as uint8 of shape (n, channels, height, width); token ids as int64 of shape
    (n, length), 0 for padding and 1 for unknown words; features as float32 of shape (n, features),
    kind ``"tabular"``; time series as float32 of shape (n, channels, time), kind ``"series"``.
    ``y``: labels as int64 of shape (n,); or targets as float32 of shape (n,) or (n, k), numbers to
    be predicted (``labeled`` is False), whose columns ``classes`` names.
    The first ``n_train`` rows are the official training part, the others the official test part.
    ``mean`` and ``std``: per channel or feature; of pixels on the scale 0..1.  ``note``: what is
    not official about these samples ("" if nothing).  ``coarse``: superclasses (CIFAR-100) or None.
    ``vocabulary``: number of token ids (text), otherwise 0.
    ``columns``: what else is known about each sample, by name (``"writer"``, ``"subject"``).
    ``client``: the column that says whose sample it is, "" where it is unknown.  ``together``: the
    column of samples that belong together, such as overlapping windows of one recording: no split
    may put them on both sides ("" if there is none).  ``split``: "time" where the samples come in
    the order of time and a client is tested on its last: what is held out is then the last, too.
    ``weights``: how much each sample counts in training, positive float32 of shape (n,), or None:
    all alike.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> data.x.shape, data.x.dtype, data.n_train
    (torch.Size([1797, 1, 8, 8]), torch.uint8, 1438)
    >>> data.y[:5]
    tensor([8, 4, 2, 8, 0])
    """

    name: str
    x: torch.Tensor
    y: torch.Tensor
    n_train: int
    classes: tuple
    kind: str = "image"
    mean: tuple = ()
    std: tuple = ()
    note: str = ""
    coarse: torch.Tensor | None = None
    vocabulary: int = 0
    columns: Mapping[str, Column] = field(default_factory=dict)
    client: str = ""
    together: str = ""
    weights: torch.Tensor | None = None
    split: str = "random"

    def __post_init__(self):
        n = len(self.x)
        _check.one_of("split", self.split, SPLITS)
        if self.kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"kind must be one of {known}, got {self.kind!r}")
        dtype, ndim = KINDS[self.kind]
        if self.x.dtype != dtype or self.x.ndim != ndim:
            raise ValueError(
                f"x of {self.name}: {self.kind} data must be a {dtype} tensor with {ndim} axes, "
                f"got {self.x.dtype} of shape {tuple(self.x.shape)}"
            )
        for name in ("y", "coarse"):
            labels = getattr(self, name)
            if labels is None and name == "coarse":
                continue
            if name == "y" and not self.labeled:
                self._check_targets(n)
            elif labels.dtype != torch.int64 or labels.shape != (n,):
                raise ValueError(
                    f"{name} of {self.name} must be int64 of shape ({n},), "
                    f"got {labels.dtype} of shape {tuple(labels.shape)}"
                )
        if not 0 < self.n_train <= n:
            raise ValueError(f"n_train must lie in [1, {n}], got {self.n_train!r}")
        low, high = int(self.y.min()), int(self.y.max())
        if self.labeled and (low < 0 or high >= len(self.classes)):
            raise ValueError(
                f"y of {self.name}: labels must lie in [0, {len(self.classes) - 1}], "
                f"got {low}..{high}"
            )
        if self.kind != "text" and not len(self.mean) == len(self.std) == self.x.shape[1]:
            what = "features" if self.kind == "tabular" else "channels"
            raise ValueError(
                f"mean and std of {self.name} need one number for each of the "
                f"{self.x.shape[1]} {what}, got {self.mean!r} and {self.std!r}"
            )
        self._check_columns(n)
        self._check_weights(n)

    @property
    def groups(self):
        """Which samples belong together, by number; None where nothing is known of it."""
        return self.columns[self.together].values if self.together else None

    @property
    def labeled(self):
        """Is ``y`` the class of each sample?  Otherwise it holds targets.

        >>> import pfl_lib
        >>> pfl_lib.data.load("digits").labeled
        True
        """
        return not self.y.is_floating_point()

    def _check_targets(self, n):
        columns = self.y.shape[1:].numel()
        right = self.y.dtype == torch.float32 and self.y.ndim in (1, 2) and len(self.y) == n
        if not right or columns != len(self.classes) or not bool(torch.isfinite(self.y).all()):
            raise ValueError(
                f"y of {self.name}: targets must be finite float32 of shape ({n},) or "
                f"({n}, {len(self.classes)}), a column for each name in classes; got "
                f"{self.y.dtype} of shape {tuple(self.y.shape)}"
            )

    def _check_columns(self, n):
        for name, (values, names) in self.columns.items():
            if values.dtype != torch.int64 or values.shape != (n,):
                raise ValueError(
                    f"columns[{name!r}] of {self.name} must be int64 of shape ({n},), "
                    f"got {values.dtype} of shape {tuple(values.shape)}"
                )
            if int(values.min()) < 0 or int(values.max()) >= len(names):
                raise ValueError(
                    f"columns[{name!r}] of {self.name}: numbers must lie in "
                    f"[0, {len(names) - 1}], one for each of its names"
                )
        for field_name in ("client", "together"):
            named = getattr(self, field_name)
            if named and named not in self.columns:
                raise ValueError(
                    f"{field_name} of {self.name} must name one of its columns "
                    f"({', '.join(self.columns) or 'there are none'}), got {named!r}"
                )

    def _check_weights(self, n):
        w = self.weights
        if w is None:
            return
        if w.dtype != torch.float32 or w.shape != (n,):
            raise ValueError(
                f"weights of {self.name} must be float32 of shape ({n},), got {w.dtype} of shape "
                f"{tuple(w.shape)}"
            )
        if not bool((torch.isfinite(w) & (w > 0)).all()):
            raise ValueError(
                f"weights of {self.name} must be positive and finite, got "
                f"{w.min().item():g} to {w.max().item():g}"
            )

    def checksum(self):
        """A short name for exactly these samples, labels and weights.

        >>> import pfl_lib
        >>> pfl_lib.data.load("digits").checksum()
        'dd60608e6918'
        """
        digest = hashlib.blake2b(digest_size=6)
        for tensor in (self.x, self.y, *([] if self.weights is None else [self.weights])):
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()

    def identity(self):
        """What a partition remembers of the data set that it was made for.

        >>> import pfl_lib
        >>> pfl_lib.data.load("digits").identity()["samples"]
        1797
        """
        some = self.x[:: max(1, len(self.x) // 256)]  # all of it may be gigabytes
        short = lambda t: hashlib.blake2b(t.contiguous().numpy(), digest_size=6).hexdigest()  # noqa: E731
        return {
            "name": self.name,
            "samples": len(self.x),
            "n_train": self.n_train,
            "inputs": short(some),
            "labels": short(self.y),
        }

    @property
    def x_train(self):
        return self.x[: self.n_train]

    @property
    def y_train(self):
        return self.y[: self.n_train]

    @property
    def x_test(self):
        return self.x[self.n_train :]

    @property
    def y_test(self):
        return self.y[self.n_train :]

    @property
    def n_test(self):
        return len(self.x) - self.n_train

    @property
    def shape(self):
        """Shape of one sample."""
        return tuple(self.x.shape[1:])

    @property
    def form(self):
        """What a model must know of these samples to be built."""
        return SampleForm(self.name, self.kind, self.shape, self.classes, self.vocabulary)

    def normalized(self, x, dtype=torch.float32):
        """What a model reads: (x - mean) / std in ``dtype``, pixels over 255; token ids as is."""
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
            raise TypeError(f"x must be a tensor of samples, got {x!r}")
        if self.kind == "text":
            return x
        form = (-1, *([1] * (self.x.ndim - 2)))
        mean = torch.tensor(self.mean, dtype=dtype, device=x.device).reshape(form)
        std = torch.tensor(self.std, dtype=dtype, device=x.device).reshape(form)
        x = x.to(dtype) / 255 if self.kind == "image" else x.to(dtype)
        return (x - mean) / std

    normalised = _deprecated.renamed("normalised", normalized)

    def halved(self):
        """The same images at half the height and width, each pixel the mean of four: for trials
        that should be quick.

        >>> import pfl_lib
        >>> pfl_lib.data.load("digits").halved().shape
        (1, 4, 4)
        """
        if self.kind != "image":
            raise ValueError(f"{self.name} is {self.kind} data; only images can be halved")
        x = torch.nn.functional.avg_pool2d(self.x.float(), 2).round().to(torch.uint8)
        note = "; ".join(filter(None, (self.note, "images at half their height and width")))
        return replace(self, x=x, note=note)

    def __len__(self):
        return len(self.x)

    def __repr__(self):
        note = f"; {self.note}" if self.note else ""
        form = "×".join(map(str, self.shape))
        what = "classes" if self.labeled else "targets"
        natural = ""
        if self.client:
            natural = (
                f", natural clients: {len(self.columns[self.client].names):,} by {self.client}"
            )
        return (
            f"Dataset({self.name}: {self.n_train:,} training and {self.n_test:,} test samples of "
            f"{form} ({self.kind}), {len(self.classes)} {what}{natural}{note})"
        )
