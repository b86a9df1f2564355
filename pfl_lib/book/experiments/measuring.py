"""Run every method on every case with every seed; go on where an interrupted run stopped."""

import hashlib
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from pfl_lib import _check, checkpoints
from pfl_lib._version import __version__
from pfl_lib.book.experiments.canary import DECIDES, canary, canary_setting
from pfl_lib.book.experiments.results import Results, home, stored
from pfl_lib.callbacks import Callback
from pfl_lib.history import History
from pfl_lib.methods.base import State
from pfl_lib.rounds import run

DIVERGED = "diverged"
YOUNGER = ("module", "samples")  # in the settings of a run since results are stored
SMALL = 200_000  # numbers: larger tensors of a finished run's state (the models) are dropped


@dataclass(frozen=True)
class Case:
    """One column of a table: where the methods are tried, and what the paper prints for them.

    ``federation`` makes a federation from a seed, ``methods`` maps labels to algorithms, ``paper``
    maps labels to the paper's numbers in %, ``options`` go to ``run``.  A method that needs no run
    of its own is in ``inside``: {"FedAvg": ("FedAvg-FT", "global")} says that FedAvg is what
    FedAvg-FT's history holds under ``extra_models["global"]``.  ``local`` holds settings of local
    training that one method has for itself, by its label: {"FedAvg": {"lr": 0.5}}.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg")
    >>> case = Case(lambda seed: pfl_lib.example(seed=seed), {"FedAvg": method}, rounds=2)
    >>> case.rounds, list(case.methods)
    (2, ['FedAvg'])
    """

    federation: Callable
    methods: Mapping
    rounds: int
    paper: Mapping = field(default_factory=dict)
    options: Mapping = field(default_factory=dict)
    inside: Mapping = field(default_factory=dict)
    local: Mapping = field(default_factory=dict)


def pick(scale, scales):
    """The settings of ``scale``; an unknown one is refused by name.

    >>> pick("smoke", {"smoke": {"rounds": 2}, "laptop": {"rounds": 20}})
    {'rounds': 2}
    """
    return scales[_check.one_of("SCALE", scale, scales)]


def part_of(cases, named_cases="", named_methods="", seeds=()):
    """What ``measure(only=...)`` takes, from the parameters of a notebook: names with semicolons
    between them; empty means all.  ``seeds`` are those to run now.

    >>> case = Case(None, {"Separate": None, "FedAvg": None}, rounds=1)
    >>> part_of({"a": case, "b": case}, "b")
    [('b', 'Separate'), ('b', 'FedAvg')]
    >>> part_of({"a": case}, "a", "FedAvg", seeds=[1, 2])
    [('a', 'FedAvg', 1), ('a', 'FedAvg', 2)]
    >>> part_of({"a": case})
    """
    if not named_cases and not named_methods and not seeds:
        return None
    labels = [_check.one_of("CASES", c, cases) for c in named_cases.split(";") if named_cases]
    pairs = [
        (label, _check.one_of("METHODS", method, cases[label].methods))
        for label in labels or cases
        for method in (named_methods.split(";") if named_methods else cases[label].methods)
    ]
    return [(*pair, seed) for pair in pairs for seed in seeds] if seeds else pairs


