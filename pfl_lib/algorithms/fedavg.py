"""Federated averaging: one model for all (McMahan et al., AISTATS 2017)."""

from dataclasses import dataclass

from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import weighted_average


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """The server averages what the clients trained, each weighted by its number of samples.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    name = "fedavg"
    label = "FedAvg"
    paper = "McMahan et al. 2017, Algorithm 1"
    tested = "the global model"

    def start(self, fed):
        return State(x=fed.initial()[0])

    def round(self, state, fed, who):
        x = state.x.expand(len(who), -1)
        w = self.local(x, x, fed, who)
        return state.set(x=weighted_average(w, fed.sizes[who]))

    def local(self, begin, x, fed, who):
        """Local training from ``begin`` at clients that hold the global model ``x``."""
        return fed.train(begin, who)

    def personal(self, state, fed):
        return state.x.expand(fed.m, -1)
