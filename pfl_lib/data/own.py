"""A user's own data: one .npz file with x_train, y_train, x_test and y_test."""

import math
import os
import zipfile
from pathlib import Path

import numpy as np
import torch

from pfl_lib.data.dataset import Dataset

DEFLATE_AT_MOST = 1032  # no packed stream grows by more than this factor
_NEEDED = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("classes", "coarse_train", "coarse_test", "coarse_classes", "vocabulary")


def load(path):
    """A :class:`Dataset` from an .npz file, without pickles.

    Images: integers 0..255, or numbers in 0..1 (rounded to 256 levels), of shape (n, height, width)
    or (n, channels, height, width).  Texts: token ids of shape (n, length), 0 for padding.
    Labels: whole numbers from 0.  Optional: ``classes`` (names), ``coarse_train`` and
    ``coarse_test`` (superclasses), ``vocabulary`` (number of token ids).
    """
    path = Path(path)
    arrays = read_arrays(path, _NEEDED, _OPTIONAL)
    for key, array in arrays.items():
        if (array.ndim == 0) != (key == "vocabulary"):
            wanted = "one number" if key == "vocabulary" else "a list or a table"
            raise ValueError(f"{path}: {key} must be {wanted}, got shape {array.shape}")
    for part in ("train", "test"):
        n, labels = len(arrays[f"x_{part}"]), len(arrays[f"y_{part}"])
        if n != labels or n == 0:
            raise ValueError(
                f"{path}: x_{part} has {n:,} samples and y_{part} {labels:,} labels; wanted is "
                "one label for each sample, and at least one sample"
            )
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        raise ValueError(
            f"{path}: training samples have shape {arrays['x_train'].shape[1:]}, "
            f"test samples {arrays['x_test'].shape[1:]}"
        )
    y = np.concatenate([_labels(path, f"y_{part}", arrays) for part in ("train", "test")])
    coarse = None
    if "coarse_train" in arrays and "coarse_test" in arrays:
        parts = [_labels(path, f"coarse_{part}", arrays) for part in ("train", "test")]
        coarse = torch.from_numpy(np.concatenate(parts))
    n_train = len(arrays["x_train"])
    common = {
        "name": path.stem,
        "y": torch.from_numpy(y),
        "n_train": n_train,
        "classes": _classes(path, arrays, int(y.max()) + 1),
        "coarse": coarse,
    }
    ids = arrays["x_train"].ndim == 2 and all(
        np.issubdtype(arrays[f"x_{part}"].dtype, np.integer) for part in ("train", "test")
    )
    if ids:
        tokens = np.concatenate([arrays["x_train"], arrays["x_test"]]).astype(np.int64)
        known = int(arrays["vocabulary"]) if "vocabulary" in arrays else int(tokens.max()) + 1
        if tokens.min() < 0 or tokens.max() >= known:
            raise ValueError(
                f"{path}: token ids must lie in 0..{known - 1}, got {tokens.min()}..{tokens.max()}"
            )
        return Dataset(x=torch.from_numpy(tokens), kind="text", vocabulary=known, **common)
    images, notes = zip(*(_images(path, f"x_{part}", arrays) for part in ("train", "test")))
    x = torch.from_numpy(np.concatenate(images))
    mean, std = moments(x[:n_train])
    return Dataset(x=x, mean=mean, std=std, note=max(notes), **common)


