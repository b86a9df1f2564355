"""The same table in every chapter: what is shared, what is personal, who decides, what it costs."""

import html

from pfl_lib import algorithms

#: name: (what clients share, what stays personal, who decides the weights, parameters a round)
FACTS = {
    "separate": ("nothing", "the whole model", "nobody", "0"),
    "fedavg": ("one model", "nothing", "sample counts", "2Σ"),
    "fedavg-ft": ("one model", "a fine-tuned copy", "sample counts", "2Σ"),
    "fedamp": ("their models, pairwise", "the whole model", "distances between models", "2Σ"),
    "heurfedamp": ("their models, pairwise", "the whole model", "angles between models", "2Σ"),
}
HEAD = ("method", "clients share", "stays personal", "weights decided by", "sent", "tested")


class Comparison:
    """Rows of the table; shows itself as HTML in a notebook and as text elsewhere."""

    def __init__(self, names, here=None):
        self.here = here
        self.rows = [
            (algorithms.BY_NAME[name].label, *FACTS[name], algorithms.BY_NAME[name].tested)
            for name in names
        ]

    def __repr__(self):
        return "\n".join(" | ".join(row) for row in (HEAD, *self.rows))

    def _repr_html_(self):
        head = "".join(f"<th>{html.escape(word)}</th>" for word in HEAD)
        body = ""
        for row in self.rows:
            mark = ' style="font-weight:bold"' if row[0] == self.here else ""
            cells = "".join(f"<td>{html.escape(word)}</td>" for word in row)
            body += f"<tr{mark}>{cells}</tr>"
        return f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def compare(*names, here=None):
    """The comparison table of these methods (all by default); ``here`` is set in bold.

    Σ is the number of parameters of one model; "sent" counts one client and one round, down and up.
    """
    here = algorithms.BY_NAME[here].label if here else None
    return Comparison(names or algorithms.names(), here)
