"""The table of a partition: which samples each client trains and is tested on."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pfl_lib import _check, _deprecated
from pfl_lib.data.own import read_arrays


@dataclass(frozen=True, eq=False)
class Partition:
    """Which samples each client trains and is tested on.

    ``train`` and ``test``: one int64 tensor of indices into ``data.x`` for each client.
    ``groups``: the hidden group of each client, or None.  ``labels``: what each client believes its
    training labels are (see :func:`label_noise`), or None for the true ones.
    ``ids``: who each client is in the data set (a writer, a hospital), or ().  ``source``: which
    data set it was made for (``data.identity()``); no other is accepted with it.  None: any.

    >>> train = [torch.tensor([0, 1]), torch.tensor([2])]
    >>> mine = Partition("mine", train, test=[torch.tensor([3]), torch.tensor([4])])
    >>> mine.m
    2
    """

    name: str
    train: Sequence[torch.Tensor]  # kept as a tuple
    test: Sequence[torch.Tensor]
    groups: torch.Tensor | None = None
    labels: Sequence[torch.Tensor] | None = None
    seed: int = 0
    about: str = ""
    ids: Sequence[str] = ()
    source: Mapping[str, Any] | None = None

    def __post_init__(self):
        for field in ("train", "test", "labels"):
            rows = getattr(self, field)
            if rows is None and field == "labels":
                continue
            rows = _check.several(field, rows, "tensors, one for each client")
            object.__setattr__(self, field, rows)
            if len(rows) != len(self.train):
                raise ValueError(f"{field} is for {len(rows)} clients, train for {self.m}")
            for i, row in enumerate(rows):
                if not isinstance(row, torch.Tensor):
                    raise TypeError(f"{field}[{i}] must be a tensor of int64, got {row!r}")
                if row.dtype != torch.int64 or row.ndim != 1:
                    raise ValueError(
                        f"{field}[{i}] must be a list of int64, got {row.dtype} of shape "
                        f"{tuple(row.shape)}"
                    )
                if field == "labels" and len(row) != len(self.train[i]):
                    raise ValueError(
                        f"labels[{i}] must be one for each of the client's {len(self.train[i])} "
                        f"training samples, got {len(row)}"
                    )
        if self.groups is not None and getattr(self.groups, "shape", None) != (self.m,):
            raise ValueError(
                f"groups must be a tensor with one number for each of {self.m} clients, got "
                f"{self.groups!r}"
            )
        object.__setattr__(self, "ids", _check.several("ids", self.ids, "names"))
        if not all(isinstance(name, str) for name in self.ids):
            raise TypeError(f"ids must be names, as text, got {self.ids!r}")
        if self.ids and len(self.ids) != self.m:
            raise ValueError(f"ids must be one for each of {self.m} clients, got {len(self.ids)}")

    @property
    def m(self):
        """Number of clients."""
        return len(self.train)

    def counts(self, data, part="train"):
        """How many samples of each class each client holds: an int64 (m, classes) tensor."""
        _check.one_of("part", part, ("train", "test"))
        if not hasattr(data, "labeled"):
            raise TypeError(f"data must be a Dataset, got {data!r}")
        if not data.labeled:
            raise ValueError(f"data must have class labels to be counted; {data.name} has targets")
        rows = [torch.bincount(data.y[i], minlength=len(data.classes)) for i in getattr(self, part)]
        return torch.stack(rows)

    draw = _deprecated.moved("Partition.draw", "book.plots.partition_bubbles")

    def check_source(self, data):
        """Raise an error if this partition was made for another data set than ``data``.

        The same samples in another form (half their size, under other labels) are the same set.
        """
        made, here = self.source, data.identity()
        if made is None:
            return self
        same = all(made.get(key) == here[key] for key in ("samples", "n_train"))
        if not same or not any(made.get(key) == here[key] for key in ("inputs", "labels")):
            raise ValueError(
                f"partition {self.name!r} was made for {made.get('name')} with "
                f"{made.get('samples'):,} samples ({made.get('n_train'):,} of them for training), "
                f"data is {data.name} with {len(data):,} ({data.n_train:,}) and other samples: its "
                "indices mean nothing here; split this data set"
            )
        return self

    def check_apart(self):
        """Raise an error if a client holds a sample twice, or is tested on one it trains on."""
        parts = [(torch.arange(self.m), rows) for rows in (self.train, self.test)]
        whose = [i.repeat_interleave(torch.tensor([len(own) for own in rows])) for i, rows in parts]
        both = torch.stack([torch.cat(whose), torch.cat([*self.train, *self.test])])
        if self.m and both.unique(dim=1).shape != both.shape:
            for i, (train, test) in enumerate(zip(self.train, self.test)):
                for part, rows in (("training", train), ("test", test)):
                    if len(rows.unique()) != len(rows):
                        raise ValueError(f"client {i} holds a {part} sample twice")
                if shared := int(torch.isin(test, train).sum()):
                    raise ValueError(
                        f"client {i} is tested on {shared:,} samples that it trains on: give it "
                        "others in test (or pfl_lib.partition.hold_out)"
                    )
        return self

    def check(self, data):
        """Raise an error if these indices do not fit ``data``, repeat, or leak test samples."""
        self.check_source(data).check_apart()
        trained = torch.zeros(len(data), dtype=torch.bool)
        for part in ("train", "test"):
            for i, index in enumerate(getattr(self, part)):
                if len(index) == 0:
                    raise ValueError(f"client {i} has no {part} sample")
                low, high = int(index.min()), int(index.max())
                if low < 0 or high >= len(data):
                    raise ValueError(
                        f"client {i}: {part} indices {low}..{high} do not fit {data.name} with "
                        f"{len(data):,} samples"
                    )
                if part == "train":
                    trained[index] = True
                elif bool(trained[index].any()):
                    raise ValueError(f"client {i} is tested on a sample that some client trains on")
        return self

    def describe(self, data=None):
        """Clients, sizes and groups; with ``data`` also classes per client and label noise."""
        lines = [f"{self.m} clients ({self.name}, seed {self.seed}): {self.about}."]
        for part, word in (("train", "training"), ("test", "test")):
            sizes = torch.tensor([len(i) for i in getattr(self, part)])
            low, high = int(sizes.min()), int(sizes.max())
            middle = float(sizes.double().quantile(0.5))
            spread = f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,g})"
            lines.append(f"{spread} {word} samples per client, {int(sizes.sum()):,} in all.")
        if data is not None and data.labeled:
            held = (self.counts(data) > 0).sum(1)
            low, high = int(held.min()), int(held.max())
            spread = f"{low}" if low == high else f"{low} to {high}"
            lines.append(f"{spread} of {len(data.classes)} classes per client.")
        if self.groups is not None:
            members = torch.bincount(self.groups).tolist()
            same = len(set(members)) == 1
            words = f"{members[0]} each" if same else ", ".join(map(str, members))
            lines.append(f"{len(members)} hidden groups of clients: {words}.")
        if self.labels is not None and data is not None:
            wrong = [int((own != data.y[i]).sum()) for own, i in zip(self.labels, self.train)]
            lines.append(
                f"{sum(w > 0 for w in wrong)} clients have wrong labels, {sum(wrong):,} in all."
            )
        return " ".join(lines)

    def save(self, path):
        """Write an .npz file without pickles, atomically."""
        path = _check.file("path", path)
        arrays = {
            "about": np.array(json.dumps([self.name, self.seed, self.about])),
            **_joined("train", self.train),
            **_joined("test", self.test),
        }
        if self.groups is not None:
            arrays["groups"] = self.groups.numpy()
        if self.ids or self.source is not None:
            source = None if self.source is None else dict(self.source)
            arrays["origin"] = np.array(json.dumps([list(self.ids), source]))
        if self.labels is not None:
            arrays["labels"] = torch.cat(tuple(self.labels)).numpy()
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with open(aside, "wb") as file:
                np.savez_compressed(file, **arrays)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path):
        """Read what :meth:`save` wrote."""
        path = _check.path("path", path)
        needed = ("about", "train", "train_sizes", "test", "test_sizes")
        arrays = read_arrays(path, needed, ("groups", "labels", "origin"))
        try:
            name, seed, about = json.loads(str(arrays["about"]))
            ids, source = json.loads(str(arrays.get("origin", "[[], null]")))
            if source is not None and {type(source[k]) for k in ("samples", "n_train")} != {int}:
                raise ValueError(f"origin should describe a data set, got {source!r}")
            for key in arrays.keys() - {"about", "origin"}:
                if arrays[key].dtype != np.int64 or arrays[key].ndim != 1:
                    raise ValueError(f"{key} should be a list of int64")
            parts = {"train": arrays["train"], "test": arrays["test"]}
            if "labels" in arrays:
                parts["labels"] = arrays["labels"]
            rows = {}
            for key, joined in parts.items():
                sizes = arrays["test_sizes" if key == "test" else "train_sizes"]
                if (sizes < 0).any() or sizes.sum() != len(joined):
                    raise ValueError(f"the clients' sizes do not add up to {key}")
                rows[key] = torch.from_numpy(joined).split(sizes.tolist())
            groups = torch.from_numpy(arrays["groups"]) if "groups" in arrays else None
            more = {"ids": tuple(map(str, ids)), "source": source}
            return cls(name=name, seed=seed, about=about, groups=groups, **more, **rows)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: not a saved partition ({error})") from error

    def __repr__(self):
        return f"Partition({self.describe()})"


def load(path):
    """The partition that :meth:`Partition.save` wrote.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> path = Path(tempfile.mkdtemp()) / "clients.npz"
    >>> pfl_lib.partition.iid(data, clients=4).save(path)
    >>> load(path).name
    'iid'
    """
    return Partition.load(path)


def _joined(name, rows):
    return {name: torch.cat(rows).numpy(), f"{name}_sizes": np.array([len(r) for r in rows])}
