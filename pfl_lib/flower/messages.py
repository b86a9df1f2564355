"""Work as plain bytes and words, and back: what travels between server and clients.

A parcel holds arrays in NumPy's plain ``.npy`` form and a few words and numbers.  Nothing in it is
ever executed: no pickles, and what comes back is checked against what was expected before a byte of
it is used.
"""

import dataclasses
import hashlib
import io
import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pfl_lib.work import Work

DTYPES = {"float32", "float64", "int64", "bool"}
HEADER = 128  # bytes that .npy puts in front of the numbers, for arrays of up to three axes
_TENSORS = ("rows", "shared", "numbers")  # parts of a Work that are not words
_WORDS = {f.name: f for f in dataclasses.fields(Work) if f.name not in _TENSORS}


@dataclass(frozen=True)
class Parcel:
    """Named arrays as ``.npy`` bytes, and named words: text, numbers, lists of one of them.

    >>> Parcel({"w": encode(torch.zeros(650))}, {"round": 0}).size
    2728
    """

    arrays: dict = field(default_factory=dict)
    words: dict = field(default_factory=dict)

    @property
    def size(self):
        """Bytes of the arrays."""
        return sum(map(len, self.arrays.values()))


def fingerprint(client, parcel):
    """What tells this question to this client from every other one; replies name it.

    >>> fingerprint(0, Parcel(words={"round": 1})) == fingerprint(0, Parcel(words={"round": 2}))
    False
    """
    digest = hashlib.sha256(json.dumps([client, parcel.words], sort_keys=True).encode())
    for name in sorted(parcel.arrays):
        digest.update(f"{name}:{len(parcel.arrays[name])}:".encode() + parcel.arrays[name])
    return digest.hexdigest()


