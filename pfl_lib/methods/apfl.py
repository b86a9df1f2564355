"""APFL: a private and a shared model, mixed (Deng et al. 2020)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import between, choice, positive
from pfl_lib.methods._sgd import plain_sgd
from pfl_lib.methods._tensors import checked, column
from pfl_lib.methods.base import State
from pfl_lib.work import Work, local_step

# In how many of a round's steps α moves.
ALPHA_STEPS = {"never": 0, "round": 1, "step": float("inf")}


def apfl_mix(alpha, v, w):
    """v̄ = αv + (1 − α)w: the private model v and the shared model w, mixed.

    APFL (Deng et al. 2020). ``alpha`` may hold one number per client.

    Equation label: eq-apfl-mix

    >>> apfl_mix(0.25, torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))
    tensor([0.3750, 0.6250])
    """
    alpha = column(checked(_check.between, "alpha", alpha, 0, 1))
    return alpha * v + (1 - alpha) * w


def apfl_step(alpha, v, w, grad_mixed, grad_shared, lr):
    """One step of all three: v − ηα∇F(v̄), w − η∇F(w), clip(α − η⟨v − w, ∇F(v̄)⟩, 0, 1).

    APFL (Deng et al. 2020, Algorithm 1). ``grad_mixed`` is ∇F at the mix v̄, ``grad_shared`` at w.
    The factor α in the step of v is the chain rule; some public code leaves it out. All three use
    the old values. Returns (alpha, v, w).

    Equation label: eq-apfl-step

    >>> v, w, g = torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([2.0])
    >>> apfl_step(torch.tensor(0.5), v, w, g, g, lr=0.1)
    (tensor(0.3000), tensor([0.9000]), tensor([-0.2000]))
    """
    lr = checked(_check.positive, "lr", lr)
    slope = ((v - w) * grad_mixed).sum(-1)
    new_alpha = (alpha - lr * slope).clamp(0, 1)
    return new_alpha, v - lr * column(alpha) * grad_mixed, w - lr * grad_shared


@local_step("apfl", reveals="")
def step_of_all_three(s, batch, client):
    """One step of α, v and w on one batch."""
    alpha, v, w = s["alpha"], s["v"], s["w"]
    mixed = client.grad(apfl_mix(alpha, v, w), batch)
    new_alpha, v, w = apfl_step(alpha, v, w, mixed, client.grad(w, batch), client.lr)
    learn = client.t < client.numbers["alpha_steps"]
    return {"alpha": new_alpha if learn else alpha, "v": v, "w": w}


@dataclass(frozen=True)
class APFL(GlobalModel):
    """Client i uses α_i·v_i + (1 − α_i)·w: v_i is its own, w everybody's, and α_i is learned.

    ``alpha`` is where every α_i starts.  ``adapt`` says when it moves: once a "round", in its first
    step, where w is still what all have in common (so the authors' code does it); in every "step",
    where w soon runs ahead of v, whose steps are α times shorter, and α may sink to 0 and stay;
    "never".  ``lr`` None is the federation's.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("apfl", alpha=0.5)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    alpha: float = between(0.5, 0, 1)
    adapt: str = choice("round", ALPHA_STEPS)
    lr: float | None = positive(None)
    name, label = "apfl", "APFL"
    family, order = "a model beside the global one", 3
    place = (1, 2, 3)
    idea = (
        "Two models at each client and a mixing weight between them. The client tests the mixture, "
        "and learns the weight with the models."
    )
    note = (
        "The gradient with respect to the personal model carries the mixing weight as a factor, by "
        "the chain rule."
    )
    equations = ["eq-apfl-mix", "eq-apfl-step"]
    chapter = "11b_methods"
    paper = "Deng et al. 2020, Algorithm 1"
    private, weights_by = "a second model and a mixing weight", "each client's loss"
    tested = "the mix of the client's private model and the new global model"
    newcomer = "the global model, mixed with a copy trained locally"
    handed = ""  # it mixes already

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        x = fed.initial()
        return State(x=x[0], v=x, alpha=torch.full_like(fed.sizes, self.alpha))

    def local(self, state, received, fed, who):
        rows = {"w": received.w, "v": state.v[who], "alpha": state.alpha[who]}
        numbers = {"alpha_steps": ALPHA_STEPS[self.adapt]}
        work = Work(rows, "apfl", numbers=numbers, **plain_sgd(self, fed))
        return received.set(**fed.perform(work, who))

    def upload(self, state, done, fed, who):
        return super().upload(state.put(who, v=done.v, alpha=done.alpha), done, fed, who)

    def personal(self, state, fed):
        return apfl_mix(state.alpha, state.v, state.x)
