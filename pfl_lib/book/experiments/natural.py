"""Natural clients: writers and people as they come, every method, one protocol for all of them."""

from typing import Any

import numpy as np
import torch
from torch import nn

from pfl_lib import _check, models, partition
from pfl_lib import data as datasets
from pfl_lib.book.experiments.canary import build, canary_setting
from pfl_lib.book.experiments.results import home
from pfl_lib.local import LocalFederation
from pfl_lib.methods import BY_NAME, algorithm
from pfl_lib.newcomers import serve_newcomers
from pfl_lib.tuning import tune

FOLDS = 5  # seed s leaves every fifth client out, so that each is a newcomer once
WIDTH = 32  # of the hidden layer
#: Learning rates by kind of data, beside two values of a hyper-parameter, and for methods that have
#: none: as many trials for everybody, between the same ends.
RATES = {"image": (0.1, 0.4), "tabular": (0.3, 1.2)}
FINE_RATES = {"image": (0.1, 0.16, 0.25, 0.4), "tabular": (0.3, 0.5, 0.75, 1.2)}
#: The one hyper-parameter of a method's own that is chosen, and its two values.
OWN: dict[str, dict[str, tuple]] = {
    "fedprox": {"mu": (0.01, 0.1)},
    "label-prior": {"smoothing": (1.0, 10.0)},
    "fedavg-ft": {"ft_epochs": (1, 5)},
    "fedprox-ft": {"mu": (0.01, 0.1)},
    "fedavg-c": {"ft_epochs": (1, 5)},
    "fedprox-c": {"mu": (0.01, 0.1)},
    "fedupdate": {"ft_steps": (1, 5)},
    "fedbabu": {"ft_epochs": (1, 5)},
    "per-fedavg": {"inner_lr": (0.02, 0.1)},
    "pfedme": {"lr_personal": (0.01, 0.05)},
    "ditto": {"lam": (0.1, 1.0)},
    "apfl": {"alpha": (0.25, 0.75)},
    "fedphp": {"mu": (0.5, 0.9)},
    "fedala": {"ala_layers": (1, 2)},
    "fedrep": {"head_epochs": (1, 5)},
    "partialfed": {"lr_strategy": (0.1, 1.0)},
    "fedrod": {"gamma": (0.0, 1.0)},
    "feddbe": {"kappa": (1.0, 50.0)},
    "fedpac": {"lam": (0.1, 1.0)},
    "fedproto": {"lam": (0.1, 1.0)},
    "fedas": {"align_lr": (0.01, 0.1)},
    "cfl": {"eps2": (0.5, 1.6)},
    "ifca": {"clusters": (2, 3)},
    "fedamp": {"self_weight": (0.3, 0.7)},
    "heurfedamp": {"self_weight": (0.3, 0.7)},
    "fedacs": {"p": (0.5, 0.8)},
    "spfl": {"temperature": (0.3, 1.0)},
    "spfl-1step": {"temperature": (0.3, 1.0)},
    "spfl-w": {"temperature": (0.3, 1.0)},
    "spfl-w-1step": {"temperature": (0.3, 1.0)},
    "apple": {"lr_p": (0.01, 0.1)},
    "pfedgraph": {"alpha": (0.8, 8.0)},
    "fedasync": {"alpha": (0.4, 0.8)},
    "fedbuff": {"buffer": (5, 10)},
}
#: What else differs from a method's usual values, and why.
GIVEN: dict[str, dict[str, Any]] = {
    "cfl": {"eps1": 0.4, "warmup": 5},  # these runs are short
    "fedphp": {"expected": 30},
    "fedprox-c": {"ft_epochs": 5},  # as long as FedAvg-C at most: fifteen cost too much here
}
#: The same as FedAvg in a network without batch normalization.
SAME_AS_FEDAVG = ("fedbn", "fedavg-local-stats")


def load(case):
    """The data set of a case: "writers", "people" (HAR) or "watch".

    Windows of sensors become five numbers per channel, digits are halved in height and width.

    >>> load("watch").shape
    (30,)
    """
    _check.one_of("case", case, ("writers", "people", "watch"))
    if case == "writers":
        return some_writers(datasets.load("mnist_writers").halved())
    return window_numbers(datasets.load("har" if case == "people" else "watch"))


def some_writers(data, writers=25):
    """The digits of some writers alone, half of each writer's for testing: quick to handle."""
    drawn = partition.natural(data, clients=writers, test_share=0.5, min_samples=20)
    rows = torch.cat([*drawn.train, *drawn.test])
    return datasets.from_arrays(
        data.x[rows].numpy(),
        data.y[rows].numpy(),
        data.client,
        name=data.name,
        kind="image",
        columns=_columns(data, rows),
        test=np.arange(len(rows)) >= sum(map(len, drawn.train)),
        note=f"{data.note}; {writers} writers",
    )


def _columns(data, rows):
    """What is known about these samples, in words."""
    return {
        name: np.array(column.names)[column.values[rows].numpy()]
        for name, column in data.columns.items()
    }


def window_numbers(data):
    """Windows of several channels as a table: of each channel the mean, the standard deviation,
    the mean absolute step and the 10 % and 90 % quantiles.

    >>> window_numbers(datasets.load("watch")).kind
    'tabular'
    """
    x = data.x.double()
    middle = [x.mean(2), x.std(2), x.diff(dim=2).abs().mean(2)]
    ends = [torch.quantile(x, q, dim=2) for q in (0.1, 0.9)]
    return datasets.from_arrays(
        torch.cat(middle + ends, 1).numpy(),
        data.y.numpy(),
        data.client,
        name=data.name,
        kind="tabular",
        classes=data.classes,
        columns=_columns(data, torch.arange(len(data))),
        group=data.together or None,
        test=np.arange(len(data)) >= data.n_train,
        note=f"{data.note}; five numbers per channel",
    )


