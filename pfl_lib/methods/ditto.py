"""Ditto: a personal model tied to the global one (Li et al., ICML 2021)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib._terms import proximal_gradient
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import non_negative, whole
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import State
from pfl_lib.work import Prox, train


def ditto_gradient(grad, v, w_global, lam) -> torch.Tensor:
    """∇F_i(v) + λ(v − x): the personal model v is tied to the global x and to nothing else.

    Ditto (Li et al. 2021, Algorithm 1).

    Equation label: eq-ditto-gradient

    >>> ditto_gradient(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]), lam=0.1)
    tensor([1.2000])
    """
    lam = checked(_check.non_negative, "lam", lam)
    return proximal_gradient(grad, v, w_global, lam)


@dataclass(frozen=True)
class Ditto(GlobalModel):
    """FedAvg for x; beside it client i minimizes F_i(v) + (λ/2)‖v − x‖² for its own v_i.

    The x in the penalty is the one the client was sent.  v_i never leaves the client and never
    touches x, so x is FedAvg's to the last digit.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("ditto", lam=0.1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    lam: float = non_negative(0.1)
    personal_epochs: int = whole(2)
    name, label = "ditto", "Ditto"
    family, order = "a model beside the global one", 2
    place = (1, 2, 1)
    idea = (
        "Two models at each client: the global one, trained as in FedAvg, and a personal one that "
        "is trained on the same data but pays for leaving the global one."
    )
    note = (
        "With $\\lambda = 0$ the personal model is separate training; with a large $\\lambda$ it "
        "is the global model."
    )
    equations = ["eq-ditto-gradient", "eq-fedavg"]
    chapter = "11b_methods"
    paper = "Li et al. 2021, Algorithm 1"
    private = "a second model, held near it"
    tested = "the client's own model v"
    newcomer = "a model of its own, trained from the global one and held near it"

    def start(self, fed):
        return State(x=fed.initial(fed.everyone[:1])[0], v=fed.initial())

    def local(self, state, received, fed, who):
        x, v, long = received.w, state.v[who], self.personal_epochs
        w = train(fed, x, who)
        tie = Prox(x, self.lam)
        v = train(fed, v, who, prox=tie, epochs=long, tag="personal", uploaded=False)
        return received.set(w=w, v=v)

    def upload(self, state, done, fed, who):
        return super().upload(state.put(who, v=done.v), done, fed, who)

    def personal(self, state, fed):
        return state.v
