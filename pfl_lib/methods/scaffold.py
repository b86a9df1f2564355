"""SCAFFOLD: local steps corrected for client drift (Karimireddy et al., ICML 2020)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import positive
from pfl_lib.methods._sgd import plain_sgd
from pfl_lib.methods._tensors import checked, column, same_shape
from pfl_lib.methods.base import State
from pfl_lib.work import Work


def scaffold_gradient(grad, c_local, c_global) -> torch.Tensor:
    """∇F_i(y) − c_i + c: the gradient corrected for the client's drift.

    SCAFFOLD (Karimireddy et al. 2020, Eq. (3)).

    Equation label: eq-scaffold-gradient

    >>> scaffold_gradient(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([0.2]))
    tensor([0.7000])
    """
    return grad - c_local + c_global


def scaffold_control(c_local, c_global, w_global, w_local, lr, steps) -> torch.Tensor:
    """c_i⁺ = c_i − c + (x − y_i)/(κη): the client's mean gradient in this round, its new control.

    SCAFFOLD (Karimireddy et al. 2020, Eq. (4), option II), κ local steps of length η. ``steps``
    may differ from client to client: a tensor, one number per row.

    Equation label: eq-scaffold-control

    >>> zero = torch.zeros(1)
    >>> scaffold_control(zero, zero, torch.tensor([1.0]), torch.tensor([0.8]), lr=0.1, steps=2)
    tensor([1.0000])
    """
    lr = checked(_check.positive, "lr", lr)
    steps = checked(_check.whole, "steps", steps)
    return c_local - c_global + (w_global - w_local) / (column(steps) * lr)


def scaffold_server(w_global, c_global, w_local, c_old, c_new, clients, lr=1.0):
    """x⁺ = x + η_g·mean(y_i − x) and c⁺ = c + (k/m)·mean(c_i⁺ − c_i) over the k participants.

    SCAFFOLD (Karimireddy et al. 2020, Eq. (5)); ``clients`` is m, the number of all clients. Plain
    means: the original does not weight by sizes. Returns (x⁺, c⁺).

    Equation label: eq-scaffold-server

    >>> x, c = torch.zeros(1), torch.zeros(1)
    >>> y, old, new = torch.tensor([[2.0]]), torch.tensor([[0.0]]), torch.tensor([[4.0]])
    >>> scaffold_server(x, c, y, old, new, clients=2)
    (tensor([2.]), tensor([2.]))
    """
    _check.models("w_local", w_local)
    same_shape(w_local=w_local, c_old=c_old, c_new=c_new)
    present, clients = w_local.shape[0], _check.whole("clients", clients, w_local.shape[0])
    lr = checked(_check.positive, "lr", lr)
    x = w_global + lr * (w_local - w_global).mean(0)
    return x, c_global + (present / clients) * (c_new - c_old).mean(0)


@dataclass(frozen=True)
class Scaffold(GlobalModel):
    """One model for all; the controls c_i and c, mean gradients, correct every local step.

    Controls start at zero.  ``lr_server`` is η_g, ``lr`` is η_l (None: the federation's).  All
    clients count equally, as in the paper.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("scaffold")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    lr_server: float = positive(1.0)
    lr: float | None = positive(None)
    name, label = "scaffold", "SCAFFOLD"
    family, order = "one model", 4
    place = (1, 0, 1)
    idea = (
        "Each client keeps a control vector: its guess of how its own gradient differs from "
        "everybody's. Local steps are corrected by it, so that clients with different data still "
        "walk towards the common optimum."
    )
    note = (
        "It learns one global model, although some tables file it under personalised methods. It "
        "sends a control vector beside the model, both ways."
    )
    equations = ["eq-scaffold-gradient", "eq-scaffold-control", "eq-scaffold-server"]
    chapter = "11b_methods"
    paper = "Karimireddy et al. 2020, Algorithm 1, option II"
    shared, private = "one model, control vectors", "a control vector"
    weights_by, cost = "equal weights", "4Σ"
    newcomer = "the global model"
    handed = ""  # controls belong to the downloaded model
    averages = False  # its server step moves controls, too

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        x = fed.initial()
        return State(x=x[0], c=0 * x[0], c_local=0 * x)

    def local(self, state, received, fed, who):
        x, c, c_local = state.x, state.c, state.c_local[who]
        sgd = plain_sgd(self, fed)
        drift = scaffold_gradient(0, c_local, c)  # (3): added to every gradient
        rows = {"w": received.w, "correction": drift, "steps": 0 * fed.sizes[who]}
        y = fed.perform(Work(rows, **sgd), who)
        c_new = scaffold_control(c_local, c, x, y["w"], sgd["lr"], y["steps"])  # (4)
        return received.set(w=y["w"], c_local=c_new)

    def upload(self, state, done, fed, who):
        old, new = state.c_local[who], done.c_local
        x, c = scaffold_server(state.x, state.c, done.w, old, new, fed.m, self.lr_server)  # (5)
        return state.put(who, c_local=new).set(x=x, c=c)

    def newcomer_models(self, state, fed, newcomers):
        return self.personal(state, newcomers)  # controls serve the training of others only

    def sent(self, fed, who, k):
        return 4 * fed.d * len(who)  # model and control, down and up
