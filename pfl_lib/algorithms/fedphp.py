"""FedPHP: each client inherits its own past (after Li et al., ECML PKDD 2021)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import fedphp_momentum, fedphp_update, weighted_average
from pfl_lib.training import Work, local_step


@local_step("fedphp")
def step(s, batch, client):
    """Down the gradient of (1 − λ)·loss + λ·distance to the inherited model h."""
    distance = discrepancy if client.numbers["features"] else divergence

    def objective(w):
        apart = distance(w, s["h"], batch, client)
        return (1 - s["lam"]) * client.loss(w, batch) + s["lam"] * apart

    return client.move(s, client.grad_of(objective)(s["w"]))


def discrepancy(w, h, batch, client):
    """Squared maximum mean discrepancy of the two models' features, under a Gaussian kernel whose
    width is the mean squared length of the old ones."""
    weight = batch.weight / batch.weight.sum()
    new, old = client.features(w, batch.x), client.features(h, batch.x)
    both, sign = torch.cat([new, old]), torch.cat([weight, -weight])
    squares = (both * both).sum(1)
    t = (squares[:, None] + squares - 2 * both @ both.T).clamp(min=0)
    width = weight @ (old * old).sum(1)
    return sign @ torch.exp(-t / (2 * torch.where(width > 0, width, 1))) @ sign


def divergence(w, h, batch, client):
    """Mean Kullback–Leibler divergence of the predictions of w from those of h."""
    new, old = (client.logits(model, batch.x).log_softmax(1) for model in (w, h))
    return ((old.exp() * (old - new)).sum(1) * batch.weight).sum() / batch.weight.sum()


@dataclass(frozen=True)
class FedPHP(Algorithm):
    """A client keeps h_i, the moving average of its own models, and teaches with it what it gets.

    After the cited original; FedALA only sketches it.  The local loss is (1 − λ)·loss + λ·distance
    to h_i, in the "features" before the head (maximum mean discrepancy) or in the "predictions"
    (distillation); a client's first round has nothing to inherit.  The weight μ_t of the old h_i
    grows to ``mu`` over the first ``expected`` rounds the client takes part in.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedphp", mu=0.9)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    mu: float = 0.9
    lam: float = 0.01
    expected: int = 100
    transfer: str = "features"
    name = "fedphp"
    label = "FedPHP"
    paper = "after Li et al., ECML PKDD 2021"
    tested = "the client's inherited private model h"

    def start(self, fed):
        h = fed.initial()
        return State(x=h[0], h=h, taken=torch.zeros_like(fed.sizes))

    def round(self, state, fed, who):
        h, taken = state.h[who], state.taken[who]
        rows = {"w": state.x.expand(len(who), -1), "h": h, "lam": self.lam * (taken > 0)}
        numbers = {"features": self.transfer == "features"}
        w = fed.perform(Work(rows, "fedphp", numbers=numbers), who)["w"]
        h = fedphp_update(h, w, fedphp_momentum(self.mu, taken, self.expected))
        x = weighted_average(w, fed.sizes[who])
        return state.put(who, h=h, taken=taken + 1).set(x=x)

    def personal(self, state, fed):
        return state.h

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        super().__post_init__()
        for name in ("mu", "lam"):
            _check.between(name, getattr(self, name), 0, 1)
        _check.whole("expected", self.expected)
        _check.one_of("transfer", self.transfer, ("features", "predictions"))
