"""FedAvg-C: every round begins with fine-tuning (baseline of Zhang et al., AAAI 2023)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.base import State
from pfl_lib.algorithms.fedavg import FedAvg
from pfl_lib.formulas import weighted_average


@dataclass(frozen=True)
class FedAvgC(FedAvg):
    """The global model is fine-tuned to be the local start; what is tested is that start.

    Unlike FedAvg-FT, local training goes on from the fine-tuned model, so the server averages it.
    ``ft_epochs`` is not given; the paper's running times speak of about 14 extra epochs a round.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-c", ft_epochs=2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.8
    True
    """

    ft_epochs: int = 15
    name = "fedavg-c"
    label = "FedAvg-C"
    paper = "baseline of Zhang et al., AAAI 2023"
    tested = "the fine-tuned global model with which the client began its last round"

    def start(self, fed):
        return State(x=fed.initial()[0], w=fed.initial())

    def round(self, state, fed, who):
        x = state.x.expand(len(who), -1)
        begin = fed.train(x, who, epochs=self.ft_epochs, tag="fine-tune")
        w = self.local(begin, x, fed, who)
        return state.put(who, w=begin).set(x=weighted_average(w, fed.sizes[who]))

    def personal(self, state, fed):
        return state.w

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        super().__post_init__()
        _check.whole("ft_epochs", self.ft_epochs, at_least=0)
