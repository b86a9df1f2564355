"""Measure what liars do and what differential privacy costs; results/trust holds what came out.

    python -m devtools.trust [liars] [private]      (both by default)

Some minutes each on two cores. Every number is a mean over seeds, with the lowest and the highest.
To measure the liars anew, remove results/trust/liars.json first.
"""

import json
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import torch

import pfl_lib
from pfl_lib import metrics, models, partition
from pfl_lib.checkpoints import atomic_write
from pfl_lib.faults import Faulty
from pfl_lib.privacy import PrivateUploads, noise_for, private
from pfl_lib.robust import robust

RESULTS = Path(__file__).resolve().parents[1] / "results" / "trust"
SEEDS = range(3)
LIARS = (0, 5, 10)  # one in each hidden group
ATTACKS = {
    "nobody lies": None,
    "sign turned": {"kind": "sign_flip"},
    "ten times as long": {"kind": "scale"},
    "noise": {"kind": "noise"},
    "climbs its loss": {"kind": "sign_flip", "of": "update"},
    "wrong labels": "labels",
}


# ------------------------------------------------------------------------------------------- liars
def defences():
    """Methods as they are, and averages in another way."""
    plain = pfl_lib.algorithm("fedavg")
    careful = [robust(plain, rule, len(LIARS)) for rule in
               ("median", "trimmed mean", "krum", "multi-krum")]  # fmt: skip
    others = [pfl_lib.algorithm(n) for n in ("fedrep", "fedala")]
    amp = [pfl_lib.algorithm(n, self_weight=0.2) for n in ("fedamp", "heurfedamp")]
    alone = pfl_lib.algorithm("separate"), pfl_lib.algorithm("fedacs")
    return [plain, *careful, others[0], robust(others[0]), others[1], robust(others[1]), *amp,
            alone[1], alone[0]]  # fmt: skip


def hidden_groups(seed, attack):
    """Fifteen clients in three hidden groups; three of them lie."""
    data = pfl_lib.data.load("digits")
    how = {"group_classes": [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)], "group_clients": 5}
    clients = partition.grouped(data, group_sizes=60, test_size=20, seed=seed, **how)
    if attack == "labels":
        labels = [data.y[rows] for rows in clients.train]
        labels = [9 - y if i in LIARS else y for i, y in enumerate(labels)]
        clients = replace(clients, labels=labels)
    training = {"optimizer": "adam", "lr": 3e-3, "batch_size": 20, "epochs": 3}
    fed = pfl_lib.Federation(data, clients, "mlp", seed=seed, device="cpu", **training)
    return Faulty(fed, LIARS, seed=seed, **attack) if isinstance(attack, dict) else fed


def liars(rounds=8):
    """Accuracy of the honest clients, by method and attack; rows already stored are kept."""
    stored = RESULTS / "liars.json"
    rows = json.loads(stored.read_text())["rows"] if stored.exists() else []
    there = {(row["attack"], row["method"]) for row in rows}
    for attack, how in ATTACKS.items():
        feds = [hidden_groups(seed, how) for seed in SEEDS]
        honest = [i for i in range(feds[0].m) if i not in LIARS]
        for method in defences():
            if (attack, method.label) in there:
                continue
            each = []
            for fed in feds:
                done = pfl_lib.run(method, fed, rounds, evaluate_every=rounds, progress=False,
                                   broken="restore")  # fmt: skip
                each.append(done.clients()[honest].mean().item())
            rows.append({"attack": attack, "method": method.label, **spread(each)})
            print(rows[-1], flush=True)
    return {"clients": feds[0].m, "liars": len(LIARS), "rounds": rounds, "rows": rows}


# ----------------------------------------------------------------------------------------- privacy
def many_clients(seed, clients=100):
    """A hundred clients with two digits each: about fourteen pictures to train on."""
    data = pfl_lib.data.load("digits")
    parts = partition.pathological(data, clients=clients, seed=seed)
    torch.manual_seed(seed)
    small = models.mlp(64, 10, hidden=(16,))
    training = {"lr": 0.1, "batch_size": 5, "epochs": 3, "seed": seed, "device": "cpu"}
    return pfl_lib.Federation(data, parts, small, **training)


def membership(fed, w):
    """AUC of telling a client's training pictures from its test pictures by their loss."""
    data, found = fed.data, []
    inputs = data.normalized(data.x, torch.float32)
    for i in range(fed.m):
        model = fed.network.filled(w[i])
        train, test = fed.partition.train[i], fed.partition.test[i]
        rows = torch.cat([train, test])
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(inputs[rows]), data.y[rows],
                                                     reduction="none")  # fmt: skip
        member = torch.cat([torch.ones(len(train)), torch.zeros(len(test))]).long()
        found.append(metrics.auc(-loss, member))
    return statistics.mean(found)


def private_runs(rounds=10, delta=1e-3, clip=1.0):
    """Accuracy and membership inference at several ε, for three sums and one attention."""
    methods = [pfl_lib.algorithm(n) for n in ("fedavg", "fedala", "fedrep")]
    methods.append(pfl_lib.algorithm("fedamp", self_weight=0.2))
    rows = []
    for method in methods:
        single = method.name == "fedamp"
        for epsilon in (1, 4, 8, None):
            each, told = [], []
            noise = None if epsilon is None else noise_for(epsilon, rounds, delta)
            for seed in SEEDS:
                fed = many_clients(seed)
                accuracy, auc = one_private_run(method, fed, rounds, noise, clip, seed, single)
                each.append(accuracy)
                told.append(auc)
            row = {"method": method.label, "epsilon": epsilon, "noise": noise}
            row |= {"accuracy": spread(each), "membership": spread(told)}
            rows.append(row)
            print(row, flush=True)
    return {"clients": 100, "parameters": fed.d, "rounds": rounds, "delta": delta, "clip": clip,
            "rows": rows}  # fmt: skip


def one_private_run(method, fed, rounds, noise, clip, seed, single):
    how = {"evaluate_every": rounds, "progress": False}
    if noise is None:
        state = pfl_lib.run(method, fed, rounds, **how).state
        w = method.personal(state, fed)
    elif single:  # what clients keep at home carries no noise: one more training from the message
        hidden = PrivateUploads(fed, clip, noise, seed)
        state = pfl_lib.run(method, hidden, rounds, **how).state
        w = pfl_lib.train(fed, state.u, fed.everyone, tag="home", uploaded=False)
    else:
        method = private(method, clip, noise, seed)
        state = pfl_lib.run(method, fed, rounds, **how).state
        w = method.personal(state, fed)
    return fed.evaluate(w)[0].mean().item(), membership(fed, w)


def spread(values):
    """Mean, lowest and highest over the seeds."""
    return {"mean": round(statistics.mean(values), 4), "low": round(min(values), 4),
            "high": round(max(values), 4)}  # fmt: skip


PARTS = {"liars": liars, "private": private_runs}


def main(names):
    wrong = [name for name in names if name not in PARTS]
    if wrong:
        sys.exit(f"devtools.trust: no {', '.join(wrong)}; there are {', '.join(PARTS)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in names or PARTS:
        about = {"command": f"python -m devtools.trust {name}", "seeds": len(SEEDS)}
        about |= {"torch": torch.__version__, "cores": os.cpu_count()}
        text = json.dumps({**about, **PARTS[name]()}, indent=1, ensure_ascii=False) + "\n"
        atomic_write(RESULTS / f"{name}.json", lambda side, text=text: side.write_text(text))


if __name__ == "__main__":
    main(sys.argv[1:])
