"""One glance at all results: methods across, settings down, points over the simple yardsticks."""

import html
import math
import statistics
from dataclasses import dataclass

from scipy.stats import t as student

from pfl_lib.book.experiments.overview import counted, with_setting
from pfl_lib.methods import BY_NAME

#: What costs nothing to think of: stay alone, or fine-tune the global model.
YARDSTICKS = ("Separate", "FedAvg-FT", "FedAvg-C")
PAPERS = {
    "fedamp": "FedAMP's settings",
    "fedala": "FedALA's settings",
    "spfl": "SPFL's and PLGA's settings",
    "plga": "SPFL's and PLGA's settings",
    "fedacs": "FedACS's settings",
    "natural": "Natural clients",
    "own": "Settings of our own",
}
ELSE = "Other settings"
DATA = {"ag_news": "AG News", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}
LEVEL = 0.95  # of the interval within which a difference counts as noise


@dataclass(frozen=True)
class Cell:
    """A method in a setting: ``points`` over the better yardstick, and whether that is noise."""

    points: float
    noise: bool


@dataclass(frozen=True)
class Row:
    """A setting: where it was run, the yardstick, and the others' cells by method.

    ``both`` says whether a fine-tuned model was run there, or Separate alone is to be beaten.
    """

    experiment: str
    words: str
    yardstick: str
    both: bool
    cells: dict[str, Cell]


def lead(found, method, case, against):
    """How many points a method is ahead of another in the last round, and whether it is noise.

    Differences are taken seed by seed.  With one seed they are taken client by client, which says
    nothing about another draw of clients.  Noise: the 95 % interval of the mean contains zero.

    >>> runs = [{"method": m, "case": "", "seed": s, "last": a + s / 100, "clients": [a]}
    ...         for m, a in (("Separate", 0.5), ("FedAMP", 0.6)) for s in range(3)]
    >>> from pfl_lib.book.experiments import Results
    >>> cell = lead(Results({"runs": runs}), "FedAMP", "", "Separate")
    >>> round(cell.points, 6), cell.noise
    (10.0, False)
    """
    ours, theirs = ({r["seed"]: r for r in found.of(m, case)} for m in (method, against))
    both = sorted(ours.keys() & theirs.keys())
    gaps = [100 * (ours[s]["last"] - theirs[s]["last"]) for s in both]
    if len(both) == 1:
        pair = (run[both[0]]["clients"] for run in (ours, theirs))
        spread = [100 * (a - b) for a, b in zip(*pair)]
    else:
        spread = gaps
    points = statistics.fmean(gaps)
    if len(spread) < 2:
        return Cell(points, True)
    error = statistics.stdev(spread) / math.sqrt(len(spread))
    within = error * student.ppf((1 + LEVEL) / 2, len(spread) - 1)
    return Cell(points, bool(abs(points) <= within))


