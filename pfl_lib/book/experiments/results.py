"""What an experiment measured: kept as JSON, shown beside the paper's numbers."""

import functools
import json
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from pfl_lib._show import Shown
from pfl_lib.book.experiments.canary import DECIDES, canary_setting, is_current

SCALES = ("smoke", "laptop", "paper")
HEAD = ("method", "last round", "best round", "worst 10 %", "seconds", "sent", "paper", "ours − it")


@dataclass(frozen=True)
class Results:
    """An experiment's record as plain data: see ``measure`` and results/schema.json.

    >>> run = {"method": "FedAvg", "case": "", "seed": 0, "last": 0.9, "best": 0.91}
    >>> mine = Results({"cases": [], "runs": [run, {**run, "seed": 1, "last": 0.8}]})
    >>> round(mine.mean("FedAvg"), 2), mine.methods, mine.methods_in("another case")
    (0.85, ['FedAvg'], [])
    """

    record: dict

    def within(self, cases):
        """The same with these cases only.

        >>> runs = [{"case": "x"}, {"case": "y"}]
        >>> Results({"cases": runs, "runs": runs}).within(["x"]).record["runs"]
        [{'case': 'x'}]
        """
        parts = {part: self.record.get(part, ()) for part in ("cases", "runs", "diverged")}
        kept = {part: [e for e in all_ if e["case"] in cases] for part, all_ in parts.items()}
        return Results(self.record | kept)

    def of(self, method, case=None):
        """The runs of a method (in one case, or in all), one record per seed."""
        runs = self.record["runs"]
        return [r for r in runs if r["method"] == method and case in (None, r["case"])]

    @property
    def cases(self):
        return [case["case"] for case in self.record["cases"]]

    @property
    def methods(self):
        return list(dict.fromkeys(r["method"] for r in self.record["runs"]))

    @property
    def minutes(self):
        """How long all of it took; what was resumed from checkpoints took its time before."""
        own = [r for r in self.record["runs"] if "read from" not in r["settings"]]
        trained = sum(run["seconds"] for run in own) / 60
        return max(self.record["minutes"], trained)

    def methods_in(self, case):
        """Those that were run in this case: at paper scale not all may be yet."""
        return [method for method in self.methods if self.of(method, case)]

    def diverged(self, method=None, case=None):
        """The runs whose models were no longer finite: in which round, and in whose words."""
        ends = self.record.get("diverged", [])
        return [r for r in ends if method in (None, r["method"]) and case in (None, r["case"])]

    def values(self, method, what="last", case=None):
        """One number per seed: ``last``, ``best``, ``worst 10 %``, ``seconds``, or of ``extra``."""
        return [r[what] if what in r else r["extra"][what] for r in self.of(method, case)]

    def mean(self, method, what="last", case=None):
        """Mean over the seeds."""
        return statistics.fmean(self.values(method, what, case))

    def spread(self, method, what="last", case=None):
        """Standard deviation over the seeds (0 with one seed)."""
        values = self.values(method, what, case)
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def chosen(self, family, case=None, what="last"):
        """The mean of a family's best member: best on the first seed, judged on the others.

        A family is all methods whose name begins alike, up to the comma: "FedACS, p = 0.5" and
        "FedACS, p = 0.8". So nothing is chosen on the numbers that are reported.

        >>> run = {"method": "A, 1", "case": "", "seed": 0, "last": 0.9}
        >>> mine = Results({"seeds": [0, 1], "runs": [run, {**run, "seed": 1, "last": 0.7}]})
        >>> mine.chosen("A")
        0.7
        """
        first, *others = self.record["seeds"]
        members = {
            method: {r["seed"]: value for r, value in zip(self.of(method, case), values)}
            for method in self.methods_in(case)
            if method.split(",")[0] == family and (values := self.values(method, what, case))
        }
        if not members or not others:
            raise ValueError(
                f"family must be one that was run with two seeds or more, got {family!r} of "
                f"{self.methods_in(case)} with seeds {self.record['seeds']}"
            )
        best = max(members, key=lambda method: members[method][first])
        return statistics.fmean(members[best][seed] for seed in others)

    def paper(self, method, case=None):
        """What the paper prints for a method, in %, or None."""
        for entry in self.record["cases"]:
            if case in (None, entry["case"]) and method in entry["paper"]:
                return entry["paper"][method]
        return None

    def difference(self, method, case=None):
        """Ours less the paper's, in points, or None where the paper prints nothing."""
        theirs = self.paper(method, case)
        if theirs is None or not self.of(method, case):
            return None
        return 100 * self.mean(method, self.record["judged"], case) - theirs

    def message(self, method, what="last", case=None):
        """The accuracy of the message u in the last or the best round, one number per seed; [] for
        methods without messages."""
        pick = max if what == "best" else (lambda rounds: rounds[-1])
        kept = [r.get("extra_models", {}).get("u") for r in self.of(method, case)]
        return [pick(rounds) for rounds in kept if rounds]

    def table(self, case=None, bold=None):
        """One case, one row per method, beside the paper's numbers.

        Where a method's message u was tested beside its trained model w, it has a row of its own:
        the paper that proposes them says that both can be used.
        """
        case = self.cases[0] if case is None else case
        rows = []
        for method in self.methods_in(case):
            theirs, difference = self.paper(method, case), self.difference(method, case)
            rows.append(
                (
                    method,
                    *(self.percent(method, what, case) for what in HEAD_OF.values()),
                    f"{self.mean(method, 'seconds', case):.1f}",
                    f"{self.of(method, case)[0]['sent'] / 1e6:.1f} M",
                    "" if theirs is None else f"{theirs:.2f}",
                    "" if difference is None else f"{difference:+.1f}",
                )
            )
            if self.message(method, case=case):
                tested = (_percent(self.message(method, what, case)) for what in ("last", "best"))
                rows.append((MESSAGE.format(method), *tested, *[""] * 5))
        for method in dict.fromkeys(r["method"] for r in self.diverged(case=case)):
            rows.append((method, self.broke(method, case), *[""] * 6))
        return Shown(HEAD, rows, bold, self.caption(case))

    def grid(self, what=None, cases=None, bold=None):
        """Methods down, cases across (or the other way round where there are many cases); the
        paper's number in brackets where it prints one."""
        what, cases = what or self.record["judged"], cases or self.cases

        def cell(method, case):
            ours = self.percent(method, what, case) if self.of(method, case) else ""
            if self.diverged(method, case):
                ours = f"{ours} {self.broke(method, case)}".strip()
            theirs = self.paper(method, case)
            return ours + (f" [{theirs:.1f}]" if ours and theirs is not None else "")

        def message(method, case):
            found = self.message(method, what, case)
            return _percent(found) if found else ""

        lines = []  # of each method: its label, and what stands in the cell of a case
        broken = [r["method"] for r in self.diverged()]
        for method in dict.fromkeys([*self.methods, *broken]):
            lines.append((method, functools.partial(cell, method)))
            if what in ("last", "best") and any(self.message(method, case=c) for c in cases):
                lines.append((MESSAGE.format(method), functools.partial(message, method)))
        names = [case or "accuracy" for case in cases]
        if len(cases) > max(6, len(self.methods)):
            head = ("case", *(label for label, _ in lines))
            rows = [(n, *(put(c) for _, put in lines)) for n, c in zip(names, cases)]
        else:
            head = ("method", *names)
            rows = [(label, *map(put, cases)) for label, put in lines]
        printed = any(entry["paper"] for entry in self.record["cases"])
        note = f"{what} round, in %{BRACKETS * printed}. {self.caption()}"
        return Shown(head, rows, bold, note)

    def broke(self, method, case=None):
        """In which rounds a method's runs broke, one number per seed."""
        ends = self.diverged(method, case)
        rounds = ", ".join(str(r["round"]) for r in ends)
        return f"diverged (round{'s' * (len(ends) > 1)} {rounds})"

    def percent(self, method, what="last", case=None, digits=2):
        """Mean ± standard deviation over the seeds, in %."""
        return _percent(self.values(method, what, case), digits)

    def caption(self, case=None):
        """Where and how it was measured, in one sentence, with a warning when it is stale."""
        r = self.record
        lengths = sorted({c["rounds"] for c in r["cases"] if case in (None, c["case"])})
        rounds = " or ".join(map(str, lengths))
        seeds = f"{len(r['seeds'])} seed{'s' * (len(r['seeds']) > 1)}"
        text = f"Scale {r['scale']}, {rounds} rounds, {seeds}, {r['date']}, {r['machine']}."
        stale = self.stale()
        if stale:
            text += f" STALE: computed differently by now: {', '.join(stale[:4])}"
            text += f" and {len(stale) - 4} more." if len(stale) > 4 else "."
        return text

    def stale(self):
        """The methods of which the library computes something else by now than when they were
        measured: their canary (see ``canary``) no longer comes out."""
        wrong = [
            {key: entry[key] for key in DECIDES}
            for entry in self.record["canary"]
            if not is_current(entry)
        ]
        found = [
            r["method"]
            for r in [*self.record["runs"], *self.diverged()]
            if wrong and canary_setting(r["settings"]) in wrong
        ]
        return list(dict.fromkeys(found))

    def save(self, path=None):
        """Write to the side, then rename: a half-written result never stands.

        Without a path: ``results/<experiment>/<scale>.json`` of the book's folder.
        """
        default = home() / "results" / self.record["experiment"] / f"{self.record['scale']}.json"
        path = Path(path or default)
        path.parent.mkdir(parents=True, exist_ok=True)
        side = path.with_suffix(".part")
        side.write_text(compact(self.record) + "\n")
        os.replace(side, path)
        return path

    @classmethod
    def load(cls, path):
        """Read what ``save`` wrote."""
        return cls(json.loads(Path(path).read_text()))


