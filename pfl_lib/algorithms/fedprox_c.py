"""FedProx-C: FedAvg-C with FedProx's local training (baseline of Zhang et al., AAAI 2023)."""

from dataclasses import dataclass

from pfl_lib.algorithms.fedavg_c import FedAvgC
from pfl_lib.algorithms.fedprox import FedProx


@dataclass(frozen=True)
class FedProxC(FedAvgC, FedProx):
    """Local training starts at the fine-tuned model and is drawn to the global one.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedprox-c", mu=0.01, ft_epochs=2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.8
    True
    """

    name = "fedprox-c"
    label = "FedProx-C"
    paper = "baseline of Zhang et al., AAAI 2023"
