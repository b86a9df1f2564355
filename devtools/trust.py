"""Measure the damage of liars, the success of attacks, and the cost of differential privacy.

    python -m devtools.trust [liars] [private] [samples] [leaks]      (all by default)

Some minutes each on one core; results/trust holds what came out. Every number is a mean over seeds,
with the lowest and the highest. Liars and samples that were measured over as many seeds are not
measured again: delete their rows to repeat them.
"""

import json
import math
import statistics
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

import pfl_lib
from pfl_lib import metrics, models, partition
from pfl_lib.book import leakage
from pfl_lib.book.experiments import natural
from pfl_lib.book.experiments.measuring import _circumstances as circumstances
from pfl_lib.checkpoints import atomic_write
from pfl_lib.faults import Faulty
from pfl_lib.privacy import PrivateSamples, PrivateUploads, noise_for, private
from pfl_lib.robust import robust

RESULTS = Path(__file__).resolve().parents[1] / "results" / "trust"
SEEDS = range(5)  # of the leaks
FEW = range(3)  # of liars and private clients, which take longer
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
    more = [pfl_lib.algorithm(n) for n in
            ("fedacs", "spfl", "cfl", "ifca", "oracle-groups", "fedfomo", "apple", "pfedgraph",
             "fedpac", "fedasync", "fedbuff", "plga", "separate")]  # fmt: skip
    return [plain, *careful, others[0], robust(others[0]), others[1], robust(others[1]), *amp,
            *more]  # fmt: skip


def hidden_groups(seed, attack):
    """Fifteen clients in three hidden groups; three of them lie."""
    data = pfl_lib.data.load("digits")
    groups = {"group_classes": [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)], "group_clients": 5}
    clients = partition.grouped(data, group_sizes=60, test_size=20, seed=seed, **groups)
    if attack == "labels":
        labels = [data.y[rows] for rows in clients.train]
        labels = [9 - y if i in LIARS else y for i, y in enumerate(labels)]
        clients = replace(clients, labels=labels)
    training = {"optimizer": "adam", "lr": 3e-3, "batch_size": 20, "epochs": 3}
    fed = pfl_lib.Federation(data, clients, "mlp", seed=seed, device="cpu", **training)
    return Faulty(fed, LIARS, seed=seed, **attack) if isinstance(attack, dict) else fed


def liars(rounds=8):
    """Accuracy of the honest clients, by method and attack; rows already stored are kept."""
    rows = kept("liars", len(FEW))
    there = {(row["attack"], row["method"]) for row in rows}
    for attack, attack_settings in ATTACKS.items():
        feds = [hidden_groups(seed, attack_settings) for seed in FEW]
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
    return {
        "seeds": len(FEW),
        "clients": feds[0].m,
        "liars": len(LIARS),
        "rounds": rounds,
        "rows": rows,
    }


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
            each, aucs = [], []
            noise = None if epsilon is None else noise_for(epsilon, rounds, delta)
            for seed in FEW:
                fed = many_clients(seed)
                accuracy, auc = one_private_run(method, fed, rounds, noise, clip, seed, single)
                each.append(accuracy)
                aucs.append(auc)
            row = {"method": method.label, "epsilon": epsilon, "noise": noise}
            row |= {"accuracy": spread(each), "membership": spread(aucs)}
            rows.append(row)
            print(row, flush=True)
    return {"seeds": len(FEW), "clients": 100, "parameters": fed.d, "rounds": rounds,
            "delta": delta, "clip": clip, "rows": rows}  # fmt: skip


def one_private_run(method, fed, rounds, noise, clip, seed, single):
    options = {"evaluate_every": rounds, "progress": False}
    if noise is None:
        state = pfl_lib.run(method, fed, rounds, **options).state
        w = method.personal(state, fed)
    elif single:  # what clients keep at home carries no noise: one more training from the message
        hidden = PrivateUploads(fed, clip, noise, seed)
        state = pfl_lib.run(method, hidden, rounds, **options).state
        w = pfl_lib.train(fed, state.u, fed.everyone, tag="home", uploaded=False)
    else:
        method = private(method, clip, noise, seed)
        state = pfl_lib.run(method, fed, rounds, **options).state
        w = method.personal(state, fed)
    return fed.evaluate(w)[0].mean().item(), membership(fed, w)


# ----------------------------------------------------------------------------------------- samples
DELTA, RATE, ROUNDS = 1e-3, 0.25, 10  # with 53 samples each, δ is far below 1/53
LEVELS = (1, 4, 8, None)
SHARED_BY = {"fedavg": {}, "fedala": {"max_epochs": 1}, "fedrep": {"head_epochs": 1},
             "fedamp": {"self_weight": 0.3}}  # fmt: skip
#: Noisy steps of a client in all rounds, counted by the federation and compared with this.
PHASES = {"fedavg": ROUNDS, "fedala": 2 * ROUNDS - 1, "fedrep": 2 * ROUNDS, "fedamp": ROUNDS}