def measure(
    name, scale, cases, *, seeds=(0,), about="", source="", judged="best", extra=None,
    keep_models=False, folder=True, progress=True, only=None,
):  # fmt: skip
    """Run every method of every case with every seed: ``Results`` and the histories.

    ``cases`` maps labels to a ``Case`` each (or is a single one).  Histories are keyed by (case,
    method, seed); their states keep only small tensors (weights, not models).  ``judged`` says
    which of our numbers stands beside the paper's: its "best" round or its "last".
    ``extra(history, fed)`` may return more numbers to keep for a run; what is read ``inside`` a
    run is asked, too.

    Every run writes checkpoints under ``folder`` (a path, True for the book's own folder, None
    for no checkpoints), so calling again goes on where it stopped; ``keep_models`` keeps them
    when the run is over, so that it can be made longer later.  A run with other settings, or of a
    method that computes something else by now, has a folder of another name: nothing of the old
    one is taken for the new.  A run whose models are no longer finite is kept under "diverged",
    with the round in which it broke and what was measured before.  ``only`` names the methods to
    run now, or pairs of case and method, or these with a seed; of the others, what has been
    finished before is taken, from checkpoints or the stored result, if it has as many rounds: in
    one table all have equally many.  What is not taken is printed.

    >>> import pfl_lib
    >>> two = {"Separate": pfl_lib.algorithm("separate"), "FedAvg": pfl_lib.algorithm("fedavg")}
    >>> case = Case(lambda seed: pfl_lib.example(seed=seed), two, rounds=2)
    >>> results, histories = measure("mine", "smoke", case, folder=None, progress=False)
    >>> results.methods, sorted(histories)
    (['Separate', 'FedAvg'], [('', 'FedAvg', 0), ('', 'Separate', 0)])
    """
    cases, began = _by_label(cases), time.time()
    where = home() / "checkpoints" if folder is True else folder
    where = Path(where) / name / scale if where else None
    todo = _checked_todo(cases, seeds, only)
    before = stored(name).get(scale) if only is not None else None
    runs, diverged, histories, canaries = [], [], {}, {}
    fed_of: tuple[Any, Any] = (None, None)
    for number, (label, seed, method_label) in enumerate(todo):
        case = cases[label]
        now = only is None or _named(only, label, method_label, seed)
        begins = _file_name(f"{label}-{method_label}-{seed}-")
        if not now and not _held(where, begins, before, label, seed):
            continue  # neither wanted nor there: not even its canary is needed
        if fed_of[0] != (label, seed):
            fed_of = ((label, seed), case.federation(seed))
        fed, method = fed_of[1], case.methods[method_label]
        if method_label in case.local:
            fed = fed.replace(**case.local[method_label])
        setting = _setting(method, fed, case)
        values = canary(setting, method)
        canaries[_digest(setting)] = setting | values
        place = None
        if where:
            decides = [method.settings(), fed.describe(), dict(case.options), _coarse(values)]
            place = where / f"{begins}{_digest(decides)}"
        found = _finished(place, case)
        if found is None and not now:
            readers = [r for r, (inside, _) in case.inside.items() if inside == method_label]
            wanted = [*readers, method_label], label, seed, method, fed, case
            runs += _from_result(before, "runs", *wanted)
            diverged += _from_result(before, "diverged", *wanted)
            continue
        if where:
            words = f"{label} {method_label}, seed {seed}"
            _write_progress(where, number, len(todo), words, place, case)
        history, more = found or _one(method, fed, case, place, extra, keep_models, progress)
        for shown, (kept, numbers) in {
            **_read_inside(history, method_label, fed, case, extra),
            method_label: (history, more),
        }.items():
            histories[label, shown, seed] = kept
            if DIVERGED in more:
                diverged.append(_end_of(label, shown, seed, kept, more[DIVERGED]))
            else:
                runs.append(_run_record(label, shown, seed, kept, numbers))
    canaries = _canaries_of(before, [*runs, *diverged], progress) | canaries
    measured = {_digest(canary_setting(run["settings"])) for run in [*runs, *diverged]}
    record = {
        "experiment": name,
        "scale": scale,
        "about": about,
        "source": source,
        "judged": judged,
        "command": f"make experiment NAME={name} SCALE={scale}",
        "seeds": list(seeds),
        **_circumstances(began),
        "device": str(fed.device),
        "cases": [
            {"case": label, "rounds": case.rounds, "paper": dict(case.paper)}
            for label, case in cases.items()
        ],
        "runs": runs,
        **({"diverged": diverged} if diverged else {}),
        "more": {},
        "canary": [entry for key, entry in canaries.items() if key in measured],
    }
    return Results(record), histories


