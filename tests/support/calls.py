"""Every public callable with a call that works and, for each argument, values to be refused.

A row of ``TABLE`` is such a call.  ``NO_ROW`` says why a public name needs none.
"""

import doctest
import inspect
import math
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

import pfl_lib
from pfl_lib import (
    attention,
    callbacks,
    data,
    devices,
    faults,
    flower,
    formulas,
    methods,
    metrics,
    models,
    newcomers,
    partition,
    privacy,
    random,
    robust,
    stragglers,
)
from pfl_lib.book import experiments, explore, papers

NAN, INF = math.nan, math.inf
# kinds of wrong values
POSITIVE = ("a", None, [1], 0, -1, NAN, INF, True)
POSITIVE_OR_NONE = ("a", [1], 0, -1, NAN, INF, True)
NOT_NEGATIVE = ("a", None, -1, NAN, INF, True)
SHARE = ("a", None, -0.1, 1.1, NAN, True)
WHOLE = ("a", None, 0, -1, 1.5, NAN, INF, True)
WHOLE_OR_NONE = ("a", 0, -1, 1.5, NAN, True)
FROM_ZERO = ("a", None, -1, 1.5, NAN, INF, True)
FEW = ("a", -1, 1.5, NAN, True)  # none at all is allowed
COUNTS = (None, "a", -torch.ones(2, 3))
WORD = ("unknown", None, 3)
CLIENTS = (torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 2, 4]), torch.tensor([0.5]), "abcd", 3)
MATRIX = (None, "a", [[1.0]], torch.ones(3), torch.ones(3, 5).long(), torch.ones(0, 5))
TENSOR = (None, "a", [1.0])
TYPE = (None, "a", 3)


@dataclass
class Row:
    """``call(**good)`` works; with any of the ``bad`` values of an argument it is refused.

    The exception speaks of the argument by its name, or by the word in ``says``.
    """

    call: object
    good: dict
    bad: dict
    says: dict = field(default_factory=dict)
    by_torch: tuple = ()  # tensors that go straight into an operation: refused in torch's words


@cache
def digits():
    return data.load("digits")


FEATURES = torch.arange(36.0).reshape(12, 3)


@cache
def people():
    """Twelve samples of three people."""
    return data.from_arrays(FEATURES, [0, 1] * 6, ["ann", "bob", "cid"] * 4)


@cache
def table():
    """As much of a table of Hugging Face as is asked for."""

    class Table:
        column_names, features = ("a", "b"), MappingProxyType({})

        def with_format(self, kind):
            return {"a": FEATURES.numpy(), "b": [0, 1] * 6}

    return Table()


@cache
def pair():
    """Two samples that call themselves MNIST, and a published split of them."""
    x = torch.zeros(2, 1, 2, 2, dtype=torch.uint8)
    scale = {"mean": (0.0,), "std": (1.0,)}
    return data.Dataset("mnist", x, torch.tensor([0, 1]), 1, ("0", "1"), **scale)


@cache
def other():
    """Another data set's clients: their indices fit, and mean nothing here."""
    return partition.iid(replace(digits(), x=digits().x[:900], y=digits().y[:900], n_train=700), 4)


@cache
def in_groups():
    sizes = {"group_clients": [2] * 5, "group_sizes": [20] * 5, "test_size": 10}
    return partition.grouped(digits(), **sizes)


@cache
def clients():
    return partition.scarce(partition.iid(digits(), clients=4), samples=6)


@cache
def late():
    """Two clients who hold other samples than those of ``small``."""
    clients = partition.set_aside(partition.iid(digits(), clients=6), [4, 5])[1]
    rest = torch.arange(digits().n_train)[~torch.isin(
        torch.arange(digits().n_train), torch.cat(small().partition.train))]  # fmt: skip
    own = replace(clients, train=rest[:12].split(6))
    return small().replace(partition=own)


@cache
def small():
    return pfl_lib.Federation(digits(), clients(), "mlp", batch_size=3, device="cpu")


def own(name):
    """A partition or data set with one thing changed."""
    y, x = digits().y, digits().x
    negative = y.clone()
    negative[3] = -1
    large = y.clone()
    large[3] = 10
    return {
        "negative label": lambda: replace(digits(), y=negative),
        "label outside": lambda: replace(digits(), y=large),
        "float label": lambda: replace(digits(), y=y.float()),
        "float pixels": lambda: replace(digits(), x=x.float()),
        "too few labels": lambda: replace(digits(), y=y[:-1]),
        "no samples": lambda: replace(digits(), x=x[:0], y=y[:0]),
        "unknown kind": lambda: replace(digits(), kind="sound"),
        "no training": lambda: replace(digits(), n_train=0),
    }[name]()


def cases():
    method = {"FedAvg": pfl_lib.algorithm("fedavg")}
    return {"case": experiments.Case(lambda seed: small(), method, 1)}


def split(train, test, **other):
    parts = [[torch.tensor(i, dtype=torch.int64) for i in part] for part in (train, test)]
    return partition.Partition("mine", *parts, **other)


W, w, S = torch.rand(3, 5), torch.rand(5), torch.full((3, 3), 0.3)
A = attention.negative_exponential(sigma=2.0)
SHORT = torch.rand(4)
VECTOR = (*TENSOR, SHORT)


def gradient(v):
    return v * v


CALL = (None, 3)
LATE = {"w_pull": w, "w_next": w, "w_now": w, "w_local": w}
HYPER = {  # of each method: hyper-parameter, values that must be refused
    name: {one.name: one.metadata["bad"] for one in fields(method)}
    for name, method in methods.BY_NAME.items()
}

