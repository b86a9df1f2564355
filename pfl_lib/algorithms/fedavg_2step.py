"""FedAvg with two steps on every batch: what the SPFL authors ran under Per-FedAvg's name."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class FedAvg2Step(FedAvg):
    """Two plain steps on one batch, no meta-gradient.  For the real thing see ``per-fedavg``.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-2step")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    repeats: int = 2
    name = "fedavg-2step"
    label = "FedAvg-2step"
    paper = "baseline 'Per-FedAvg' of the SPFL paper, as its public code has it"

    def local(self, begin, x, fed, who):
        return fed.train(begin, who, repeats=self.repeats)

    def __post_init__(self):
        super().__post_init__()
        _check.whole("repeats", self.repeats)
