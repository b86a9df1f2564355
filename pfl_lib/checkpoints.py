"""Checkpoints: a safetensors file for the state, a JSON file that names it and holds a checksum.

The tensors are written first, the JSON last, both to a temporary file that is then renamed; a
checkpoint exists if its JSON does.  The checksum covers both.  The previous checkpoint is kept in
case the newest is damaged.
"""

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pfl_lib import _deprecated

KEEP = 2
ASIDE = ".part-"


def save(folder, round_, tensors, record):
    """Write the checkpoint of ``round_`` and drop the ones that are no longer needed.

    >>> import tempfile
    >>> import torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> save(folder, 3, {"w": torch.zeros(2, 2)}, {"settings": {"lr": 0.1}})
    >>> sorted(path.name for path in folder.iterdir())
    ['round-000003.json', 'round-000003.safetensors']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"round-{round_:06d}.json"
    # copied, since two names may share memory; tensors in files are not, to save memory
    kept = {n: t if _in_file(t) else t.detach().cpu().clone() for n, t in tensors.items()}
    kept = {name: t.contiguous() for name, t in kept.items()}
    try:
        atomic_write(path.with_suffix(".safetensors"), lambda side: save_file(kept, side))
        text = json.dumps({"checksum": _checksum(path, record), **record})
        atomic_write(path, lambda side: side.write_text(text))
    except (OSError, SafetensorError) as error:
        before = [p for p in _all(folder) if p != path]
        last = f"the last good one is {before[-1].name}" if before else "there is none before it"
        raise OSError(
            f"the checkpoint of round {round_} could not be written to {folder} ({error}); {last}. "
            "Make room there, or name another folder, and call run again: it goes on from the last"
        ) from error
    for later in [p for p in _all(folder) if _number(p) > round_]:
        later.unlink()  # it must be damaged: else this run would have resumed from it
    _tidy(folder, path)


def newest(folder, settings, device):
    """The newest valid checkpoint as (record, tensors), or None.  Other settings are refused.

    Without a ``device`` the tensors stay in the file, to be copied.

    >>> import tempfile
    >>> import torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> newest(folder, {"lr": 0.1}, "cpu") is None
    True
    >>> save(folder, 3, {"w": torch.ones(2)}, {"settings": {"lr": 0.1}})
    >>> newest(folder, {"lr": 0.1}, "cpu")
    ({'settings': {'lr': 0.1}}, {'w': tensor([1., 1.])})
    """
    known = _all(Path(folder))
    for path in reversed(known):
        try:
            record = json.loads(path.read_text())
            if record.pop("checksum") != _checksum(path, record):
                raise ValueError("its checksum does not agree with its content")
            tensors = load_file(path.with_suffix(".safetensors"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as e:
            what = "trying the one before it" if path != known[0] else "starting from round 1"
            warnings.warn(f"checkpoint {path.name} is damaged ({e}); {what}", stacklevel=3)
            continue
        _refuse_other_settings(folder, record["settings"], settings)
        _tidy(Path(folder), path)
        # copied: safetensors maps them at their unaligned place in the file, and matrix products
        # at such addresses may round differently from those of the uninterrupted run
        if device is None:  # the caller copies them
            return record, tensors
        return record, {name: t.to(device, copy=True) for name, t in tensors.items()}
    return None


def atomic_write(path, write):
    """Write to a temporary folder, sync to disk, then rename into place."""
    aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=path.parent))
    try:
        side = aside / path.name
        write(side)
        with open(side, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(side, path)
        fsync_dir(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _in_file(tensor):
    return tensor.device.type == "cpu" and tensor.untyped_storage().filename is not None


def _number(path):
    """The round of a checkpoint."""
    return int(path.stem.removeprefix("round-"))


def _all(folder):
    """The checkpoints in order of their rounds."""
    return sorted(folder.glob("round-*[0-9].json"), key=_number)


def _tidy(folder, newest):
    """Keep ``newest`` and its predecessor; remove older ones and leftovers of killed runs."""
    for old in [p for p in _all(folder) if _number(p) <= _number(newest)][:-KEEP]:
        old.unlink()
    for tensors in folder.glob("round-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink()
    for aside in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(aside, ignore_errors=True)


def _refuse_other_settings(folder, theirs, ours):
    ours = json.loads(json.dumps(ours))
    names = sorted(n for n in {*theirs, *ours} if theirs.get(n) != ours.get(n))
    if names:
        differ = "; ".join(f"{n} was {theirs.get(n)!r}, now {ours.get(n)!r}" for n in names)
        raise ValueError(
            f"{folder} holds a run with other settings ({differ}); "
            "give another checkpoint folder, or the settings it was started with"
        )


def _checksum(path, record):
    """The checksum of the tensors beside ``path`` and of the record, in its form when read back."""
    digest = hashlib.sha256(json.dumps(record).encode())
    with open(path.with_suffix(".safetensors"), "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fsync_dir(folder):
    """Sync a folder, so that new names survive a power cut; some systems cannot open folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_deprecated.keep_former_names(__name__)
