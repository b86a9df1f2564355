"""FedUpdate: FedAvg, and a few steps at home before the test (Jiang et al. 2019)."""

from dataclasses import dataclass

from pfl_lib.algorithms.fedavg_ft import FedAvgFT


@dataclass(frozen=True)
class FedUpdate(FedAvgFT):
    """FedAvg read as meta-learning: the global model is a start that a few steps make personal.

    One step is what the code of the SPFL authors takes when nothing else is said.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedupdate")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    ft_steps: int | None = 1
    name = "fedupdate"
    label = "FedUpdate"
    paper = "Jiang et al. 2019, baseline of the SPFL paper"
    tested = "the global model after a few steps at home"
