"""Who is compared in the papers' tables, built with what each paper prints."""

import math
from dataclasses import dataclass, replace
from typing import Any

from pfl_lib import partition
from pfl_lib.book.papers import settings
from pfl_lib.methods import BY_NAME, FedALA, algorithm


def yardsticks():
    """What every table should hold beside Separate, since it costs nothing to think of.

    FedAvg's model after one more local phase at home, and FedAvg's model that is given how often
    each client meets each class.

    >>> list(yardsticks())
    ['FedAvg-FT', 'Label prior']
    """
    return {m.label: m for m in (algorithm("fedavg-ft"), algorithm("label-prior"))}


def fedamp_nine(data, partition):
    """The nine methods of FedAMP's Tables 1 to 3, by their labels there.

    σ and the self-weight are the printed ones for this data set and partition.  SCAFFOLD and APFL
    are defined with plain SGD and no step is printed for them: 0.1 is our choice, near the best of
    the experiment ``own_steps`` and at some distance from where they fall apart.

    >>> fedamp_nine("mnist", "grouped")["FedAMP"].sigma
    100.0
    """
    amp, heuristic = (settings(name, data, partition) for name in ("fedamp", "heurfedamp"))
    return {
        "Separate": algorithm("separate"),
        "FedAvg": algorithm("fedavg"),
        "FedProx": algorithm("fedprox"),
        "FedAvg-FT": algorithm("fedavg-ft"),
        "FedProx-FT": algorithm("fedprox-ft"),
        "SCAFFOLD": algorithm("scaffold", lr=0.1),
        "APFL": algorithm("apfl", lr=0.1),
        "FedAMP": algorithm("fedamp", sigma=amp["sigma"], self_weight=amp["self_weight"]),
        "HeurFedAMP": algorithm(
            "heurfedamp", sigma=heuristic["sigma"], self_weight=heuristic["self_weight"]
        ),
    }


def fedamp_few(data, scale):
    """Methods for questions about FedAMP in groups: the printed widths of a data set, and ours.

    With them the rivals of the paper's first version (Figures 2 to 9), the label prior, and FedAvg
    inside the true groups, which is what finding them can be worth.  The self-weight is the printed
    one at the paper's scale and 1/4 below, where groups are smaller.

    >>> fedamp_few("mnist", "laptop")["HeurFedAMP"].self_weight
    0.25
    """
    nine = fedamp_nine(data, "grouped")
    own = nine["FedAMP"].self_weight if scale == "paper" else 0.25
    rivals = ("Separate", "FedAvg", "FedAvg-FT", "FedProx", "SCAFFOLD", "APFL")
    few = {label: nine[label] for label in rivals}
    few |= {m.label: m for m in (algorithm("label-prior"), algorithm("oracle-groups"))}
    for label in ("FedAMP", "HeurFedAMP"):
        few[label] = replace(nine[label], self_weight=own)
    return few | {"FedAMP, median σ": algorithm("fedamp", sigma="median", self_weight=own)}


def fedamp_clients(data, scale, share=1.0, seed=0):
    """FedAMP's clients in hidden groups: the paper's, or a few with a ``share`` of their samples.

    What is stored of EMNIST and CIFAR100 decides how the paper's sizes can be met.

    >>> import pfl_lib
    >>> fedamp_clients(pfl_lib.data.load("mnist5k"), "smoke").m
    20
    """
    name = data.name
    if scale == "paper":
        paper: dict[str, dict] = {"emnist": {"over": "images"}, "cifar100": {"scale": 0.2}}
        return partition.grouped(data, name, seed=seed, **paper.get(name, {}))
    if name == "mnist5k":
        fits: dict[str, Any] = {"group_sizes": 60, "test_size": 40}
    elif name == "cifar100":
        groups = [data.y[data.coarse == s].unique() for s in range(5)]
        sizes = (125, 100, 75, 50, 25)
        fits = {"group_classes": groups, "group_clients": 3, "group_sizes": sizes}
    else:
        few = (3, 5, 5) if name == "emnist" else 4
        fits = {"setting": name, "group_clients": few, "scale": share}
    return partition.grouped(data, seed=seed, **fits)


