"""How much a choice matters: the short runs behind the page on deviations.

    python -m devtools.choices      about a minute on one core; writes results/choices.json

Where a paper leaves a question open, or its authors' code answers it otherwise than we do, both
answers are run on the same clients, batches and initial models. Every number is a mean over seeds.
"""

import json
from pathlib import Path

import torch

import pfl_lib
from pfl_lib import partition
from pfl_lib.book.experiments.quick_run import quick_federation
from pfl_lib.checkpoints import atomic_write

RESULT = Path(__file__).resolve().parents[1] / "results" / "choices.json"
SEEDS = 3


def dealt(seed):
    """Ten clients, digits dealt out by a Dirichlet(0.3) draw."""
    data = pfl_lib.data.load("digits")
    clients = partition.dirichlet(data, 10, 0.3, seed=seed)
    training = {"lr": 0.05, "batch_size": 20, "seed": seed}
    return pfl_lib.Federation(data, clients, "mlp", **training)


CFL = {"eps1": 0.4, "eps2": 0.5, "warmup": 1}
# (method, what is chosen, settings here, settings there)
GROUPED = [
    ("label-prior", "smoothing by 1 sample, or by 10", {}, {"smoothing": 10.0}),
    ("cfl", "single linkage, or complete", CFL, CFL | {"rule": "complete"}),
    ("cfl", "thresholds that fit, or the defaults", CFL, {}),
    ("pfedgraph", "λ = 0.01 pulls, or pushes", {}, {"lam": -0.01}),
    ("pfedgraph", "λ = 1 pulls, or pushes", {"lam": 1.0}, {"lam": -1.0}),
    ("pfedgraph", "updates since the start, or since the round", {}, {"since": "round"}),
    ("pfedgraph", "cosines as they are, or above 0.9 as 1", {}, {"snap": 0.9}),
    ("fedbuff", "10 updates in the buffer, or 4", {}, {"buffer": 4}),
]  # fmt: skip
DEALT = [
    ("fedbabu", "the head is fine-tuned, or all layers", {}, {"part": "all"}),
    ("feddbe", "momentum 1, or 0.1", {}, {"momentum": 0.1}),
    ("fedproto", "means of each batch's classes are pulled, or all samples", {},
     {"pull": "samples"}),
    ("fedas", "Fisher trace over samples, or over batches", {}, {"fisher": "batches"}),
]  # fmt: skip
WORLDS = {
    "grouped": ("twelve clients of the reference pages, in three groups that name the digits "
                "differently", quick_federation, GROUPED, 6),
    "dealt": ("ten clients, digits dealt out by a Dirichlet distribution (a = 0.3)", dealt,
              DEALT, 10),
}  # fmt: skip


def accuracies(method, make, rounds):
    """Mean accuracy of the clients in per cent, by seed."""
    return [
        round(100 * pfl_lib.run(method, make(seed), rounds, evaluate_every=rounds,
                                progress=False).last, 1)
        for seed in range(SEEDS)
    ]  # fmt: skip


def measured():
    for name, (words, make, choices, rounds) in WORLDS.items():
        rows = []
        for method, what, here, there in choices:
            pair = [pfl_lib.algorithm(method, **settings) for settings in (here, there)]
            found = [accuracies(one, make, rounds) for one in pair]
            rows.append({"method": pair[0].label, "choice": what,
                         "here": found[0], "there": found[1]})  # fmt: skip
        base = {label: accuracies(pfl_lib.algorithm(label), make, rounds)
                for label in ("separate", "fedavg")}  # fmt: skip
        yield name, {"clients": words, "rounds": rounds, "rows": rows, "beside": base}


def main():
    record = {"command": "python -m devtools.choices", "seeds": SEEDS,
              "torch": torch.__version__, "worlds": dict(measured())}  # fmt: skip
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    atomic_write(RESULT, lambda side: side.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
