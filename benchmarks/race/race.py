"""This library and its peers: same clients, same start, same results; how long does each take?

`make race` calls this. It runs what is installed and says, by name, what is not and how to get it:
packages by ``benchmarks/race/install.sh NAME``, checkouts by PFLLIB=/path or FLBENCH=/path.

Each racer is a process of its own in an environment of its own (``ways.py``). First all of them
make two rounds of FedAvg in which every client's samples come in their listed order, and the global
models are compared: whoever ends elsewhere is named and not timed. Then they take turns of whole
rounds, shuffled as each library does it, on the quiet machine and beside one spinning process. A
ratio is the median, over the turns, of a racer's seconds to ours: a busy moment hits all alike.
"""

import argparse
import contextlib
import inspect
import json
import os
import platform
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from race_processes import descendants, high_water

import pfl_lib
from pfl_lib.book.experiments.measuring import processor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OURS = "pfl_lib"
#: model, clients, samples per client, batch; convolutions first
WORKLOADS = [
    ("fedala_cnn", 20, 200, 10),
    ("fedala_cnn", 20, 200, 100),
    ("mlp", 100, 200, 10),
    ("logistic_regression", 100, 200, 10),
]
LR = 0.01
#: way: its name, the environment it runs in (None: this one), the variable that names a checkout
RACERS = {
    OURS: ("pfl_lib", None, None),
    "pfl_lib-bf16": ("pfl_lib, bf16", None, None),
    "plain": ("plain loop", None, None),
    "pfllib": ("PFLlib", "pfllib", "PFLLIB"),
    "flbench": ("FL-bench", "flbench", "FLBENCH"),
    "fluke": ("fluke", "fluke", None),
    "blazefl": ("BlazeFL", "blazefl", None),
    "blazefl-threads": ("BlazeFL, threads", "blazefl", None),
    "pfl-research": ("pfl-research", "pfl-research", None),
    "fedjax": ("FedJAX", "fedjax", None),
    "flower": ("Flower simulation", "flower", None),
}
ROUGH = ("pfl_lib-bf16",)  # calculates with fewer digits on purpose, and is timed all the same
PATIENCE = 300  # seconds that one answer may take


# ---- who takes part ------------------------------------------------------------------------------


def python_of(way):
    """The interpreter that a way runs in."""
    environment = RACERS[way][1]
    return Path(sys.executable) if environment is None else ROOT / f".venv-{environment}/bin/python"


def missing(way):
    """Why a way cannot run here, and what helps; "" if it can.

    >>> missing("pfl_lib")
    ''
    """
    label, environment, checkout = RACERS[way]
    if way == "pfl_lib-bf16":
        if "precision" not in inspect.signature(pfl_lib.Federation).parameters:
            return f"{label}: this pfl_lib has no precision='bf16'"
        return ""
    if environment is None:
        return ""
    remedies = []
    named = checkout and os.environ.get(checkout)
    if checkout and not (named and Path(named).is_dir()):
        remedies.append(f"name a checkout: {checkout}=/path/to/{label} make race")
    if not python_of(way).exists() or not (python_of(way).parents[1] / ".installed").exists():
        remedies.append(f"benchmarks/race/install.sh {environment}")
    if not remedies:
        return ""
    failed = ROOT / f".venv-{environment}.log"
    why = f"could not be installed ({last_line(failed)})" if failed.exists() else "is not here"
    return f"{label} {why}; {', then '.join(remedies)}"


def last_line(file):
    """The last line of a log that speaks of an error, or else its last."""
    lines = [line.strip() for line in Path(file).read_text().splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or line.startswith("error")]
    return (errors or lines or ["no reason given"])[-1][:300]


# ---- the job -------------------------------------------------------------------------------------


def write_job(folder, model, clients, samples, batch):
    """What every racer reads: settings, data, whose sample is whose, the initial model."""
    data = pfl_lib.data.load("mnist5k")
    draw = torch.Generator().manual_seed(0)
    index = torch.stack(
        [torch.randperm(data.n_train, generator=draw)[:samples] for _ in range(clients)]
    )
    test = torch.arange(data.n_train, data.n_train + 10)
    parts = pfl_lib.partition.Partition("race", tuple(index), (test,) * clients)
    fed = pfl_lib.Federation(data, parts, model, lr=LR, batch_size=batch, device="cpu")
    method = pfl_lib.algorithm("fedavg")
    start = method.personal(method.start(fed.at(0)), fed)[0]
    arrays = {"x": data.normalized(data.x, torch.float32), "y": data.y}
    arrays = {k: v.numpy() for k, v in {**arrays, "index": index, "start": start}.items()}
    for name, array in arrays.items():
        np.ascontiguousarray(array).tofile(folder / f"{name}.bin")
    job = {"model": model, "clients": clients, "batch": batch, "lr": LR}
    job["arrays"] = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    (folder / "job.json").write_text(json.dumps(job))
    return start.numpy()


