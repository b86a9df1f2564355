"""Build a release: a source archive, and a wheel made from that archive.

    python -m devtools.release [FOLDER]     default: dist

The version stands in pfl_lib/_version.py. Needs no network: it uses the setuptools installed here.
A bill of materials (CycloneDX) goes to _build/sbom: the packages that the library needs, in the
versions that were tested together, with the hashes of requirements.lock.
"""

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

import pfl_lib
from devtools import lock

ROOT = Path(__file__).resolve().parents[1]
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff")
CALL = "import sys, setuptools.build_meta as backend; backend.build_{}(sys.argv[1])"


def _call(what, source, folder):
    """Run setuptools in its own process, since it works in the current folder."""
    command = [sys.executable, "-c", CALL.format(what), str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"building the {what} failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
        )


def build(folder=ROOT / "dist"):
    """Both archives in ``folder``; returns their paths (source archive, wheel)."""
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("pfl_lib-*.tar.gz"), *folder.glob("pfl_lib-*.whl")):
        old.unlink()
    with tempfile.TemporaryDirectory() as workspace:
        # in a copy, since building leaves folders behind
        source = Path(workspace) / "source"
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "round-*", "done-*")
        for name in ("pfl_lib", "results"):
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
        for name in FILES:
            shutil.copy(ROOT / name, source)
        _call("sdist", source, folder)
        archive = next(folder.glob("pfl_lib-*.tar.gz"))
        # the wheel from the archive, so that files missing in the archive are noticed
        with tarfile.open(archive) as packed:
            packed.extractall(workspace, filter="data")
        _call("wheel", next(Path(workspace).glob("pfl_lib-*")), folder)
    return archive, next(folder.glob("pfl_lib-*.whl"))


def needed(name, seen=None):
    """The packages that ``name`` needs here, and those that they need."""
    seen = {} if seen is None else seen
    wanted = []
    for text in importlib.metadata.requires(name) or ():
        one = Requirement(text)
        other = re.sub(r"[-_.]+", "-", one.name).lower()
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and other not in wanted:
            wanted.append(other)
    seen[name] = sorted(wanted)
    for other in wanted:
        if other not in seen:
            needed(other, seen)
    return seen


def bill_of_materials(folder=ROOT / "_build" / "sbom"):
    """Write the bill of materials into ``folder``; returns its path."""
    locked, tree = lock.read(lock.CUDA) | lock.read(lock.LOCK), needed("pfl_lib")
    known = {name: locked[name][0].split(";")[0].strip() for name in tree if name != "pfl_lib"}
    mark = {name: f"pkg:pypi/{name}@{version}" for name, version in known.items()}
    version = pfl_lib.__version__
    mark["pfl_lib"] = f"pkg:pypi/pfl-lib@{version}"
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": mark["pfl_lib"],
                "name": "pfl_lib",
                "version": version,
                "purl": mark["pfl_lib"],
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": mark[name],
                "name": name,
                "version": known[name],
                "purl": mark[name],
                "hashes": [
                    {"alg": "SHA-256", "content": one.removeprefix("sha256:")}
                    for one in sorted(locked[name][1])
                ],
            }
            for name in sorted(known)
        ],
        "dependencies": [
            {"ref": mark[name], "dependsOn": [mark[other] for other in others]}
            for name, others in sorted(tree.items())
        ],
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"pfl_lib-{version}.cdx.json"
    path.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    for path in (*build(*sys.argv[1:2]), bill_of_materials()):
        print(f"{path.name}  {path.stat().st_size / 1000:.0f} kB")