class Matrix:
    """Settings down, methods across, in one block per paper; see :func:`matrix`.

    ``blocks`` maps a title to its methods and its ``Row``s.
    """

    def __init__(self, blocks, page="experiments/{}.html"):
        self.blocks, self.page = blocks, page

    def __repr__(self):
        lines = []
        for title, (methods, rows) in self.blocks.items():
            lines += [title, "  methods: " + ", ".join(methods)]
            for row in rows:
                cells = [f"{m} {_number(c)}" for m, c in row.cells.items()]
                lines.append(f"  {row.words} (over {row.yardstick}): {', '.join(cells)}")
        return "\n".join(lines)

    def _repr_html_(self):
        tables = "".join(self._block(title, *block) for title, block in self.blocks.items())
        return f"<style>{STYLE}</style>{LEGEND}{tables}"

    def _block(self, title, methods, rows):
        head = "".join(
            f'<th scope="col"><span>{html.escape(method)}</span></th>' for method in methods
        )
        body = ""
        for row in rows:
            link = html.escape(self.page.format(row.experiment))
            mark = "" if row.both else "&nbsp;°"
            body += f'<tr><th scope="row"><a href="{link}">{html.escape(row.words)}</a>{mark}</th>'
            for method in methods:
                body += _cell(row.cells.get(method), method == row.yardstick, link)
            body += "</tr>"
        table = (
            f'<table class="pfl-matrix"><caption>{html.escape(title)}</caption>'
            f'<thead><tr><th scope="col">setting</th>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )
        about = html.escape(f"points over the yardstick: {title}")
        box = f'class="pfl-matrix-box" tabindex="0" role="region" aria-label="{about}"'
        return f"<div {box}>{table}</div>"


def matrix(results=None, least=5):
    """Points over the better of training alone and fine-tuning FedAvg's model, by setting.

    Without ``results``, all stored ones that a summary counts (see ``overview.counted``).  The
    yardstick of a setting is the best of ``YARDSTICKS`` that was run there, by the last round.
    Settings with fewer than ``least`` methods, or without Separate, are left out; so are methods
    that only a sweep has (their label is no method's name).  FedAMP has one column for each way in
    which its width is set.

    >>> glance = matrix()
    >>> any("FedAMP" in title for title in glance.blocks)
    True
    """
    names = {method.label for method in BY_NAME.values()} | {"FedAMP, median σ"}
    blocks: dict[str, tuple[list, list]] = {}
    first = ["Separate", "FedAvg", *YARDSTICKS[1:], "Label prior"]
    for (experiment, scale), found in (counted() if results is None else results).items():
        if scale == "smoke":
            continue
        for case in found.cases:
            here = [m for m in found.methods_in(case) if m in names]
            if "Separate" not in here or len(here) < least:
                continue
            rivals = [m for m in YARDSTICKS if m in here]
            yardstick = max(rivals, key=lambda m: found.mean(m, "last", case))
            cells = {
                with_setting(m, found.of(m, case)[0]["settings"]): lead(found, m, case, yardstick)
                for m in here
                if m != yardstick
            }
            where = found.record["source"].rsplit(", ", 1)[-1] or experiment
            words = ": ".join([where, *[_setting(found, case)] * bool(case)])
            words += ", paper scale" * (scale == "paper")
            title = PAPERS.get(experiment.split("_")[0], ELSE)
            methods, rows = blocks.setdefault(title, ([], []))
            methods += [m for m in [yardstick, *cells] if m not in methods]
            rows.append(Row(experiment, words, yardstick, len(rivals) > 1, cells))
    for methods, _ in blocks.values():
        methods.sort(key=lambda m: first.index(m) if m in first else len(first))
    return Matrix(blocks)


def _setting(found, case):
    """The case, with its data set where a page of its own would say that."""
    used = found.of("Separate", case)[0]["settings"].get("data", "")
    name = DATA.get(used, "")
    return case if name.lower() in case.lower() else f"{name}, {case}"


def _number(cell):
    return f"{cell.points:+.1f}" + " (noise)" * cell.noise


def _cell(cell, is_yardstick, link):
    if is_yardstick:
        return f'<td class="zero"><a href="{link}" tabindex="-1">0</a></td>'
    if cell is None:
        return '<td class="none"><span class="said">not run</span></td>'
    kind = "grey" if cell.noise else ("up" if cell.points > 0 else "down")
    strength = min(1.0, 0.25 + abs(cell.points) / 12)
    words = f"{cell.points:+.1f}" if abs(cell.points) < 9.95 else f"{cell.points:+.0f}"
    noise = '<span class="said"> within noise</span>' if cell.noise else ""
    style = "" if cell.noise else f' style="--s: {strength:.2f}"'
    return f'<td class="{kind}"{style}><a href="{link}" tabindex="-1">{words}{noise}</a></td>'


LEGEND = (
    '<p class="pfl-matrix-key"><span class="up">better</span> <span class="down">worse</span> '
    '<span class="grey">within noise</span> <span class="none">not run</span> '
    '<span class="zero">0: the yardstick</span> <span>° Separate alone is the yardstick: no '
    "fine-tuned model was run</span></p>"
)
STYLE = """
.pfl-matrix-box { overflow-x: auto; margin: 0 0 1.2rem; }
table.pfl-matrix { border-collapse: separate; border-spacing: 2px; font-size: .74rem;
  line-height: 1.25; width: auto; margin: 0; }
.pfl-matrix caption { caption-side: top; text-align: left; font-weight: 600; font-size: .95rem;
  color: inherit; padding: .2rem 0; position: sticky; left: 0; }
.pfl-matrix th, .pfl-matrix td { padding: 1px 3px; border: 0; }
.pfl-matrix thead th { vertical-align: bottom; font-weight: 400; }
.pfl-matrix thead th span { writing-mode: vertical-rl; transform: rotate(180deg);
  white-space: nowrap; max-height: 11em; }
.pfl-matrix thead th:first-child, .pfl-matrix tbody th { position: sticky; left: 0;
  text-align: left; font-weight: 400; min-width: 8.5em; max-width: 15em; z-index: 1;
  background: var(--pst-color-background, #fff); }
.pfl-matrix td { text-align: center; min-width: 2.6em; font-variant-numeric: tabular-nums; }
.pfl-matrix td a { color: inherit; text-decoration: none; display: block; }
.pfl-matrix td a:hover { text-decoration: underline; }
.pfl-matrix-key span { padding: 1px 8px; margin-right: 4px; font-size: .8rem;
  display: inline-block; }
.pfl-matrix .up, .pfl-matrix-key .up {
  background: color-mix(in srgb, #2f7ed8 calc(55% * var(--s, .8)), transparent); }
.pfl-matrix .down, .pfl-matrix-key .down {
  background: color-mix(in srgb, #d9772b calc(52% * var(--s, .8)), transparent); }
.pfl-matrix .grey, .pfl-matrix-key .grey { background: rgba(128, 128, 128, .14); }
.pfl-matrix .zero, .pfl-matrix-key .zero { outline: 1px solid rgba(128, 128, 128, .6);
  outline-offset: -1px; }
.pfl-matrix .none, .pfl-matrix-key .none { background: repeating-linear-gradient(135deg,
  rgba(128, 128, 128, .22) 0 2px, transparent 2px 6px); }
.pfl-matrix .said { position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap; }
@media (max-width: 600px) { .pfl-matrix tbody th { max-width: 9.5em; } }
"""
