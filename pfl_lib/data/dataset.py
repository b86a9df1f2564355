"""What every loader returns: one pool of samples, the official training part first."""

import hashlib
from dataclasses import dataclass, replace

import torch

from pfl_lib import _deprecated


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
        dtype = torch.float32 if self.kind == "image" else torch.int64
        return torch.zeros(count, *self.shape, dtype=dtype)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples of one data set, held once in memory.

    ``x``: images as uint8 of shape (n, channels, height, width), or token ids as int64 of shape
    (n, length), 0 for padding and 1 for unknown words.  ``y``: labels as int64 of shape (n,).
    The first ``n_train`` rows are the official training part, the others the official test part.
    ``mean`` and ``std``: per channel, of pixels on the scale 0..1.  ``note``: what is not official
    about these samples ("" if nothing).  ``coarse``: superclasses (CIFAR-100) or None.
    ``vocabulary``: number of token ids (text), 0 for images.

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

    def __post_init__(self):
        n = len(self.x)
        if self.kind not in ("image", "text"):
            raise ValueError(f"kind must be 'image' or 'text', got {self.kind!r}")
        dtype, ndim = (torch.uint8, 4) if self.kind == "image" else (torch.int64, 2)
        if self.x.dtype != dtype or self.x.ndim != ndim:
            raise ValueError(
                f"x of {self.name}: {self.kind} data must be a {dtype} tensor with {ndim} axes, "
                f"got {self.x.dtype} of shape {tuple(self.x.shape)}"
            )
        for name in ("y", "coarse"):
            labels = getattr(self, name)
            if labels is None and name == "coarse":
                continue
            if labels.dtype != torch.int64 or labels.shape != (n,):
                raise ValueError(
                    f"{name} of {self.name} must be int64 of shape ({n},), "
                    f"got {labels.dtype} of shape {tuple(labels.shape)}"
                )
        if not 0 < self.n_train <= n:
            raise ValueError(f"n_train must lie in [1, {n}], got {self.n_train!r}")
        low, high = int(self.y.min()), int(self.y.max())
        if low < 0 or high >= len(self.classes):
            raise ValueError(
                f"y of {self.name}: labels must lie in [0, {len(self.classes) - 1}], "
                f"got {low}..{high}"
            )
        if self.kind == "image" and not len(self.mean) == len(self.std) == self.x.shape[1]:
            raise ValueError(
                f"mean and std of {self.name} need one number for each of the "
                f"{self.x.shape[1]} channels, got {self.mean!r} and {self.std!r}"
            )

    def checksum(self):
        """A short name for exactly these samples and labels.

        >>> import pfl_lib
        >>> pfl_lib.data.load("digits").checksum()
        'dd60608e6918'
        """
        digest = hashlib.blake2b(digest_size=6)
        for tensor in (self.x, self.y):
            digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()

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
        """What a model reads: pixels (x/255 - mean) / std in ``dtype``; token ids unchanged."""
        if self.kind == "text":
            return x
        form = (-1, *([1] * (self.x.ndim - 2)))
        mean = torch.tensor(self.mean, dtype=dtype, device=x.device).reshape(form)
        std = torch.tensor(self.std, dtype=dtype, device=x.device).reshape(form)
        return (x.to(dtype) / 255 - mean) / std

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
        return (
            f"Dataset({self.name}: {self.n_train:,} training and {self.n_test:,} test samples of "
            f"{form} ({self.kind}), {len(self.classes)} classes{note})"
        )
