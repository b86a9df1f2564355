"""What FedAMP and HeurFedAMP share: the server mixes a message for each client, the client trains
near its message."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import mix
from pfl_lib.training import Prox

# β in round k as the papers ran it (v1, Appendix C.1): 10⁴·0.1^⌊k/30⌋.
PAPER_BETA = (1e4, 0.1, 30)


@dataclass(frozen=True)
class MessagePassing(Algorithm):
    """Mix, then minimise F_i(w) + ‖w − u_i‖²/(2β).

    ``prox_beta`` is β: a number, or (first, factor, every) for first·factor^⌊k/every⌋.
    ``begin`` says where local training starts: at the message "u", or at the client's own model
    "w".  The papers do not say; with their β of 10⁴ a start at w would hardly feel the message.
    A client that stays away neither hears nor trains; its last model still speaks to the others.
    """

    prox_beta: float | tuple = PAPER_BETA
    begin: str = "u"
    tested = "the client's own model w, trained"

    def attend(self, w, k):
        """The collaboration weights ξ of round k, and the strength 1/β of the pull."""
        raise NotImplementedError

    def start(self, fed):
        w = fed.initial()
        return State(w=w, u=w, xi=torch.eye(fed.m, dtype=w.dtype, device=w.device))

    def round(self, state, fed, who):
        xi, strength = self.attend(state.w, fed.k)
        u = mix(xi, state.w)  # the messages
        begin = u if self.begin == "u" else state.w
        w = fed.train(begin[who], who, prox=Prox(u[who], strength))
        return state.put(who, w=w).set(u=u, xi=xi)

    def download(self, state, fed, who):
        return mix(self.attend(state.w, fed.k)[0], state.w)[who]

    def also(self, state, fed):
        return {"u": state.u}

    def __post_init__(self):
        _check.one_of("begin", self.begin, ("u", "w"))
        scheduled(self.prox_beta, 0)


def scheduled(value, k):
    """A constant, or (first, factor, every) in round k."""
    if isinstance(value, (int, float)):
        return _check.positive("prox_beta", value)
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise ValueError(f"prox_beta must be a number or (first, factor, every), got {value!r}")
    first, factor, every = (_check.positive("each part of prox_beta", v) for v in value)
    return first * factor ** (k // every)
