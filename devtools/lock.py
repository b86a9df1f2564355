"""Write the lock file: every package of constraints.txt with the SHA-256 of its archives.

    python -m devtools.lock

requirements.lock holds what `make` installs, but for torch, of which there are two builds of one
version: requirements-cpu.lock holds the one for processors only, requirements-cuda.lock that of the
package index, with what it brings along. `PFL_HASHES=1 make install` installs from them, and
refuses any archive that is not the one that was locked. Needs uv and the package index; archives of
torch for processors only are looked for in PIP_FIND_LINKS.
"""

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK, CPU, CUDA = (ROOT / f"requirements{kind}.lock" for kind in ("", "-cpu", "-cuda"))
HEAD = "# Written by `python -m devtools.lock`; see there.\n"
FOR_CUDA = re.compile(r"(torch|nvidia|cuda|triton)(-|$)")
PYTHON = "3.11.5"  # the oldest for which constraints.txt is; 3.10 takes the newest that fit


def read(path):
    """{name: (version with its marker, hashes)} of a lock file.

    >>> sorted(read(LOCK)["numpy"][1])[0][:7]
    'sha256:'
    """
    text = re.sub(r"\\\n\s*", "", Path(path).read_text(encoding="utf-8"))
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            what, *hashes = re.split(r"\s*--hash=", line)
            name, version = what.split("==", 1)
            found[re.sub(r"[-_.]+", "-", name).lower()] = version.strip(), set(hashes)
    return found


def compiled():
    """What uv makes of pyproject.toml and constraints.txt, from the package index alone."""
    environment = {k: v for k, v in os.environ.items() if k != "UV_FIND_LINKS"}
    uv = ROOT / ".venv" / "bin" / "uv"
    command = [str(uv) if uv.exists() else "uv", "pip", "compile", "-q", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--universal", "--python-version", PYTHON]
    command += ["--extra", "book", "--extra", "test", "-c", "constraints.txt", "pyproject.toml"]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True,
                          text=True).stdout  # fmt: skip


def for_processors(version):
    """Hashes of torch's builds for processors only: found here, or locked before."""
    known = read(CPU) if CPU.exists() else {}
    before, hashes = known.get("torch", ("", set()))
    hashes = hashes if before == version else set()
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        for path in Path(folder).glob(f"torch-{version}-*.whl"):
            hashes.add(f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
    return hashes


def write(path, found):
    lines = [" \\\n    --hash=".join([f"{name}=={version}", *sorted(hashes)])
             for name, (version, hashes) in sorted(found.items())]  # fmt: skip
    path.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(lines)} packages")


def main():
    with tempfile.TemporaryDirectory() as workspace:
        side = Path(workspace) / "lock"
        side.write_text(compiled())
        found = read(side)
    version = f"{found['torch'][0]}+cpu"
    write(LOCK, {n: what for n, what in found.items() if not FOR_CUDA.match(n)})
    write(CUDA, {n: what for n, what in found.items() if FOR_CUDA.match(n)})
    write(CPU, {"torch": (version, for_processors(version))})


if __name__ == "__main__":
    main()
