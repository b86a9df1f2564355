"""FedAvg with fine-tuning: the global model, trained once more locally before it is tested."""

from dataclasses import dataclass

from pfl_lib.methods._hyper import non_negative, whole
from pfl_lib.methods.base import preset
from pfl_lib.methods.fedprox import FedProx
from pfl_lib.work import train


@dataclass(frozen=True)
class FedAvgFT(FedProx):
    """The copy a client fine-tunes is tested and thrown away; the global model never sees it.

    ``ft_epochs`` is not given in the papers; None means as many as in local training.
    ``ft_steps`` counts batches instead.  ``mu`` is FedProx's penalty; fine-tuning has none.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-ft", ft_epochs=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    mu: float = non_negative(0.0)
    ft_epochs: int | None = whole(None, at_least=0)
    ft_steps: int | None = whole(None, at_least=0)
    name, label = "fedavg-ft", "FedAvg-FT"
    family, order = "fine-tuning", 1
    place = (1, 1, 1)
    idea = (
        "FedAvg, and before a client uses the model it trains its copy a little more locally. The "
        "copy is tested and thrown away."
    )
    note = (
        "The papers do not print how long the fine-tuning is; here it is as long as local training "
        "unless `ft_epochs` or `ft_steps` says otherwise."
    )
    equations = ["eq-fedavg"]
    chapter = "03_personalised"
    paper = "baseline of Huang et al., AAAI 2021"
    private = "a fine-tuned copy"
    tested = "the global model, fine-tuned locally"
    newcomer = "the global model, fine-tuned locally"

    def personal(self, state, fed):
        x = state.x.expand(fed.m, -1)
        long, steps, everyone = self.ft_epochs, self.ft_steps, fed.everyone
        return train(fed, x, everyone, epochs=long, steps=steps, tag="fine-tune", uploaded=False)


FedProxFT = preset(
    FedAvgFT,
    "FedProxFT",
    mu=0.001,
    name="fedprox-ft",
    label="FedProx-FT",
    order=2,
    idea="FedProx, and a locally fine-tuned copy for the test.",
    note="The fine-tuning itself has no proximal term.",
    equations=["eq-fedavg", "eq-fedprox-gradient"],
    place=None,
)
FedUpdate = preset(
    FedAvgFT,
    "FedUpdate",
    ft_steps=1,  # what the code of the SPFL authors takes by default
    name="fedupdate",
    label="FedUpdate",
    order=5,
    idea="FedAvg, and each client takes a few plain steps on its own data before the test.",
    note="The lightest of the fine-tuned methods: by default a single step.",
    paper="Jiang et al. 2019, baseline of the SPFL paper",
    private="a copy some steps further",
    tested="the global model after a few local steps",
    newcomer="the global model after a few local steps",
    place=None,
)