def _checked_todo(cases, seeds, only):
    """(case, seed, method) of every run; ``only`` must name some of them."""
    todo = [(c, s, m) for c in cases for s in seeds for m in cases[c].methods]
    if not todo:
        raise ValueError("there is nothing to run: seeds, cases and methods must not be empty")
    known = {m for _, _, m in todo} | {(c, m) for c, _, m in todo}
    known |= {(c, m, s) for c, s, m in todo}
    for wanted in only or ():
        _check.one_of("only", wanted, known)
    return todo


def _circumstances(began):
    """When, for how long, with what and on what a result was measured."""
    return {
        "date": date.today().isoformat(),
        "minutes": round((time.time() - began) / 60, 2),
        "library": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
    }


def _by_label(cases):
    cases = {"": cases} if isinstance(cases, Case) else cases
    if not isinstance(cases, Mapping) or not all(isinstance(c, Case) for c in cases.values()):
        raise TypeError(f"cases must be a Case, or labels and Cases, got {cases!r}")
    return cases


def _named(only, label, method_label, seed):
    """Whether a run is among those to run now."""
    return bool({method_label, (label, method_label), (label, method_label, seed)} & {*only})


def _canaries_of(before, kept, progress):
    """The canaries of a stored result, for the runs that are taken from there; which of its rows
    are not is printed."""
    keys = {(row["case"], row["method"], row["seed"]) for row in kept}
    for row in [*before.record["runs"], *before.diverged()] if before and progress else ():
        if (key := (row["case"], row["method"], row["seed"])) not in keys:
            after = f"{row['rounds'][-1]} rounds" if row["rounds"] else "no round"
            print(f"not kept of the stored result: {key} after {after}")
    entries = before.record["canary"] if before else ()
    return {_digest({key: entry[key] for key in DECIDES}): entry for entry in entries}


def _held(where, begins, before, label, seed):
    """Whether anything may be kept of a run: a checkpoint, or something of its case and seed."""
    if where and any(path.name.startswith(begins) for path in where.glob("*")):
        return True
    kept = [*before.record["runs"], *before.diverged()] if before else []
    return any((run["case"], run["seed"]) == (label, seed) for run in kept)


def _finished(place, case):
    """What was kept of a finished run, the history and the extra numbers, or None."""
    found = checkpoints.newest(place / f"done-{case.rounds}", {}, "cpu") if place else None
    if found:
        record, tensors = found
        return History(**record["history"], state=tensors), record["extra"]
    return None


def _from_result(before, part, labels, case_label, seed, method, fed, case):
    """The records of a run in the stored result, if they are of these settings and not stale."""
    if before is None or {*labels} & {*before.stale()}:
        return []
    ours = {f"{method.name}.{key}": value for key, value in method.settings().items()}
    ours = json.loads(json.dumps(fed.describe() | ours | {"algorithm": method.name}))
    # a hyper-parameter that is younger than the result had, as its canary says, its default; what
    # else is younger was not written down
    defaults = {f"{method.name}.{f.name}": f.default for f in fields(method)}
    defaults |= {key: ours[key] for key in YOUNGER if key in ours}
    return [
        run
        for label in labels
        for run in before.record.get(part, ())
        if (run["case"], run["method"], run["seed"]) == (case_label, label, seed)
        and (part == "diverged" or run["rounds"][-1] == case.rounds)
        and all(run["settings"].get(key, defaults.get(key)) == value for key, value in ours.items())
    ]


def _setting(method, fed, case):
    """What the canary of this run depends on, as the run's own settings will say it."""
    settings = {f"{method.name}.{key}": value for key, value in method.settings().items()}
    settings |= {"algorithm": method.name, "optimizer": fed.describe()["optimizer"]}
    settings["participation"] = case.options.get("participation", 1.0)
    return json.loads(json.dumps(canary_setting(settings)))