def read_arrays(path, needed, optional=()):
    """Named arrays of an .npz file, never unpickled; a ValueError names what is wrong with it."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            missing = [key for key in needed if key not in members]
            if missing:
                raise ValueError(f"it lacks {', '.join(missing)}; it has {', '.join(members)}")
            wanted = [key for key in (*needed, *optional) if key in members]
            return {key: _read_array(archive, members[key]) for key in wanted}
    except Exception as error:  # a hostile file may fail anywhere in zipfile or numpy
        raise ValueError(f"{path}: not a usable .npz file ({error})") from error


def _read_array(archive, member):
    """One array, after its declared size was compared with that of the file."""
    info = archive.getinfo(member)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member} is packed in a way that numpy never uses")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"{member} is of the unknown .npy version {version}")
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"{member} holds pickled objects; store plain arrays")
        # the archive may lie about its sizes too, but not about how long it is itself
        on_disk = min(info.compress_size, os.path.getsize(archive.filename))
        packed = info.compress_type == zipfile.ZIP_DEFLATED
        most = min(info.file_size, on_disk * DEFLATE_AT_MOST if packed else on_disk)
        declared = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or declared > most:
            raise ValueError(f"{member} declares {declared:,} bytes, there can be {most:,}")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _labels(path, key, arrays):
    labels = arrays[key]
    if labels.ndim != 1 or len(labels) != len(arrays["x_" + key.split("_")[1]]):
        raise ValueError(f"{path}: {key} must be one label per sample, got shape {labels.shape}")
    if not np.issubdtype(labels.dtype, np.integer):
        nan = np.issubdtype(labels.dtype, np.floating) and bool(np.isnan(labels).any())
        raise ValueError(
            f"{path}: {key} must hold whole numbers from 0, got {labels.dtype}"
            + (" with NaN" if nan else "")
        )
    if labels.min() < 0:
        raise ValueError(f"{path}: {key} must hold whole numbers from 0, got {labels.min()}")
    if labels.max() > 1_000_000:
        raise ValueError(f"{path}: {key} has a label {labels.max()}; labels count classes from 0")
    return labels.astype(np.int64)


def _classes(path, arrays, count):
    if "classes" not in arrays:
        return tuple(map(str, range(count)))
    names = arrays["classes"]
    if names.ndim != 1 or len(names) < count:
        raise ValueError(f"{path}: {count} classes occur, {names.size} are named in classes")
    return tuple(map(str, names.tolist()))


def _images(path, key, arrays):
    try:
        return image_array(key, arrays[key])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def image_array(key, x):
    """Pixels as uint8 of shape (n, channels, height, width), and a note where they were rounded."""
    note = ""
    if x.ndim not in (3, 4):
        raise ValueError(
            f"{key} must be images (n, height, width) or (n, channels, height, width), or "
            f"integer token ids (n, length); got shape {x.shape} of {x.dtype}"
        )
    square = x.ndim == 4 and x.shape[1] == x.shape[2]
    if x.ndim == 4 and x.shape[3] in ((1, 3, 4) if square else (3,)) and min(x.shape[1:3]) > 4:
        raise ValueError(
            f"{key} must be images (n, channels, height, width); of shape {x.shape} the channels "
            f"seem to be last: {key}.transpose(0, 3, 1, 2)"
        )
    if np.issubdtype(x.dtype, np.floating):
        if not np.isfinite(x).all():
            raise ValueError(f"{key} holds NaN or infinite values")
        if x.min() < 0 or x.max() > 1:
            raise ValueError(
                f"{key} of {x.dtype} must lie in 0..1 (or use integers 0..255), "
                f"got {x.min():g}..{x.max():g}"
            )
        x, note = np.rint(x * 255), "pixels were given as numbers in 0..1; rounded to 256 levels"
    elif not np.issubdtype(x.dtype, np.integer):
        raise ValueError(f"{key} must be numbers, got {x.dtype}")
    elif x.min() < 0 or x.max() > 255:
        raise ValueError(f"{key} must lie in 0..255, got {x.min()}..{x.max()}")
    x = x.astype(np.uint8)
    return np.ascontiguousarray(x[:, None] if x.ndim == 3 else x), note


def moments(x):
    """Mean and deviation of each channel on the scale 0..1, from a histogram: exact and small."""
    level = np.arange(256) / 255
    mean, std = [], []
    for channel in range(x.shape[1]):
        share = (
            np.bincount(x[:, channel].reshape(-1).numpy(), minlength=256) / x[:, channel].numel()
        )
        center = float(share @ level)
        spread = math.sqrt(float(share @ (level - center) ** 2))
        mean.append(center)
        std.append(spread if spread > 1e-6 else 1.0)  # a blank channel stays blank
    return tuple(mean), tuple(std)
