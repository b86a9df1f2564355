"""Federated averaging: one model for all (McMahan et al., AISTATS 2017)."""

from dataclasses import dataclass

from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import whole
from pfl_lib.methods.base import preset
from pfl_lib.work import train


@dataclass(frozen=True)
class FedAvg(GlobalModel):
    """The server averages what the clients trained, each weighted by its number of samples.

    ``repeats`` is how many steps a client takes on each batch before the next.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    repeats: int = whole(1)
    name, label = "fedavg", "FedAvg"
    family, order = "one model", 1
    place = (1, 0, 1)
    idea = (
        "One model for all. The server sends it out, clients train it on their own data, and the "
        "server averages what comes back, each model weighted by its client's number of samples."
    )
    note = (
        "With one local step of full gradient it is gradient descent on the weighted mean loss; "
        "with more local work the clients drift apart before they are averaged."
    )
    equations = ["eq-fedavg"]
    chapter = "01_fedavg"
    paper = "McMahan et al. 2017, Algorithm 1"
    newcomer = "the global model"

    def local(self, state, received, fed, who):
        return received.set(w=train(fed, received.w, who, repeats=self.repeats))


FedAvg2Step = preset(
    FedAvg,
    "FedAvg2Step",
    repeats=2,
    name="fedavg-2step",
    label="FedAvg-2step",
    order=2,
    idea="FedAvg whose clients take two gradient steps on every batch before they go on to the "
    "next. The public code of the SPFL authors runs this under the name Per-FedAvg; it is kept "
    "apart here under a name of its own.",
    note="There is no meta-gradient in it: compare {doc}`per-fedavg`.",
    equations=["eq-fedavg", "eq-spfl-local-step"],
    chapter="08_spfl",
    paper="baseline 'Per-FedAvg' of the SPFL paper, as its public code has it",
    place=None,
)
