"""What the asynchronous methods share: clients that pull, train, and arrive late."""

from dataclasses import dataclass

import torch

from pfl_lib import _check, stragglers
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.training import Prox


@dataclass(frozen=True)
class Asynchronous(Algorithm):
    """``stragglers`` says who is late, by how much (see ``pfl_lib.stragglers.timetable``).

    A client starts from the model it pulled, however old it is by the time it arrives; the round
    it arrives in decides its batches.  ``local_steps`` counts local work in batches; None means the
    federation's epochs (the SPFL paper says both).
    """

    stragglers: str | int | tuple = "spfl"
    local_steps: int | None = None
    tested = "the server's model"
    partial = False  # the timetable says who takes part

    def gather(self, state, fed, here, late):
        """The server's step when the models of the clients ``here`` arrive, ``late`` rounds old."""
        raise NotImplementedError

    def start(self, fed):
        self.timetable(fed)
        w = fed.initial()
        pulled = torch.zeros(fed.m, dtype=torch.int64, device=w.device)
        return State(x=w[0], w=w, pull=w, pulled=pulled)

    def round(self, state, fed, who):
        if len(who) < fed.m:
            raise ValueError(
                f"the timetable of the stragglers says who takes part in {self.label}; "
                f"who must hold all {fed.m} clients, got {len(who)}"
            )
        state = self.dispatch(state, fed)
        arrivals = self.timetable(fed).arrivals(fed.k)
        if not arrivals:
            return state
        here = torch.tensor(arrivals, device=fed.device)
        w = fed.train(state.pull[here], here, prox=self.prox(state, here), steps=self.local_steps)
        return self.gather(state.put(here, w=w), fed, here, fed.k - state.pulled[here])

    def dispatch(self, state, fed):
        """Those who are back pull the global model."""
        table = self.timetable(fed)
        back = torch.tensor(table.pulls(fed.k), dtype=torch.int64, device=fed.device)
        pulled = torch.tensor(table.pulled(fed.k), device=fed.device)
        return state.put(back, pull=state.x.expand(len(back), -1)).set(pulled=pulled)

    def prox(self, state, here) -> Prox | None:
        """A pull towards the model it started from, where a method has one."""
        return None

    def personal(self, state, fed):
        return state.x.expand(fed.m, -1)

    def also(self, state, fed):
        return {"client": state.w}

    def sent(self, fed, who, round_):
        table = self.timetable(fed)
        return fed.d * (len(table.pulls(round_)) + len(table.arrivals(round_)))

    def timetable(self, fed):
        """Who pulls and who arrives in which round."""
        return stragglers.timetable(self.stragglers, fed.m)

    def __post_init__(self):
        stragglers.check(self.stragglers)
        if self.local_steps is not None:
            _check.whole("local_steps", self.local_steps)
