"""FedAvg with fine-tuning: the global model, trained once more at home before it is tested."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """The copy a client fine-tunes is tested and thrown away; the global model never sees it.

    ``ft_epochs`` is not given in the papers; None means as many as in local training.
    ``ft_steps`` counts batches instead.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-ft", ft_epochs=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    ft_epochs: int | None = None
    ft_steps: int | None = None
    name = "fedavg-ft"
    label = "FedAvg-FT"
    paper = "baseline of Huang et al., AAAI 2021"
    tested = "the global model, fine-tuned at home"

    def personal(self, state, fed):
        x = state.x.expand(fed.m, -1)
        how = {"epochs": self.ft_epochs, "steps": self.ft_steps}
        return fed.train(x, fed.everyone, tag="fine-tune", **how)

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        super().__post_init__()
        for name in ("ft_epochs", "ft_steps"):
            if getattr(self, name) is not None:
                _check.whole(name, getattr(self, name), at_least=0)
