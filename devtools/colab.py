"""Run notebooks as on Colab: each alone, in an empty folder, with only the packages of Colab.

    python -m devtools.colab                      every notebook
    python -m devtools.colab 01_fedavg fedamp     some, by the beginning of their file's name

Colab itself is a web service, so this is the closest one can get: an environment with the packages
of Colab and nothing of ours, and pip pointed at a wheel just built from this folder. The first cell
of the notebook must do the rest.

PFL_COLAB_PYTHON=python3 takes that Python and what is installed beside it for the environment: for
use inside Colab's own container image.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from filelock import FileLock
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

from devtools import release
from devtools.notebooks import ROOT, all_notebooks

ROOM = ROOT / "_build" / "colab"
# what Colab brings, as far as our notebooks could notice, and what runs a notebook at all
PREINSTALLED = ("torch", "torchvision", "numpy", "matplotlib", "scipy", "scikit-learn")
PREINSTALLED += ("ipywidgets", "ipykernel", "pip")
# What pip may fetch beside pfl_lib: what the set-up cell asks for, what anywidget needs in turn
# (psygnal), what mlxtend needs when the wheel is installed with all it requires (pandas), and
# what brings the recordings of "Your own clients" (seglearn).
FETCHED = ("anywidget", "mlxtend", "safetensors", "tqdm", "psygnal", "pandas", "seglearn")
# Decoys: a set-up cell that installs one of these gets an empty wheel, and the run fails.
NEVER_TOUCHED = ("torch", "torchvision", "numpy")


def environment():
    """The Python of the bare environment; rebuilt when the versions change."""
    given = os.environ.get("PFL_COLAB_PYTHON")
    if given:
        return given
    ROOM.mkdir(parents=True, exist_ok=True)
    with FileLock(ROOM / "lock"):  # tests in several processes may need it
        return _bare()


def _bare():
    bare, pins = ROOM / "bare", ROOT / "constraints.txt"
    python, stamp = bare / "bin" / "python", bare / "made-from"
    wanted = hashlib.sha256(pins.read_bytes() + " ".join(PREINSTALLED).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(bare, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(bare)], check=True)
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        command = [str(uv), "pip", "install", "--python", str(python)]
    else:
        command = [str(python), "-m", "pip", "install"]
    links = {**os.environ, "UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
    subprocess.run([*command, "-q", *PREINSTALLED, "-c", str(pins)], env=links, check=True)
    stamp.write_text(wanted)
    return python


def wheels(folder):
    """Fill ``folder`` with all that pip may install: our wheel, small packages, the decoys."""
    kept = ROOM / "fetched"
    kept.mkdir(parents=True, exist_ok=True)
    with FileLock(ROOM / "lock"):
        missing = [name for name in FETCHED if not list(kept.glob(f"{name}-*.whl"))]
        if missing:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(kept)]
            subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *missing], check=True)
    for wheel in kept.glob("*.whl"):
        shutil.copy(wheel, folder)
    for name in NEVER_TOUCHED:
        decoy(folder, name)
    release.build(folder)
    return folder


def decoy(folder, name):
    """A newer version of a package, with nothing in it."""
    info = f"{name}-9999.dist-info"
    with zipfile.ZipFile(folder / f"{name}-9999-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9999\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def machine(python, workspace):
    """A fresh machine for one notebook: an empty layer over the bare environment."""
    code = "import sys; print(*(p for p in sys.path if p.endswith('-packages')), sep='\\n')"
    command = [str(python), "-c", code]
    packages = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(workspace)], check=True)
    own = next((workspace / "lib").glob("python3*")) / "site-packages"
    (own / "bare.pth").write_text(packages)
    return workspace / "bin" / "python"


def run_alone(path, bare, wheelhouse, timeout=900, uploaded=()):
    """Run the notebook at ``path`` on a fresh machine; returns (seconds, notebook).

    ``uploaded``: files that lie beside it there.
    """
    notebook = nbformat.read(path, as_version=4)
    probe = nbformat.v4.new_code_cell(_AFTERWARDS)
    notebook.cells.append(probe)
    with tempfile.TemporaryDirectory(prefix="colab-") as workspace:
        workspace = Path(workspace)
        python = machine(bare, workspace / "machine")
        for name in ("home", "content", "kernels/colab"):
            (workspace / name).mkdir(parents=True)
        for file in uploaded:
            shutil.copy(file, workspace / "content")
        settings = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheelhouse),
            "HOME": str(workspace / "home"),
            "OMP_NUM_THREADS": "1",
        }
        # nothing of ours may reach the kernel otherwise
        for name in ("PYTHONPATH", "PFL_DATA", "PFL_CACHE", "VIRTUAL_ENV"):
            settings[name] = ""
        kernel = {
            "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "as on Colab",
            "language": "python",
            "env": settings,
        }
        (workspace / "kernels" / "colab" / "kernel.json").write_text(json.dumps(kernel))
        specs = KernelSpecManager(kernel_dirs=[str(workspace / "kernels")])
        manager = AsyncKernelManager(kernel_name="colab", kernel_spec_manager=specs)
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=timeout,
            resources={"metadata": {"path": str(workspace / "content")}},
        )
        client.owns_km = True  # else the kernel would outlive the notebook
        began = time.monotonic()
        client.execute()
        return time.monotonic() - began, notebook


_AFTERWARDS = f"""\
import importlib.metadata, pathlib, pfl_lib
assert "colab-" in pfl_lib.__file__, pfl_lib.__file__
for name in {NEVER_TOUCHED!r}:
    assert importlib.metadata.version(name) != "9999", f"the set-up cell touched {{name}}"
"""


def main(names, jobs=2):
    chosen = [
        path
        for path in all_notebooks()
        if not names or any(path.stem.startswith(name) for name in names)
    ]
    workspace = tempfile.TemporaryDirectory()
    bare, wheelhouse = environment(), wheels(Path(workspace.name))

    def one(path):
        try:
            seconds, _ = run_alone(path, bare, wheelhouse)
            return path, f"{seconds:5.0f} s", True
        except Exception as error:  # a failure must not stop the others
            words = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
            return path, "FAILED\n    " + "\n    ".join(words[:12] + ["..."] + words[-4:]), False

    good = True
    with ThreadPoolExecutor(jobs) as pool:
        for path, words, fine in pool.map(one, chosen):
            print(f"{path.relative_to(ROOT)}  {words}", flush=True)
            good &= fine
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