TABLE = {
    # ---- the library's front door
    "pfl_lib.Federation": Row(
        pfl_lib.Federation,
        {"data": digits, "partition": clients},
        {
            "data": TYPE,
            "partition": (
                *TYPE,
                lambda: split([[0], []], [[1500], [1501]]),
                lambda: split([[0], [1]], [[1500], []]),
                lambda: split([[0, 99999]], [[1500]]),
                lambda: split([[-1]], [[1500]]),
                lambda: split([[0, 1]], [[1, 1500]]),
                lambda: split([[0, 0]], [[1500]]),
                lambda: split([], []),
                lambda: split([[0]], [[1500]], labels=[torch.tensor([-1])]),
                lambda: split([[0]], [[1500]], labels=[torch.tensor([10])]),
                other,
            ),
            "model": ("unknown", None, 3),
            "lr": POSITIVE,
            "optimizer": WORD,
            "momentum": ("a", None, -0.1, 1.0, NAN),
            "nesterov": (None, 1, True),
            "weight_decay": ("a", [1], -1.0, NAN, INF),
            "clip": ("a", [1], 0, -1.0, NAN, INF),
            "batch_size": WHOLE,
            "epochs": WHOLE,
            "seed": FROM_ZERO,
            "shuffle": ("a", 1, None),
            "init_seed": ("a", -1, 1.5, NAN),
            "device": ("unknown", 3.5, "cuda:7"),
            "dtype": ("float32", torch.int64, None),
            "engine": WORD,
            "loss": (*WORD, "mse", "bce"),
            "metric": ("unknown", 3, "mae"),
        },
        {"partition": "partition|client|label"},
    ),
    "pfl_lib.run": Row(
        pfl_lib.run,
        {"algorithm": lambda: pfl_lib.algorithm("fedavg"), "fed": small, "rounds": 1,
         "progress": False},
        {
            "algorithm": ("fedavgg", None, 3),
            "fed": (*TYPE, pfl_lib.Federation),
            "rounds": WHOLE,
            "participation": (*SHARE, 0),
            "evaluate_every": WHOLE,
            "checkpoint": (3, ["a"], "", __file__),
            "state_folder": (3, ["a"], "", __file__),
            "checkpoint_every": WHOLE,
            "broken": WORD,
            "callbacks": (None, 3, "abc", [3], [callbacks.Callback]),
        },
    ),
    "pfl_lib.participants": Row(
        pfl_lib.participants, {"fed": small, "share": 0.5, "k": 0},
        {"fed": TYPE, "share": (*SHARE, 0), "k": FROM_ZERO},
    ),
    "pfl_lib.algorithm": Row(pfl_lib.algorithm, {"name": "fedavg"}, {"name": ("fedavgg", None, 3)}),
    "pfl_lib.tune": Row(
        pfl_lib.tune,
        {"method": "fedavg", "grid": {"lr": [0.1]}, "fed": small, "rounds": 1, "progress": False},
        {
            "method": ("fedavgg", None, 3),
            "grid": (None, {}, [0.1], {"lr": []}, {"lr": 0.1}, {"lr": "0.1"}, {"lrr": [0.1]}),
            "fed": (*TYPE, lambda: faults.Faulty(small(), clients=[0])),
            "rounds": WHOLE,
            "share": (*SHARE, 0, 1),
            "seeds": (3, [], "ab", [-1], [1.5], [True]),
            "participation": (*SHARE, 0),
            "folder": (3, ["a"], "", __file__),
        },
    ),
    "Federation.replace": Row(
        lambda **changes: small().replace(**changes), {"lr": 0.1},
        {"lr": POSITIVE, "lrr": (1,), "partition": TYPE},
    ),
    "Federation.at": Row(lambda k: small().at(k), {"k": 3}, {"k": FROM_ZERO}),
    "Federation.initial": Row(
        lambda who: small().initial(who), {"who": lambda: small().everyone}, {"who": CLIENTS}
    ),
    "Federation.with_part": Row(
        lambda positions: small().with_part(positions),
        {"positions": [torch.arange(2)] * 4},
        {"positions": (None, 3, [], "abcd", [torch.arange(2)] * 3, [torch.tensor([10**6])] * 4,
                       [torch.tensor([-1])] * 4, [torch.tensor([0.5])] * 4)},
    ),
    "History.clients": Row(
        lambda round_=None: _measured().clients(round_), {}, {"round_": ("a", 99, 1.5, True, NAN)}
    ),
    "History.worst": Row(lambda share: _measured().worst(share), {"share": 0.1},
                         {"share": (*SHARE, 0)}),
    "History.save": Row(lambda path: _measured().save(path), {"path": "file.json"},
                        {"path": (None, 3, "", ".")}),
    "History.load": Row(pfl_lib.History.load, {"path": lambda: _saved()},
                        {"path": (None, 3, "", "missing.json")}, {"path": "path|json|No such"}),
    "Federation.hold_out": Row(
        lambda **options: small().hold_out(**options), {},
        {"share": (*SHARE, 0, 1), "seed": FROM_ZERO},
    ),
    "callbacks.CSVLog": Row(callbacks.CSVLog, {"path": "log.csv"}, {"path": (None, 3, "", ".")}),
    "callbacks.EarlyStopping": Row(
        callbacks.EarlyStopping, {"validation": small},
        {"validation": TYPE, "patience": WHOLE, "metric": ("unknown", 3, "mae"),
         "min_delta": NOT_NEGATIVE},
    ),
    "pfl_lib.serve_newcomers": Row(
        pfl_lib.serve_newcomers,
        {"method": lambda: pfl_lib.algorithm("fedavg"), "fed": small, "newcomers": late,
         "state": lambda: pfl_lib.algorithm("fedavg").start(small())},
        {
            "method": ("fedavgg", None, 3),
            "state": (*TYPE, methods.State, lambda: pfl_lib.methods.State(w=W)),
            "fed": (*TYPE, pfl_lib.Federation),
            "newcomers": (*TYPE, small, lambda: pfl_lib.example("logistic_regression")),
        },
    ),
    "pfl_lib.compare": Row(
        lambda name: pfl_lib.compare(name), {"name": "fedavg"}, {"name": ("fedavgg", 3)}
    ),
    "pfl_lib.example": Row(
        pfl_lib.example, {}, {"model": ("unknown", None, 3), "lr": POSITIVE, "engine": WORD}
    ),
    "pfl_lib.Work": Row(
        pfl_lib.Work,
        {"rows": {"w": W}},
        {
            "rows": ({}, {"v": W}),
            "step": WORD,
            "repeats": WHOLE,
            "group": WHOLE,
            "noise": FROM_ZERO,
            "share": ("a", None, 0, 1.5, -1, NAN),
            "epochs": FEW,
            "steps": FEW,
            "lr": ("a", [1], -1, NAN, INF),
            "optimizer": ("unknown", 3),
            "batch_size": WHOLE_OR_NONE,
            "uploaded": (None, 1, "yes"),
        },
    ),
    "pfl_lib.History": Row(
        lambda path: pfl_lib.History.load(path),
        {"path": "good"},
        {"path": ("missing.json", "not json", "[1]", '{"label": 3, "nothing": 4}')},
        {"path": "json|History"},
    ),
    "pfl_lib.Prox": Row(
        lambda center, strength: pfl_lib.train(
            small(), small().initial(), small().everyone, prox=pfl_lib.Prox(center, strength)
        ),
        {"center": lambda: small().initial(), "strength": 0.1},
        {"center": (None, "a", torch.ones(3)),
         "strength": (*NOT_NEGATIVE, torch.ones(3), torch.ones(4, 2), torch.ones(4).long())},
        {"center": "center"},
    ),
    "pfl_lib.train": Row(
        pfl_lib.train,
        {"fed": small, "start": lambda: small().initial(), "who": lambda: small().everyone},
        {
            "fed": (None, 3, torch.ones(4)),
            "start": (torch.ones(4, 3), torch.ones(3, 3), None, "a"),
            "who": (torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 2, 4]),
                    torch.tensor([-1, 0, 1, 2]),
                    torch.tensor([0, 1]), torch.tensor([0.5, 1, 2, 3]), "abcd"),
            "prox": ("a", 3, (1, 2)),
            "correction": ("a", 3, torch.ones(3)),
            "mask": ("a", torch.ones(3)),
            "lr": (*NOT_NEGATIVE[:1], -1, NAN, INF, 1e308, 10**40),
            "tag": (None, 3),
        },
        {"start": "start|rows|models", "who": "who"},
    ),
    "Federation.evaluate": Row(
        lambda w, who, split: small().evaluate(w, who, split),
        {"w": lambda: small().initial(), "who": lambda: small().everyone, "split": "test"},
        {
            "w": (torch.ones(4, 3), None, "a"),
            "who": CLIENTS,
            "split": WORD,
        },
    ),
    # ---- data and partitions
    "data.load": Row(
        data.load, {"name": "digits"}, {"name": ("digitss", None, 3, "missing.npz"), "words": (3,)},
        {"words": "option words", "name": "name|missing.npz"},
    ),
    "data.Dataset": Row(
        lambda what: own(what) if what else digits(),
        {"what": ""},
        {"what": ("negative label", "label outside", "float label", "float pixels",
                  "too few labels", "no samples", "unknown kind", "no training")},
        {"what": "y of|x of|n_train|kind|samples"},
    ),
    "partition.Partition": Row(
        lambda train, **more: partition.Partition("mine", train, [torch.tensor([9])], **more),
        {"train": [torch.tensor([1])]},
        {
            "train": ([torch.tensor([0.5])], [torch.tensor([[1]])], [torch.tensor([1])] * 2, [[1]]),
            "groups": (torch.tensor([0, 1]),),
            "ids": (["ann", "bob"], [None], [3]),
            "labels": ([torch.tensor([1, 2])], [torch.tensor([0.5])]),
        },
        {"train": "train"},
    ),
    "data.from_huggingface": Row(
        data.from_huggingface, {"table": table, "x": "a", "y": "b"},
        {"table": (*TYPE, {}, {"train": 3, "test": 3}), "x": ("c", 3, ["a", "c"]),
         "y": (None, "c", 3), "client": ("c", 3), "columns": (["c"], 3)},
        {"x": "column|x must", "y": "column|y must", "client": "column|client must",
         "columns": "column|columns must"},
    ),
    "data.from_arrays": Row(
        data.from_arrays, {"x": FEATURES, "y": [0, 1] * 6},
        {
            "x": (None, "a", 3, [["a"]], FEATURES * math.inf, FEATURES[:, :, None, None, None],
                  FEATURES.long()),
            "y": (None, "a", 3, [0, 1], [0.5] * 11, [NAN] * 12, [[0]] * 12),
            "client": ("a", 3, [0, 1], [0.5] * 12),
            "kind": ("unknown", 3, "image", "series", "text"),
            "test": ("a", None, 0, 1, -0.1, NAN, [True] * 12, [True], [0.5] * 12),
            "split": (*WORD, "group"),
            "group": ("a", [0, 1] * 6),
            "columns": ({"a": [0, 1]}, {"a": 3}),
            "classes": (["a"], ["a", None], torch.ones(2, 2)),
            "missing": WORD,
            "weight": ("a", 3, [1.0], [0.0] * 12, [-1.0] * 12, [NAN] * 12, [[1.0]] * 12),
            "seed": FROM_ZERO,
        },
        {"x": "x|kind", "kind": "kind|x", "split": "split|group", "columns": "a must",
         "classes": "classes"},
    ),
    "partition.natural": Row(
        partition.natural, {"data": people},
        {"data": (*TYPE, digits), "by": ("unknown", 3), "clients": (*WHOLE_OR_NONE, 100),
         "test_share": ("a", 0, 1, -0.1, NAN), "part": WORD, "min_samples": (*WHOLE, 1000),
         "groups": ("unknown", 3), "seed": FROM_ZERO},
        {"data": "data|by", "test_share": "test"},
    ),
    "partition.iid": Row(
        partition.iid, {"data": digits, "clients": 3},
        {"data": TYPE, "clients": (*WHOLE, 100_000), "seed": FROM_ZERO},
    ),
    "partition.pathological": Row(
        partition.pathological, {"data": digits, "clients": 5},
        {"data": TYPE, "clients": (*WHOLE, 100_000, 2), "classes_per_client": (*WHOLE, 11),
         "seed": FROM_ZERO, "form": WORD},
    ),
    "partition.grouped": Row(
        partition.grouped, {"data": digits},
        {
            "data": TYPE,
            "setting": ("unknown", 3),
            "group_classes": ([[0, 99]], [[]]),
            "group_clients": (0, -1, 1.5, "a", [1, 2]),
            "group_sizes": (0, -1, 1.5, "a", 10**6),
            "share": SHARE,
            "test_size": (0, -1, 1.5, "a"),
            "scale": POSITIVE,
            "over": WORD,
            "seed": FROM_ZERO,
        },
        {"group_classes": "group|class", "group_clients": "group_clients|group",
         "group_sizes": "group_sizes|needs|needed|samples"},
    ),
    "partition.dirichlet": Row(
        partition.dirichlet, {"data": digits, "clients": 4, "a": 1.0},
        {"data": TYPE, "clients": (*WHOLE, 100_000), "a": POSITIVE, "form": WORD,
         "min_size": (*WHOLE, 10**6), "tries": WHOLE, "seed": FROM_ZERO},
    ),
    "partition.class_subset": Row(
        partition.class_subset, {"data": digits},
        {"data": TYPE, "clients": (*WHOLE, 100_000), "classes_per_client": (*WHOLE, 11),
         "test_share": (*SHARE, 0, 1), "seed": FROM_ZERO},
    ),
    "partition.set_aside": Row(
        partition.set_aside, {"partition": clients, "clients": [1]},
        {"partition": TYPE,
         "clients": (None, "a", [], [4], [-1], [1, 1], [0, 1, 2, 3], [0.5], [True], 0, 4, True),
         "seed": FROM_ZERO},
    ),
    "partition.hold_out": Row(
        partition.hold_out, {"partition": clients},
        {"partition": (*TYPE, lambda: split([[0]], [[1500]])), "share": (*SHARE, 0, 1),
         "seed": FROM_ZERO},
        {"partition": "partition|hold out"},
    ),
    "partition.conflicting_labels": Row(
        partition.conflicting_labels, {"partition": in_groups, "data": digits},
        {"partition": TYPE, "data": TYPE, "shift": WHOLE},
    ),
    "partition.label_noise": Row(
        partition.label_noise, {"partition": clients, "data": digits},
        {"partition": (*TYPE, other), "data": TYPE, "client_share": SHARE, "label_share": SHARE,
         "seed": FROM_ZERO},
    ),
    "partition.published": Row(
        lambda name, data: partition.published(name, data, root="here"),
        {"name": "fedala-mnist", "data": pair},
        {"name": WORD, "data": (*TYPE, digits)},
    ),
    "partition.official_test": Row(
        partition.official_test, {"partition": clients, "data": digits},
        {"partition": TYPE, "data": TYPE},
    ),
    "partition.scarce": Row(
        partition.scarce, {"partition": clients, "samples": 2},
        {"partition": TYPE, "samples": (*WHOLE, 1000), "seed": FROM_ZERO},
    ),
    "partition.load": Row(
        partition.load, {"path": "good"}, {"path": ("missing.npz",)}, {"path": "missing.npz"},
    ),
    # ---- models
    "models.with_lora": Row(
        models.with_lora,
        {"module": lambda: models.mlp(64, 10)},
        {
            "module": ("mlp", None, 3),
            "rank": WHOLE,
            "layers": (["output"], ["unknown"], []),
            "alpha": ("a", [1], 0, -1.0, NAN, INF),
            "head": (None, 1, "yes"),
            "seed": FROM_ZERO,
        },
    ),
    "models.with_head": Row(
        models.with_head,
        {"module": lambda: models.mlp(64, 10), "data": digits},
        {"module": ("mlp", None, 3), "data": TYPE, "name": ("unknown", 3, "", "hidden.0")},
    ),
    **{
        f"models.{function.__name__}": Row(function, {name: lambda: models.mlp(4, 3)}, {name: TYPE})
        for function, name in ((models.layers, "model"), (models.parameter_count, "model"),
                               (models.head_prefixes, "module"))
    },
    "models.build": Row(
        models.build, {"model": "mlp", "data": digits},
        {"model": ("mlpp", None, 3), "data": TYPE, "seed": ("a", -1, 0.5)},
        {"model": r"model|int\(\)"},  # what a builder itself says is passed on
    ),
    "models.logistic_regression": Row(
        models.logistic_regression, {"inputs": 4, "classes": 2}, {"inputs": WHOLE, "classes": WHOLE}
    ),
    "models.mlp": Row(
        models.mlp, {"inputs": 4, "classes": 2},
        {"inputs": WHOLE, "classes": WHOLE, "hidden": ("a", (0,), (-1,), (1.5,))},
    ),
    "models.mcmahan_cnn": Row(
        models.mcmahan_cnn, {"channels": 1, "size": 28, "classes": 10},
        {"channels": WHOLE, "size": (*WHOLE, 1), "classes": WHOLE},
    ),
    "models.fedala_cnn": Row(
        models.fedala_cnn, {"channels": 1, "size": 28, "classes": 10},
        {"channels": WHOLE, "size": (*WHOLE, 1), "classes": WHOLE},
    ),
    "models.spfl_cnn": Row(
        models.spfl_cnn, {"channels": 1, "size": 28, "classes": 10},
        {"channels": WHOLE, "size": (*WHOLE, 1), "classes": WHOLE, "wide": WHOLE},
    ),
    "models.resnet18": Row(
        models.resnet18, {"channels": 3, "classes": 10, "width": 4},
        {"channels": WHOLE, "classes": WHOLE, "width": WHOLE, "stem": WORD},
    ),
    "models.cnn1d": Row(
        models.cnn1d, {"channels": 3, "classes": 2},
        {"channels": WHOLE, "classes": WHOLE, "filters": ((0, 1), (1,), (1.5, 2), "ab")},
    ),
    "models.fasttext": Row(
        models.fasttext, {"vocabulary": 9, "classes": 2},
        {"vocabulary": WHOLE, "classes": WHOLE, "dim": WHOLE},
    ),
    # ---- attention, stragglers, faults
    **{
        f"attention.{name}": Row(kind, {"sigma": 1.0}, {"sigma": POSITIVE})
        for name, kind in attention.KINDS.items()
    },
    "attention.by_name": Row(
        attention.by_name, {"name": "scad", "sigma": 1.0}, {"name": WORD, "sigma": POSITIVE}
    ),
    "stragglers.timetable": Row(
        stragglers.timetable, {"stragglers": "spfl", "clients": 10},
        {"stragglers": ("unknown", -1, 11, 1.5), "clients": WHOLE},
        {"stragglers": "stragglers|clients"},
    ),
    "faults.Faulty": Row(
        faults.Faulty, {"fed": small, "clients": [0]},
        {"clients": ([4], [-1], [0, 0], [0, 1, 2, 3], [True], [0.5], "a"), "kind": WORD, "of": WORD,
         "strength": POSITIVE_OR_NONE, "seed": FROM_ZERO},
    ),
    "faults.Masked": Row(
        faults.Masked, {"fed": small}, {"scale": POSITIVE, "seed": FROM_ZERO}
    ),
    # ---- robust averages, privacy
    "robust.coordinate_median": Row(robust.coordinate_median, {"W": W}, {"W": MATRIX}),
    "robust.trimmed_mean": Row(
        robust.trimmed_mean, {"W": W, "faulty": 1}, {"W": MATRIX, "faulty": (*FROM_ZERO, 2)}
    ),
    "robust.krum_scores": Row(
        robust.krum_scores, {"W": W, "faulty": 0}, {"W": MATRIX, "faulty": (*FROM_ZERO, 1)}
    ),
    "robust.krum": Row(
        robust.krum, {"W": W, "faulty": 0},
        {"W": MATRIX, "faulty": (*FROM_ZERO, 1), "keep": (*WHOLE_OR_NONE, 4)},
    ),
    "robust.robust": Row(
        robust.robust, {"method": "fedavg"},
        {"method": ("separate", "unknown", None, 3), "rule": WORD, "faulty": FROM_ZERO},
    ),
    "privacy.delta_of": Row(
        privacy.delta_of, {"epsilon": 1.0, "noise": 1.0, "rounds": 1},
        {"epsilon": NOT_NEGATIVE, "noise": POSITIVE, "rounds": WHOLE},
    ),
    "privacy.epsilon_of": Row(
        privacy.epsilon_of, {"noise": 2.0, "rounds": 10, "delta": 1e-3},
        {"noise": POSITIVE, "rounds": WHOLE, "delta": (*SHARE, 0, 1), "rate": (*SHARE, 0)},
        {"rate": "rate|opacus"},
    ),
    "privacy.noise_for": Row(
        privacy.noise_for, {"epsilon": 2.0, "rounds": 10, "delta": 1e-3},
        {"epsilon": POSITIVE, "rounds": WHOLE, "delta": (*SHARE, 0, 1), "rate": (*SHARE, 0)},
        {"rate": "rate|opacus"},
    ),
    "privacy.clipped": Row(
        privacy.clipped, {"updates": W, "clip": 1.0}, {"updates": MATRIX, "clip": POSITIVE}
    ),
    "privacy.private": Row(
        privacy.private, {"method": "fedavg", "clip": 1.0, "noise": 0.1},
        {"method": ("separate", "unknown", None, 3), "clip": POSITIVE, "noise": NOT_NEGATIVE,
         "seed": FEW},
    ),
    "privacy.PrivateUploads": Row(
        lambda fed, clip=1.0, noise=1.0, seed=0: privacy.PrivateUploads(fed, clip, noise, seed),
        {"fed": small},
        {"fed": TYPE, "clip": POSITIVE, "noise": NOT_NEGATIVE, "seed": FROM_ZERO},
    ),
    "privacy.PrivateSamples": Row(
        lambda fed, clip=1.0, noise=1.0, rate=1.0: privacy.PrivateSamples(fed, clip, noise, rate),
        {"fed": small},
        {"fed": TYPE, "clip": POSITIVE, "noise": NOT_NEGATIVE, "rate": (*SHARE, 0)},
    ),
    "privacy.PrivateUploads.epsilon": Row(
        lambda delta: privacy.PrivateUploads(small()).epsilon(delta), {"delta": 1e-3},
        {"delta": (*SHARE, 0, 1)},
    ),
    "privacy.PrivateSamples.epsilon": Row(
        lambda delta: privacy.PrivateSamples(small()).epsilon(delta), {"delta": 1e-3},
        {"delta": (*SHARE, 0, 1)},
    ),
    "privacy.PrivateSamples.steps_of": Row(
        lambda client: privacy.PrivateSamples(small()).steps_of(client), {"client": 3},
        {"client": (*FROM_ZERO, 4)},
    ),
    "faults.Faulty.heard": Row(
        lambda xi: faults.Faulty(small(), [1]).heard(xi), {"xi": torch.ones(4, 4)}, {"xi": MATRIX}
    ),
    "data.Dataset.normalized": Row(
        lambda x: digits().normalized(x), {"x": lambda: digits().x[:2]}, {"x": TENSOR}
    ),
    "partition.Partition.counts": Row(
        lambda data, part="train": small().partition.counts(data, part), {"data": digits},
        {"data": TYPE, "part": WORD},
    ),
    # ---- keyed randomness, several devices, newcomers, networks
    **{
        f"random.{function.__name__}": Row(
            function, {"seed": 0}, {"seed": (None, 1.5, True, [1])}, {"seed": "random key"}
        )
        for function in (random.keyed_generator, random.keyed_number)
    },
    "random.keyed_order": Row(
        lambda n: random.keyed_order(n, "purpose"), {"n": 3}, {"n": FROM_ZERO}
    ),
    "devices.OnDevices": Row(
        devices.OnDevices, {"fed": small, "devices": ["cpu"]},
        {"fed": TYPE, "devices": ([], None, 3, ["unknown"])}, {"devices": "devices?"},
    ),
    "newcomers.compare_newcomers": Row(
        newcomers.compare_newcomers,
        {"fed": small, "newcomers": late, "rounds": 1, "algorithms": {"a": "fedavg"},
         "progress": False},
        {"fed": TYPE, "newcomers": (*TYPE, small, lambda: pfl_lib.example("logistic_regression")),
         "rounds": WHOLE, "algorithms": ({}, "a", 3, {"a": None})},
        {"algorithms": "algorithms?"},
    ),
    "flower.Plan": Row(
        flower.Plan, {"data": "digits", "partition": {"name": "iid", "clients": 3}, "model": "mlp"},
        {"data": (None, 3, ""), "partition": (None, {}, {"name": "unknown"}), "model": WORD,
         "training": (*TYPE, {"lrr": 0.1}), "timeout": POSITIVE, "poll": POSITIVE, "wait": POSITIVE,
         "runs": (None, 3, "a", [None], [{"algorithm": "fedavg"}],
                  [{"algorithm": "fedavg", "rounds": 0}])},
        {"runs": "runs|rounds"},
    ),
    "flower.OneClient": Row(
        flower.OneClient,
        {"number": 0, "clients": 4, "data": digits, "train": torch.arange(6),
         "test": torch.arange(1500, 1510)},
        {"number": (*FROM_ZERO, 4), "clients": WHOLE, "data": TYPE,
         "train": (None, "a", torch.arange(0), torch.tensor([-1])),
         "test": (None, "a", torch.arange(0), torch.tensor([10**6])),
         "labels": ("a", torch.tensor([3]), torch.full((6,), 99)), "model": ("unknown", None, 3)},
        {"train": "train", "test": "test", "labels": "label"},
    ),
    "flower.InProcess": Row(
        flower.InProcess, {"clients": lambda: flower.in_process(small()).clients.values()},
        {"clients": (None, 3, "a", ["a"])},
    ),
    "flower.in_process": Row(flower.in_process, {"fed": small}, {"fed": TYPE}),
    "flower.RemoteFederation": Row(
        flower.RemoteFederation,
        {"transport": lambda: flower.in_process(small()), "model": "mlp", "clients": 4,
         "batch_size": 3},
        {"transport": TYPE, "model": ("unknown", None, 3), "clients": WHOLE, "wait": POSITIVE},
    ),
    "flower.LocalNetwork": Row(
        flower.LocalNetwork, {"clients": 3},
        {"clients": WHOLE, "simulation": (None, 1), "tls": (3, ["a"]), "resident": (None, 1),
         "database": (None, 1)},
    ),
    # ---- metrics
    "metrics.accuracy_error": Row(
        metrics.accuracy_error, {"accuracy": 0.5, "samples": 10},
        {"accuracy": (1.5, -0.1, "a", NAN), "samples": (0, -1, "a")},
    ),
    "metrics.auc": Row(
        metrics.auc, {"scores": [0.1, 0.4, 0.35], "y": [0, 1, 1]},
        {"scores": (None, "a", [], [0.1], torch.ones(3, 1)),
         "y": (None, "a", [], [0, 1], [0, 1, 2])},
        {"y": "y|scores"},
    ),
    "metrics.f1": Row(
        metrics.f1, {"predicted": [0, 1, 1], "y": [0, 0, 1]},
        {"predicted": (None, "a", [], [0], [[0], [1], [1]]),
         "y": (None, "a", [], [0, 1], [0, -1, 1], [0.5, 1.0, 0.0])},
        {"y": "y|predicted"},
    ),
    "metrics.mae": Row(
        metrics.mae, {"predicted": [0.5, 1.0], "y": [0.0, 1.0]},
        {"predicted": (None, "a", [], [0.5], [[0.5], [1.0]]), "y": (None, "a", [], [0.0])},
        {"y": "y|predicted"},
    ),
    "metrics.effective_classes": Row(
        metrics.effective_classes, {"counts": torch.ones(2, 3)}, {"counts": COUNTS}
    ),
    "metrics.effective_samples": Row(
        metrics.effective_samples, {"counts": torch.ones(2, 3)}, {"counts": COUNTS}
    ),
    "metrics.label_shares": Row(
        metrics.label_shares, {"counts": torch.ones(2, 3)}, {"counts": COUNTS}
    ),
    "metrics.total_variation": Row(
        metrics.total_variation, {"counts": torch.ones(2, 3)}, {"counts": COUNTS}
    ),
    "metrics.effective_clients": Row(
        metrics.effective_clients, {"sizes": torch.ones(3)}, {"sizes": (None, "a", -torch.ones(3))}
    ),
    "metrics.group_recovery": Row(
        metrics.group_recovery, {"xi": S, "groups": torch.tensor([0, 0, 1])},
        {"xi": (None, "a", torch.ones(3)), "groups": (None, "a", torch.tensor([0, 1]))},
        {"groups": "groups|each of 2 clients"},
    ),
    "metrics.inside_share": Row(
        metrics.inside_share,
        {"xi": torch.eye(3), "groups": torch.tensor([0, 0, 1])},
        {"xi": (None, torch.eye(2)), "groups": (None, "a")},
    ),
    "metrics.inside_by_chance": Row(
        metrics.inside_by_chance, {"groups": torch.tensor([0, 0, 1])}, {"groups": (None, "a")}
    ),
    "metrics.majority_accuracy": Row(
        metrics.majority_accuracy, {"partition": clients, "data": digits},
        {"partition": TYPE, "data": TYPE},
    ),
    "metrics.wilcoxon": Row(
        metrics.wilcoxon, {"ours": [0.1, 0.2, 0.3], "theirs": [0.2, 0.1, 0.0]},
        {"ours": ([0.1], [NAN] * 3, [0.1, 0.2, 9], None, "a"), "alternative": WORD},
        {"ours": "ours|pairs"},
    ),
    "metrics.win_rate": Row(
        metrics.win_rate, {"ours": [0.1, 0.2], "theirs": [0.2, 0.1]},
        {"ours": ([0.1], None, "a")}, {"ours": "ours|pairs"},
    ),
    # ---- papers, experiments, explorers
    "papers.table": Row(
        papers.table, {"paper": "fedamp", "number": 3}, {"paper": WORD, "number": (99, None, "a")}
    ),
    "papers.search_grid": Row(
        papers.search_grid, {"method": "fedala"}, {"method": WORD, "paper": WORD}
    ),
    "papers.settings": Row(
        papers.settings, {"method": "fedamp", "data": "mnist"},
        {"method": WORD, "paper": ("unknown", 3)},
    ),
    "experiments.measure": Row(
        experiments.measure,
        {"name": "trial", "scale": "smoke", "cases": cases, "folder": None, "progress": False},
        {"cases": (None, "a", {"case": None})},
    ),
    "experiments.opening": Row(
        experiments.opening, {"experiment": "fedacs_p"}, {"experiment": WORD}
    ),
    "experiments.pick": Row(
        experiments.pick, {"scale": "smoke", "scales": {"smoke": {}}}, {"scale": WORD},
        {"scale": "SCALE"},
    ),
    "experiments.part_of": Row(
        experiments.part_of, {"cases": cases, "named_cases": "case"},
        {"named_cases": ("b",), "named_methods": ("FedWho",)},
        {"named_cases": "CASES", "named_methods": "METHODS"},
    ),
    "experiments.quick_run": Row(
        experiments.quick_run, {"method": lambda: pfl_lib.algorithm("fedavg"), "rounds": 1},
        {"rounds": WHOLE},
    ),
    **{
        f"explore.{name}": Row(getattr(explore, name), {}, {"unknown_setting": (1,)},
                               {"unknown_setting": "unknown_setting"})
        for name in explore.__all__ if name != "Explorer"
    },
    # ---- every algorithm's hyper-parameters
    **{
        f"algorithm {name}": Row(
            lambda name=name, **hyper: pfl_lib.algorithm(name, **hyper),
            dict(methods.BY_NAME[name].needs),
            {**HYPER[name], "unknown_hyper": (1,)},
            {"unknown_hyper": "hyper"},
        )
        for name in methods.names()
    },
}  # fmt: skip
# ---- every formula
FORMULAS = {
    "squared_distances": ({"W": W}, {"W": MATRIX}),
    "cosine_similarities": ({"W": W}, {"W": MATRIX}),
    "median_sigma": ({"W": W}, {"W": MATRIX, "multiple": POSITIVE}),
    "fedamp_weights": ({"W": W, "attention": A, "alpha": 0.1},
                       {"W": MATRIX, "alpha": NOT_NEGATIVE, "grad_factor": (0, "a")}),
    "mix": ({"weights": S, "W": W}, {"W": TENSOR, "weights": (None, "a", torch.ones(2, 2))}),
    "attention_weights": ({"W": W, "attention": A, "self_weight": 0.1},
                          {"W": MATRIX, "self_weight": SHARE}),
    "heurfedamp_weights": ({"W": W, "sigma": 5.0, "self_weight": 0.1},
                           {"W": MATRIX, "sigma": NOT_NEGATIVE, "self_weight": SHARE}),
    "largest_convex_alpha": ({"W": W, "attention": A}, {"W": MATRIX, "grad_factor": (0, "a")}),
    "safe_alpha": ({"attention": A, "m": 3}, {"m": WHOLE, "grad_factor": (0, "a")}),
    "fedamp_objective": ({"W": W, "attention": A}, {"W": MATRIX}),
    "fedamp_gradient": ({"W": W, "attention": A}, {"W": MATRIX}),
    "proximal_step_quadratic": ({"U": W, "H": w, "c": w, "beta": 0.5}, {"beta": POSITIVE}),
    "fedacs_threshold": ({"S": S, "p": 0.4}, {"S": (None, "a"), "p": SHARE}),
    "fedacs_select": ({"S": S, "delta": 0.1}, {"S": (None, "a", W), "negatives": WORD}),
    "fedacs_weights": ({"W": W, "p": 0.5}, {"W": MATRIX, "p": SHARE, "negatives": WORD}),
    "fedacs_local": ({"u": w, "grad": w, "lr": 0.1}, {"grad": VECTOR, "lr": POSITIVE}),
    "sngs": ({"G": W}, {"G": MATRIX, "temperature": POSITIVE, "stages": ([], slice(0, 2))}),
    "spfl_weights": ({"S": S}, {"rule": WORD}),
    "spfl_step": ({"W": W, "G": W, "S": S}, {"W": MATRIX, "rule": WORD, "lr": POSITIVE}),
    "spfl_w_step": ({"W": W, "S": S}, {"W": MATRIX}),
    "spfl_local_step": ({"w": w, "gradient": gradient, "lr": 0.1},
                        {"lr": POSITIVE, "rule": WORD, "gradient": CALL}),
    "straggler_similarity": ({"w_pull": w, "w_next": w, "w_local": w}, {"w_next": VECTOR}),
    "leap_term": (LATE, {"w_next": VECTOR, "rule": WORD}),
    "leap": (LATE, {"w_next": VECTOR, "rule": WORD, "base": WORD}),
    "plga_personal": ({"w_pred": w, "w_now": w, "similarity": torch.rand(())}, {"w_now": VECTOR}),
    "ala_mix": ({"weights": w, "theta_local": w, "theta_global": w}, {"theta_local": VECTOR}),
    "ala_step": ({"weights": w, "theta_local": w, "theta_global": w, "grad": w, "lr": 1.0},
                 {"grad": VECTOR, "lr": POSITIVE}),
    "pfedgraph_weights": ({"similarities": S, "shares": torch.rand(3), "alpha": 0.8},
                          {"similarities": MATRIX, "shares": (None, "a", torch.rand(2)),
                           "alpha": POSITIVE}),
    "pfedgraph_gradient": ({"grad": w, "w": w, "direction": w, "lam": 0.1},
                           {"w": VECTOR, "direction": VECTOR, "lam": ("a", None, 2, NAN)}),
    "fedbuff_weight": ({"staleness": torch.ones(3)}, {"power": NOT_NEGATIVE}),
    "fedbuff_step": ({"w_global": w, "total": w, "size": 3},
                     {"total": VECTOR, "size": WHOLE, "lr": POSITIVE}),
    "cluster_average": ({"X": W, "W": W, "cluster": torch.tensor([0, 1, 1])},
                        {"X": MATRIX, "W": MATRIX, "cluster": (None, "a", torch.tensor([0]))}),
    "cfl_norms": ({"updates": W}, {"updates": MATRIX}),
    "cfl_split": ({"similarities": S}, {"similarities": MATRIX, "rule": WORD}),
    "ifca_choice": ({"losses": S}, {"losses": MATRIX}),
    "label_prior_shift": ({"counts": S.abs()}, {"counts": MATRIX, "smoothing": POSITIVE}),
    "weighted_average": ({"W": W}, {"W": MATRIX, "sizes": (torch.ones(2),)}),
    "split_model": ({"x": w, "W": W, "private": w > 0.5}, {"x": TENSOR, "W": TENSOR,
                                                           "private": (None, "a", w)}),
    "class_means": ({"sums": torch.ones(3, 4, 2), "counts": torch.ones(3, 4)}, {"sums": TENSOR}),
    "balanced_logits": ({"logits": torch.ones(2, 4), "counts": torch.ones(4)},
                        {"logits": TENSOR, "gamma": NOT_NEGATIVE}),
    "feddbe_bias": ({"matrix": torch.ones(4, 2), "bias": torch.ones(4), "shift": torch.ones(2)},
                    {"shift": TENSOR}),
    "feddbe_pull": ({"mean": w, "consensus": w, "kappa": 1.0},
                    {"consensus": VECTOR, "kappa": NOT_NEGATIVE}),
    "fedproto_pull": ({"means": W, "common": W, "lam": 1.0},
                      {"common": TENSOR, "lam": NOT_NEGATIVE}),
    "nearest_mean": ({"common": W, "known": torch.ones(3) > 0}, {"common": TENSOR}),
    "fedpac_pull": ({"features": W, "targets": W, "lam": 1.0},
                    {"targets": TENSOR, "lam": NOT_NEGATIVE}),
    "fedpac_matrix": ({"H": torch.ones(3, 4, 2), "V": torch.ones(3), "i": 0}, {"H": TENSOR}),
    "fedas_align": ({"features": torch.ones(3, 2), "hits": torch.ones(3, 4),
                     "own": torch.ones(4, 2)}, {"own": TENSOR}),
    "fedas_weights": ({"traces": torch.ones(3)}, {"traces": TENSOR}),
    "fedprox_gradient": ({"grad": w, "w": w, "w_global": w, "mu": 0.1},
                         {"w": VECTOR, "mu": NOT_NEGATIVE}),
    "scaffold_gradient": ({"grad": w, "c_local": w, "c_global": w}, {"c_local": VECTOR}),
    "scaffold_control": ({"c_local": w, "c_global": w, "w_global": w, "w_local": w, "lr": 0.1,
                          "steps": 5}, {"w_local": VECTOR, "lr": POSITIVE, "steps": POSITIVE}),
    "scaffold_server": ({"w_global": w, "c_global": w, "w_local": W, "c_old": W, "c_new": W,
                         "clients": 4}, {"clients": WHOLE, "lr": POSITIVE}),
    "fedasync_mixing": ({"alpha": 0.6, "staleness": torch.ones(3), "a": 0.5},
                        {"alpha": SHARE, "a": NOT_NEGATIVE}),
    "fedasync_update": ({"w_global": w, "w_new": w, "mixing": 0.5}, {"w_new": VECTOR}),
    "apfl_mix": ({"alpha": 0.5, "v": w, "w": w}, {"w": VECTOR, "alpha": SHARE}),
    "apfl_step": ({"alpha": torch.tensor(0.5), "v": w, "w": w, "grad_mixed": w, "grad_shared": w,
                   "lr": 0.1}, {"w": VECTOR, "lr": POSITIVE}),
    "perfedavg_adapt": ({"w": w, "gradient": gradient, "inner_lr": 0.1},
                        {"inner_lr": NOT_NEGATIVE, "gradient": CALL}),
    "perfedavg_step": ({"w": w, "gradient": gradient, "gradient_outer": gradient, "inner_lr": 0.1,
                        "outer_lr": 0.1},
                       {"inner_lr": NOT_NEGATIVE, "outer_lr": POSITIVE, "rule": WORD}),
    "pfedme_inner": ({"w": w, "gradient": gradient, "lam": 1.0, "lr": 0.1, "steps": 2},
                     {"lam": NOT_NEGATIVE, "lr": POSITIVE, "steps": WHOLE, "gradient": CALL}),
    "pfedme_local": ({"w": w, "theta": w, "lam": 1.0, "lr": 0.1},
                     {"theta": VECTOR, "lam": NOT_NEGATIVE, "lr": POSITIVE}),
    "pfedme_server": ({"w_global": w, "average": w}, {"average": VECTOR, "beta": POSITIVE}),
    "ditto_gradient": ({"grad": w, "v": w, "w_global": w, "lam": 0.1},
                       {"v": VECTOR, "lam": NOT_NEGATIVE}),
    "fedfomo_scores": ({"w": w, "loss": torch.rand(()), "models": W, "losses": torch.rand(3)},
                       {"models": TENSOR}),
    "fedfomo_weights": ({"scores": torch.rand(3)}, {"scores": TENSOR}),
    "fedfomo_update": ({"w": w, "models": W, "weights": torch.rand(3)}, {"models": TENSOR}),
    "apple_mix": ({"p": torch.rand(3), "core": W}, {"core": TENSOR}),
    "apple_gradients": ({"grad": w, "p": torch.rand(3), "core": W, "own": 1,
                         "prior": torch.rand(3), "mu": 0.1, "schedule": 1.0},
                        {"core": TENSOR, "mu": NOT_NEGATIVE}),
    "apple_schedule": ({"round": 3, "horizon": 10}, {"horizon": ("a", None, 0, -1, NAN)}),
    "fedphp_momentum": ({"mu": 0.9, "taken": torch.ones(3), "expected": 10},
                        {"mu": SHARE, "expected": ("a", None, 0, -1, NAN)}),
    "fedphp_update": ({"inherited": w, "w": w, "momentum": 0.5}, {"w": VECTOR}),
    "partialfed_temperature": ({"step": 3}, {"start": POSITIVE, "decay": SHARE}),
    "gumbel_softmax": ({"logits": torch.rand(4, 2), "uniform": torch.rand(4, 2),
                        "temperature": 0.5}, {"uniform": TENSOR, "temperature": POSITIVE}),
    "partialfed_mix": ({"use_global": torch.ones(2), "w_local": w, "w_global": w,
                        "stages": [slice(0, 2), slice(2, 5)]},
                       {"w_global": VECTOR, "stages": ([], slice(0, 2))}),
}  # fmt: skip


