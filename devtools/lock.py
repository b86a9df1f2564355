"""Write the lock file: every package of constraints.txt with the SHA-256 of its archives.

    python -m devtools.lock

requirements.lock holds what `make` installs, requirements-cuda.lock what torch brings along besides
where it is not the build for processors only. `PFL_HASHES=1 make install` installs from them, and
refuses any archive that is not the one that was locked. Needs uv and the package index.
"""

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK, CUDA = ROOT / "requirements.lock", ROOT / "requirements-cuda.lock"
HEAD = "# Written by `python -m devtools.lock`; see there.\n"
FOR_CUDA = re.compile(r"(nvidia|cuda|triton)(-|$)")
PYTHON = "3.11.5"  # the oldest for which constraints.txt is; 3.10 takes the newest that fit


def read(path):
    """{name: (version with its marker, hashes)} of a lock file.

    >>> sorted(read(LOCK)["torch"][1])[0][:7]
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
    """Hashes of torch's builds for processors only: of the archives in PIP_FIND_LINKS, and those
    that were locked before. They are archives of the same version, but not in the package index."""
    before = read(LOCK).get("torch", ("", set())) if LOCK.exists() else ("", set())
    known = before[1] if before[0] == version else set()
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        for path in Path(folder).glob(f"torch-{version}+cpu-*.whl"):
            known.add(f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
    return known


def main():
    with tempfile.TemporaryDirectory() as room:
        side = Path(room) / "lock"
        side.write_text(compiled())
        found = read(side)
    found["torch"][1].update(for_processors(found["torch"][0]))
    for path, cuda in ((LOCK, False), (CUDA, True)):
        lines = []
        for name, (version, hashes) in sorted(found.items()):
            if bool(FOR_CUDA.match(name)) == cuda:
                lines.append(" \\\n    --hash=".join([f"{name}=={version}", *sorted(hashes)]))
        path.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
        print(f"{path.name}: {len(lines)} packages")


if __name__ == "__main__":
    main()
