"""What server and clients agree on before they start: names and numbers, as one JSON text."""

import functools
import json
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from typing import Any

import torch

from pfl_lib import _check, _objectives, data, models, partition
from pfl_lib.data.dataset import SampleForm
from pfl_lib.flower.federation import check_for_clients
from pfl_lib.local import LocalFederation
from pfl_lib.local.base import ModelFederation
from pfl_lib.methods import algorithm
from pfl_lib.privacy import private
from pfl_lib.robust import robust
from pfl_lib.rounds import _check_method

FORM = SampleForm("plan", "image", (1, 2, 2), (0, 1))  # to try options of training on
OF_EVERY_MODEL = {*signature(ModelFederation).parameters} - {"device", "loss", "metric"}
TRAINING = tuple(signature(LocalFederation).parameters)[3:]  # after data, partition and model
PARTITIONS = ("class_subset", "dirichlet", "grouped", "iid", "pathological")
OPTIONS = ("participation", "test_clients")  # of ``run``, that a run of a plan may name
#: What may take the place of a method's average.
AVERAGES: dict[str, Any] = {"robust": robust, "private": private}


@dataclass(frozen=True)
class Plan:
    """An experiment by its names and numbers.

    ``partition`` is ``{"name": "grouped", …}`` with the arguments of that function, ``training``
    what ``Federation`` takes, each of ``runs`` ``{"algorithm": "fedamp", "rounds": 3, …}`` with the
    method's hyper-parameters, and ``participation`` or ``test_clients`` where not all clients take
    part or are tested.  ``"robust": {"rule": "median"}`` or ``"private": {"clip": 1.0, "noise":
    2.0}`` in a run replaces the average of its method (see :mod:`pfl_lib.robust` and
    :mod:`pfl_lib.privacy`); as clients read the plan, the noise follows from no seed in it, but
    from a secret of the server's.

    ``timeout`` is how long the server waits for a reply, ``poll`` how long at least between two
    looks, ``wait`` how long for the clients to say hello, all in seconds.

    >>> plan = Plan("digits", {"name": "iid", "clients": 3}, "logistic_regression",
    ...             runs=({"algorithm": "fedavg", "rounds": 2},))
    >>> Plan.from_json(plan.to_json()) == plan, plan.federation().m
    (True, 3)
    """

    data: str
    partition: dict
    model: str
    training: dict = field(default_factory=dict)
    runs: tuple = ()
    timeout: float = 60.0
    poll: float = 0.05
    wait: float = 120.0

    def __post_init__(self):
        object.__setattr__(self, "runs", _check.several("runs", self.runs, "dictionaries"))
        for name in ("data", "model"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise TypeError(f"{name} must be a name, got {getattr(self, name)!r}")
        _check.one_of("model", self.model, models.names())
        if not isinstance(self.training, dict):
            raise TypeError(f"training must be a dictionary, got {self.training!r}")
        for name in self.training:
            _check.one_of("training", name, TRAINING)
        own = {name: value for name, value in self.training.items() if name in OF_EVERY_MODEL}
        ModelFederation("logistic_regression", FORM, [1], device="cpu", **own)
        _objectives.checked(self.training.get("loss", "cross_entropy"), self.training.get("metric"))
        check_for_clients(self.training)
        if not isinstance(self.partition, dict) or "name" not in self.partition:
            raise ValueError(f'partition must be {{"name": …, …}}, got {self.partition!r}')
        _check.one_of("partition", self.partition["name"], PARTITIONS)
        _check.one_of("data", self.data, (*data.names(), *[self.data] * self.data.endswith(".npz")))
        for name in ("timeout", "poll", "wait"):
            _check.positive(name, getattr(self, name))
        if self.poll > self.timeout:
            raise ValueError(f"poll must be at most timeout = {self.timeout}, got {self.poll!r}")
        most = self._clients()
        for one in self.runs:
            if not isinstance(one, dict) or "algorithm" not in one:
                raise ValueError(
                    f'each of runs must be {{"algorithm": …, "rounds": …}}, got {one!r}'
                )
            _check_method(self.method(one), one.get("participation", 1.0), "stop")
            _check.whole("rounds", one.get("rounds"))
            for client in _check.several("test_clients", one.get("test_clients") or [], "numbers"):
                _check.whole("test_clients", client, at_least=0, at_most=most - 1)

    def _clients(self):
        """At most how many clients there can be: the arguments of the partition, checked."""
        name, arguments = self.partition["name"], dict(self.partition)
        try:
            bound = signature(getattr(partition, arguments.pop("name"))).bind(None, **arguments)
        except TypeError as error:
            raise ValueError(f"partition {name!r} cannot be made: {error}") from None
        clients = bound.arguments.get("clients")
        return _check.MOST if clients is None else _check.whole("clients", clients)

    @staticmethod
    def method(one):
        """The algorithm of one of the runs."""
        other = ("algorithm", "rounds", *OPTIONS, *AVERAGES)
        method = algorithm(one["algorithm"], **{k: v for k, v in one.items() if k not in other})
        for name in [name for name in AVERAGES if name in one]:
            settings = one[name]
            if not isinstance(settings, dict) or "seed" in settings:
                raise ValueError(f"{name} must be a dictionary without a seed, got {settings!r}")
            secret = {"seed": None} if name == "private" else {}
            try:
                bound = signature(AVERAGES[name]).bind(method, **settings, **secret)
            except TypeError as error:
                raise ValueError(f"{name} cannot be {settings!r}: {error}") from None
            method = AVERAGES[name](*bound.args, **bound.kwargs)
        return method

    @staticmethod
    def options(one):
        """How one of the runs is made, as :func:`pfl_lib.run` takes it."""
        given = {name: one[name] for name in OPTIONS if name in one}
        return {"rounds": one["rounds"], "evaluate_every": one["rounds"], **given}

    def parts(self):
        """The data set and who holds which of its samples."""
        loaded, arguments = data.load(self.data), dict(self.partition)
        return loaded, getattr(partition, arguments.pop("name"))(loaded, **arguments)

    def part(self, number):
        """What client ``number`` has: a data set of its own samples, which of them are for training
        and for testing, its training labels where it believes others; and the number of clients."""
        loaded, dealt = _parts(self.to_json())
        if not 0 <= number < dealt.m:
            raise ValueError(
                f"partition-id must lie in 0..{dealt.m - 1}, the clients; got {number}"
            )
        train, test = dealt.train[number], dealt.test[number]
        labels = None if dealt.labels is None else dealt.labels[number]
        return *_only(loaded, train, test), labels, dealt.m

    def federation(self):
        """The same clients in one process: what a network run must agree with."""
        loaded, clients = self.parts()
        return LocalFederation(loaded, clients, self.model, **self.training)

    def to_json(self):
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text):
        try:
            return cls(**json.loads(text))
        except (UnicodeDecodeError, json.JSONDecodeError, TypeError, RecursionError) as error:
            raise ValueError(f"not a plan: {error}") from error


@functools.lru_cache(maxsize=1)
def _parts(text):
    return Plan.from_json(text).parts()  # once: one process may simulate thousands of clients


def _only(loaded, train, test):
    """A data set of these samples alone, and where in it those for training and testing are."""
    own = torch.cat([train, test])
    weights = None if loaded.weights is None else loaded.weights[own]
    gone: dict[str, Any] = {"coarse": None, "columns": {}, "client": "", "together": ""}
    mine = dict(x=loaded.x[own], y=loaded.y[own], n_train=len(train), weights=weights)
    here = torch.arange(len(own)).split([len(train), len(test)])
    return replace(loaded, **gone, **mine), *here
