"""ALA on other methods: FedALA's applicability table (Zhang et al., AAAI 2023, Table 4)."""

import copy
import dataclasses
from dataclasses import dataclass, field

import torch

from pfl_lib.algorithms.ala import AdaptiveLocalAggregation
from pfl_lib.algorithms.base import Algorithm
from pfl_lib.algorithms.ditto import Ditto
from pfl_lib.algorithms.fedacs import FedACS
from pfl_lib.algorithms.fedavg import FedAvg
from pfl_lib.algorithms.fedavg_c import FedAvgC
from pfl_lib.algorithms.fedphp import FedPHP
from pfl_lib.algorithms.fedrep import FedRep
from pfl_lib.algorithms.message_passing import MessagePassing
from pfl_lib.algorithms.partialfed import PartialFed
from pfl_lib.algorithms.per_fedavg import PerFedAvg
from pfl_lib.algorithms.pfedme import PFedMe

ONE_MODEL = (FedAvg, PerFedAvg, PFedMe, Ditto, FedPHP, FedRep)  # and those that come from them
OWN_MODEL = (MessagePassing, FedACS, PartialFed)  # what they test is trained, never downloaded
NOT = (FedAvgC, AdaptiveLocalAggregation)  # they have a way of their own to begin a round


def with_ala(algorithm, **hyper):
    """``algorithm`` with ALA in front of its local work; ``hyper`` as in FedALA.

    >>> with_ala(Ditto(lam=0.5), ala_layers=1).label
    'Ditto+ALA'
    """
    return WithALA(base=algorithm, **hyper)


@dataclass(frozen=True)
class WithALA(AdaptiveLocalAggregation):
    """Wherever ``base`` hands a client a model, the client takes its own mix instead.

    There local training starts, and that is what a penalty pulls to; all else is the base's.  The
    client's own model, for its next mix, is what it trained from there.  The paper shows no
    algorithm for its Table 4; where a method hands out no whole global model, we read:

    - FedAMP, HeurFedAMP, FedACS: what is handed out is the message u_i.  Training starts at the
      mix; the penalty still pulls to u_i, for there it is the coupling of the clients itself.
    - FedRep: only the body is handed out, so the top p layers are those below the head.
    - PartialFed: every batch chooses, layer by layer, between the mix and the client's own copy.

    >>> import pfl_lib
    >>> method = WithALA(base=pfl_lib.algorithm("fedprox", mu=0.01), max_epochs=5)
    >>> method.label
    'FedProx+ALA'
    >>> history = pfl_lib.run(method, pfl_lib.example(), rounds=2, progress=False)
    >>> history.last > 0.3
    True
    """

    base: Algorithm = field(default_factory=FedAvg)
    paper = "Zhang et al., AAAI 2023, Table 4"

    def start(self, fed):
        return self.base.start(fed).set(**self.fresh(fed))

    def round(self, state, fed, who):
        x = self.base.download(state, fed, who)
        state = self.aggregate(state, x, fed, who)
        here = _mixing(state, fed, x, self.keeps)
        state = self.base.round(state, here, who)
        return state.put(who, ala_own=state.w[who] if "w" in state else here.trained)

    def personal(self, state, fed):
        if isinstance(self.base, OWN_MODEL):
            return self.base.personal(state, fed)
        here = _mixing(state, fed, self.base.download(state, fed, fed.everyone), self.keeps)
        mixed = here.instead(self.base.personal(state, here), fed.everyone)
        if isinstance(self.base, FedRep):  # the head that was trained since the mix
            mixed = torch.where(fed.head_mask, state.w, mixed)
        return mixed

    def also(self, state, fed):
        shared = {"global": state.x.expand(fed.m, -1)} if "x" in state else {}
        return {**self.base.also(state, fed), **shared}

    def sent(self, fed, who, round_):
        return self.base.sent(fed, who, round_)

    def downloaded(self, fed):
        if not isinstance(self.base, FedRep):
            return fed.layers
        return [layer for layer in fed.layers if not fed.head_mask[layer[1]].any()]

    @property
    def keeps(self):
        """Rows that stay as they are even where they hold the download."""
        return ("centre",) if isinstance(self.base, MessagePassing) else ()

    @property
    def tested(self):
        mix = (
            "" if isinstance(self.base, OWN_MODEL) else ", its own mix in the global model's place"
        )
        return self.base.tested + mix

    name = property(lambda self: f"{self.base.name}+ala")
    label = property(lambda self: f"{self.base.label}+ALA")
    partial = property(lambda self: self.base.partial)

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.base, Algorithm):
            raise TypeError(f"algorithm must be an Algorithm, got {self.base!r}")
        if not isinstance(self.base, ONE_MODEL + OWN_MODEL) or isinstance(self.base, NOT):
            names = ", ".join(method.label for method in ONE_MODEL)
            raise ValueError(
                "algorithm must hand every client one model to begin its round from, as "
                f"{names}, PartialFed, FedAMP, FedACS and their kin do; {self.base.label} does not"
            )
        if getattr(self.base, "begin", "u") == "w":
            raise ValueError(
                f"algorithm must begin at the message for ALA to mix it: {self.base.label} with "
                "begin='w' starts from the client's own model; allowed is begin='u'"
            )


def _mixing(state, fed, download, keeps):
    """``fed``, whose clients put their mix wherever their work holds the ``download``."""
    here = copy.copy(fed)

    def instead(rows, clients):
        handed = rows.shape == download.shape and torch.equal(rows, download)
        return state.ala_begin[clients] if handed else rows

    def perform(work, clients):
        new = {name: instead(r, clients) for name, r in work.rows.items() if name not in keeps}
        rows = {**work.rows, **new}
        new = fed.perform(dataclasses.replace(work, rows=rows), clients)
        if rows["w"] is not work.rows["w"] and not hasattr(here, "trained"):
            here.trained = new["w"]  # the first: in round 1 Ditto's own model equals the download
        return new

    here.instead, here.perform = instead, perform
    return here
