"""The formula sheet: every labelled equation of the book, a printed page for each chapter.

An equation that the library computes stands with its function and the first line of its docstring.
"""

import html
import inspect
import re
from pathlib import Path

from devtools import chapters
from devtools.page import whole_page

NAME = "formulas.html"
BODY = """\
<header>
<h1>Formula sheet</h1>
<p>Every labelled equation of the book, a page for each chapter. Where the library computes it, its
function stands below. Print it from here: it is made for A4, two columns.
<a href="../book/teaching.html">Back to the teaching page</a></p>
</header>
<main>
{sections}
</main>"""


def functions():
    """The library's functions by the label of their equation: {label: [(name, function), ...]}."""
    from pfl_lib import attention, formulas  # here, since it takes seconds to import

    found = {}
    for module in (formulas, attention):
        for name, thing in vars(module).items():
            if not callable(thing) or name.startswith("_"):
                continue
            label = re.search(r"Equation label: (\S+)", thing.__doc__ or "")
            if label:
                found.setdefault(label.group(1), []).append((name, thing))
    return found


def places():
    """The heading under which each equation stands: {label: heading}."""
    found = {}
    for path in chapters.pages():
        heading = ""
        for line in chapters.markdown(path).splitlines():
            if re.match(r"#{2,} ", line):
                heading = re.sub(r"^#+ (Step \d+: )?", "", line)
                heading = heading[0].upper() + heading[1:]
            label = re.match(r"\$\$ \((eq-[a-z0-9-]+)\)$", line)
            if label:
                found[label.group(1)] = heading
    return found


def _entry(label, tex, page, heading, computed):
    lines = [
        f'<li id="{label}">',
        f'<p class="where"><a href="../{page}.html#equation-{label}">'
        f"{html.escape(heading)}</a></p>",
        f'<div class="math">\\[{html.escape(tex)}\\]</div>',
    ]
    # a class and the function that makes it say the same: the function is what a reader calls
    says = {inspect.getdoc(thing).splitlines()[0]: name for name, thing in computed}
    for words, name in says.items():
        words = re.sub(r"``(.+?)``", r"<code>\1</code>", html.escape(words))
        lines.append(f'<p class="code"><code>{name}</code> {words}</p>')
    return "\n".join([*lines, "</li>"])


def sheet():
    """The sheet as HTML, and how many equations are on it."""
    known, where, computed, sections = chapters.equations(), places(), functions(), []
    pages = list(dict.fromkeys(page for _, page in known.values()))
    for page in pages:
        own = {label: tex for label, (tex, there) in known.items() if there == page}
        entries = [
            _entry(label, tex, page, where[label], computed.get(label, []))
            for label, tex in own.items()
        ]
        name = html.escape(chapters.page_title(page))
        sections.append(
            f"<section>\n<h2>{name}</h2>\n<ul>\n" + "\n".join(entries) + "\n</ul></section>"
        )
    body = BODY.format(sections="\n".join(sections))
    return whole_page("Formula sheet", body, ["formulas.css"]), len(known)


def write(folder):
    """Write the sheet below ``folder``; returns how many equations are on it."""
    text, count = sheet()
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / NAME).write_text(text, encoding="utf-8")
    return count
