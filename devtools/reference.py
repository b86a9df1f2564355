"""Write the reference: one notebook per method, from the facts of its class (`make format`).

    python -m devtools.reference

The idea, the equations and the chapter are facts of the method's class; all else comes from the
library when the page runs.  The methods' entries in ``_toc.yml`` are written, too.
"""

import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path

import nbformat

from devtools import chapters, formula_sheet
from devtools.notebooks import clean, setup_cell, text_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks" / "reference"
TOC = ROOT / "_toc.yml"
TITLE = "# {label}\n\n**Idea.** {idea}"
EQUATIONS = (
    "## Equations\n\n{equations}{note}\n\n"
    "The story behind it is told in {{doc}}`../{chapter}`; the readings chosen where the papers "
    "are silent are in {{doc}}`../../book/deviations`."
)
EQUATION = "$$\n{tex}\n$$\n\n{{eq}}`{label}` in {{doc}}`../../{page}`{code}.\n\n"
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
MEANING = [("markdown", "What they mean:\n\n{meaning}")]
REST = [
    (
        "markdown",
        "## Where it was measured\n\nThe experiments that ran it, with stored results:",
    ),
    ("code", 'from pfl_lib.book.experiments import overview\n\noverview.where("{name}")'),
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


def printed(labels):
    """Equations of the book, each with a link to where it is derived."""
    found, code = chapters.equations(), formula_sheet.functions()
    text = ""
    for label in labels:
        names = ", ".join(f"`{name}`" for name, _ in code.get(label, ()))
        if label in found:
            tex, page = found[label]
            says = {"label": label, "page": page, "code": f"; in code {names}" if names else ""}
            text += EQUATION.format(tex=tex.strip(), **says)
        else:  # a method whose chapter is still to be written
            text += f"{{eq}}`{label}`; in code {names}.\n\n"
    return text


def meaning(method):
    """The docstrings of the classes that define the hyper-parameters, the method's own first."""
    paragraphs = []
    for kind in method.__mro__:
        own = [f.name for f in fields(method) if f.name in vars(kind).get("__annotations__", {})]
        if own:
            text = inspect.cleandoc(kind.__doc__ or "").split("\n>>>")[0].strip()
            paragraphs.append(text.replace("``", "`"))
    return "\n\n".join(paragraphs)


def page(method):
    """The notebook of one method (a class of ``pfl_lib.methods``)."""
    from pfl_lib.book import papers

    say = {
        "name": method.name,
        "label": method.label,
        "idea": method.idea,
        "chapter": method.chapter,
        "equations": printed(method.equations),
        "note": method.note,
        "meaning": meaning(method),
        "hyper": "".join(f", {name}={value!r}" for name, value in method.needs.items()),
    }
    make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    cells = [make["markdown"](TITLE.format(**say)), setup_cell()]
    cells.append(make["markdown"](EQUATIONS.format(**say)))
    values = PRINTED if method.name in papers.names()["methods"] else DEFAULTS
    rest = SHARED + values + (MEANING if say["meaning"] else []) + REST
    cells += [make[kind](source.format(**say)) for kind, source in rest]
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
