"""How much of its own model a client should keep."""

from pfl_lib.book import theory
from pfl_lib.book.explore.base import Between, Explorer, Whole


class SelfWeight(Explorer):
    """A client's own model and N others that differ by noise alone: how much to keep of one's own.

    With a self-weight ξ, and τ = 1 − ξ shared equally among the others, the message has variance
    ξ² + τ²/N, where a model of one client has 1. It is least at ξ = 1/(N + 1), the plain mean.

    >>> round(SelfWeight(similar=19).compute()["best_self_weight"], 4)
    0.05
    """

    modules = ("self_weight.js",)

    self_weight = Between(0.7, 0, 1)
    similar = Whole(3, 1, 20)

    def compute(self):
        tau = theory.best_tau(self.similar)
        return {
            "noise": theory.message_noise(1 - self.self_weight, self.similar),
            "best_self_weight": 1 - tau,
            "least_noise": theory.message_noise(tau, self.similar),
        }