def _coarse(values):
    """A canary without its last digits, which may differ from machine to machine."""
    return values | {"loss": [f"{value:.6g}" for value in values.get("loss", ())]}


def _read_inside(history, method_label, fed, case, extra):
    """The methods that are read inside this run: {label: (history, extra numbers)}."""
    found: dict[str, tuple[History, dict]] = {}
    for reader, (run_label, part) in case.inside.items():
        if run_label == method_label:
            other = _part_of(history, part, run_label)
            numbers = dict(extra(other, fed)) if extra and other.accuracy else {}
            found = {reader: (other, numbers)} | found
    return found


def _part_of(history, part, label):
    """The history of the other models that a method has on its way, as a method of their own."""
    settings = history.settings | {"read from": f"{label}, {part}"}
    tested = f"the {part} model of {label}"
    accuracy = history.extra_models.get(part, [])  # none of a run that broke at once
    # whose loss was measured is the other model
    return replace(
        history,
        tested=tested,
        accuracy=accuracy,
        loss=[],
        extra_models={},
        settings=settings,
    )


class _Watch(Callback):
    """Holds on to where a run is, so that one that breaks is not lost."""

    now: Any = None

    def on_start(self, now):
        self.now = now


def _one(method, fed, case, place, extra, keep_models, progress):
    """One run: the history and the extra numbers; of one that broke, where and how."""
    watch = _Watch()
    options = {**case.options, "callbacks": [watch, *case.options.get("callbacks", ())]}
    try:
        history = run(method, fed, case.rounds, checkpoint=place, progress=progress, **options)
        more = dict(extra(history, fed)) if extra else {}
    except FloatingPointError as error:
        if watch.now is None:  # no round was begun: nothing to tell of
            raise
        history, at = watch.now.history, re.search(r"round (\d+)", str(error))
        history.state = State()
        broke = int(at[1]) if at else watch.now.round + 1
        more = {DIVERGED: {"round": broke, "what": str(error).split(";")[0]}}
    small = {n: t.cpu() for n, t in history.state.items() if t.numel() <= SMALL}
    history.state = type(history.state)(**small)
    if place:
        kept = {"history": history.record(), "extra": more, "settings": {}}
        checkpoints.save(place / f"done-{case.rounds}", case.rounds, small, kept)
        if not keep_models:
            for path in place.glob("round-*"):
                path.unlink()
    return history, more


def _run_record(case, method, seed, history, more):
    return {
        "case": case,
        "method": method,
        "seed": seed,
        "last": history.last,
        "best": history.best,
        "best round": history.best_round,
        "worst 10 %": history.worst(),
        "seconds": round(history.seconds[-1], 2),
        "sent": history.sent[-1],
        "tested": history.tested,
        "clients": [round(a, 5) for a in history.accuracy[-1]],
        "rounds": history.rounds,
        "mean by round": [round(a, 5) for a in history.mean],
        "extra_models": {
            n: [round(statistics.fmean(r), 5) for r in v] for n, v in history.extra_models.items()
        },
        "extra": more,
        "settings": history.settings,
    }


def _end_of(case, method, seed, history, end):
    """What is kept of a run that broke: the round, the words, and what was measured before."""
    return {
        "case": case,
        "method": method,
        "seed": seed,
        **end,
        "rounds": history.rounds,
        "mean by round": [round(a, 5) for a in history.mean],
        "settings": history.settings,
    }


def _write_progress(where, number, total, now, place, case):
    """Write how far the experiment is, for monitoring from outside."""
    where.mkdir(parents=True, exist_ok=True)
    side = where / "progress.part"
    words = {"run": number, "runs": total, "now": now, "folder": place.name, "rounds": case.rounds}
    side.write_text(json.dumps(words))
    os.replace(side, where / "progress.json")


def _file_name(text):
    """A name every file system takes."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text)


def _digest(plain):
    """A short name for plain data."""
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def processor():
    """The processor's name where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
