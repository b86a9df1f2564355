"""How fast is training, against the usual way, in one run?  `make bench` calls this.

The ways take turns of half a second or more, and a ratio is the median over the rounds of turns:
a busy moment of the machine hits all alike.  Results go to results/benchmarks, a file for each day:
the page shows the newest run, and beside it how far other days and machines agree.

On a busy machine kernels on several cores wait for each other and seconds mean little; there
``--one-core`` compares the processor time of one core.

PFLLIB=/path/to/PFLlib adds that library's own client loop.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from peers import SELF_WEIGHT, SIGMA, Pairwise, Process, Timed, federation, stack
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode
from tqdm.auto import tqdm

import pfl_lib
from pfl_lib.book.experiments.measuring import processor
from pfl_lib.formulas import attention_weights, mix
from pfl_lib.local.precision import bf16_trial

#: model, clients, samples of each client, batch, optimiser; one epoch, from fresh models or, in the
#: last row, from models that were trained for so many epochs and fit their data perfectly
WORKLOADS = [
    ("logistic_regression", 100, 200, 10, "sgd"),
    ("logistic_regression", 100, 200, 10, "adam"),
    ("mlp", 100, 200, 10, "sgd"),
    ("mlp", 100, 200, 10, "adam"),
    ("fedala_cnn", 20, 200, 10, "sgd"),
    ("fedala_cnn", 20, 200, 10, "adam"),
    ("fedala_cnn", 20, 200, 100, "sgd"),
    ("mcmahan_cnn", 10, 200, 10, "sgd"),
    ("mcmahan_cnn", 10, 200, 100, "sgd"),
    ("cnn1d", 10, 200, 10, "sgd"),
    ("cnn1d", 10, 200, 100, "sgd"),
    ("resnet18", 4, 20, 10, "sgd"),
    ("resnet18, BatchNorm", 4, 20, 10, "sgd"),
    ("fedala_cnn", 20, 100, 100, "adam", 100),
]
#: what else was tried: model, in words, what is changed of what the library chooses
TRIED = [
    ("mlp", "4 clients, all cores on each operator", {"chunk": 4}),
    ("mlp", "100 clients, all cores on each operator", {"chunk": 100}),
    ("mlp", "the gradient by vmap, not by hand", {"vmap": True}),
    ("mlp", "the step by torch.compile", {"compile": True}),
    ("logistic_regression", "the step by torch.compile", {"compile": True}),
    ("logistic_regression", "100 clients, all cores on each operator", {"chunk": 100}),
    ("mlp", "34 clients, all cores on each operator", {"chunk": 34}),
    ("mlp", "weights and arithmetic in bfloat16", {"dtype": "bfloat16"}),
    ("mlp", "arithmetic in bfloat16", {"precision": "bf16"}),
    ("fedala_cnn", "weights and arithmetic in bfloat16", {"dtype": "bfloat16"}),
    ("cnn1d", "torch's own kernels for series", {"series": True}),
]


def measured(ways, args):
    """Median seconds of each way, and median ratio of the first way to it, turn by turn.

    One warm-up, then the ways take turns, within a time limit.
    """
    seconds = {name: [] for name in ways}
    end = time.monotonic() + args.limit
    for repeat in range(args.repeats + 1):
        if repeat > 1 and time.monotonic() > end:
            break
        for name, way in ways.items():
            took = way()[1 if args.one_core else 0]
            if repeat:
                seconds[name].append(took)
    for way in ways.values():
        way.close()
    first = next(iter(seconds.values()))
    ratio = {n: statistics.median(a / b for a, b in zip(first, s)) for n, s in seconds.items()}
    return (
        {name: statistics.median(values) for name, values in seconds.items()},
        {name: round(value, 2) for name, value in ratio.items()},
    )


def training(workload, args):
    """One row of the table: every way on one workload."""
    workload, known = workload[:5], workload[5] if len(workload) > 5 else 0
    model, clients, samples, batch_size, optimizer = workload
    fed = federation(*workload, args.device)
    start = fed.initial()
    for _ in tqdm(range(known), desc="training until they know their data", disable=not known):
        start = pfl_lib.train(fed, start, fed.everyone)
    words = f"{model}, {clients} clients of {samples}, batch {batch_size}, {optimizer}"
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "start.safetensors")
        save_file({"w": start}, file)
        return compared((*workload, args.device, file), fed, start, args) | {
            "workload": words + (f", after {known} epochs" if known else "")
        }


def compared(workload, fed, start, args):
    """The ways take turns."""
    ways = {"usual way": Process("usual", workload)}
    if os.environ.get("PFLLIB") and workload[4] == "sgd":  # its optimizer is SGD
        ways["PFLlib"] = Process("PFLlib", workload)
    few = workload[0].startswith("resnet")  # seconds for each call
    for engine in ("threads",) if few else ("loop", "stacked", "threads"):
        if engine != "threads" or fed.device.type == "cpu":
            ways[engine] = ours(workload, start, args, engine=engine)
    if fed.network.convolutional and "faster" in bf16_trial():
        ways["bf16"] = ours(workload, start, args, precision="bf16")
    seconds, ratio = measured(ways, args)
    clients, samples = workload[1:3]
    return {
        "chosen": fed.plan().split("'")[1],
        "plan": fed.plan(),
        "samples per second": {n: round(clients * samples / s) for n, s in seconds.items()},
        "ratio": ratio,
        "slower when busy": {
            "usual way": slower_when_busy(Process("usual", workload), args),
            "library": slower_when_busy(ours(workload, start, args), args),
        },
    }


def ours(workload, start, args, **options):
    """The library on one workload."""
    fed = federation(*workload, **options)
    return Timed(partial(pfl_lib.train, fed, start, fed.everyone), args.device)


def slower_when_busy(way, args):
    """How many times as long it takes beside a program that keeps one core for itself; turns with
    and without it alternate."""
    ratios = []
    way()
    end = time.monotonic() + args.limit / 2
    while len(ratios) < args.repeats and (len(ratios) < 2 or time.monotonic() < end):
        quiet = way()[0]
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            time.sleep(0.2)
            ratios.append(way()[0] / quiet)
        finally:
            other.kill()
            other.wait()
    way.close()
    return round(statistics.median(ratios), 2)


def arithmetic(device):
    """GFLOP/s of two large pieces of work, the best of ten each: the most that one gets here."""
    matrix, images = torch.rand(2048, 2048, device=device), torch.rand(256, 64, 28, 28)
    images = images.to(device, memory_format=torch.channels_last)
    filters = torch.rand(64, 64, 5, 5).to(device, memory_format=torch.channels_last)
    rates = {}
    for name, call in (
        ("a product of matrices", lambda: matrix @ matrix),
        ("a convolution", lambda: torch.conv2d(images, filters, padding=2)),
    ):
        with FlopCounterMode(display=False) as counter:
            call()
        took = []
        for _ in range(10):
            began = time.perf_counter()
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        rates[name] = round(counter.get_total_flops() / min(took) / 1e9)
    return rates


def server_step(m, args):
    d = federation("fedala_cnn", m, 10, 10, "sgd", args.device).d  # and memory is kept, as ever
    attention = pfl_lib.attention.negative_exponential(sigma=SIGMA)
    step = lambda w: mix(attention_weights(w, attention, SELF_WEIGHT), w)  # noqa: E731
    few = Pairwise(10, d, args.device)
    difference = (few() - step(few.w)).abs().max().item()
    ways = {
        "usual way": Process("pairwise", (m, d, args.device)),
        "library": Timed(partial(step, stack(m, d, args.device)), args.device),
    }
    seconds, ratio = measured(ways, args)
    return {
        "workload": f"FedAMP's server step, {m} clients, {d:,} parameters",
        "chosen": "library",
        "seconds": {name: round(s, 3) for name, s in seconds.items()},
        "ratio": ratio,
        "largest difference": difference,
        "slower when busy": {
            "usual way": slower_when_busy(Process("pairwise", (m, d, args.device)), args),
            "library": slower_when_busy(
                Timed(partial(step, stack(m, d, args.device)), args.device), args
            ),
        },
    }


def tried(model, words, changes, args):
    """The library with a change, against the library as it chooses."""
    workload = (*next(w for w in WORKLOADS if w[0] == model), args.device)
    ways = {
        "chosen": Process("tried", ({}, *workload)),
        words: Process("tried", (changes, *workload)),
    }
    try:
        _, ratio = measured(ways, args)
    except RuntimeError as error:  # an instruction that this processor claims and does not have
        return {"model": model, "change": words, "ratio": None, "why": str(error)}
    return {"model": model, "change": words, "ratio": ratio[words]}


class Done:
    """What an interrupted run has measured, in a file beside its results, to go on from there."""

    def __init__(self, args):
        self.args = args
        self.path = Path(f"{args.save}.part") if args.save else None
        asked_for = str(sorted(vars(args).items()))
        # of another machine, version or question nothing is taken over
        same = [processor(), torch.__version__, pfl_lib.__version__, asked_for]
        self.held = {"same": same, "load": round(os.getloadavg()[0], 2), "rows": {}}
        if self.path and self.path.exists():
            held = json.loads(self.path.read_text())
            self.held = held if held["same"] == same else self.held
        self.load = self.held["load"]

    def or_now(self, name, job):
        """What is held under this name, or else what the job finds now."""
        if name not in self.held["rows"]:
            self.held["rows"][name] = job(self.args)
            if self.path:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.held, ensure_ascii=False))
            print(json.dumps(self.held["rows"][name], ensure_ascii=False), flush=True)
        return self.held["rows"][name]

    def forget(self):
        if self.path:
            self.path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=40, help="seconds for each workload")
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one-core", action="store_true", help="processor time of one core")
    today = time.strftime("%Y-%m-%d")
    parser.add_argument("--save", default=f"results/benchmarks/engine_{today}.json")
    args = parser.parse_args()
    if args.one_core:
        torch.set_num_threads(1)
    done = Done(args)
    jobs = [(" ".join(map(str, w)), partial(training, w)) for w in WORKLOADS]
    jobs.append(("server step", partial(server_step, 100)))
    jobs = [(name, job) for name, job in jobs if args.only in name]
    rows = [done.or_now(name, job) for name, job in tqdm(jobs, desc="workloads")]
    others = [(" ".join(t[:2]), partial(tried, *t)) for t in TRIED]
    others = [(name, job) for name, job in others if args.only in name]
    others = [done.or_now(name, job) for name, job in tqdm(others, desc="what else was tried")]
    record = {
        "date": today,
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "arithmetic, GFLOP/s": arithmetic(args.device),
        "load before": done.load,
        "load after": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "library": pfl_lib.__version__,
        "device": args.device,
        "clock": "processor time of one core" if args.one_core else "seconds, all cores",
        "repeats": args.repeats,
        "rows": rows,
        "tried": others,
    }
    if args.save:
        path = Path(args.save)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        print(f"written to {path}")
    done.forget()


if __name__ == "__main__":
    main()
