"""FedProx-C: FedAvg-C with FedProx's local training (baseline of Zhang et al., AAAI 2023)."""

from dataclasses import dataclass

from pfl_lib.algorithms.fedavg_c import FedAvgC
from pfl_lib.algorithms.fedprox import FedProx


@dataclass(frozen=True)
class FedProxC(FedAvgC, FedProx):
    """Local training starts at the fine-tuned model and is drawn to the global one."""

    name = "fedprox-c"
    label = "FedProx-C"
    paper = "baseline of Zhang et al., AAAI 2023"