def example_call(function):
    """The arguments, by name, with which the example in a formula's docstring calls it first."""
    seen = []

    def recorded(*args, **kwargs):
        seen.append(inspect.signature(function).bind(*args, **kwargs).arguments)
        return function(*args, **kwargs)

    names = {**vars(inspect.getmodule(function)), function.__name__: recorded}
    for example in doctest.DocTestParser().get_examples(function.__doc__):
        exec(compile(example.source, function.__name__, "exec"), names)
    return dict(seen[0])


for name in set(formulas.__all__) - set(FORMULAS):  # a formula without a row of its own
    good = example_call(getattr(formulas, name))
    FORMULAS[name] = good, {k: TENSOR for k, v in good.items() if isinstance(v, torch.Tensor)}


def tensors_of(good):
    return tuple(k for k, v in good.items() if isinstance(v, torch.Tensor) or v is gradient)


TABLE |= {
    f"formulas.{name}": Row(getattr(formulas, name), good, bad, by_torch=tensors_of(good))
    for name, (good, bad) in FORMULAS.items()
}
TRIED = sum(len(values) for row in TABLE.values() for values in row.bad.values())


@dataclass
class Ready:
    """A value that is meant as it is, even if it could be called."""

    value: object


WRITES = ("partition.published", "pfl_lib.tune", "experiments.measure")  # by what the call is for


