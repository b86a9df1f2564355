"""How fast is training, against the usual way, in one run?  `make bench` calls this.

Runs are interleaved and medians taken, so that a busy moment of the machine hits all alike; what
is reported are ratios within the run.  Results go to results/benchmarks/engine.json.
"""

import argparse
import json
import os
import platform
import statistics
import time
from functools import partial
from pathlib import Path

import torch
from tqdm.auto import tqdm
from usual import UsualWay, fedamp_server_pairwise

import pfl_lib
from pfl_lib.formulas import attention_weights, mix

#: model, clients, samples of each client, batch, optimiser
WORKLOADS = [
    ("logistic_regression", 100, 40, 10, "sgd"),
    ("logistic_regression", 100, 40, 10, "adam"),
    ("mlp", 100, 40, 10, "sgd"),
    ("mlp", 100, 40, 10, "adam"),
    ("mcmahan_cnn", 20, 50, 10, "sgd"),
    ("mcmahan_cnn", 20, 50, 10, "adam"),
    ("mcmahan_cnn", 20, 200, 100, "sgd"),
]


def medians(ways, repeats):
    """Median seconds of each way; one warm-up, then the ways take turns."""
    seconds = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, call in ways.items():
            began = time.perf_counter()
            call()
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def training(model, clients, samples, batch_size, optimizer, repeats, device):
    data = pfl_lib.data.load("mnist5k")
    parts = pfl_lib.partition.scarce(pfl_lib.partition.iid(data, clients), samples)

    def federation(engine):
        return pfl_lib.Federation(
            data, parts, model, lr=0.01, optimizer=optimizer, batch_size=batch_size,
            engine=engine, device=device,
        )  # fmt: skip

    fed = federation("auto")
    w, who = fed.initial(), fed.everyone
    usual = UsualWay(fed)
    ways = {"usual way": lambda: usual.train(w.cpu())}
    for engine in ("loop", "stacked", "threads"):
        if engine != "threads" or fed.device.type == "cpu":
            ways[engine] = partial(federation(engine).train, w, who)
    seconds = medians(ways, repeats)
    total = sum(len(index) for index in parts.train)
    return {
        "workload": f"{model}, {clients} clients, batch {batch_size}, {optimizer}",
        "chosen": fed.plan().split("'")[1],
        "samples per second": {name: round(total / s) for name, s in seconds.items()},
        "ratio": {name: round(seconds["usual way"] / s, 2) for name, s in seconds.items()},
    }


def server_step(m, d, repeats):
    w = torch.randn(m, d) * 0.01
    attention = pfl_lib.attention.negative_exponential(sigma=float(2e-4 * d))
    ways = {
        "usual way": lambda: fedamp_server_pairwise(w, attention.sigma, 0.2),
        "library": lambda: mix(attention_weights(w, attention, 0.2), w),
    }
    difference = (ways["usual way"]() - ways["library"]()).abs().max().item()
    seconds = medians(ways, repeats)
    return {
        "workload": f"FedAMP's server step, {m} clients, {d:,} parameters",
        "chosen": "library",
        "seconds": {name: round(s, 3) for name, s in seconds.items()},
        "ratio": {name: round(seconds["usual way"] / s, 2) for name, s in seconds.items()},
        "largest difference": difference,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", default="results/benchmarks/engine.json")
    asked = parser.parse_args()
    rows = []
    for workload in tqdm(WORKLOADS, desc="training"):
        if asked.only in workload[0]:
            rows.append(training(*workload, asked.repeats, asked.device))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if asked.only in "server":
        rows.append(server_step(100, 582_026, max(1, asked.repeats // 3)))
        print(json.dumps(rows[-1], ensure_ascii=False))
    record = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load before": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "library": pfl_lib.__version__,
        "device": asked.device,
        "repeats": asked.repeats,
        "rows": rows,
    }
    if asked.save:
        path = Path(asked.save)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
