"""Small federations, methods that are quick on them, and what it means that two runs are equal."""

import torch

import pfl_lib
from pfl_lib import Federation, algorithm, methods, partition


def quick_method(name):
    """The method with few passes, to be quick; the asynchronous ones with nobody late."""
    method = methods.BY_NAME[name]
    hyper = {"fedamp": {"self_weight": 0.2}, "fedavg-c": {"ft_epochs": 1}}.get(name, {})
    hyper |= {"groups": 2} if name == "oracle-groups" else {}
    hyper |= {"max_epochs": 2} if "max_epochs" in method.__dataclass_fields__ else {}
    hyper |= {"stragglers": 0} if "stragglers" in method.__dataclass_fields__ else {}
    return method(**hyper)


def linear_federation(data, **options):
    options = {"lr": 0.1, "batch_size": 16, "device": "cpu", **options}
    return Federation(data, partition.iid(data, 6), "logistic_regression", **options)


FEDAMP = algorithm("fedamp", self_weight=0.3)


def same(a, b):
    assert a.accuracy == b.accuracy and a.loss == b.loss and a.extra_models == b.extra_models
    assert a.rounds == b.rounds and a.sent == b.sent
    assert all(torch.equal(a.state[name], b.state[name]) for name in a.state)


def scarce_federation(model="mlp", clients=4, split=0, **options):
    data = pfl_lib.data.load("digits")
    some = partition.scarce(partition.iid(data, clients=clients, seed=split), samples=20)
    options = {"lr": 0.05, "batch_size": 8, "device": "cpu", **options}
    return Federation(data, some, model, **options)
