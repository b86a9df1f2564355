"""The base of the asynchronous methods: clients that pull, train, and arrive late."""

from dataclasses import dataclass

import torch

from pfl_lib import stragglers
from pfl_lib.methods._averaging import weighted_average
from pfl_lib.methods._hyper import choice, hyper, whole
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.work import Prox, train


@dataclass(frozen=True)
class Asynchronous(Algorithm):
    """``stragglers`` says who is late, by how much (see ``pfl_lib.stragglers.timetable``).

    A client starts from the model it pulled, however old that is on arrival; the round of arrival
    decides its batches.  ``local_steps`` counts local work in batches; None means the
    federation's epochs (the SPFL paper says both).
    """

    stragglers: str | int | tuple = hyper(
        "spfl", lambda name, value: stragglers.check(value), ("a", None, -1, 1.5, True)
    )
    local_steps: int | None = whole(None)
    family, chapter = "late clients", "09_plga"
    shared, private = "one model", "nothing"
    tested = "the server's model"
    newcomer = "the server's model"
    partial = False  # the timetable says who takes part
    repeats = 1  # of each batch

    def gather(self, state, fed, here, late):
        """The server's step when the models of the clients ``here`` arrive, ``late`` rounds old."""
        raise NotImplementedError

    def start(self, fed):
        self.timetable(fed)
        w = fed.initial()
        pulled = torch.zeros(fed.m, dtype=torch.int64, device=w.device)
        return State(x=w[0], w=w, pull=w, pulled=pulled)

    def download(self, state, fed, who):
        """Clients that have returned pull the global model; ``here`` are those that will arrive."""
        if len(who) < fed.m:
            raise ValueError(
                f"the timetable of the stragglers says who takes part in {self.label}; "
                f"who must hold all {fed.m} clients, got {len(who)}"
            )
        table = self.timetable(fed)
        back = torch.tensor(table.pulls(fed.k), dtype=torch.int64, device=fed.device)
        pulled = torch.tensor(table.pulled(fed.k), device=fed.device)
        pull = state.pull.index_copy(0, back, state.x.expand(len(back), -1))
        here = torch.tensor(table.arrivals(fed.k), dtype=torch.int64, device=fed.device)
        return State(w=pull[here], here=here, pull=pull, pulled=pulled)

    def local(self, state, received, fed, who):
        here = received.here
        if len(here) == 0:
            return received
        prox, steps = self.prox(received.w), self.local_steps
        w = train(fed, received.w, here, prox=prox, steps=steps, repeats=self.repeats)
        return received.set(w=w)

    def upload(self, state, done, fed, who):
        here, kept = done.here, {name: done[name] for name in done if name in state}
        state = state.set(**{**kept, "w": state.w.index_copy(0, here, done.w)})
        return self.gather(state, fed, here, fed.k - state.pulled[here]) if len(here) else state

    def prox(self, pulled) -> Prox | None:
        """A penalty on the distance to the pulled models, where a method has one."""
        return None

    def personal(self, state, fed):
        return state.x.expand(fed.m, -1)

    def newcomer_models(self, state, fed, newcomers):
        return state.x.expand(newcomers.m, -1)

    def extra_models(self, state, fed):
        return {"client": state.w}

    def sent(self, fed, who, k):
        table = self.timetable(fed)
        return fed.d * (len(table.pulls(k)) + len(table.arrivals(k)))

    def timetable(self, fed):
        """Who pulls and who arrives in which round."""
        return stragglers.timetable(self.stragglers, fed.m)


@dataclass(frozen=True)
class LateAverage(Asynchronous):
    """The server averages what arrives, by ``weighting``: by the clients' "sizes", or "equal"."""

    weighting: str = choice("sizes", ("sizes", "equal"))

    def average(self, w, fed, here):
        return weighted_average(w, fed.sizes[here] if self.weighting == "sizes" else None)