def encode(tensor):
    """A tensor as the bytes of a ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, tensor.detach().cpu().contiguous().numpy(), allow_pickle=False)
    return buffer.getvalue()


def decode(name, data, *, most, shape=None, dtype=None):
    """The tensor in ``data``, if it is a plain array as expected; else a ValueError that says why.

    ``most`` bounds the number of elements, ``shape`` and ``dtype`` are exact where given.
    """
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0(file) if version == (1, 0) else None
    except ValueError as error:
        raise ValueError(f"array {name!r} is not a plain .npy array: {error}") from None
    if header is None:
        raise ValueError(f"array {name!r} must be .npy version (1, 0), got {version}")
    found_shape, fortran, found = header
    if found.name not in DTYPES or found.byteorder == ">" or fortran:
        raise ValueError(
            f"array {name!r} must hold {', '.join(sorted(DTYPES))} in C order, got {found}"
        )
    count = math.prod(found_shape)
    if count > most or len(data) - file.tell() != count * found.itemsize:
        raise ValueError(
            f"array {name!r} must hold at most {most} numbers and nothing else; it says "
            f"{found_shape} of {found} but is followed by {len(data) - file.tell()} bytes"
        )
    if shape is not None and tuple(found_shape) != tuple(shape):
        raise ValueError(f"array {name!r} must have shape {tuple(shape)}, got {found_shape}")
    array = np.frombuffer(data, found, offset=file.tell()).reshape(found_shape)
    tensor = torch.from_numpy(array.copy())  # a copy: aligned, writable, and ours
    if dtype is not None and tensor.dtype != dtype:
        raise ValueError(f"array {name!r} must be {dtype}, got {tensor.dtype}")
    return tensor


# ------------------------------------------------------------------------- work, server to client
def pack_work(work, row, k, part=None):
    """What the client at ``row`` of ``work`` is asked to do in round ``k``.

    Arrays that are equal travel once: FedAMP's clients start at the centre of their penalty.
    ``part`` are the positions of the samples to use, if not all (FedFomo).
    """
    arrays: dict[str, bytes] = {}
    words: dict[str, Any] = {"round": int(k)}
    seen: dict[bytes, str] = {}
    tensors = {f"rows.{n}": t[row] for n, t in work.rows.items()}
    tensors |= {f"shared.{n}": t for n, t in work.shared.items()}
    for name, tensor in tensors.items():
        data = encode(tensor)
        if data in seen:
            words[f"same.{name}"] = seen[data]
        else:
            arrays[name], seen[data] = data, name
    if part is not None:
        arrays["part"] = encode(part)
    for name, value in work.numbers.items():
        words[f"number.{name}"] = value.item() if hasattr(value, "item") else value
    for name in _WORDS:
        value = getattr(work, name)
        if value is not None:
            words[name] = list(value) if isinstance(value, tuple) else value
    return Parcel(arrays, words)


def unpack_work(parcel, d, dtype, most, samples):
    """One client's work, the round, and which of its ``samples`` to use (None: all).

    ``d`` and ``dtype`` are those of its own model, ``most`` bounds the size of any array.
    """
    given = dict(parcel.words)
    k = given.pop("round", None)
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ValueError(f"round must be a whole number from 0 on, got {k!r}")
    tensors = {name: decode(name, data, most=most) for name, data in parcel.arrays.items()}
    picked = tensors.pop("part", None)
    if picked is not None and not _are_positions(picked, samples):
        raise ValueError(f"part must hold positions of the client's {samples} samples")
    parts: dict[str, dict] = {"rows": {}, "shared": {}, "number": {}}
    fields: dict[str, Any] = {}
    for name, value in given.items():
        part, _, rest = name.partition(".")
        if part == "same":
            if value not in parcel.arrays:
                raise ValueError(f"{rest!r} must be the same as an array that came, got {value!r}")
            tensors[rest] = tensors[value]
        elif part == "number":
            if not isinstance(value, (int, float)):
                raise ValueError(f"{name} must be a number, got {value!r}")
            parts["number"][rest] = value
        elif name in _WORDS:
            fields[name] = tuple(value) if isinstance(value, (list, tuple)) else value
        else:
            raise ValueError(f"a work has no {name!r}; it has {', '.join(_WORDS)}")
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part not in ("rows", "shared"):
            raise ValueError(f"arrays must be called rows.… or shared.…, got {name!r}")
        parts[part][rest] = tensor[None] if part == "rows" else tensor
    w = parts["rows"].get("w", torch.empty(0))
    if w.shape != (1, d) or w.dtype != dtype:
        raise ValueError(
            f"the model must be {d} numbers of {dtype}, got {tuple(w.shape[1:])} of {w.dtype}"
        )
    work = Work(parts["rows"], shared=parts["shared"], numbers=parts["number"], **fields)
    return work, k, picked


def _are_positions(picked, samples):
    """Whether these are positions of some of so many samples."""
    return (
        picked.dtype == torch.int64
        and picked.ndim == 1
        and 0 < len(picked) <= samples
        and bool(0 <= picked.min() <= picked.max() < samples)
    )


# ------------------------------------------------------------------------- rows, client to server
def pack_rows(parcel, done):
    """What became of the rows in ``parcel``: only those that changed."""
    arrays = {}
    for name, rows in done.items():
        name = f"rows.{name}"
        data = encode(rows[0])
        if data != parcel.arrays.get(parcel.words.get(f"same.{name}", name)):
            arrays[name] = data
    return Parcel(arrays)


def unpack_rows(parcel, work, row):
    """The rows of one client after its work: as they came back, else as they were sent."""
    done = {name: rows[row] for name, rows in work.rows.items()}
    for name, data in parcel.arrays.items():
        part, _, rest = name.partition(".")
        if part != "rows" or rest not in done:
            raise ValueError(f"unexpected array {name!r}: it was not asked for")
        like = done[rest]
        tensor = decode(name, data, most=like.numel(), shape=like.shape, dtype=like.dtype)
        done[rest] = tensor.to(like.device)
    return done
