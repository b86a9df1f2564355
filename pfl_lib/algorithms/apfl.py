"""APFL: a private and a shared model, mixed (Deng et al. 2020)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.algorithms.sgd import plain_sgd
from pfl_lib.formulas import apfl_mix, apfl_step, weighted_average
from pfl_lib.training import Work, local_step

# In how many of a round's steps α moves.
ALPHA_STEPS = {"never": 0, "round": 1, "step": float("inf")}


@local_step("apfl")
def step_of_all_three(s, batch, client):
    alpha, v, w = s["alpha"], s["v"], s["w"]
    mixed = client.grad(apfl_mix(alpha, v, w), batch)
    new_alpha, v, w = apfl_step(alpha, v, w, mixed, client.grad(w, batch), client.lr)
    learn = client.t < client.numbers["alpha_steps"]
    return {"alpha": new_alpha if learn else alpha, "v": v, "w": w}


@dataclass(frozen=True)
class APFL(Algorithm):
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

    alpha: float = 0.5
    adapt: str = "round"
    lr: float | None = None
    name = "apfl"
    label = "APFL"
    paper = "Deng et al. 2020, Algorithm 1"
    tested = "the mix of the client's private model and the new global model"

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        x = fed.initial()
        return State(x=x[0], v=x, alpha=torch.full_like(fed.sizes, self.alpha))

    def round(self, state, fed, who):
        rows = {"w": state.x.expand(len(who), -1), "v": state.v[who], "alpha": state.alpha[who]}
        numbers = {"alpha_steps": ALPHA_STEPS[self.adapt]}
        new = fed.perform(Work(rows, "apfl", numbers=numbers, **plain_sgd(self, fed)), who)
        x = weighted_average(new["w"], fed.sizes[who])
        return state.put(who, v=new["v"], alpha=new["alpha"]).set(x=x)

    def personal(self, state, fed):
        return apfl_mix(state.alpha, state.v, state.x)

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        _check.between("alpha", self.alpha, 0, 1)
        _check.one_of("adapt", self.adapt, ALPHA_STEPS)
        if self.lr is not None:
            _check.positive("lr", self.lr)
