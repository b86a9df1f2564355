"""FedPHP: each client inherits its own past (after Li et al., ECML PKDD 2021)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import between, choice, whole
from pfl_lib.methods._tensors import checked, column
from pfl_lib.methods.base import State
from pfl_lib.work import Work, local_step


def fedphp_momentum(mu, taken, expected):
    """μ_t = μ·min(1, taken/expected): the inherited model's share grows to μ along a line.

    FedPHP (Li et al. 2021). ``taken`` counts the rounds the client took part in,
    ``expected`` the number it is expected to; at first the private model follows the new one.

    Equation label: eq-fedphp-momentum

    >>> fedphp_momentum(0.9, torch.tensor([0, 50, 100]), expected=100)
    tensor([0.0000, 0.4500, 0.9000])
    """
    mu = checked(_check.between, "mu", mu, 0, 1)
    expected = _check.positive("expected", expected)
    if isinstance(taken, torch.Tensor):
        return mu * (taken / expected).clamp(0, 1)
    return mu * min(_check.non_negative("taken", taken) / expected, 1.0)


def fedphp_update(inherited, w, momentum):
    """h ← μ_t·h + (1 − μ_t)·w: the private model, a moving average of the client's own models.

    FedPHP (Li et al. 2021). ``momentum`` may hold one number per client.

    Equation label: eq-fedphp-update

    >>> fedphp_update(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]), momentum=0.45)
    tensor([0.5500, 1.0000])
    """
    momentum = column(checked(_check.between, "momentum", momentum, 0, 1))
    return momentum * inherited + (1 - momentum) * w


@local_step("fedphp", reveals="")
def step(s, batch, client):
    """One step on (1 − λ)·loss + λ·distance to the inherited model h, which teaches in evaluation
    mode, as in the authors' public code."""
    by_features = client.numbers["features"]
    see, distance = (client.features, _discrepancy) if by_features else (client.logits, _divergence)
    old = see(s["h"], batch.x)

    def objective(w):
        if by_features:
            new, out = client.features_and_logits(w, batch)
        else:
            new = out = client.in_training(w, batch)
        return (1 - s["lam"]) * client.loss_of(out, batch) + s["lam"] * distance(new, old, batch)

    return client.move(s, client.grad_of(objective)(s["w"]))


def _discrepancy(new, old, batch):
    """Squared maximum mean discrepancy of the two models' features, under a Gaussian kernel whose
    width is the mean squared length of the old ones."""
    weight = batch.weight / batch.weight.sum()
    both, sign = torch.cat([new, old]), torch.cat([weight, -weight])
    squares = (both * both).sum(1)
    t = (squares[:, None] + squares - 2 * both @ both.T).clamp(min=0)
    width = weight @ (old * old).sum(1)
    return sign @ torch.exp(-t / (2 * torch.where(width > 0, width, 1))) @ sign


def _divergence(new, old, batch):
    """Mean Kullback–Leibler divergence of the new predictions from the old ones."""
    new, old = new.log_softmax(1), old.log_softmax(1)
    return ((old.exp() * (old - new)).sum(1) * batch.weight).sum() / batch.weight.sum()


@dataclass(frozen=True)
class FedPHP(GlobalModel):
    """A client keeps h_i, a moving average of its own models, as teacher of the downloaded one.

    After the cited original; FedALA only sketches it.  The local loss is (1 − λ)·loss + λ·distance
    to h_i, in the "features" before the head (maximum mean discrepancy) or in the "predictions"
    (distillation); a client's first round has nothing to inherit.  The weight μ_t of the old h_i
    grows to ``mu`` over the first ``expected`` rounds the client takes part in: the original has
    the rounds that a client is expected to take part in, the share of clients times all rounds
    (``pfl_lib.book.experiments.methods.fedala_fourteen`` sets it so).

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedphp", mu=0.9)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    mu: float = between(0.9, 0, 1)
    lam: float = between(0.01, 0, 1)
    expected: int = whole(100)
    transfer: str = choice("features", ("features", "predictions"))
    name, label = "fedphp", "FedPHP"
    family, order = "a model beside the global one", 4
    place = (1, 2, 1)
    idea = (
        "Each client keeps a moving average of its own past models, the inherited private model, "
        "and lets it teach the newcomer in local training."
    )
    note = "After the cited original: the papers of this book only name it."
    equations = ["eq-fedphp-momentum", "eq-fedphp-update"]
    chapter = "11b_methods"
    paper = "after Li et al., ECML PKDD 2021"
    private, weights_by = "a moving average of the client's models", "a schedule"
    tested = "the client's inherited private model h"
    newcomer = "the global model, trained locally for a round"

    def start(self, fed):
        h = fed.initial()
        return State(x=h[0], h=h, taken=torch.zeros_like(fed.sizes))

    def local(self, state, received, fed, who):
        h, taken = state.h[who], state.taken[who]
        rows = {"w": received.w, "h": h, "lam": self.lam * (taken > 0).to(h.dtype)}
        numbers = {"features": self.transfer == "features"}
        w = fed.perform(Work(rows, "fedphp", numbers=numbers), who)["w"]
        h = fedphp_update(h, w, fedphp_momentum(self.mu, taken, self.expected))
        return received.set(w=w, h=h, taken=taken + 1)

    def upload(self, state, done, fed, who):
        return super().upload(state.put(who, h=done.h, taken=done.taken), done, fed, who)

    def personal(self, state, fed):
        return state.h
