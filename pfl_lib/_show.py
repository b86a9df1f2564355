"""Tables that render as HTML in a notebook and as aligned text elsewhere; a progress bar."""

import html
import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from tqdm.auto import tqdm


def progress_bar(progress: bool, **options: Any) -> Any:
    """tqdm's progress bar, or one that does nothing.

    Even a disabled tqdm bar acquires a lock that forked processes share: a process killed at that
    moment would block all others.
    """
    if progress:
        return tqdm(**options)
    ignore = lambda *args, **kwargs: None  # noqa: E731
    return nullcontext(SimpleNamespace(update=ignore, set_postfix=ignore))


def _style(word):
    """Keep a number on one line (6.4 M, 98.1 ± 0.2); longer text may wrap."""
    if any(letter.isdigit() for letter in word) and len(word) <= 12:
        return ' style="white-space: nowrap"'
    return ' style="min-width: 7.2em"' if "±" in word else ""


def _is_number(word):
    """Whether a cell is a number, a difference or a range, which are aligned right."""
    return bool(re.match(r"[-+−±<>[(]?\d(?!.*[a-z]{3})", word))


class Link(str):
    """A table cell that links to a page.

    >>> Link("FedAMP", "fedamp.html").href
    'fedamp.html'
    """

    href: str

    def __new__(cls, word, href):
        made = super().__new__(cls, word)
        made.href = href
        return made


def _word(word):
    text = html.escape(word).replace("_", "_<wbr>")  # long names may break there
    return f'<a href="{html.escape(word.href)}">{text}</a>' if isinstance(word, Link) else text


class Shown:
    """A table of strings with a header.  ``bold`` names the first cell of a row to be set in bold.

    A ``sortable`` table can be sorted by any column and filtered where the book's script runs
    (static/tables.js); on a phone each row becomes a block, so that nothing is cut off.

    >>> print(Shown(("", "tested", "accuracy"), [("alone", "at home", "0.5"), ("all", "", "0.75")]))
           tested   accuracy
    alone  at home       0.5
    all                 0.75
    """

    def __init__(self, head, rows, bold=None, note="", wide=False, sortable=False):
        self.head, self.rows = tuple(head), [tuple(row) for row in rows]
        self.bold, self.note, self.sortable = bold, note, sortable
        # for columns of sentences, of which browsers would squeeze the last ones
        self.style = ' style="min-width: 7.5em"' if wide else ""

    def __repr__(self):
        lines = [self.head, *self.rows]
        columns = []
        for number, words in enumerate(zip(*lines)):
            width = max(map(len, words))
            put = str.rjust if number and any(map(_is_number, words[1:])) else str.ljust
            columns.append([put(word, width) for word in words])
        text = ["  ".join(words).rstrip() for words in zip(*columns)]
        return "\n".join([*text, self.note] if self.note else text)

    def _repr_html_(self):
        # where rows become blocks, roles tell screen readers that it still is a table
        role = lambda name: f' role="{name}"' if self.sortable else ""  # noqa: E731
        wide, kind, box = self.style, "table", 'style="overflow-x: auto"'
        if self.sortable:
            wide, kind, box = "", "table pfl-sortable", 'class="pfl-sortable-box"'
        head = "".join(
            f'<th scope="col"{role("columnheader")}{wide}>{html.escape(word)}</th>'
            for word in self.head
        )
        body = ""
        for row in self.rows:
            first = _word(row[0])
            first = f"<strong>{first}</strong>" if row[0] == self.bold else first
            room = ' style="min-width: 10em"' if len(row[0]) > 20 and not self.sortable else ""
            body += f'<tr{role("row")}><th scope="row"{role("rowheader")}{room}>{first}</th>'
            for name, word in zip(self.head[1:], row[1:]):
                label = f' data-label="{html.escape(name)}"' if self.sortable else ""
                body += f"<td{role('cell')}{label}{_style(word)}>{_word(word)}</td>"
            body += "</tr>"
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        group, line = role("rowgroup"), role("row")
        table = f'<table class="{kind}"{role("table")}><thead{group}><tr{line}>{head}</tr></thead>'
        table += f"<tbody{group}>{body}</tbody></table>"
        # wide tables scroll, so they must be reachable by keyboard
        return f'<div {box} tabindex="0" role="region" aria-label="table">{table}</div>{note}'


class Folded:
    """A collapsible block: a title that opens to show ``things``.

    >>> Folded("more", Shown(("",), [("word",)]))
    more
    <BLANKLINE>
    word
    """

    def __init__(self, title, *things):
        self.title, self.things = title, things

    def __repr__(self):
        return "\n".join([self.title, *map(repr, self.things)])

    def _repr_html_(self):
        inner = "".join(thing._repr_html_() for thing in self.things)
        title = html.escape(self.title)
        return f'<details class="pfl-fold"><summary>{title}</summary>{inner}</details>'


def table(rows, columns, note="", digits=2):
    """Numbers (or words) by name under their column heads; ``rows`` is name: one entry per column.

    >>> table({"alone": (0.5, 20), "together": (0.75, "all")}, ("accuracy", "samples"))
              accuracy  samples
    alone         0.50       20
    together      0.75      all
    """
    words = []
    for name, values in rows.items():
        values = [v.item() if hasattr(v, "item") else v for v in values]
        if len(values) != len(columns):
            raise ValueError(
                f"rows[{name!r}] must hold one entry for each of the {len(columns)} columns, "
                f"got {len(values)}"
            )
        texts = [f"{v:.{digits}f}" if isinstance(v, float) else str(v) for v in values]
        words.append((str(name), *texts))
    return Shown(("", *map(str, columns)), words, note=note)
