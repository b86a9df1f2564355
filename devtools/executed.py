"""Outputs of notebooks, run once and used twice.

Tests check the outputs of every notebook, and the book shows them. devtools/runner.py runs the
notebooks; outputs are kept under ``_build/executed``, with a fingerprint of the notebook, the
library and the result files, until one of these changes.
"""

import hashlib
import os
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
    """A hash of all that a notebook may import or read: the library and the result files."""
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


def keep(path, outputs, root=ROOT, seconds=None, notebook=None, made_with=None):
    """Keep the outputs of the code cells of the notebook at ``path``, and the seconds it took.

    ``notebook`` and ``made_with`` are the notebook and ``fingerprint()`` from before the run.
    """
    notebook = notebook or nbformat.read(path, as_version=4)
    for count, (cell, out) in enumerate(zip(code_cells(notebook), outputs, strict=True), start=1):
        cell.outputs = [nbformat.from_dict(o) for o in out]
        cell.execution_count = count
    notebook.metadata["pfl_fingerprint"] = made_with or fingerprint(root)
    notebook.metadata["pfl_seconds"] = seconds
    target = _place(path, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(".part")  # so that a reader never gets half a notebook
    nbformat.write(notebook, aside)
    os.replace(aside, target)


def _place(path, root=ROOT):
    return root / KEPT.relative_to(ROOT) / Path(path).resolve().relative_to(root)


def _kept(path, root):
    try:
        return nbformat.read(_place(path, root), as_version=4)
    except (OSError, ValueError):
        return None


def current(path, now, root=ROOT):
    """The notebook at ``path`` with what it printed when it was run, or None if that was another.

    ``now`` is today's ``fingerprint()``.
    """
    ran = _kept(path, root)
    if ran is None or ran.metadata.get("pfl_fingerprint") != now:
        return None
    notebook = nbformat.read(path, as_version=4)
    ours, theirs = code_cells(notebook), code_cells(ran)
    if [c.source for c in ours] != [c.source for c in theirs]:
        return None
    for cell, other in zip(ours, theirs):
        cell.outputs, cell.execution_count = other.outputs, other.execution_count
    return notebook


def seconds(path, root=ROOT):
    """The seconds that the notebook at ``path`` took the last time, or None."""
    ran = _kept(path, root)
    return ran and ran.metadata.get("pfl_seconds")


def hand_to_the_book(root=ROOT):
    """Empty a stale execution cache, then fill it with what is kept. Returns how many were used."""
    now = fingerprint(root)
    cache_path, kept = root / CACHE.relative_to(ROOT), root / KEPT.relative_to(ROOT)
    stamp = cache_path / "pfl_fingerprint"
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(cache_path, ignore_errors=True)
        cache_path.mkdir(parents=True)
        stamp.write_text(now)
    sources = []
    for path in sorted(kept.rglob("*.ipynb")):
        source = root / path.relative_to(kept)
        if source.exists() and current(source, now, root):
            sources.append(source)
        else:
            path.unlink()
    return add_to_cache(sources, root)


def add_to_cache(sources, root=ROOT):
    """Put the kept outputs of these notebooks into the book's cache. Returns their number."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    cache, now, used = get_cache(root / CACHE.relative_to(ROOT)), fingerprint(root), 0
    for source in sources:
        notebook, took = current(source, now, root), seconds(source, root)
        if notebook is None:
            continue
        if (took or 0) > BUDGET[source.parent.name]:
            budget = f"{BUDGET[source.parent.name]} s allowed on quiet cores"
            print(f"{source.relative_to(root)} took {took:.0f} s, {budget}")
        data = {"execution_seconds": took}  # for the status page
        bundle = CacheBundleIn(notebook, str(source), data=data)
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
        used += 1
    return used
