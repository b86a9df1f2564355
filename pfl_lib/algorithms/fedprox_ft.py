"""FedProx with fine-tuning: FedAvg-FT on FedProx's global model."""

from dataclasses import dataclass

from pfl_lib.algorithms.fedavg_ft import FedAvgFT
from pfl_lib.algorithms.fedprox import FedProx


@dataclass(frozen=True)
class FedProxFT(FedAvgFT, FedProx):
    """Trained with the proximal term, fine-tuned without it."""

    name = "fedprox-ft"
    label = "FedProx-FT"
    paper = "baseline of Huang et al., AAAI 2021"
