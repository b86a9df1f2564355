"""Run a notebook once, use its outputs twice.

The tests run every notebook (nbval, papermill) and the book needs its outputs. What a test ran is
kept under ``_build/executed`` and handed to the book's execution cache, so that nothing runs twice.
The cache of Jupyter Book sees a changed notebook but not a changed library or result file: their
fingerprint is kept beside the outputs, and what was computed with another one is thrown away.
"""

import hashlib
import shutil
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "_build" / "executed"
CACHE = ROOT / "_build" / ".jupyter_cache"
# seconds on two quiet cores, by folder; the status page of the book names them too
BUDGET = {"notebooks": 120, "reference": 30, "experiments": 60}
NOT_IN_THE_SOURCE = "injected-parameters"  # papermill's own cell


def fingerprint(root=ROOT):
    """A hash of all that a notebook may import or read: the library and the committed results."""
    digest = hashlib.sha256()
    for folder in ("pfl_lib", "results"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def code_cells(notebook):
    """The notebook's own code cells, without papermill's."""
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and NOT_IN_THE_SOURCE not in cell.metadata.get("tags", [])
    ]


def keep(path, outputs, root=ROOT, seconds=None):
    """Keep the outputs of each code cell of the notebook at ``path``, and how long it took."""
    notebook = nbformat.read(path, as_version=4)
    for count, (cell, out) in enumerate(zip(code_cells(notebook), outputs, strict=True), start=1):
        cell.outputs = [nbformat.from_dict(o) for o in out]
        cell.execution_count = count
    notebook.metadata["pfl_fingerprint"] = fingerprint(root)
    notebook.metadata["pfl_seconds"] = seconds
    target = root / KEPT.relative_to(ROOT) / Path(path).resolve().relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)


def hand_to_the_book(root=ROOT):
    """Empty a stale execution cache, then fill it with what is kept. Returns how many were used."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    now = fingerprint(root)
    cache_path, kept = root / CACHE.relative_to(ROOT), root / KEPT.relative_to(ROOT)
    stamp = cache_path / "pfl_fingerprint"
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(cache_path, ignore_errors=True)
        cache_path.mkdir(parents=True)
        stamp.write_text(now)
    cache, used = get_cache(cache_path), 0
    for path in sorted(kept.rglob("*.ipynb")):
        source = root / path.relative_to(kept)
        executed = nbformat.read(path, as_version=4)
        if executed.metadata.pop("pfl_fingerprint", None) != now or not source.exists():
            path.unlink()
            continue
        notebook = nbformat.read(source, as_version=4)
        ours, theirs = code_cells(notebook), code_cells(executed)
        if [c.source for c in ours] != [c.source for c in theirs]:
            path.unlink()
            continue
        for cell, ran in zip(ours, theirs):
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        seconds = executed.metadata.get("pfl_seconds")
        if (seconds or 0) > BUDGET[source.parent.name]:
            budget = f"{BUDGET[source.parent.name]} s allowed on quiet cores"
            print(f"{source.relative_to(root)} took {seconds:.0f} s, {budget}")
        data = {"execution_seconds": seconds}  # for the status page
        bundle = CacheBundleIn(notebook, str(source), data=data)
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
        used += 1
    return used
