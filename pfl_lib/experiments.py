"""Experiments: several methods on the same federations, measured, kept and shown.

``measure`` runs every method with every seed, resumes what was interrupted, and writes one JSON
file with everything needed to judge the numbers: settings, versions, duration, machine.
"""

import hashlib
import html
import json
import os
import platform
import statistics
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from pfl_lib import _check, partition
from pfl_lib import data as datasets
from pfl_lib._version import __version__
from pfl_lib.algorithms import algorithm
from pfl_lib.federation import Federation
from pfl_lib.run import run


@dataclass(frozen=True)
class Results:
    """What an experiment measured, as plain data: see ``measure``."""

    record: dict

    def of(self, method):
        """The runs of a method, one record a seed."""
        return [r for r in self.record["runs"] if r["method"] == method]

    @property
    def methods(self):
        return list(dict.fromkeys(r["method"] for r in self.record["runs"]))

    def mean(self, method, what="last"):
        """Mean over the seeds of ``last``, ``best`` or ``worst 10 %``."""
        return statistics.fmean(r[what] for r in self.of(method))

    def spread(self, method, what="last"):
        """Standard deviation over the seeds (0 with one seed)."""
        values = [r[what] for r in self.of(method)]
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def table(self, paper=None):
        """Our numbers as a table; ``paper`` maps a method's label to the paper's number in %."""
        return ResultTable(self, paper or {})

    def save(self, path=None):
        """Write to the side, then rename: a half-written result never stands.

        Without a path: ``results/<experiment>/<scale>.json`` of the book's folder.
        """
        default = home() / "results" / self.record["experiment"] / f"{self.record['scale']}.json"
        path = Path(path or default)
        path.parent.mkdir(parents=True, exist_ok=True)
        side = path.with_suffix(".part")
        side.write_text(json.dumps(self.record, indent=1, ensure_ascii=False) + "\n")
        os.replace(side, path)

    @classmethod
    def load(cls, path):
        return cls(json.loads(Path(path).read_text()))


class ResultTable:
    """Rows of a result, shown as HTML in a notebook and as text elsewhere."""

    HEAD = ("method", "last round", "best round", "worst 10 %", "seconds", "sent", "paper")

    def __init__(self, results, paper):
        self.rows = []
        for method in results.methods:
            runs = results.of(method)
            self.rows.append(
                (
                    method,
                    _percent(results, method, "last"),
                    _percent(results, method, "best"),
                    _percent(results, method, "worst 10 %"),
                    f"{statistics.fmean(r['seconds'] for r in runs):.1f}",
                    f"{runs[0]['sent'] / 1e6:.1f} M",
                    f"{paper[method]:.2f}" if method in paper else "",
                )
            )

    def __repr__(self):
        rows = [self.HEAD, *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.HEAD))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)) for row in rows)

    def _repr_html_(self):
        head = "".join(f"<th>{html.escape(c)}</th>" for c in self.HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>"
            for row in self.rows
        )
        return f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def measure(
    name,
    scale,
    methods,
    federation,
    rounds,
    *,
    seeds=(0,),
    about="",
    checkpoints=True,
    progress=True,
    **how,
):
    """Run every method with every seed and collect the results.

    ``methods`` maps labels to algorithms, ``federation`` makes a federation from a seed.  Each run
    has a checkpoint folder of its own under ``checkpoints`` (a path, True for the book's own
    folder, or None), so calling again after an interruption goes on where it stopped.  ``how``
    goes to ``run``.
    """
    if checkpoints is True:
        checkpoints = home() / "checkpoints"
    runs, states = [], {}
    began = time.time()
    for seed in seeds:
        fed = federation(seed)
        for label, method in methods.items():
            folder = Path(checkpoints) / name / scale / f"{label}-{seed}" if checkpoints else None
            history = run(method, fed, rounds, checkpoint=folder, progress=progress, **how)
            states[label, seed] = history
            runs.append(
                {
                    "method": label,
                    "seed": seed,
                    "last": history.last,
                    "best": history.best,
                    "best round": history.best_round,
                    "worst 10 %": history.worst(),
                    "seconds": history.seconds[-1],
                    "sent": history.sent[-1],
                    "tested": history.tested,
                    "clients": history.accuracy[-1],
                    "mean by round": history.mean,
                    "also": {n: statistics.fmean(rows[-1]) for n, rows in history.also.items()},
                    "settings": history.settings,
                }
            )
    record = {
        "experiment": name,
        "scale": scale,
        "about": about,
        "rounds": rounds,
        "seeds": list(seeds),
        "date": date.today().isoformat(),
        "minutes": round((time.time() - began) / 60, 2),
        "library": __version__,
        "fingerprint": library_fingerprint(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "device": str(fed.device),
        "runs": runs,
    }
    return Results(record), states


def round_work(algorithm, fed, after=2):
    """Floating-point operations of one round, clients and server, when ``after`` have gone before.

    Counted while the round runs, in the products of matrices, where nearly all the work is; so it
    is the same on a busy machine and on an idle one.  Testing the models is not counted.
    """
    state = algorithm.start(fed)
    for k in range(_check.whole("after", after, at_least=0)):
        state = algorithm.round(state, fed.at(k), fed.everyone)
    with FlopCounterMode(display=False) as counter:
        algorithm.round(state, fed.at(after), fed.everyone)
    return counter.get_total_flops()


def home():
    """The book's folder, when the notebook runs inside it; else the current folder."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_toc.yml").exists():
            return folder
    return here


def library_fingerprint():
    """A name for the code that decides the numbers: it changes when that code does."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for part in ("algorithms", "formulas", "data"):
        for path in sorted((here / part).glob("*.py")):
            digest.update(path.read_bytes())
    for part in ("attention", "engines", "federation", "models", "partition", "run", "training"):
        digest.update((here / f"{part}.py").read_bytes())
    return digest.hexdigest()[:16]


def _percent(results, method, what):
    mean, spread = 100 * results.mean(method, what), 100 * results.spread(method, what)
    return f"{mean:.2f} ± {spread:.2f}" if len(results.of(method)) > 1 else f"{mean:.2f}"


def taste(method, rounds=6):
    """``method`` beside Separate and FedAvg on a small federation: for the reference pages.

    Twelve clients in three hidden groups that name the classes differently, 8×8 digits.
    """
    data = datasets.load("digits")
    thirds = [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    clients = partition.grouped(
        data, group_classes=thirds, group_clients=[4] * 3, group_sizes=[40] * 3, test_size=20
    )
    data = partition.conflicting_labels(clients, data)
    fed = Federation(data, clients, "mlp", lr=0.1, batch_size=10, epochs=2)
    methods = {"Separate": algorithm("separate"), "FedAvg": algorithm("fedavg")}
    methods[method.label] = method
    results, _ = measure(
        "taste", "smoke", methods, lambda seed: fed, rounds, checkpoints=None, progress=False
    )
    return results.table()
