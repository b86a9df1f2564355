"""A table that shows itself: HTML in a notebook, aligned text elsewhere."""

import html
import re


def _style(word):
    """A number stays on one line: 6.4 M, 98.1 ± 0.2. What follows it may go below."""
    if any(letter.isdigit() for letter in word) and len(word) <= 12:
        return ' style="white-space: nowrap"'
    return ' style="min-width: 7.2em"' if "±" in word else ""


def _is_number(word):
    """A number, a difference, or a span of numbers, not a sentence: these are set flush right."""
    return bool(re.match(r"[-+−±<>[(]?\d(?!.*[a-z]{3})", word))


class Shown:
    """Rows of words under a head.  ``bold`` names the first cell of a row to be set in bold.

    >>> print(Shown(("", "tested", "accuracy"), [("alone", "at home", "0.5"), ("all", "", "0.75")]))
           tested   accuracy
    alone  at home       0.5
    all                 0.75
    """

    def __init__(self, head, rows, bold=None, note="", wide=False):
        self.head, self.rows = tuple(head), [tuple(row) for row in rows]
        self.bold, self.note = bold, note
        # columns of sentences: else the browser squeezes the last ones
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
        head = "".join(
            f'<th scope="col"{self.style}>{html.escape(word)}</th>' for word in self.head
        )
        body = ""
        for row in self.rows:
            first = html.escape(row[0])
            first = f"<strong>{first}</strong>" if row[0] == self.bold else first
            cells = "".join(f"<td{_style(word)}>{html.escape(word)}</td>" for word in row[1:])
            room = ' style="min-width: 10em"' if len(row[0]) > 20 else ""
            body += f'<tr><th scope="row"{room}>{first}</th>{cells}</tr>'
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        table = f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        # wide tables scroll; the keyboard must reach what scrolls
        reached = 'tabindex="0" role="region" aria-label="table"'
        return f'<div style="overflow-x: auto" {reached}>{table}</div>{note}'


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