def clients(data):
    """The natural clients of a data set; people with a phone (HAR) train on sixty windows each.

    >>> clients(load("watch")).m
    10
    """
    if data.name == "har":
        return partition.scarce(partition.natural(data), 60)
    return partition.natural(data, groups="hsf" if "hsf" in data.columns else None)


def fold(everyone, seed):
    """Members and newcomers of one seed: every fifth client comes later.

    >>> members, newcomers = fold(clients(load("watch")), seed=1)
    >>> members.m, newcomers.ids
    (8, ('10', '6'))
    """
    return partition.set_aside(everyone, range(seed % FOLDS, everyone.m, FOLDS))


class Normalized(models.Model):
    """A network of one hidden layer with batch normalization before its ReLU.

    >>> [name for name, _ in Normalized(models.mlp(4, 3, hidden=(WIDTH,))).layers()]
    ['hidden', 'norm', 'output']
    """

    def __init__(self, plain):
        super().__init__()
        self.hidden, self.norm, self.output = plain.hidden[0], nn.BatchNorm1d(WIDTH), plain.output

    def features(self, x):
        return torch.relu(self.norm(self.hidden(x.flatten(1))))


def federation(data, seed, epochs=1, norm=False):
    """The members of one seed, with a network of one hidden layer, with or without batch
    normalization; an epoch is about three batches.

    >>> federation(load("watch"), seed=0).d
    1223
    """
    members, _ = fold(clients(data), seed)
    network = models.build("mlp", data, seed=seed, hidden=(WIDTH,))
    if norm:
        network = Normalized(network)
    batch = 40 if data.name == "watch" else 20
    training = {"lr": 0.1, "batch_size": batch, "epochs": epochs, "seed": seed}
    return LocalFederation(data, members, network, **training)


def methods(groups, norm=False):
    """Every method of the library by its label, but those that would be FedAvg once more in a
    network without batch ``norm``alization, and oracle groups where no ``groups`` are known.

    >>> len(methods(groups=True)) - len(methods(groups=False))
    1
    """
    left_out = [*(() if norm else SAME_AS_FEDAVG), *(() if groups else ("oracle-groups",))]
    return {
        kind.label: algorithm(name, **{**kind.needs, **GIVEN.get(name, {})})
        for name, kind in BY_NAME.items()
        if name not in left_out
    }


def grid(method, kind):
    """The four settings that are tried for a method on one kind of data.

    >>> grid(algorithm("ditto"), "image")
    {'lam': (0.1, 1.0), 'lr': (0.1, 0.4)}
    """
    own = OWN.get(method.name)
    return {**own, "lr": RATES[kind]} if own else {"lr": FINE_RATES[kind]}


def tuned(some, fed, rounds, folder=None):
    """Methods with the settings that are best on held-out training samples, the learning rate of
    each by its label, and every trial as plain data.

    >>> best, local, trials = tuned({"Separate": algorithm("separate")}, federation(
    ...     load("watch"), seed=FOLDS), rounds=1)
    >>> list(local["Separate"]), len(trials["Separate"])
    (['lr'], 4)
    """
    best, local, trials = {}, {}, {}
    for label, method in some.items():
        found = tune(
            method, grid(method, fed.data.kind), fed, rounds, folder=folder, progress=False
        )
        trials[label] = [
            {**t.settings, "validation": None if t.diverged else round(t.mean, 4)}
            for t in found.trials
        ]
        if found.best is not None and found.fed is not None:
            best[label] = found.best
            local[label] = {"lr": found.fed.settings.lr}
    return best, local, trials


def as_stored(found, case):
    """What ``tuned`` returned when a stored case was measured: nothing is tried anew.

    >>> from pfl_lib.book.experiments import stored
    >>> best, local, _ = as_stored(stored("natural")["laptop"], "people")
    >>> best["Ditto"], local["Ditto"]
    (Ditto(lam=0.1, personal_epochs=2), {'lr': 0.3})
    """
    best, local = {}, {}
    for label in found.methods_in(case):
        settings = found.of(label, case)[0]["settings"]
        setting = canary_setting(settings)
        best[label] = build(setting["algorithm"], setting["hyper"])
        local[label] = {"lr": settings["lr"]}
    return best, local, found.record["more"]["trials"][case]


def trials_folder(scale):
    """Where the trials of a tuning are kept, beside the checkpoints of the runs."""
    return home() / "checkpoints" / "natural" / f"{scale}-trials"


def serve(history, fed):
    """How the newcomers of this seed fare: for ``measure(extra=…)``.

    >>> from pfl_lib.rounds import run
    >>> fed = federation(load("watch"), seed=0)
    >>> history = run(algorithm("fedavg"), fed, 1, progress=False)
    >>> len(serve(history, fed)["newcomers by client"])
    2
    """
    setting = canary_setting(history.settings)
    method = build(setting["algorithm"], setting["hyper"])
    _, late = fold(clients(fed.data), fed.settings.seed)
    last = fed.at(history.rounds[-1] - 1)
    served = serve_newcomers(method, history.state, last, fed.replace(partition=late))
    return {
        "newcomers": round(served.mean, 5),
        "worst newcomer": round(served.worst, 5),
        "newcomers by client": [round(a, 4) for a in served.accuracy.tolist()],
    }
