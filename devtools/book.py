"""Build the book into _build/html, strictly: a warning is an error.

python -m devtools.book             build, unless nothing has changed since the last time
python -m devtools.book --again     build in any case
python -m devtools.book PAGES       build only these pages, as a preview
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from devtools import executed, policy, reader, release, runner, teaching
from devtools.executed import ROOT

HTML = ROOT / "_build" / "html"
STAMP = ROOT / "_build" / "book-is-built-from"


def made_from():
    """A hash of all sources of the book: files that git tracks, or would if they were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):  # without git the book is always built
        return None
    digest = hashlib.sha256(sys.version.encode())
    for name in sorted(set(listed.split("\0"))):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            digest.update(f"{name}\0".encode())
            digest.update(hashlib.sha256((ROOT / name).read_bytes()).digest())
    return digest.hexdigest()


def built():
    """Whether the built book is up to date."""
    return STAMP.exists() and STAMP.read_text() == made_from()


def pages(whole=True):
    """Jupyter Book's own build; ``whole`` reads every page and treats warnings as errors."""
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", ".", "-q"]
    # --all: only pages that are read give warnings, so read all of them
    strict = ["--all", "-W", "-n", "--keep-going"] if whole else []
    return subprocess.run([*command, *strict], cwd=ROOT, check=False).returncode == 0


def some(names):
    """Build some pages as a preview. All other pages stay as they are, however old."""
    paths = [Path(name).resolve() for name in names]
    for path in paths:
        if not path.is_file():
            raise SystemExit(f"no such page: {path}")
    if not (HTML / "index.html").exists():  # every notebook would be run, one after the other
        raise SystemExit("a preview needs the rest of the book: run `make book` once")
    notebooks = [path for path in paths if path.suffix == ".ipynb"]
    if notebooks and (code := runner.main(notebooks)):
        return code
    executed.add_to_cache(notebooks)
    for path in paths:
        path.touch()  # so that Sphinx reads it again
    return 0 if pages(whole=False) else 1


def build():
    """Build notebooks, pages, and the files to download. Returns an exit code."""
    STAMP.unlink(missing_ok=True)
    began, source, library = time.monotonic(), made_from(), executed.fingerprint()
    code = runner.main()
    if code:
        return code
    if executed.fingerprint() != library:
        print("pfl_lib or results changed while the notebooks ran; build again")
        return 1
    executed.hand_to_the_book()
    shutil.rmtree(HTML, ignore_errors=True)
    print("writing the pages …", flush=True)
    if not pages():
        return 1
    reader.write()
    teaching.write_all()
    policy.write()
    with tempfile.TemporaryDirectory() as folder:  # the library's wheel, to download
        shutil.copy(release.build(folder)[1], HTML / "download")
    if source:
        STAMP.write_text(source)
    print(f"built in {runner.clock(time.monotonic() - began)}")
    return 0


def main(arguments):
    if arguments and arguments != ["--again"]:
        return some(arguments)
    if "--again" in arguments or not built():
        code = build()
        if code:
            return code
    else:
        print("nothing has changed since the book was built")
    print(f"The book is ready. Open {(HTML / 'index.html').as_uri()} or run `make serve`.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\nstopped; the next run continues from here")
