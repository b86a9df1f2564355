"""FedAvg-C: every round begins with fine-tuning (baseline of Zhang et al., AAAI 2023)."""

from dataclasses import dataclass

from pfl_lib.methods._hyper import non_negative, whole
from pfl_lib.methods.base import State, preset
from pfl_lib.methods.fedprox import FedProx
from pfl_lib.work import train


@dataclass(frozen=True)
class FedAvgC(FedProx):
    """The global model is fine-tuned to be the local start; what is tested is that start.

    Unlike FedAvg-FT, local training goes on from the fine-tuned model, so the server averages it.
    ``ft_epochs`` is not given; the paper's running times speak of about 14 extra epochs per round.
    ``mu`` is FedProx's penalty, for the distance to the global model.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-c", ft_epochs=2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.8
    True
    """

    mu: float = non_negative(0.0)
    ft_epochs: int = whole(15, at_least=0)
    name, label = "fedavg-c", "FedAvg-C"
    family, order = "fine-tuning", 3
    place = (1, 1, 1)
    idea = (
        "FedAvg with long fine-tuning in *every* round: the fine-tuned model is tested, trained "
        "on, and sent."
    )
    note = (
        "Its lead in a table is largely computing: with 15 extra epochs per round it works many "
        "times as much as FedAvg."
    )
    equations = ["eq-fedavg"]
    chapter = "03_personalised"
    paper = "baseline of Zhang et al., AAAI 2023"
    private = "a fine-tuned copy, every round"
    tested = "the fine-tuned global model with which the client began its last round"
    newcomer = "the global model, fine-tuned locally"
    handed = ""  # it has its own way to begin a round

    def start(self, fed):
        return State(x=fed.initial(fed.everyone[:1])[0], w=fed.initial())

    def local(self, state, received, fed, who):
        x = received.w
        tuned = train(fed, x, who, epochs=self.ft_epochs, tag="fine-tune", uploaded=False)
        return received.set(w=train(fed, tuned, who, prox=self.near(x)), tuned=tuned)

    def upload(self, state, done, fed, who):
        return super().upload(state.put(who, w=done.tuned), done, fed, who)

    def personal(self, state, fed):
        return state.w


FedProxC = preset(
    FedAvgC,
    "FedProxC",
    mu=0.001,
    name="fedprox-c",
    label="FedProx-C",
    order=4,
    idea="The same as FedAvg-C with FedProx's proximal term during local training.",
    note="The proximal term pulls towards the global model, not to the fine-tuned one.",
    equations=["eq-fedavg", "eq-fedprox-gradient"],
    place=None,
)
