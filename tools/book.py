"""Build the book into _build/html, strictly: a warning is an error."""

import shutil
import subprocess
import sys
from pathlib import Path

import reader
import teaching
from executed import ROOT, hand_to_the_book


def main():
    used = hand_to_the_book()
    if used:
        print(f"{used} notebooks were already run by the tests; their outputs are used")
    shutil.rmtree(ROOT / "_build" / "html", ignore_errors=True)
    # --all: warnings are only given for pages that are read, so read all of them
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", ".", "--all", "-q"]
    strict = ["-W", "-n", "--keep-going"]
    code = subprocess.run([*command, *strict], cwd=ROOT, check=False).returncode
    if code == 0:
        reader.write()
        teaching.write_all()
        page = ROOT / "_build" / "html" / "index.html"
        print(f"The book is ready. Open {page.as_uri()} or run `make serve`.")
    return code


if __name__ == "__main__":
    sys.exit(main())
