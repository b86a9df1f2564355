"""FedAvg with fine-tuning: the global model, trained once more at home before it is tested."""

from dataclasses import dataclass

from pfl_lib.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """The copy a client fine-tunes is tested and thrown away; the global model never sees it.

    ``ft_epochs`` is not given in the papers; None means as many as in local training.
    """

    ft_epochs: int | None = None
    name = "fedavg-ft"
    label = "FedAvg-FT"
    paper = "baseline of Huang et al., AAAI 2021"
    tested = "the global model after fine-tuning at home"

    def personal(self, state, fed):
        x = state.x.expand(fed.m, -1)
        return fed.train(x, fed.everyone, epochs=self.ft_epochs, tag="fine-tune")

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}
