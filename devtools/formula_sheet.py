"""The formula sheet: every labelled equation of the book, a printed page for each chapter.

Each has its number in the book and what it says: the first line of the function that computes it,
or the sentence that leads to it in the chapter. A chapter's symbols stand above its equations.
"""

import html
import inspect
import re
from pathlib import Path

from devtools import chapters, reader
from devtools.page import whole_page

NAME = "formulas.html"
BODY = """\
<header>
<h1>Formula sheet</h1>
<p>Every labelled equation of the book with its number and its meaning, a page for each chapter,
its symbols first. Where the library computes an equation, its function stands below. Print it from
here: it is made for A4, two columns.
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


def _written(text, page):
    """A little Markdown as HTML: roles in words, formulas for MathJax, emphasis left out."""
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", reader.inline(text, page))
    parts = re.split(r"\$(.+?)\$", html.escape(text, quote=False))
    for k, part in enumerate(parts):  # words and formulas in turn
        plain = re.sub(r"`(.+?)`", r"<code>\1</code>", part.replace("*", ""))
        parts[k] = f"\\({part}\\)" if k % 2 else plain
    return "".join(parts)


def description(label, page):
    """The sentence of the chapter that leads to an equation, if it is a short one."""
    path = next(path for path in chapters.pages() if chapters.name(path) == page)
    before = re.split(rf"\n\$\$\n(?:(?!\$\$).)*?\n\$\$ \({label}\)", chapters.markdown(path),
                      flags=re.DOTALL)[0].rstrip()  # fmt: skip
    paragraph = before.rpartition("\n\n")[2]
    if paragraph.startswith(("|", ":", "`", "#", "-", "$")):
        return ""
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z*$`{])", " ".join(paragraph.split()))[-1]
    return _written(sentence, page) if 3 <= len(sentence.split()) <= 32 else ""


def symbols(page):
    """The symbols of a chapter, from its own table: [(symbol, meaning), …] as HTML."""
    path = next(path for path in chapters.pages() if chapters.name(path) == page)
    rows_of = r"^\| symbol \| what it is .*\n\|[-| ]+\n((?:\|.*\n)+)"
    table = re.search(rows_of, chapters.markdown(path), re.MULTILINE)
    if table is None:
        return []
    rows = [row.strip("|").split(" | ") for row in table.group(1).splitlines()]
    return [(_written(row[0].strip(), page), _written(row[1].strip(" |"), page)) for row in rows]


def _entry(label, tex, page, heading, computed):
    number = reader.equations()[label][1]
    lines = [
        f'<li id="{label}">',
        f'<p class="where"><span class="number">({number})</span> '
        f'<a href="../{page}.html#equation-{label}">{html.escape(heading)}</a></p>',
    ]
    if not computed and (meaning := description(label, page)):
        lines.append(f'<p class="meaning">{meaning}</p>')
    lines.append(f'<div class="math">\\[{html.escape(tex)}\\]</div>')
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
        chapter = chapters.chapter_number(page)
        name = (f"{chapter}. " if chapter else "") + html.escape(chapters.page_title(page))
        known_as = "".join(f"<dt>{a}</dt><dd>{b}</dd>" for a, b in symbols(page))
        known_as = f'<dl class="symbols">{known_as}</dl>\n' if known_as else ""
        sections.append(
            f"<section>\n<h2>{name}</h2>\n{known_as}<ul>\n"
            + "\n".join(entries)
            + "\n</ul></section>"
        )
    body = BODY.format(sections="\n".join(sections))
    return whole_page("Formula sheet", body, ["formulas.css"]), len(known)


def write(folder):
    """Write the sheet below ``folder``; returns how many equations are on it."""
    text, count = sheet()
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / NAME).write_text(text, encoding="utf-8")
    return count
