"""pFedMe: personal models inside a Moreau envelope (Dinh et al., NeurIPS 2020)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import flag, non_negative, positive, whole
from pfl_lib.methods._sgd import plain_sgd
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import State
from pfl_lib.work import Work, local_step


def pfedme_inner(w, gradient, lam, lr, steps, start=None) -> torch.Tensor:
    """θ ≈ argmin F_i(θ) + (λ/2)‖θ − w‖² by ``steps`` gradient steps from w (or ``start``).

    pFedMe (Dinh et al. 2020, Algorithm 1). θ is the personal model. Stable for lr < 2/(λ + L).

    Equation label: eq-pfedme-inner

    >>> pfedme_inner(torch.tensor([0.0]), lambda w: w - 1, lam=1.0, lr=0.5, steps=9)
    tensor([0.5000])
    """
    lam = checked(_check.non_negative, "lam", lam)
    lr = checked(_check.positive, "lr", lr)
    theta = w if start is None else start
    for _ in range(_check.whole("steps", steps)):
        theta = theta - lr * (gradient(theta) + lam * (theta - w))
    return theta


def pfedme_local(w, theta, lam, lr) -> torch.Tensor:
    """w ← w − ηλ(w − θ): a gradient step on the Moreau envelope of F_i.

    pFedMe (Dinh et al. 2020, Algorithm 1).

    Equation label: eq-pfedme-local

    >>> pfedme_local(torch.tensor([0.0]), torch.tensor([1.0]), lam=10.0, lr=0.05)
    tensor([0.5000])
    """
    lam = checked(_check.non_negative, "lam", lam)
    lr = checked(_check.positive, "lr", lr)
    return w - lr * lam * (w - theta)


def pfedme_server(w_global, average, beta=1.0) -> torch.Tensor:
    """x ← (1 − β)x + β·(average of the participants' w_i); β = 1 is plain averaging.

    pFedMe (Dinh et al. 2020, Algorithm 1). The average is the caller's: plain in the
    original, by sizes in some code (``weighted_average``).

    Equation label: eq-pfedme-server

    >>> pfedme_server(torch.tensor([0.0]), torch.tensor([2.0]), beta=0.5)
    tensor([1.])
    """
    beta = checked(_check.positive, "beta", beta)  # above 1 is allowed: an extrapolation
    return w_global + beta * (average - w_global)


@local_step("pfedme", reveals="")
def envelope_step(s, batch, client):
    """A step of w on the envelope, whose minimizer θ is found by inner steps."""
    lam, lr, steps = (client.numbers[name] for name in ("lam", "lr_personal", "inner_steps"))
    start = s["w"] if client.numbers["restart"] else s["theta"]
    theta = pfedme_inner(s["w"], lambda w: client.grad(w, batch), lam, lr, steps, start)  # (7)
    return {"theta": theta, "w": pfedme_local(s["w"], theta, lam, client.lr)}


@dataclass(frozen=True)
class PFedMe(GlobalModel):
    """On each batch θ ≈ argmin F_i(θ) + (λ/2)‖θ − w_i‖², then w_i moves towards θ.

    ``inner_steps`` steps of length ``lr_personal`` find θ; they are stable for ``lr_personal`` <
    2/(λ + L).  In the first batch of a round they start from w_i, the download; in later batches
    they continue from the θ of the previous batch, as in the authors' code (``restart=True`` starts
    at w_i in every batch).  ``lr`` is η, the step of w_i (None: the
    federation's); ``beta`` is β, the server's.  The average counts samples, as in FedAvg.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("pfedme", lam=15.0, lr_personal=0.1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    lam: float = non_negative(15.0)
    inner_steps: int = whole(5)
    lr_personal: float = positive(0.01)
    beta: float = positive(1.0)
    lr: float | None = positive(None)
    restart: bool = flag(False)
    name, label = "pfedme", "pFedMe"
    family, order = "a model beside the global one", 1
    place = (1, 1, 1)
    idea = (
        "Personal models are held close to a common centre, and the centre moves "
        "towards where the penalties pull. It is gradient descent on the Moreau envelopes of the "
        "clients' losses."
    )
    note = "With exact inner solutions its fixed points are the minimisers of the mean envelope."
    equations = ["eq-pfedme-inner", "eq-pfedme-local", "eq-pfedme-server"]
    chapter = "11b_methods"
    paper = "Dinh et al. 2020, Algorithm 1"
    shared, private = "one centre", "a model near the centre"
    tested = "the client's own model θ after its last batch"
    newcomer = "a model of its own, found near the centre in a local round"

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        return State(x=fed.initial(fed.everyone[:1])[0], theta=fed.initial())

    def local(self, state, received, fed, who):
        names = ("lam", "lr_personal", "inner_steps", "restart")
        numbers = {name: getattr(self, name) for name in names}
        rows = {"w": received.w, "theta": received.w}
        work = Work(rows, "pfedme", numbers=numbers, **plain_sgd(self, fed))
        return received.set(**fed.perform(work, who))

    def upload(self, state, done, fed, who):
        average = self.average(done.w, fed.sizes[who], state, fed)
        x = pfedme_server(state.x, average, self.beta)
        return state.put(who, theta=done.theta).set(x=x)

    def personal(self, state, fed):
        return state.theta