MESSAGE = "{}: its message u"
BRACKETS = "; the paper's number in brackets"
HEAD_OF = {"last round": "last", "best round": "best", "worst 10 %": "worst 10 %"}


def _percent(values, digits=2):
    """Mean ± standard deviation over the seeds, in %."""
    mean = f"{100 * statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * statistics.stdev(values):.{digits}f}"


def stored(experiment=None):
    """The committed results, {(experiment, scale): Results}; those of one experiment by scale.

    >>> all(isinstance(found, Results) for found in stored().values())
    True
    """
    found = {}
    for path in result_files(f"{experiment or '*'}/*.json"):
        if path.stem in SCALES:
            key = path.stem if experiment else (path.parent.name, path.stem)
            found[key] = Results.load(path)
    return found


def names():
    """The experiments of which something is stored, without reading it.

    >>> names() == {experiment for experiment, _ in stored()}
    True
    """
    return {path.parent.name for path in result_files() if path.stem in SCALES}


def queued():
    """What the queue of long runs (``make trial``) expects: minutes by experiment and scale.

    >>> all(minutes > 0 for scales in queued().values() for minutes in scales.values())
    True
    """
    found: dict[str, dict[str, float]] = {}
    for job in _jobs():
        scales = found.setdefault(job["experiment"], {})
        scale = job.get("scale", "paper")
        scales[scale] = scales.get(scale, 0) + job["minutes"]
    return found


