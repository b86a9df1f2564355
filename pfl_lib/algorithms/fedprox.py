"""FedProx: federated averaging on a leash (Li et al., MLSys 2020)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.fedavg import FedAvg
from pfl_lib.training import Prox


@dataclass(frozen=True)
class FedProx(FedAvg):
    """A client minimises F_i(w) + (μ/2)‖w − x‖²: it may not stray far from the global model x.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedprox", mu=0.01)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    mu: float = 0.001
    name = "fedprox"
    label = "FedProx"
    paper = "Li et al. 2020, Algorithm 2"

    def local(self, begin, x, fed, who):
        return fed.train(begin, who, prox=Prox(x, self.mu))  # Eq. (2)

    def __post_init__(self):
        super().__post_init__()
        _check.non_negative("mu", self.mu)
