"""The long runs, one after the other, at low priority: stopped and resumed at any moment.

    python -m devtools.trial            go on with what is left (`make trial`)
    python -m devtools.trial list       what is done, what is left, and how long it takes
    python -m devtools.trial [list] "spfl_table1: SPFL on" plga_order
                                        only the jobs whose line in the list holds one of these
                                        words, in the order of the words (`make trial ONLY="…;…"`)

A job is one method on the cases of one experiment, or several that are quick together, small enough
to finish within an hour or so. It is done when the experiment's result file holds it with every
seed and all its rounds, so nothing else has to be remembered: delete a run from the file and it is
run again. Ctrl-C or SIGTERM stops the queue, and a job that is interrupted goes on from its last
checkpoint. After each job its result file is committed, unless PFL_NO_COMMIT is set, and the list
of jobs is read anew: what is put at its top is next.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import nbformat

from devtools.notebooks import ROOT, find_experiment, parameters
from devtools.runner import clock

#: In order of value. Minutes are those of two quiet cores.
QUEUE = ROOT / "results" / "trial.json"


@dataclass(frozen=True)
class Job:
    """One run of an experiment: which notebook, with which parameters, and what it is to give."""

    experiment: str
    methods: tuple[str, ...]
    cases: tuple[str, ...]
    seeds: int
    rounds: int
    minutes: float
    scale: str = "paper"
    parameters: dict = field(default_factory=dict)

    @property
    def words(self):
        """How the job is called in lists."""
        return f"{self.experiment}: {self.part} ({self.seeds} seeds)"

    @property
    def part(self):
        """Which methods on which cases; of many only how many."""
        methods, cases = (
            ", ".join(names) if len(names) <= 3 else f"{len(names)} {what}"
            for names, what in ((self.methods, "methods"), (self.cases, "cases"))
        )
        return f"{methods} on {cases}"

    def missing(self):
        """(case, method, seed) that the result file does not hold yet."""
        path = ROOT / "results" / self.experiment / f"{self.scale}.json"
        held = set()
        if path.exists():
            record = json.loads(path.read_text(encoding="utf-8"))
            whole = [r for r in record["runs"] if r["rounds"] and r["rounds"][-1] >= self.rounds]
            for run in [*whole, *record.get("diverged", ())]:  # one that broke is done, too
                held.add((run["case"], run["method"], run["seed"]))
        wanted = {(c, m, s) for c in self.cases for m in self.methods for s in range(self.seeds)}
        return sorted(wanted - held)

    def command(self):
        """What runs it; a notebook that can run parts of its table is given which."""
        path = find_experiment(self.experiment)
        known = parameters(nbformat.read(path, as_version=4)) or {}
        parts = {"CASES": ";".join(self.cases), "METHODS": ";".join(self.methods)}
        parts["SEEDS"] = ";".join(str(seed) for seed in sorted({s for *_, s in self.missing()}))
        given = {"SCALE": self.scale, **{n: v for n, v in parts.items() if n in known}}
        pairs = [f"{name}={value}" for name, value in {**given, **self.parameters}.items()]
        return [sys.executable, "-m", "devtools.notebooks", "run", path.stem, *pairs]


def queue(path=QUEUE):
    """The jobs, in order."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["jobs"]
        lists = ("methods", "cases")
        return [Job(**{k: tuple(v) if k in lists else v for k, v in row.items()}) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a list of jobs: {error}") from error


def choose(jobs, texts):
    """The jobs whose words hold one of these texts, in the order of the texts; all without any."""
    if not texts:
        return jobs
    chosen = {}
    for text in texts:
        found = {job.words: job for job in jobs if text in job.words}
        if not found:
            raise ValueError(f"no job is called {text!r}; `list` shows what there is")
        chosen |= {words: job for words, job in found.items() if words not in chosen}
    return [*chosen.values()]


def left(jobs):
    """The jobs that are not done."""
    return [job for job in jobs if job.missing()]


def listing(jobs):
    """One line per job, and a sum."""
    lines = []
    for job in jobs:
        missing = job.missing()
        total = len(job.cases) * len(job.methods) * job.seeds
        state = "done" if not missing else f"{total - len(missing)} of {total} runs"
        lines.append(f"  {state:<14} {clock(60 * job.minutes):>8} min  {job.words}")
    todo = left(jobs)
    hours = sum(job.minutes for job in todo) / 60
    lines.append(f"{len(jobs) - len(todo)} of {len(jobs)} jobs done; about {hours:.1f} hours left")
    return "\n".join(lines)


def commit(job):
    """Put the result file under version control; says so, or why not."""
    if os.environ.get("PFL_NO_COMMIT"):
        return "not committed: PFL_NO_COMMIT is set"
    files = f"results/{job.experiment}/{job.scale}.json"
    subject = f"Trial: {job.part}"
    for command in (["git", "add", files], ["git", "commit", "-q", "-m", subject, "--", files]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            return f"not committed: {(done.stderr or done.stdout).strip()[-200:]}"
    return f"committed {files}"


def work(read=queue):
    """Run what is left. The exit code: 0 when all is done, 1 where a job failed, 130 if stopped."""
    if hasattr(os, "nice"):
        os.nice(15)
    failed: list[str] = []  # none of these is tried twice
    while todo := [job for job in left(read()) if job.words not in failed]:
        job = todo[0]
        hours = sum(one.minutes for one in todo) / 60
        print(f"== {len(todo)} left, about {hours:.1f} hours: {job.words}", flush=True)
        began = time.monotonic()
        try:
            code = subprocess.run(job.command(), cwd=ROOT).returncode
        except KeyboardInterrupt:
            print("\nstopped; the next `make trial` goes on from the last checkpoint")
            return 130
        took = clock(time.monotonic() - began)
        if code or job.missing():
            failed.append(job.words)
            print(f"   failed after {took} min; the other jobs go on", flush=True)
        else:
            print(f"   done in {took} min; {commit(job)}", flush=True)
    for words in failed:
        print(f"failed: {words}")
    return int(bool(failed))


def stop(number, frame):
    """SIGTERM ends the queue as Ctrl-C does."""
    raise KeyboardInterrupt


def main(arguments):
    only_list, texts = arguments[:1] == ["list"], arguments
    if only_list:
        texts = arguments[1:]
    if any(text.startswith("-") for text in texts):
        print(__doc__)
        return 2

    def chosen():
        return choose(queue(), texts)

    if only_list:
        print(listing(chosen()))
        return 0
    chosen()  # a name that no job has is refused before anything begins
    signal.signal(signal.SIGTERM, stop)
    return work(chosen)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, OSError) as error:
        sys.exit(f"trial: {error}")
