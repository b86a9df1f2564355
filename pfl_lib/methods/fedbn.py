"""FedBN: normalization layers stay local (Li et al., ICLR 2021)."""

from dataclasses import dataclass

from pfl_lib.methods._hyper import choice
from pfl_lib.methods._split import SplitModel
from pfl_lib.methods.base import State, preset


@dataclass(frozen=True)
class FedBN(SplitModel):
    """All is averaged but the normalization layers, their parameters and running statistics.

    ``keeps`` says what stays local: the whole "normalization" layers, as in the paper, or only
    their running "statistics", while their parameters are averaged.  Without such layers it is
    FedAvg.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedbn")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    keeps: str = choice("normalization", ("normalization", "statistics"))
    name, label = "fedbn", "FedBN"
    family, order = "some layers", 4
    idea = (
        "Clients whose inputs look different (other scanners, other cameras) keep their own "
        "normalization layers, which take the difference out, and share everything else."
    )
    note = (
        "Parameters and running statistics of all normalization layers stay local; the paper "
        "speaks of batch normalization (BatchNorm) alone. A model without such layers is trained "
        "as by FedAvg."
    )
    equations = ["eq-split-model", "eq-fedavg"]
    chapter = "11_family"
    paper = "Li et al. 2021, Algorithm 1"
    shared, private, cost = "all other layers", "the normalization layers", "2(Σ−norm)"
    tested = "the shared layers with the client's own normalization"
    newcomer = "the shared layers with normalization trained locally"

    def private_mask(self, fed):
        return fed.norm_mask if self.keeps == "normalization" else fed.norm_mask & fed.buffer_mask

    def start(self, fed):
        w = fed.initial()
        return State(x=w[0], w=w)


FedAvgLocalStatistics = preset(
    FedBN,
    "FedAvgLocalStatistics",
    keeps="statistics",
    name="fedavg-local-stats",
    label="FedAvg, local statistics",
    order=5,
    idea="FedAvg whose clients keep the running statistics of BatchNorm layers to themselves. "
    "Code that averages a model's parameters, and forgets that its buffers are no parameters, does "
    "this without saying so.",
    note="Normalization weights and biases are averaged, running means and variances are not. "
    "Compare {doc}`fedbn`, which keeps all of it, and {doc}`fedavg`, which averages all of it.",
    paper="a common variant of McMahan et al. 2017",
    private="the running statistics",
    tested="the global model with the client's own statistics",
    newcomer="the global model with statistics gathered locally",
)
