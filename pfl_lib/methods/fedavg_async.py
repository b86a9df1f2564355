"""FedAvg (Async): late models are averaged as they are (the SPFL paper, Sec. 4.2)."""

from dataclasses import dataclass

from pfl_lib.methods._asynchronous import LateAverage
from pfl_lib.methods._hyper import choice, flag


@dataclass(frozen=True)
class FedAvgAsync(LateAverage):
    """The server averages whatever arrives in a round, fresh or stale.

    ``weighting``: by the clients' "sizes", or "equal" (the paper's clients are all of one size).
    With ``cached`` it averages the last known models of *all* clients instead, and ``repeats`` is
    how many steps are made on each batch: ``cached=True, repeats=2`` is what the paper's public
    code runs as Per-FedAvg in its Table 2.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-async")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.4
    True
    """

    cached: bool = flag(False)
    repeats: int = choice(1, (1, 2))
    name, label = "fedavg-async", "FedAvg (Async)"
    order = 2
    idea = "FedAvg that takes late models as they are, however old the model they started from."
    note = "With no stragglers it is FedAvg."
    equations = ["eq-fedavg"]
    paper = "baseline of the SPFL paper, Sec. 4.2"
    weights_by = "sample counts, late models as they are"

    def gather(self, state, fed, here, late):
        heard = fed.everyone if self.cached else here
        return state.set(x=self.average(state.w[heard], fed, heard))