def spfl_methods():
    """The eight methods of the SPFL paper's Table 1 by their labels there, and two of ours.

    Ours: Separate, and FedAvg-2step, which is what the authors' code runs under Per-FedAvg's name.
    pFedMe has the two inner steps of that code; their length 0.02 is ours, safe for λ = 15, and
    lets w move about half as far as an ordinary step would.

    >>> list(spfl_methods())[-2:]
    ['SPFL (1-s)', 'SPFL']
    """
    envelope = settings("pfedme", "mnist", "class_subset", paper="spfl")
    return {
        "Separate": algorithm("separate"),
        "FedAvg": algorithm("fedavg"),
        "FedUpdate": algorithm("fedupdate"),
        "Per-FedAvg": algorithm("per-fedavg"),
        "FedAvg-2step": algorithm("fedavg-2step"),
        "pFedMe": algorithm(
            "pfedme",
            lam=envelope["lam"],
            inner_steps=envelope["inner_steps"],
            lr_personal=0.02,
        ),
        "SPFL-w (1-s)": algorithm("spfl-w-1step"),
        "SPFL-w": algorithm("spfl-w"),
        "SPFL (1-s)": algorithm("spfl-1step"),
        "SPFL": algorithm("spfl"),
    }


def spfl_clients(data, iid=False, samples=None, clients=10, classes=None, seed=0):
    """The SPFL paper's clients: parts of 6, 32 or 60 classes, cut to ``samples`` for training.

    >>> import pfl_lib
    >>> spfl_clients(pfl_lib.data.load("digits"), samples=50).describe()  # doctest: +ELLIPSIS
    '10 clients (class_subset, seed 0): ... 50 training samples per client, 500 in all. ...'
    """
    if classes is None:
        name = data.name.removesuffix("_balanced")
        printed = name if name in ("emnist", "cifar100") else "mnist"
        classes = settings("spfl", printed, "class_subset")["classes_per_client"]
    dealt = partition.class_subset(data, clients, classes, iid=iid, seed=seed)
    return dealt if samples is None else partition.scarce(dealt, samples, seed=seed)


AS_RUN = ", as their code ran it"


def plga_methods(local_steps=20, stragglers="spfl", published=False):
    """The methods of the SPFL paper's Table 2, Separate and FedAvg with nobody late, and FedBuff.

    Per-FedAvg is, as there, a synchronous reference; it and Separate count epochs.  FedBuff adds
    late updates to the present model, as Eq. (11) does, without a leap; its step comes with every
    five updates (our choice), as many as arrive on time.  ``published`` adds what the paper's
    public code runs as FedAsync and as Per-FedAvg.

    >>> plga_methods()["FedAvg"].stragglers
    0
    """
    work = {"local_steps": local_steps}
    late = {"stragglers": stragglers, **work}
    theirs = {
        f"FedAsync{AS_RUN}": algorithm("fedasync", mixing="late", **late),
        f"Per-FedAvg{AS_RUN}": algorithm("fedavg-async", cached=True, repeats=2, **late),
    }
    return {
        "Separate": algorithm("separate"),
        "FedAvg": algorithm("fedavg-sync", stragglers=0, **work),
        "Per-FedAvg": algorithm("per-fedavg"),
        "FedAvg (Async)": algorithm("fedavg-async", **late),
        "FedAvg (Sync)": algorithm("fedavg-sync", **late),
        "FedAsync": algorithm("fedasync", **late),
        "FedBuff": algorithm("fedbuff", buffer=5, **late),
        "LGA": algorithm("lga", **late),
        "PLGA": algorithm("plga", **late),
        **(theirs if published else {}),
    }