def made(value):
    """Good values and some bad ones are made when they are needed."""
    if isinstance(value, Ready):
        return value.value
    ready = value is gradient or isinstance(value, type) or not callable(value)
    return value if ready or isinstance(value, attention.Attention) else value()


def call(name, changes):
    row = TABLE[name]
    arguments = {key: made(value) for key, value in {**row.good, **changes}.items()}
    if name == "pfl_lib.History":
        return _history(arguments["path"])
    if name == "partition.published":
        Path("here").mkdir(exist_ok=True)
        np.savez("here/fedala_mnist_dir01.npz", train_0=np.array([1]), test_0=np.array([0]))
    if name == "partition.load" and str(arguments["path"]) == "good":
        clients().save("good")
    return row.call(**arguments)


@cache
def _measured():
    return pfl_lib.run("fedavg", small(), 1, progress=False)


def _saved():
    _measured().save("file.json")
    return "file.json"


def _history(content):
    if content == "missing.json":
        return pfl_lib.History.load(content)
    if content == "good":
        pfl_lib.History("a", "b", {}).save("file.json")
    else:
        Path("file.json").write_text(content)
    return pfl_lib.History.load("file.json")


def public():
    """Every public name that can be called, as rows are named."""
    found = {f"pfl_lib.{n}" for n in pfl_lib.__all__}
    found |= {f"formulas.{n}" for n in formulas.__all__}
    found |= {f"attention.{n}" for n in (*attention.KINDS, "by_name")}
    found |= {f"explore.{n}" for n in explore.__all__}
    found |= {f"algorithm {n}" for n in methods.names()}
    found |= {"devices.OnDevices", "newcomers.compare_newcomers"}
    for module in (data, partition, metrics, papers, experiments, flower):
        found |= {f"{module.__name__.split('.')[-1]}.{n}" for n in module.__all__}
    for module in (callbacks, faults, models, privacy, random, robust, stragglers):
        own = {n: v for n, v in vars(module).items() if not n.startswith("_") and callable(v)}
        found |= {f"{module.__name__.split('.')[-1]}.{n}" for n, v in own.items()
                  if getattr(v, "__module__", "") == module.__name__}  # fmt: skip
    return found