# ---- processes -----------------------------------------------------------------------------------


class Failed(RuntimeError):
    """A racer ended, or did not answer."""


class Process:
    """A racer in a process of its own."""

    def __init__(self, way, folder):
        self.way, self.log = way, Path(folder) / f"{way}.log"
        self.short = tempfile.mkdtemp(prefix="race-", dir="/tmp" if Path("/tmp").is_dir() else None)
        known = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" or way in ours()}
        began = time.perf_counter()
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [str(python_of(way)), str(HERE / "ways.py"), way, str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=known | {"RACE_SHORT": self.short}, start_new_session=True,
            )  # fmt: skip
        try:
            self.info = self.answer()
        except Failed:
            self.close()
            raise
        self.start_up = time.perf_counter() - began

    def ask(self, command):
        try:
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the log says why
        return self.answer()

    def answer(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise Failed(f"no answer in {PATIENCE} seconds")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(last_line(self.log))
        return json.loads(line)

    def peak(self):
        """The most memory its processes have held, in MB, each at its own peak; None off Linux."""
        pids = [self.process.pid, *descendants(self.process.pid)]
        try:
            return round(sum(map(high_water, pids)))
        except OSError:
            return None

    def close(self):
        children = descendants(self.process.pid)
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        for pid in [self.process.pid, *children]:
            with contextlib.suppress(ProcessLookupError):
                if pid != self.process.pid or self.process.poll() is None:
                    os.kill(pid, 9)
        self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.short, ignore_errors=True)


def ours():
    """The ways that run in this environment."""
    return [way for way, (_, environment, _) in RACERS.items() if environment is None]


@contextlib.contextmanager
def busy_machine():
    """One process that spins, and keeps a core busy."""
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield spinning.pid
    finally:
        spinning.kill()
        spinning.wait()


# ---- the race ------------------------------------------------------------------------------------


