"""FedAvg (Async): late models are averaged as they are (the SPFL paper, Sec. 4.2)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.asynchronous import Asynchronous
from pfl_lib.formulas import weighted_average


@dataclass(frozen=True)
class FedAvgAsync(Asynchronous):
    """The server averages whatever arrives in a round, fresh or stale.

    ``weighting``: by the clients' "sizes", or "equal" (the paper's clients are all of one size).

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-async")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.4
    True
    """

    weighting: str = "sizes"
    name = "fedavg-async"
    label = "FedAvg (Async)"
    paper = "baseline of the SPFL paper, Sec. 4.2"

    def gather(self, state, fed, here, late):
        return state.set(x=self.average(state.w[here], fed, here))

    def average(self, w, fed, here):
        return weighted_average(w, fed.sizes[here] if self.weighting == "sizes" else None)

    def __post_init__(self):
        super().__post_init__()
        _check.one_of("weighting", self.weighting, ("sizes", "equal"))
