"""Separate training: every client alone.  The line each personalized method has to beat."""

from dataclasses import dataclass

from pfl_lib.methods.base import Algorithm
from pfl_lib.work import train


@dataclass(frozen=True)
class Separate(Algorithm):
    """Each client trains its own model on its own data; nothing is ever sent.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("separate")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    name, label = "separate", "Separate"
    family = "alone"
    place = (0, 4, 0)
    idea = (
        "Every client trains its own model on its own data, and nothing is ever sent. It is the "
        "line that every personalised method has to beat, so it stands in every table of this book."
    )
    note = "Each client minimizes $F_i(w_i)$ and nothing else."
    chapter = "01_fedavg"
    shared, private, weights_by, cost = "nothing", "the whole model", "nobody", "0"
    newcomer = "a model it trains alone, for a round"

    def newcomer_models(self, state, fed, newcomers):
        return train(newcomers, newcomers.initial(), newcomers.everyone, tag="newcomer")

    def sent(self, fed, who, k):
        return 0
