"""FedProx: federated averaging with a penalty for straying (Li et al., MLSys 2020)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib._terms import proximal_gradient
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import non_negative
from pfl_lib.methods._tensors import checked
from pfl_lib.work import Prox, train


def fedprox_gradient(grad, w, w_global, mu) -> torch.Tensor:
    """∇F_i(w) + μ(w − x), the gradient of F_i(w) + (μ/2)‖w − x‖².

    FedProx (Li et al. 2020, Eq. (2)).

    Equation label: eq-fedprox-gradient

    >>> fedprox_gradient(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]), mu=0.5)
    tensor([2.])
    """
    mu = checked(_check.non_negative, "mu", mu)
    return proximal_gradient(grad, w, w_global, mu)


@dataclass(frozen=True)
class FedProx(GlobalModel):
    """A client minimizes F_i(w) + (μ/2)‖w − x‖²: it may not stray far from the global model x.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedprox", mu=0.01)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    mu: float = non_negative(0.001)
    name, label = "fedprox", "FedProx"
    family, order = "one model", 3
    place = (1, 0, 1)
    idea = (
        "FedAvg with a proximal term: a penalty on moving away from the model that was sent, so "
        "that long local training does not tear the average apart."
    )
    note = "With $\\mu = 0$ it is FedAvg, to the last bit of the mathematics."
    equations = ["eq-fedavg", "eq-fedprox-gradient"]
    chapter = "01_fedavg"
    paper = "Li et al. 2020, Algorithm 2"
    newcomer = "the global model"

    def local(self, state, received, fed, who):
        return received.set(w=train(fed, received.w, who, prox=self.near(received.w)))  # Eq. (2)

    def near(self, x):
        """The penalty for leaving ``x``, if there is one."""
        return Prox(x, self.mu) if self.mu else None
