"""ALA on other methods: FedALA's applicability table (Zhang et al., AAAI 2023, Table 4)."""

import copy
import dataclasses
from dataclasses import dataclass, field

import torch

from pfl_lib.algorithms.ala import AdaptiveLocalAggregation
from pfl_lib.algorithms.base import Algorithm
from pfl_lib.algorithms.ditto import Ditto
from pfl_lib.algorithms.fedavg import FedAvg
from pfl_lib.algorithms.fedavg_c import FedAvgC
from pfl_lib.algorithms.fedphp import FedPHP
from pfl_lib.algorithms.per_fedavg import PerFedAvg
from pfl_lib.algorithms.pfedme import PFedMe

TAKES = (FedAvg, PerFedAvg, PFedMe, Ditto, FedPHP)  # those that come from them too
NOT = (FedAvgC, AdaptiveLocalAggregation)  # they have a way of their own to begin a round


def with_ala(algorithm, **hyper):
    """``algorithm`` with ALA in front of its local work; ``hyper`` as in FedALA.

    >>> with_ala(Ditto(lam=0.5), ala_layers=1).label
    'Ditto+ALA'
    """
    return WithALA(base=algorithm, **hyper)


@dataclass(frozen=True)
class WithALA(AdaptiveLocalAggregation):
    """Wherever ``base`` hands a client the global model, the client takes its own mix instead.

    There local training starts, and that is what a penalty pulls to; all else is the base's.  The
    client's own model, for its next mix, is what it trained from there.
    """

    base: Algorithm = field(default_factory=FedAvg)
    paper = "Zhang et al., AAAI 2023, Table 4"

    def start(self, fed):
        return self.base.start(fed).set(**self.fresh(fed))

    def round(self, state, fed, who):
        state = self.aggregate(state, state.x.expand(len(who), -1), fed, who)
        here = _mixing(state, fed)
        return self.base.round(state, here, who).put(who, ala_own=here.trained)

    def personal(self, state, fed):
        here = _mixing(state, fed)
        return here.instead(self.base.personal(state, here), fed.everyone)

    def also(self, state, fed):
        return {**self.base.also(state, fed), "global": state.x.expand(fed.m, -1)}

    def sent(self, fed, who, round_):
        return self.base.sent(fed, who, round_)

    name = property(lambda self: f"{self.base.name}+ala")
    label = property(lambda self: f"{self.base.label}+ALA")
    tested = property(lambda self: f"{self.base.tested}, its own mix in the global model's place")
    partial = property(lambda self: self.base.partial)

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.base, Algorithm):
            raise TypeError(f"algorithm must be an Algorithm, got {self.base!r}")
        if not isinstance(self.base, TAKES) or isinstance(self.base, NOT):
            names = ", ".join(method.label for method in TAKES)
            raise ValueError(
                "algorithm must hand every client one global model to begin its round from, as "
                f"{names} and their kin do; {self.base.label} does not"
            )


def _mixing(state, fed):
    """``fed``, whose clients put their mix wherever their work holds the global model."""
    here = copy.copy(fed)

    def instead(rows, clients):
        handed = rows.shape[1:] == state.x.shape and torch.equal(rows, state.x.expand_as(rows))
        return state.ala_begin[clients] if handed else rows

    def perform(work, clients):
        rows = {name: instead(r, clients) for name, r in work.rows.items()}
        new = fed.perform(dataclasses.replace(work, rows=rows), clients)
        if rows["w"] is not work.rows["w"]:
            here.trained = new["w"]
        return new

    here.instead, here.perform = instead, perform
    return here
