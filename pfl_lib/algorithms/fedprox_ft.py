"""FedProx with fine-tuning: FedAvg-FT on FedProx's global model."""

from dataclasses import dataclass

from pfl_lib.algorithms.fedavg_ft import FedAvgFT
from pfl_lib.algorithms.fedprox import FedProx


@dataclass(frozen=True)
class FedProxFT(FedAvgFT, FedProx):
    """Trained with the proximal term, fine-tuned without it.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedprox-ft", mu=0.01, ft_epochs=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    name = "fedprox-ft"
    label = "FedProx-FT"
    paper = "baseline of Huang et al., AAAI 2021"
