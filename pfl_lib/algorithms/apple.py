"""APPLE: everybody's core models, in proportions each client learns (after Luo and Wu, 2022)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import apple_gradients, apple_mix, apple_schedule
from pfl_lib.training import Work, local_step


@local_step("apple")
def step(s, batch, client):
    """One step on the own core model ``w`` and on the proportions ``p``; ``core`` is downloaded.

    The own row of the download is ``was``: w − was is what this round has added to it.  So the
    download is never copied, and all clients of a stack can share it.
    """
    p, place, added = s["p"], s["place"], s["w"] - s["was"]
    own = torch.arange(len(p), device=p.device) == place
    g = client.grad(apple_mix(p, s["core"]) + (p * own).sum() * added, batch)
    weight = client.numbers["mu"], client.numbers["schedule"]
    g_core, g_p = apple_gradients(g, p, s["core"], place, s["prior"], *weight)
    g_p = g_p + own * (added @ g)
    return client.move(s, g_core) | {"p": p - client.numbers["lr_p"] * g_p}


@dataclass(frozen=True)
class APPLE(Algorithm):
    """Client i uses θ_i = Σ_j p_ij·c_j, and learns its core model c_i and its proportions p_i.

    After the cited original; FedALA only sketches it.  The penalty λ(r)(μ/2)‖p_i − p⁰‖² holds the
    proportions near the clients' shares of the samples for ``horizon`` rounds (FedALA: a fifth of
    all rounds).  ``lr_p`` is η₂; ``lr_core`` is η₁, None the federation's.  The gradient of c_i
    carries the factor p_ii, about 1/m at first, so the first rounds are slow.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("apple", mu=0.1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.2
    True
    """

    lr_p: float = 0.01
    mu: float = 0.1
    horizon: int = 20
    lr_core: float | None = None
    name = "apple"
    label = "APPLE"
    paper = "after Luo and Wu, 2022"
    tested = "the client's mix of everybody's newest core models"

    def start(self, fed):
        return State(core=fed.initial(), p=self.prior(fed).repeat(fed.m, 1))

    def round(self, state, fed, who):
        core, p = state.core, state.p
        schedule = apple_schedule(fed.k, self.horizon)
        work = Work(
            rows={"w": core[who], "was": core[who], "p": p[who], "place": who},
            step="apple",
            shared={"core": core, "prior": self.prior(fed)},
            numbers={"mu": self.mu, "lr_p": self.lr_p, "schedule": schedule},
            lr=self.lr_core,
        )
        new = fed.perform(work, who)
        return state.put(who, core=new["w"], p=new["p"])

    def prior(self, fed):
        return fed.sizes / fed.sizes.sum()

    def personal(self, state, fed):
        return apple_mix(state.p, state.core)

    def sent(self, fed, who, round_):
        return (1 + fed.m) * fed.d * len(who)

    def __post_init__(self):
        super().__post_init__()
        _check.positive("lr_p", self.lr_p)
        _check.non_negative("mu", self.mu)
        _check.whole("horizon", self.horizon)
        if self.lr_core is not None:
            _check.positive("lr_core", self.lr_core)