def race(workload, ways, args, say=print):
    """One row of the table: all of ``ways`` on one workload."""
    model, clients, samples, batch = workload
    words = f"{model}, {clients} clients of {samples}, batch {batch}"
    say(words)
    with tempfile.TemporaryDirectory(prefix="race-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        start = write_job(folder, *workload)
        running, rows = {}, {}
        for way in ways:
            rows[way] = {"label": RACERS[way][0]}
            try:
                running[way] = Process(way, folder)
                stack.callback(running[way].close)
                rows[way] |= compared(running[way], start, rows.get(OURS))
            except Failed as error:
                if way == OURS:
                    raise
                rows[way]["failed"] = str(error)
            if "failed" in rows[way]:
                running.pop(way, None)
            say(f"  {rows[way]['label']:18} " + in_words(rows[way]))
        seconds = {}
        for phase, repeats in (("quiet", args.repeats), ("busy", args.busy)):
            with busy_machine() if phase == "busy" else contextlib.nullcontext():
                seconds[phase] = turns(running, rows, repeats, args.limit, warm=phase == "quiet")
        for way, process in running.items():
            rows[way]["memory MB"] = process.peak()
            for phase, found in seconds.items():
                rows[way][phase] = judged(found.get(way), found.get(OURS))
            say(f"  {rows[way]['label']:18} " + json.dumps(rows[way].get("quiet")))
        for row in rows.values():
            row.pop("vector", None)
    return {"workload": words, "model": model, "clients": clients, "batch": batch, "ways": rows}


def compared(process, start, ours_row):
    """Where a racer ends after two rounds in order, beside where we end."""
    vector = np.fromfile(process.ask("compare")["file"], np.float32)
    row = {"start-up": round(process.start_up, 2), **process.info, "vector": vector}
    row.pop("ready")
    reference = (ours_row or {}).get("vector", vector)
    row["moved"] = float(np.abs(vector - start).max())
    row["difference"] = float(np.abs(vector - reference).max())
    if not row["difference"] < 0.01 * row["moved"] and process.way not in ROUGH:
        row["failed"] = (
            f"ends elsewhere: parameters differ by up to {row['difference']:.1e}, while they moved "
            f"by up to {row['moved']:.1e}"
        )
    return row


def in_words(row):
    if "failed" in row:
        return "not timed: " + row["failed"]
    return f"ready in {row['start-up']:.1f} s, largest difference to ours {row['difference']:.1e}"


def turns(running, rows, repeats, limit, warm):
    """The seconds of each turn of each racer; one that fails is left out from there on."""
    seconds = {way: [] for way in running}
    end = time.monotonic() + limit
    for repeat in range(repeats + warm):
        if repeat > warm and time.monotonic() > end:
            break
        for way, process in list(running.items()):
            try:
                took = process.ask("turn")
            except Failed as error:
                if way == OURS:
                    raise
                rows[way]["failed"] = str(error)
                running.pop(way), seconds.pop(way)
                continue
            if warm and repeat == 0:
                rows[way]["first round"] = round(took["whole"], 3)
            else:
                seconds[way].append(took)
    return seconds


def judged(mine, ours):
    """Median seconds, and median ratio to ours turn by turn: of whole rounds, of local training,
    and of processor time."""
    if not mine:
        return None
    found = {"turns": len(mine)}
    for what in ("whole", "local", "processor"):
        if mine[0][what] is not None:
            ratio = statistics.median(m[what] / o[what] for m, o in zip(mine, ours))
            found[what] = round(statistics.median(m[what] for m in mine), 4)
            found[f"{what}, times ours"] = round(ratio, 2)
    return found


def table(rows):
    """The race in words: whole rounds, times ours."""
    lines = []
    for row in rows:
        lines.append(f"\n{row['workload']}")
        for way in row["ways"].values():
            if "failed" in way:
                lines.append(f"  {way['label']:18} not timed: {way['failed']}")
                continue
            cells = [f"{way['label']:18}"]
            for phase in ("quiet", "busy"):
                took = way.get(phase)
                if took:
                    cells.append(
                        f"{phase} {took['whole']:7.3f} s {took['whole, times ours']:7.2f}×"
                    )
            cells.append(f"start {way['start-up']:5.1f} s  {way['memory MB'] or '?':>6} MB")
            lines.append("  " + "  ".join(cells) + f"  differs by {way['difference']:.0e}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--repeats", type=int, default=4, help="turns on the quiet machine")
    parser.add_argument("--busy", type=int, default=1, help="turns beside a spinning process")
    parser.add_argument("--limit", type=float, default=75, help="seconds per workload and phase")
    parser.add_argument("--ways", default="", help="only these, with commas between")
    parser.add_argument("--only", default="", help="workloads whose words hold this text")
    parser.add_argument("--quick", action="store_true", help="tiny workloads: does it all run?")
    parser.add_argument("--save", default="", help="file for the result")
    args = parser.parse_args()
    chosen = [w for w in args.ways.split(",") if w] or list(RACERS)
    for way in chosen:
        if way not in RACERS:
            parser.error(f"--ways: unknown {way!r}; known are {', '.join(RACERS)}")
    workloads = [w for w in WORKLOADS if args.only in " ".join(map(str, w))]
    if args.quick:
        workloads = [(model, 4, 40, min(batch, 20)) for model, _, _, batch in workloads]
        args.repeats = args.busy = 1
    skipped = {RACERS[w][0]: why for w in chosen if (why := missing(w))}
    for why in skipped.values():
        print(f"skipped: {why}")
    ways = [OURS, *(w for w in chosen if w != OURS and RACERS[w][0] not in skipped)]
    load, began = round(os.getloadavg()[0], 2), time.monotonic()
    rows = [race(workload, ways, args) for workload in workloads]
    record = {
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "command": " ".join(["make race", *ordered(sys.argv[1:])]),
        "date": time.strftime("%Y-%m-%d"),
        "load before": load,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "python": platform.python_version(),
        "pythons": {RACERS[w][0]: version_of(python_of(w)) for w in ways},
        "checkouts": {RACERS[w][0]: commit_of(w) for w in ways if RACERS[w][2]},
        "lr": LR,
        "turns": {"quiet": args.repeats, "busy": args.busy},
        "skipped": skipped,
        "rows": rows,
    }
    print(table(rows))
    if args.save:
        path = Path(args.save)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        print(f"written to {path}")


def ordered(arguments):
    """The arguments that change what is measured, as `make race` takes them."""
    if "--save" in arguments:
        at = arguments.index("--save")
        arguments = arguments[:at] + arguments[at + 2 :]
    return [f"ARGS='{' '.join(arguments)}'"] if arguments else []


def version_of(python):
    result = subprocess.run([str(python), "--version"], capture_output=True, text=True)
    return result.stdout.split()[-1]


def commit_of(way):
    where = os.environ[RACERS[way][2]]
    result = subprocess.run(
        ["git", "-C", where, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True
    )
    return result.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
