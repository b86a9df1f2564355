"""Write the list of methods into README.md, from the library itself (`make format`)."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- methods: written by devtools/readme.py -->", "<!-- end of methods -->"
HEADINGS = {  # of the methods' families, in words for a front page
    "alone": "Each alone, or one model for all",
    "one model": "Each alone, or one model for all",
    "fine-tuning": "One model, adapted by each client",
    "a model beside the global one": "A personal model beside the shared one",
    "some layers": "A personal model beside the shared one",
    "a model for each cluster": "Learning from those who resemble you",
    "pair by pair": "Learning from those who resemble you",
    "late clients": "When some clients are late",
}


def families():
    """{heading: its methods}, in the library's own order."""
    from pfl_lib.methods import BY_NAME

    found = {}
    for method in BY_NAME.values():
        heading = HEADINGS.get(method.family, method.family.capitalize())
        found.setdefault(heading, []).append(method)
    return found


def table():
    """A folded list for each family of methods."""
    lines = []
    for family, methods in families().items():
        labels = ", ".join(method.label for method in methods)
        lines += ["<details>", f"<summary><b>{family}</b>: {labels}</summary>", ""]
        lines += ["| `pfl_lib.algorithm(…)` | method | after |", "|:--|:--|:--|"]
        lines += [f'| `"{m.name}"` | {m.label} | {m.paper or "—"} |' for m in methods]
        lines += ["", "</details>"]
    return "\n".join(lines)


def with_table(text):
    """``text`` with the list of methods as it is now."""
    between = re.compile(re.escape(START) + ".*?" + re.escape(END), flags=re.DOTALL)
    return between.sub(lambda _: f"{START}\n{table()}\n{END}", text)


if __name__ == "__main__":
    path = ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = with_table(old)
    if new != old:
        path.write_text(new, encoding="utf-8")
        print("README.md: list of methods brought up to date")
    sys.exit(0)
