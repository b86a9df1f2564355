"""A table that shows itself: HTML in a notebook, aligned text elsewhere."""

import html


def _style(word):
    """A number stays on one line: 6.4 M, 98.1 ± 0.2. What follows it may go below."""
    if any(letter.isdigit() for letter in word) and len(word) <= 12:
        return ' style="white-space: nowrap"'
    return ' style="min-width: 7.2em"' if "±" in word else ""


class Shown:
    """Rows of words under a head.  ``bold`` names the first cell of a row to be set in bold."""

    def __init__(self, head, rows, bold=None, note="", wide=False):
        self.head, self.rows = tuple(head), [tuple(row) for row in rows]
        self.bold, self.note = bold, note
        # columns of sentences: else the browser squeezes the last ones
        self.style = ' style="min-width: 7.5em"' if wide else ""

    def __repr__(self):
        rows = [self.head, *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, self.note] if self.note else lines)

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