NO_ROW = {  # public, and why there is nothing to refuse
    **{f"pfl_lib.{n}": "a module" for n in ("attention", "book", "callbacks", "data", "formulas",
       "methods", "metrics", "models", "partition")},
    "models.names": "takes nothing",
    "pfl_lib.__version__": "a word",
    "partition.from_flower": "tests/test_adapters.py: its good call needs another package",
    "data.Column": "two parts of a data set, which looks at them",
    "experiments.largest": "takes what experiments.opening has read, and names methods that lack",
    **{f"callbacks.{n}": "needs another package" for n in ("MLflow", "TensorBoard", "WandB")},
    **{n: "a base class" for n in ("callbacks.Callback", "faults.FederationWrapper",
       "faults.OtherUploads", "models.Model")},
    **{n: "what the library makes itself" for n in ("callbacks.Moment", "faults.Answering",
       "faults.BrokenClients", "faults.Guarded", "faults.in_words", "faults.named",
       "flower.ClientsLost", "flower.Parcel", "models.BodyAndHead", "stragglers.Timetable")},
    **{f"models.{n}": "a class that a function of models makes" for n in ("ConvolutionalNetwork",
       "FastText", "LogisticRegression", "LowRank", "MLP", "ResNet18", "Residual",
       "SeriesNetwork")},
    "stragglers.check": "what stragglers.timetable asks first",
    "pfl_lib.local_step": "a decorator",
    "explore.Explorer": "the base class",
    **{n: "takes nothing" for n in ("data.names", "papers.names", "papers.tables",
       "experiments.home", "experiments.stored")},
    "experiments.result_files": "a pattern; what does not match is not there",
    **{f"papers.{n}": "what papers.table and papers.settings give" for n in ("PAPERS", "Cell",
       "Schedule", "Settings", "Table")},
    **{n: "what metrics or experiments give" for n in ("metrics.Wilcoxon",
       "experiments.Results", "experiments.Case", "experiments.round_work",
       "experiments.table", "experiments.Folded")},
}  # fmt: skip