def waiting(experiment, scale, found):
    """How many runs of an experiment are still in the queue.

    >>> waiting("own_leap", "laptop", stored("own_leap")["laptop"])
    0
    """
    here = [j for j in _jobs() if (j["experiment"], j.get("scale", "paper")) == (experiment, scale)]
    wanted = {
        (case, method, seed, job["rounds"])
        for job in here
        for case in job["cases"]
        for method in job["methods"]
        for seed in range(job["seeds"])
    }
    ends = {(r["case"], r["method"], r["seed"]): math.inf for r in found.diverged()}
    ends |= {(r["case"], r["method"], r["seed"]): r["rounds"][-1] for r in found.record["runs"]}
    return sum(ends.get((c, m, s), 0) < rounds for c, m, s, rounds in wanted)


def _jobs():
    """The queue of long runs."""
    paths = result_files("trial.json")
    return [job for path in paths for job in json.loads(path.read_text("utf-8"))["jobs"]]


def result_files(pattern="*/*.json"):
    """The result files that match, in order: those that came with the library, and, in place of
    these, those of the folder one works in.

    >>> [path.name for path in result_files("benchmarks/race.json")]
    ['race.json']
    """
    library = Path(__file__).resolve().parents[2]
    came = library / "book" / "results"  # as it was installed
    if not came.is_dir():
        came = library.parent / "results"  # in a copy of the repository
    found = {
        path.relative_to(folder): path
        for folder in (came, home() / "results")
        for path in folder.glob(pattern)
    }
    return [found[name] for name in sorted(found)]


def home():
    """The book's folder, when the notebook runs inside it; else the current folder.

    >>> home().is_dir()
    True
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_toc.yml").exists():
            return folder
    return here


def compact(record):
    """JSON with one line for each plain list or small table: short to read, small to keep."""
    text = []
    for key, value in record.items():
        if key in ("runs", "diverged", "canary"):
            lines = ",\n  ".join(json.dumps(line, ensure_ascii=False) for line in value)
            body = f"[\n  {lines}\n ]"
        else:
            body = json.dumps(value, ensure_ascii=False)
        text.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(text) + "\n}"
