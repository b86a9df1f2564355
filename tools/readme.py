"""Write the list of algorithms into README.md, from the library itself (`make format`)."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- algorithms: written by tools/readme.py -->", "<!-- end of algorithms -->"


def table():
    """A row for each algorithm the library knows, in its own order."""
    from pfl_lib.algorithms import BY_NAME

    rows = ["| `pfl_lib.algorithm(…)` | method | after |", "|:--|:--|:--|"]
    for name, method in BY_NAME.items():
        rows.append(f'| `"{name}"` | {method.label} | {method.paper or "—"} |')
    return "\n".join(rows)


def with_table(text):
    """``text`` with the list of algorithms as it is now."""
    between = re.compile(re.escape(START) + ".*?" + re.escape(END), flags=re.DOTALL)
    return between.sub(lambda _: f"{START}\n{table()}\n{END}", text)


if __name__ == "__main__":
    path = ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = with_table(old)
    if new != old:
        path.write_text(new, encoding="utf-8")
        print("README.md: list of algorithms brought up to date")
    sys.exit(0)
