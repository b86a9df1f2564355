"""Ditto: a personal model tied to the global one (Li et al., ICML 2021)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import weighted_average
from pfl_lib.training import Prox


@dataclass(frozen=True)
class Ditto(Algorithm):
    """FedAvg for x; beside it client i minimises F_i(v) + (λ/2)‖v − x‖² for its own v_i.

    The x in the penalty is the one the client was sent.  v_i never leaves the client and never
    touches x, so x is FedAvg's to the last digit.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("ditto", lam=0.1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    lam: float = 0.1
    personal_epochs: int = 2
    name = "ditto"
    label = "Ditto"
    paper = "Li et al. 2021, Algorithm 1"
    tested = "the client's own model v"

    def start(self, fed):
        return State(x=fed.initial()[0], v=fed.initial())

    def round(self, state, fed, who):
        x = state.x.expand(len(who), -1)
        w = fed.train(x, who)
        tie, epochs = Prox(x, self.lam), self.personal_epochs
        v = fed.train(state.v[who], who, prox=tie, epochs=epochs, tag="personal")
        return state.put(who, v=v).set(x=weighted_average(w, fed.sizes[who]))

    def personal(self, state, fed):
        return state.v

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        _check.non_negative("lam", self.lam)
        _check.whole("personal_epochs", self.personal_epochs)