@cache
def noise_of_samples(epsilon, steps):
    """The noise of this ε; None stands for no privacy."""
    return None if epsilon is None else noise_for(epsilon, steps, DELTA, RATE)


def people(seed):
    """Ten people with a smart watch; a random half of each one's windows is trained on.

    Also for each person which windows those are, as a mask of all its training windows.
    """
    data = natural.load("watch")
    parts = partition.natural(data)
    generator = torch.Generator().manual_seed(1000 + seed)
    member = [torch.randperm(len(rows), generator=generator) < len(rows) // 2
              for rows in parts.train]  # fmt: skip
    some = replace(parts, train=tuple(rows[m] for rows, m in zip(parts.train, member)))
    torch.manual_seed(seed)
    model = models.mlp(30, 7, hidden=(16,))
    training = {"lr": 0.5, "batch_size": 13, "epochs": 1, "seed": seed, "device": "cpu"}
    return pfl_lib.Federation(data, some, model, **training), parts, member


def seen_models(method, state, fed):
    """What the server sees of each client, and what some other client holds, a row per victim."""
    if method.name == "fedamp":  # of all others the one that hears the victim most
        listener = state.xi.clone().fill_diagonal_(-1).argmax(0)
        return state.w, method.download(state, fed.at(ROUNDS), fed.everyone).w[listener]
    if method.name == "fedrep":  # more than the server sees: the head as well
        neighbour = method.personal(state, fed).roll(1, 0)  # the common body, another head
        return state.w, neighbour
    sent = state.ala_own if method.name == "fedala" else state.sent
    return sent, state.x.expand(fed.m, -1)


class Remembering(type(pfl_lib.algorithm("fedavg"))):
    """FedAvg that keeps what was sent last."""

    def upload(self, state, done, fed, who):
        return super().upload(state, done, fed, who).set(sent=done.w)


def margins(fed, parts, w):
    """How sure each row of ``w`` is of its client's labels, log(p/(1 − p)), sample by sample."""
    found = []
    for i, rows in enumerate(parts.train):
        with torch.no_grad():
            inputs = fed.data.normalized(fed.data.x[rows], torch.float32)
            logits = fed.network.filled(w[i])(inputs).double()
        y = fed.data.y[rows][:, None]
        rest = logits.scatter(1, y, -torch.inf).logsumexp(1)
        found.append(logits.gather(1, y)[:, 0] - rest)
    return found


def likelihood_ratios(seen, members, target):
    """LiRA (Carlini et al. 2022): the target's margins against runs with and without each sample.

    The runs but ``target`` are the shadows. Means are each sample's own, the variance is common to
    each client: there are too few runs for more.
    """
    scores = []
    for i in range(len(members[0])):
        runs = [r for r in range(len(seen)) if r != target]
        phi = torch.stack([seen[r][i] for r in runs])
        inside = torch.stack([members[r][i] for r in runs])
        sides = []
        for mask in (inside, ~inside):
            count = mask.sum(0).clamp(min=1)
            mean = (phi * mask).sum(0) / count
            spread = (((phi - mean).square() * mask).sum() / mask.sum()).sqrt()
            sides.append(torch.distributions.Normal(mean, spread + 1e-9))
        mine = seen[target][i]
        scores.append(sides[0].log_prob(mine) - sides[1].log_prob(mine))
    return scores


def attack(seen, members, target):
    """AUC of two attacks, a mean over clients, and LiRA's hits at one false alarm in twenty."""
    ratios = likelihood_ratios(seen, members, target)
    true = [m.long() for m in members[target]]
    auc = lambda scores: statistics.mean(map(metrics.auc, scores, true))  # noqa: E731
    all_ratios, all_true = torch.cat(ratios), torch.cat(true).bool()
    bar = all_ratios[~all_true].quantile(0.95)
    hits = (all_ratios[all_true] > bar).double().mean().item()
    return {"loss": auc(seen[target]), "lira": auc(ratios), "hits": hits}


