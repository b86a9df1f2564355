"""Build what one would publish: a source archive, and a wheel made from that archive.

    python -m devtools.release [FOLDER]     default: dist

The version stands in pfl_lib/_version.py. Needs no network: it uses the setuptools installed here.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff")
CALL = "import sys, setuptools.build_meta as backend; backend.build_{}(sys.argv[1])"


def _call(what, source, folder):
    """Ask setuptools, in a process of its own: it works in the current folder."""
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
    with tempfile.TemporaryDirectory() as room:
        # a copy, since building leaves folders behind
        source = Path(room) / "source"
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "round-*", "done-*")
        for name in ("pfl_lib", "results"):
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
        for name in FILES:
            shutil.copy(ROOT / name, source)
        _call("sdist", source, folder)
        archive = next(folder.glob("pfl_lib-*.tar.gz"))
        # the wheel from the archive: what is not in the archive would be missed here
        with tarfile.open(archive) as packed:
            packed.extractall(room, filter="data")
        _call("wheel", next(Path(room).glob("pfl_lib-*")), folder)
    return archive, next(folder.glob("pfl_lib-*.whl"))


if __name__ == "__main__":
    for path in build(*sys.argv[1:2]):
        print(f"{path.name}  {path.stat().st_size / 1000:.0f} kB")
