"""FedALA: adaptive local aggregation before federated averaging (Zhang et al., AAAI 2023)."""

from dataclasses import dataclass

from pfl_lib.algorithms.ala import AdaptiveLocalAggregation
from pfl_lib.algorithms.fedavg import FedAvg
from pfl_lib.formulas import weighted_average


@dataclass(frozen=True)
class FedALA(AdaptiveLocalAggregation, FedAvg):
    """Θ̂_i, a learned mix of the global model and the client's own, is where training starts.

    Algorithm 1 returns Θ̂_i, so that is what is tested: it holds the global model of the round
    before.  Θ_i, trained from it, is tested beside it, and so is the new global model.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedala", ala_layers=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    name = "fedala"
    label = "FedALA"
    paper = "Zhang et al., AAAI 2023, Algorithm 1"
    tested = "the mix with which the client began its last round"

    def start(self, fed):
        return super().start(fed).set(**self.fresh(fed))

    def round(self, state, fed, who):
        x = state.x.expand(len(who), -1)
        state = self.aggregate(state, x, fed, who)  # (4), (5)
        w = self.local(state.ala_begin[who], x, fed, who)
        return state.put(who, ala_own=w).set(x=weighted_average(w, fed.sizes[who]))

    def personal(self, state, fed):
        return state.ala_begin

    def also(self, state, fed):
        return {"trained": state.ala_own, "global": state.x.expand(fed.m, -1)}