def fedacs_methods():
    """The eight methods of FedACS's Figure 1, with the same care for all.

    The paper prints no setting.  FedACS has p = 0.5; FedAMP the self-weight 0.5 of its own tables
    for clients without groups, and σ from the data; the others what Zhang et al. tuned, but for
    pFedMe's inner steps, which are those of ``spfl_methods``.

    >>> fedacs_methods()["FedACS"].p
    0.5
    """
    return {
        "Separate": algorithm("separate"),
        "FedAvg": algorithm("fedavg"),
        "Ditto": algorithm("ditto"),
        "Per-FedAvg": algorithm("per-fedavg"),
        "pFedMe": algorithm("pfedme", inner_steps=2, lr_personal=0.02),
        "APFL": algorithm("apfl"),
        "FedAMP": algorithm("fedamp", self_weight=0.5),
        "FedACS": algorithm("fedacs", p=0.5),
    }


def fedala_fourteen(rounds, ft_epochs=15, participation=1.0):
    """Separate, and the fourteen methods of FedALA's Tables 2 to 4 by their labels there.

    Hyper-parameters are the printed ones.  What the paper ties to its run follows this one:
    APPLE's horizon is a fifth of the rounds, FedPHP's weight grows over the rounds that a client is
    expected to take part in, Per-FedAvg's inner step is the local learning rate.
    ``ft_epochs`` of FedAvg-C and FedProx-C is not printed.  FedAMP starts at its own model: from
    the message its printed α would give weights far from a convex combination.

    >>> methods = fedala_fourteen(rounds=50)
    >>> methods["FedALA"].ala_percent, methods["APPLE"].horizon, methods["FedAMP"].alpha
    (80, 10, 1000.0)
    """
    ours = {
        "fedavg-c": {"ft_epochs": ft_epochs},
        "fedprox-c": {"ft_epochs": ft_epochs},
        "per-fedavg": {"inner_lr": None},
        "apple": {"horizon": max(1, rounds // 5)},
        "fedphp": {"expected": max(1, round(participation * rounds))},
    }
    methods = {"Separate": algorithm("separate")}
    for name in (
        *("fedavg", "fedprox", "fedavg-c", "fedprox-c", "per-fedavg", "fedrep", "pfedme"),
        *("ditto", "fedamp", "fedphp", "fedfomo", "apple", "partialfed", "fedala"),
    ):
        printed = settings(name, paper="fedala").fit(BY_NAME[name])
        methods[BY_NAME[name].label] = algorithm(name, **(printed | ours.get(name, {})))
    return methods


def fedala_clients(data, a=None, clients=20, samples=None, seed=0, form="shards"):
    """FedALA's clients: classes shared out by Dirichlet(``a``), or, without ``a``, two classes
    each (ten of a hundred), in shards or, with ``form="fedala"``, in the authors' blocks of unequal
    clients; ``samples`` limits what each trains on.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> fedala_clients(data, samples=30).counts(data).sum(1).unique()
    tensor([30])
    """
    if a is None:
        each = 2 if len(data.classes) < 100 else 10
        dealt = partition.pathological(data, clients, each, seed=seed, form=form)
    else:
        least = 20 if samples is None else math.ceil(samples / 0.75) + 1
        dealt = partition.dirichlet(data, clients, a, form="fedala", min_size=least, seed=seed)
    return dealt if samples is None else partition.scarce(dealt, samples, seed=seed)


@dataclass(frozen=True)
class KeptWeights(FedALA):
    """FedALA whose clients learn their weights once and never change them again.

    >>> KeptWeights().label
    'FedALA, weights kept'
    """

    name, label = "fedala-kept", "FedALA, weights kept"

    def learn(self, weights, own, x, apart, started, fed, who):
        once = apart & ~started
        return super().learn(weights, own, x, once, started, fed, who)


#: Methods that only an experiment has, by the name its results store.
EXTRA = {method.name: method for method in (KeptWeights,)}
