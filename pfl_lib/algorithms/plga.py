"""PLGA: personalised leap gradient approximation (the SPFL paper, Algorithm 2)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.lga import LGA
from pfl_lib.algorithms.stages import split_stages
from pfl_lib.formulas import plga_personal, straggler_similarity


@dataclass(frozen=True)
class PLGA(LGA):
    """LGA on the server; each client that arrives takes home a mix of its predicted model and the
    global one, which the server never hears of again.

    ``stages`` as in SPFL.  A client that is on time gets its personal model one round on (τ = 1):
    the new global model is then both its w_next and its w_now.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("plga")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    stages: int = 2
    name = "plga"
    label = "PLGA"
    paper = "the SPFL paper, Algorithm 2"
    tested = "the client's personal model of its last arrival (the server's is tested beside it)"

    def start(self, fed):
        state = super().start(fed)
        return state.set(p=state.w)

    def gather(self, state, fed, here, late):
        new = super().gather(state, fed, here, late)
        on_time = (late == 0)[:, None]
        w_next = torch.where(on_time, new.x, state.next[here])
        w_now = torch.where(on_time, new.x, state.x)
        parts = self.parts(fed)
        similarity = straggler_similarity(state.pull[here], w_next, state.w[here], parts)[1]
        w_pred = self.predict(state, fed, here, w_next, w_now)
        return new.put(here, p=plga_personal(w_pred, w_now, similarity, parts))  # (14)

    def parts(self, fed):
        return split_stages(fed, self.stages)

    def personal(self, state, fed):
        return state.p

    def also(self, state, fed):
        return {"server": state.x.expand(fed.m, -1), "client": state.w}

    def sent(self, fed, who, round_):
        personal = fed.d * len(self.timetable(fed).arrivals(round_))
        return super().sent(fed, who, round_) + personal

    def __post_init__(self):
        super().__post_init__()
        _check.one_of("stages", self.stages, (1, 2))
