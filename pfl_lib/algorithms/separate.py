"""Separate training: every client alone.  The line each personalised method has to beat."""

from dataclasses import dataclass

from pfl_lib.algorithms.base import Algorithm


@dataclass(frozen=True)
class Separate(Algorithm):
    """Each client trains its own model on its own data; nothing is ever sent.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("separate")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    name = "separate"
    label = "Separate"

    def round(self, state, fed, who):
        return state.put(who, w=fed.train(state.w[who], who))

    def sent(self, fed, who, round_):
        return 0
