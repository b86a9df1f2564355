"""Write the reference: a notebook for each method, from the method itself (`make format`).

    python -m devtools.reference

What a page says (the idea, the equations, the chapter that tells the story) are facts of the
method's class; all else is asked of the library when the page runs.  The methods' place in
``_toc.yml`` is written too.
"""

import re
import sys
from pathlib import Path

import nbformat

from devtools.notebooks import clean, setup_cell, text_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks" / "reference"
TOC = ROOT / "_toc.yml"
TITLE = "# {label}\n\n**Idea.** {idea}"
EQUATIONS = (
    "**Equations.** {equations}\n\n"
    "The story behind it is told in {{doc}}`../{chapter}`; the readings chosen where the papers "
    "are silent are in {{doc}}`../../book/deviations`."
)
SHARED = [
    ("markdown", "## What is shared, sent and tested"),
    ("code", 'import pfl_lib\n\npfl_lib.compare("{name}")'),
]
PRINTED = [
    (
        "markdown",
        "## Hyper-parameters\n\nThe papers' own values, each with its source, and our choice where "
        "they are silent:",
    ),
    ("code", 'pfl_lib.book.papers.settings("{name}")'),
]
DEFAULTS = [
    (
        "markdown",
        "## Hyper-parameters\n\nNone of the five papers of this book ran it; these are its "
        "defaults:",
    ),
    ("code", 'pfl_lib.algorithm("{name}"{hyper}).settings()'),
]
REST = [
    ("markdown", "## The library's code"),
    (
        "code",
        'import inspect\n\nmethod = pfl_lib.methods.BY_NAME["{name}"]\n'
        "print(inspect.getsource(inspect.getmodule(method)))",
    ),
    (
        "markdown",
        "## A ten-second run\n\nTwelve clients in three hidden groups that name the classes "
        "differently, 8×8 digits, a small MLP, six rounds, one seed: a quick "
        "run, not a comparison.",
    ),
    (
        "code",
        "from pfl_lib.book.experiments import quick_run\n\n"
        'quick_run(pfl_lib.algorithm("{name}"{hyper}))',
    ),
]


def page(method):
    """The notebook of one method (a class of ``pfl_lib.methods``)."""
    from pfl_lib.book import papers

    labels = ", ".join(f"{{eq}}`{label}`" for label in method.equations)
    say = {
        "name": method.name,
        "label": method.label,
        "idea": method.idea,
        "chapter": method.chapter,
        "equations": f"Its equations in the book: {labels}. " * bool(labels) + method.note,
        "hyper": "".join(f", {name}={value!r}" for name, value in method.needs.items()),
    }
    make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    cells = [make["markdown"](TITLE.format(**say)), setup_cell()]
    cells.append(make["markdown"](EQUATIONS.format(**say)))
    values = PRINTED if method.name in papers.names()["methods"] else DEFAULTS
    cells += [make[kind](source.format(**say)) for kind, source in SHARED + values + REST]
    return clean(nbformat.v4.new_notebook(cells=cells))


def pages():
    """{path: text} of all pages."""
    from pfl_lib.methods import BY_NAME

    return {FOLDER / f"{name}.ipynb": text_of(page(method)) for name, method in BY_NAME.items()}


def with_entries(toc):
    """The table of contents with the methods as they are now."""
    from pfl_lib.methods import names

    entries = "".join(f"          - file: notebooks/reference/{name}\n" for name in names())
    return re.sub(r"(?: +- file: notebooks/reference/.*\n)+", entries, toc)


def main():
    made = pages()
    gone = [path for path in FOLDER.glob("*.ipynb") if path not in made]
    made[TOC] = with_entries(TOC.read_text(encoding="utf-8"))
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    for path in gone:
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
