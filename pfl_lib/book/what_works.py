"""Which methods train which kinds of models: tried out, not claimed."""

import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

import pfl_lib
from pfl_lib import data, methods, models, partition
from pfl_lib._show import Shown
from pfl_lib.local import LocalFederation

__all__ = [
    "KINDS",
    "UNMARKED",
    "BatchNormCNN",
    "DropoutMLP",
    "Recurrent",
    "federation",
    "in_a_table",
    "what_works",
]


class BatchNormCNN(nn.Module):
    """A convolution and a linear layer, each with batch normalization, and a head.

    >>> BatchNormCNN()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    head = ("output.",)

    def __init__(self):
        super().__init__()
        # no bias before normalization: it would take it out again, and Adam move it by rounding
        self.conv = nn.Conv2d(1, 3, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(3)
        self.hidden = nn.Linear(3 * 16, 6, bias=False)
        self.norm2 = nn.BatchNorm1d(6)
        self.output = nn.Linear(6, 10)

    def features(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return F.relu(self.norm2(self.hidden(x.flatten(1))))

    def forward(self, x):
        return self.output(self.features(x))


class DropoutMLP(nn.Module):
    """Two linear layers with dropout before and between them.

    >>> DropoutMLP(p=0.4).eval()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    head = ("output.",)

    def __init__(self, p=0.4):
        super().__init__()
        self.hidden, self.output = nn.Linear(64, 12), nn.Linear(12, 10)
        self.drop = nn.Dropout(p)

    def features(self, x):
        return self.drop(F.relu(self.hidden(self.drop(x.flatten(1)))))

    def forward(self, x):
        return self.output(self.features(x))


class Recurrent(nn.Module):
    """An LSTM (or GRU) that reads an image row by row, and a head.

    >>> Recurrent()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    head = ("output.",)

    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.recurrent, self.output = kind(8, 5, batch_first=True), nn.Linear(5, 10)

    def features(self, x):
        return self.recurrent(x.squeeze(1))[0][:, -1]

    def forward(self, x):
        return self.output(self.features(x))


def _frozen_backbone():
    module = models.mlp(64, 10, hidden=(12, 7))
    module.hidden[0].requires_grad_(False)
    return module


def _lora():
    return models.with_lora(models.mlp(64, 10, hidden=(12,)), rank=2)


def _unmarked():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


#: Each kind of model by what is special about it.
KINDS: dict[str, Callable[[], nn.Module]] = {
    "batch normalization": BatchNormCNN,
    "dropout": DropoutMLP,
    "frozen backbone": _frozen_backbone,
    "LoRA": _lora,
    "LSTM": Recurrent,
}

#: A kind that some methods refuse; they say what they miss.
UNMARKED: dict[str, Callable[[], nn.Module]] = {"no head named": _unmarked}


def federation(kind, **options):
    """Four clients with a few digits each and a small model of this kind.

    >>> federation("LoRA").d
    282
    """
    pool = data.load("digits")
    clients = partition.scarce(partition.iid(pool, clients=4), samples=9)
    clients = replace(clients, groups=torch.tensor([0, 0, 1, 1]))  # some methods ask for them
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        module = (KINDS | UNMARKED)[kind]()
    training = {"lr": 0.05, "batch_size": 4, "device": "cpu", **options}
    return LocalFederation(pool, clients, module, **training)


def what_works(names=None, kinds=None):
    """For each method and kind of model "" if three rounds come out, or else the message.

    >>> what_works(["fedavg"], ["LoRA"])
    {'fedavg': {'LoRA': ''}}
    """
    feds = {kind: federation(kind) for kind in kinds or KINDS}
    return {
        name: {kind: _tried(name, fed) for kind, fed in feds.items()}
        for name in names or methods.names()
    }


def in_a_table(worked):
    """What ``what_works`` found, one row per method: "works", or what the method says instead.

    >>> in_a_table({"fedavg": {"LoRA": "", "LSTM": "no"}})
    method  LoRA   LSTM
    FedAvg  works  no
    """
    head = ("method", *next(iter(worked.values())))
    rows = [
        (methods.BY_NAME[name].label, *(why or "works" for why in tried.values()))
        for name, tried in worked.items()
    ]
    return Shown(head, rows, sortable=True)


def _tried(name, fed):
    kind_of_method = methods.BY_NAME[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            method = kind_of_method(**kind_of_method.needs)
            history = pfl_lib.run(method, fed, 3, progress=False)
        except (ValueError, TypeError) as error:
            return str(error)
    finite = all(bool(torch.isfinite(t).all()) for t in history.state.values())
    return "" if finite else "it ends in numbers that are not finite"
