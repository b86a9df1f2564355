"""Checkpoints: a safetensors file for the state, a JSON file that names it and its checksum.

The tensors are written first, the JSON last, both to the side and then renamed; a checkpoint
exists once its JSON does.  The one before is kept, for the day the newest is damaged.
"""

import hashlib
import json
import os
import warnings
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

KEEP = 2


def save(folder, round_, tensors, record):
    """Write the checkpoint of ``round_`` and drop the ones that are no longer needed."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"round-{round_:06d}"
    path = folder / f"{stem}.safetensors"
    kept = {name: t.detach().to("cpu").clone().contiguous() for name, t in tensors.items()}
    try:
        _replace(path, lambda side: save_file(kept, side))
        text = json.dumps({"checksum": _checksum(path), **record})
        _replace(folder / f"{stem}.json", lambda side: Path(side).write_text(text))
    except (OSError, SafetensorError) as error:
        raise OSError(
            f"the checkpoint of round {round_} could not be written to {folder}: {error}; "
            "the one before it is untouched"
        ) from error
    for old in sorted(folder.glob("round-*.json"))[:-KEEP]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def newest(folder, settings, device):
    """The newest sound checkpoint as (record, tensors), or None.  Other settings are refused."""
    for path in sorted(Path(folder).glob("round-*.json"), reverse=True):
        try:
            record = json.loads(path.read_text())
            tensors_path = path.with_suffix(".safetensors")
            if record["checksum"] != _checksum(tensors_path):
                raise ValueError("its checksum does not agree with its tensors")
            tensors = load_file(tensors_path)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            warnings.warn(
                f"checkpoint {path.name} is damaged ({error}); trying the one before it",
                stacklevel=3,
            )
            continue
        _refuse_other_settings(folder, record["settings"], settings)
        # copied: safetensors maps them where they lie in the file, and products of tensors at such
        # odd addresses may round differently from those of the uninterrupted run
        return record, {name: t.to(device, copy=True) for name, t in tensors.items()}
    return None


def _refuse_other_settings(folder, theirs, ours):
    ours = json.loads(json.dumps(ours))
    names = sorted(n for n in {*theirs, *ours} if theirs.get(n) != ours.get(n))
    if names:
        differ = "; ".join(f"{n} was {theirs.get(n)!r}, now {ours.get(n)!r}" for n in names)
        raise ValueError(
            f"{folder} holds a run with other settings ({differ}); "
            "give another checkpoint folder, or the settings it was started with"
        )


def _checksum(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _replace(path, write):
    """Write beside ``path``, make sure it is on the disk, then put it in place in one move."""
    side = path.with_name(path.name + ".part")
    try:
        write(side)
        with open(side, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(side, path)
    finally:
        side.unlink(missing_ok=True)
