"""States whose rows per client lie in memory-mapped files: ``run(..., state_folder=...)``.

To a method it is a ``State`` like any other.  Updates stay in memory until the round is over; then
the rows of its participants are written to their places.  Absent clients cost disk space only.
"""

import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pfl_lib.faults import FederationWrapper
from pfl_lib.methods.base import State

BLOCK = 1024  # clients whose initial models are made at a time


def mapped(folder, shape, dtype) -> Tensor:
    """A tensor of zeros in a file of ``folder``, removed when the tensor is freed."""
    count = torch.Size(shape).numel()
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(prefix="rows-", dir=folder)
    except OSError as error:
        why = f"got {str(folder)!r} ({error})"
        raise OSError(f"state_folder must be a folder that can be written to, {why}") from error
    try:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, not a crash later
            os.posix_fallocate(handle, 0, max(1, count * dtype.itemsize))
        return torch.from_file(path, shared=True, size=count, dtype=dtype).view(shape)
    except OSError as error:
        need = count * dtype.itemsize / 2**30
        raise OSError(
            f"state_folder {folder} has no room for the clients' rows, {need:.1f} GB ({error}); "
            "make room there, or name another folder"
        ) from error
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):  # Windows does not remove a file in use
            os.unlink(path)  # still mapped; nothing is left behind, however the run ends


@dataclass(eq=False)
class InitialOnDisk(FederationWrapper):
    """The federation ``fed``, whose initial models are made in a file, some at a time."""

    folder: Any

    def on_result(self, work, done, who):
        return done

    def initial(self, who=None):
        if who is not None:
            return self.fed.initial(who)
        w = mapped(self.folder, (self.fed.m, self.fed.d), self.fed.dtype)
        for some in self.fed.everyone.split(BLOCK):
            w[some] = self.fed.initial(some)
        return w


class DiskState(State):
    """``tensors``, of which those with a row for each of the ``m`` clients lie in ``folder``.

    >>> state = DiskState(tempfile.gettempdir(), 3, w=torch.zeros(3, 2), x=torch.ones(2))
    >>> state = state.put(torch.tensor([1]), w=torch.ones(1, 2))
    >>> state, changed = state.flushed()
    >>> state.w.tolist(), sorted(changed)
    ([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], ['w', 'x'])
    """

    def __init__(self, folder, m, **tensors):
        self._folder, self._m, self._files, self._pending = folder, m, {}, {}
        apart = {n: t if self._per_client(t) else t.clone() for n, t in tensors.items()}
        super().__init__(**apart)
        self._tensors = self._written()

    def _like(self, tensors, waiting):
        new = object.__new__(DiskState)
        new._folder, new._m, new._files = self._folder, self._m, self._files
        new._tensors, new._pending = tensors, waiting
        return new

    def put(self, who, **rows):
        self._check_rows(who, rows)
        waiting = {n: (*self._pending.get(n, ()), (who, r)) for n, r in rows.items()}
        return self._like(self._tensors, {**self._pending, **waiting})

    def set(self, **tensors):
        waiting = {n: w for n, w in self._pending.items() if n not in tensors}
        return self._like({**self._tensors, **tensors}, waiting)

    def __getitem__(self, name):
        tensor = self._tensors[name]
        for who, rows in self._pending.get(name, ()):  # read before the round is over
            tensor = tensor.index_copy(0, who, rows)
        return tensor

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._tensors:
            return super().__getattr__(name)
        return self[name]

    def flushed(self) -> tuple["DiskState", Mapping[str, Tensor]]:
        """This state with all pending rows written to disk, and the tensors that are new in it.

        Call it once the round is over: it also changes the states from before the round.
        """
        changed = {n: t for n, t in self._tensors.items() if t is not self._files.get(n)}
        for name, parts in self._pending.items():
            changed[name] = torch.cat([rows.reshape(len(rows), -1) for _, rows in parts])
        tensors = self._written()
        for name, parts in self._pending.items():
            for who, rows in parts:
                if name in self._files:
                    tensors[name].index_copy_(0, who, rows)
                else:
                    tensors[name] = tensors[name].index_copy(0, who, rows)
        return self._like(tensors, {}), changed

    def _per_client(self, tensor):
        return tensor.ndim > 1 and len(tensor) == self._m

    def _written(self):
        """The tensors, those with rows per client in files."""
        ours = {t.untyped_storage().data_ptr() for t in self._files.values()}
        new = {n: t for n, t in self._tensors.items() if t is not self._files.get(n)}
        # a tensor that aliases another name's file is copied before that file is overwritten
        new = {
            n: t.clone() if t.untyped_storage().data_ptr() in ours else t for n, t in new.items()
        }
        for name, tensor in new.items():
            if not self._per_client(tensor):
                self._files.pop(name, None)
                continue
            file = self._files.get(name)
            if file is None or (file.shape, file.dtype) != (tensor.shape, tensor.dtype):
                file = self._files[name] = mapped(self._folder, tensor.shape, tensor.dtype)
            new[name] = file.copy_(tensor)
        return {**self._tensors, **new}