def samples(runs=6, clip=1.0):
    """Sample-level privacy on natural clients: accuracy, and membership inference by the server
    and by another client. Each run has its own halves and start; each is the target once."""
    rows = kept("samples", runs)
    there = {(row["method"], row["epsilon"]) for row in rows}
    fed, *_ = people(0)
    for name, hyper in SHARED_BY.items():
        steps, label = PHASES[name] * math.ceil(1 / RATE), pfl_lib.algorithm(name, **hyper).label
        for epsilon in LEVELS:
            if (label, epsilon) in there:
                continue
            noise = noise_of_samples(epsilon, steps)
            accuracy, server, other, members = [], [], [], []
            for seed in range(runs):
                fed, parts, member = people(seed)
                method = Remembering() if name == "fedavg" else pfl_lib.algorithm(name, **hyper)
                used = fed if noise is None else PrivateSamples(fed, clip, noise, RATE)
                done = pfl_lib.run(method, used, ROUNDS, evaluate_every=ROUNDS, progress=False)
                if noise is not None and max(map(used.steps_of, range(fed.m))) != steps:
                    raise RuntimeError(f"{name} made other steps than the {steps} of its account")
                accuracy.append(done.clients().mean().item())
                sent, held = seen_models(method, done.state, fed)
                server.append(margins(fed, parts, sent))
                other.append(margins(fed, parts, held))
                members.append(member)
            row = {"method": label, "epsilon": epsilon, "noise": noise, "steps": steps,
                   "accuracy": spread(accuracy)}  # fmt: skip
            for place, seen in (("server", server), ("other", other)):
                found = [attack(seen, members, target) for target in range(runs)]
                row[place] = {k: spread([one[k] for one in found]) for k in found[0]}
            rows.append(row)
            print(row, flush=True)
    alone = [pfl_lib.run(pfl_lib.algorithm("separate"), people(seed)[0], ROUNDS,
                         evaluate_every=ROUNDS, progress=False).last
             for seed in range(runs)]  # fmt: skip
    return {"data": "watch", "seeds": runs, "clients": fed.m, "samples": list(fed.sample_counts),
            "parameters": fed.d, "rounds": ROUNDS, "delta": DELTA, "rate": RATE, "clip": clip,
            "runs": runs, "separate": spread(alone), "rows": rows}  # fmt: skip


# ------------------------------------------------------------------------------------------- leaks
def leaks(windows=40, clip=1.0):
    """How much of one window a server reads from one step of logistic regression on it.

    The noise is that of the FedAvg rows of ``samples``. The guess is the first singular vector of
    the change; the number is its correlation with the window, and with another as a comparison.
    """
    rows, steps = [], PHASES["fedavg"] * math.ceil(1 / RATE)
    data = natural.load("watch")
    parts = partition.natural(data)
    for epsilon in LEVELS:
        noise = noise_of_samples(epsilon, steps)
        found, chance = [], []
        for seed in SEEDS:
            generator = torch.Generator().manual_seed(seed)
            mine = [rows_[torch.randperm(len(rows_), generator=generator)[: windows // 10]]
                    for rows_ in parts.train]  # fmt: skip
            right, wrong = [], []
            for shot in range(windows // 10):
                one = replace(parts, train=tuple(rows_[shot : shot + 1] for rows_ in mine))
                fed = pfl_lib.Federation(data, one, "logistic_regression", seed=100 * seed + shot,
                                         dtype=torch.float64, lr=1.0, device="cpu")  # fmt: skip
                hidden = fed if epsilon is None else PrivateSamples(fed, clip, noise)
                change = pfl_lib.train(hidden, fed.initial(), fed.everyone) - fed.initial()
                truth = data.normalized(data.x[torch.cat(one.train)], torch.float64)
                for i in range(fed.m):
                    guess = leakage.strongest(fed.network.unflatten(change[i])["output.weight"])
                    right.append(correlation(guess, truth[i]))
                    wrong.append(correlation(guess, truth[(i + 1) % fed.m]))
            found.append(statistics.mean(right))
            chance.append(statistics.mean(wrong))
        rows.append({"epsilon": epsilon, "noise": noise, "window": spread(found),
                     "another": spread(chance)})  # fmt: skip
        print(rows[-1], flush=True)
    return {"data": "watch", "clip": clip, "windows": windows, "rows": rows}


def correlation(one, other):
    """The size of the correlation of two vectors."""
    return torch.corrcoef(torch.stack([one, other]))[0, 1].abs().item()


def spread(values):
    """Mean, lowest and highest over the seeds."""
    return {"mean": round(statistics.mean(values), 4), "low": round(min(values), 4),
            "high": round(max(values), 4)}  # fmt: skip


def kept(name, seeds):
    """The rows that are stored, if they are of as many seeds."""
    stored = RESULTS / f"{name}.json"
    before = json.loads(stored.read_text()) if stored.exists() else {}
    return before["rows"] if before.get("seeds") == seeds else []


PARTS = {"liars": liars, "private": private_runs, "samples": samples, "leaks": leaks}


def main(names):
    wrong = [name for name in names if name not in PARTS]
    if wrong:
        sys.exit(f"devtools.trust: no {', '.join(wrong)}; there are {', '.join(PARTS)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in names or PARTS:
        about = {"command": f"python -m devtools.trust {name}", "seeds": len(SEEDS)}
        began = time.time()
        found = PARTS[name]()
        about |= circumstances(began)
        text = json.dumps({**about, **found}, indent=1, ensure_ascii=False) + "\n"
        atomic_write(RESULTS / f"{name}.json", lambda side, text=text: side.write_text(text))


if __name__ == "__main__":
    main(sys.argv[1:])
