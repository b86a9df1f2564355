"""Does training in bfloat16 end in the same accuracies?  `make bench` calls this, too.

Every method runs twice from every seed, on the same clients, models and batches: in float32 and
with ``precision="bf16"``.  What counts is the difference in pairs, beside what another seed
changes.  A processor without instructions for bfloat16 computes on the rounded numbers in float32:
that is slower, but the accuracies are as informative.  Results go to
results/benchmarks/precision.json.
"""

import argparse
import json
import os
import platform
import statistics
from pathlib import Path

import torch
from tqdm.auto import tqdm

import pfl_lib
from pfl_lib.book.experiments.measuring import processor
from pfl_lib.checkpoints import atomic_write
from pfl_lib.local.precision import bf16_claimed, bf16_trial

METHODS = {
    "separate": {}, "fedavg": {}, "fedavg-ft": {}, "ditto": {}, "fedrep": {}, "scaffold": {},
    "fedamp": {"self_weight": 0.2}, "fedala": {},
}  # fmt: skip
SETTINGS = {  # clients, and the local training of each
    "five groups": (lambda data, seed: pfl_lib.partition.grouped(data, seed=seed), {}),
    "Dirichlet 0.1, Adam": (
        lambda data, seed: pfl_lib.partition.dirichlet(data, 20, a=0.1, seed=seed),
        {"optimizer": "adam", "lr": 0.001},
    ),
}


def pair(setting, name, seed, rounds):
    """Mean accuracy of the last round in float32 and in bfloat16."""
    data = pfl_lib.data.load("mnist5k")
    clients, training = SETTINGS[setting]
    training = {"lr": 0.05, "batch_size": 10, **training}
    full = pfl_lib.Federation(data, clients(data, seed), "fedala_cnn", seed=seed, **training)
    found = []
    for fed in (full, full.replace(precision="bf16")):
        method = pfl_lib.algorithm(name, **METHODS[name])
        options = {"rounds": rounds, "evaluate_every": rounds, "progress": False}
        found.append(pfl_lib.run(method, fed, **options).last)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="those whose words hold this text")
    parser.add_argument("--save", default="results/benchmarks/precision.json")
    args = parser.parse_args()
    found = bf16_trial()
    if "why not" in found:
        print(f"not measured: {found['why not']}")
        return
    path = Path(args.save)
    record = {
        "about": "fedala_cnn on mnist5k, the last of the rounds, the same batches in each pair",
        "command": "python benchmarks/precision.py",
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "instructions for bfloat16": bf16_claimed(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "library": pfl_lib.__version__,
        "rounds": args.rounds,
        "seeds": args.seeds,
        "rows": [],
    }
    if path.exists():  # goes on where it was stopped
        before = json.loads(path.read_text())
        if {**before, "rows": []} == record:
            record = before
    done = {(row["setting"], row["method"]) for row in record["rows"]}
    jobs = [(setting, name) for setting in SETTINGS for name in METHODS]
    jobs = [job for job in jobs if args.only in ", ".join(job)]
    for setting, name in tqdm(jobs, desc="methods"):
        label = pfl_lib.algorithm(name, **METHODS[name]).label
        if (setting, label) in done:
            continue
        pairs = [pair(setting, name, seed, args.rounds) for seed in range(args.seeds)]
        full, low = zip(*pairs)
        by_seed = [b - a for a, b in pairs]
        record["rows"].append(
            {
                "setting": setting,
                "method": label,
                "float32": [round(a, 5) for a in full],
                "bf16": [round(b, 5) for b in low],
                "mean difference": round(statistics.fmean(by_seed), 5),
                "its standard error": round(statistics.stdev(by_seed) / len(pairs) ** 0.5, 5),
                "deviation over seeds": round(statistics.stdev(full), 5),
            }
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        atomic_write(path, lambda side, text=text: side.write_text(text, encoding="utf-8"))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
