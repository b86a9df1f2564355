"""The papers' own tables of results, transcribed cell by cell and shipped as JSON.

A cell is kept as it is printed ("98.46±0.21"), so that a transcription can be compared with the
paper letter by letter; its numbers are read from that text and never typed twice.
"""

import html
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pfl_lib._check import one_of
from pfl_lib._show import Shown

#: How each paper is called in this package, and how it is cited in words.
PAPERS = {
    "fedamp_v1": "Huang et al. v1 (FedAMP, arXiv 2020)",
    "fedamp": "Huang et al. (FedAMP, AAAI 2021)",
    "spfl": "the SPFL/PLGA paper (anonymous, under review)",
    "fedacs": "Chen et al. (FedACS)",
    "fedala": "Zhang et al. (FedALA, AAAI 2023)",
}

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_POWER = re.compile(r"(\d+)\^(\d+)")


@dataclass(frozen=True)
class Cell:
    """One cell: the text as printed, its value, and its spread if one is printed.

    >>> Cell("97.31 ± 0.12", mean=97.31, sd=0.12).mean
    97.31
    """

    text: str
    mean: float | None = None
    sd: float | None = None

    @classmethod
    def read(cls, text):
        """The cell of a printed text; ``None`` stands for a cell left empty in the paper."""
        if text is None:
            return cls("")
        mean, _, sd = text.partition("±")
        return cls(text, _number(mean), _number(sd))


def _number(text):
    if power := _POWER.fullmatch(text):
        return float(power[1]) ** int(power[2])
    parts = text.split("+")  # "7+116" minutes: a first stage and the rest
    if all(_NUMBER.fullmatch(part) for part in parts):
        return sum(map(float, parts))
    return None


@dataclass(frozen=True)
class Table:
    """A table of a paper: ``table["FedAMP", "MNIST"].mean`` is a number, ``show()`` prints all.

    >>> import pfl_lib
    >>> fedamp = pfl_lib.book.papers.table("fedamp", 3)
    >>> fedamp.source
    'Huang et al. (FedAMP, AAAI 2021), Table 3'
    >>> fedamp.columns
    ('MNIST', 'FMNIST', 'EMNIST', 'CIFAR100')
    """

    paper: str
    number: str
    title: str
    measures: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    errata: tuple[str, ...] = ()
    note: str = ""

    def __getitem__(self, key):
        """The cell of (row, column), both by name."""
        row, column = key
        row = self.rows.index(one_of("row", row, self.rows))
        return self.cells[row][self.columns.index(one_of("column", column, self.columns))]

    @property
    def mean(self):
        """The printed values as rows of numbers, ``None`` where there is none."""
        return tuple(tuple(cell.mean for cell in row) for row in self.cells)

    @property
    def sd(self):
        """The printed spreads as rows of numbers, ``None`` where there is none."""
        return tuple(tuple(cell.sd for cell in row) for row in self.cells)

    def row(self, name):
        """The values of one row, by column."""
        return {column: self[name, column].mean for column in self.columns}

    def column(self, name):
        """The values of one column, by row."""
        return {row: self[row, name].mean for row in self.rows}

    @property
    def source(self):
        """Where the table is printed, in words."""
        return f"{PAPERS[self.paper]}, Table {self.number}"

    def show(self):
        """Print the table."""
        print(self)

    def __str__(self):
        grid = [("", *self.columns)]
        grid += [
            (name, *(cell.text or "–" for cell in row)) for name, row in zip(self.rows, self.cells)
        ]
        widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
        lines = [f"{self.title} [{self.source}]", self.measures, ""]
        for line in grid:
            first, rest = line[0].ljust(widths[0]), zip(line[1:], widths[1:])
            lines.append("  ".join([first, *(text.rjust(width) for text, width in rest)]).rstrip())
        return "\n".join([*lines, *self._remarks()])

    def _remarks(self):
        remarks = ["", self.note] if self.note else []
        return remarks + (["Errata: " + ", ".join(self.errata)] if self.errata else [])

    def _repr_html_(self):
        rows = [(name, *(c.text or "–" for c in row)) for name, row in zip(self.rows, self.cells)]
        remarks = "".join(f"<p>{html.escape(text)}</p>" for text in self._remarks() if text)
        return (
            f"<p>{html.escape(self.title)} [{html.escape(self.source)}]<br>"
            f"{html.escape(self.measures)}</p>"
            f"{Shown(('', *self.columns), rows)._repr_html_()}{remarks}"
        )


@cache
def _all(paper):
    text = (files(__package__) / f"{paper}.json").read_text(encoding="utf-8")
    return {entry["number"]: _build(paper, entry) for entry in json.loads(text)["tables"]}


def _build(paper, entry):
    cells = tuple(tuple(map(Cell.read, row)) for row in entry["cells"])
    words = {name: tuple(entry[name]) for name in ("columns", "rows", "errata")}
    plain = {name: entry[name] for name in ("number", "title", "measures", "note")}
    return Table(paper=paper, cells=cells, **words, **plain)  # type: ignore[arg-type]


def table(paper, number):
    """Table ``number`` of a paper as data: ``table("fedamp", 3).show()``.

    >>> found = table("fedamp", 3)
    >>> found.rows[0], found[found.rows[0], found.columns[0]].text
    ('Separate', '86.30')
    """
    one_of("paper", paper, PAPERS)
    return _all(paper)[one_of(f"number of a table of {paper!r}", str(number), _all(paper))]


def tables():
    """Which tables there are: for each paper the numbers of its tables.

    >>> tables()["fedamp"]
    ('1', '2', '3')
    """
    return {paper: tuple(_all(paper)) for paper in PAPERS}
