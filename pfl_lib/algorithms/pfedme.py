"""pFedMe: personal models inside a Moreau envelope (Dinh et al., NeurIPS 2020)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.algorithms.sgd import plain_sgd
from pfl_lib.formulas import pfedme_inner, pfedme_local, pfedme_server, weighted_average
from pfl_lib.training import Work, local_step


@local_step("pfedme")
def envelope_step(s, batch, client):
    lam, lr, steps = (client.numbers[name] for name in ("lam", "lr_personal", "inner_steps"))
    theta = pfedme_inner(s["w"], lambda w: client.grad(w, batch), lam, lr, steps)  # (7)
    return {"theta": theta, "w": pfedme_local(s["w"], theta, lam, client.lr)}


@dataclass(frozen=True)
class PFedMe(Algorithm):
    """On each batch θ ≈ argmin F_i(θ) + (λ/2)‖θ − w_i‖², then w_i moves towards θ.

    ``inner_steps`` steps of length ``lr_personal`` find θ from w_i; they are stable for
    ``lr_personal`` < 2/(λ + L).  ``lr`` is η, the step of w_i (None: the federation's); ``beta`` is
    β, the server's.  The average counts samples, as in FedAvg.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("pfedme", lam=15.0, lr_personal=0.1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    lam: float = 15.0
    inner_steps: int = 5
    lr_personal: float = 0.01
    beta: float = 1.0
    lr: float | None = None
    name = "pfedme"
    label = "pFedMe"
    paper = "Dinh et al. 2020, Algorithm 1"
    tested = "the client's own model θ after its last batch"

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        return State(x=fed.initial()[0], theta=fed.initial())

    def round(self, state, fed, who):
        numbers = {name: getattr(self, name) for name in ("lam", "lr_personal", "inner_steps")}
        rows = {"w": state.x.expand(len(who), -1), "theta": state.theta[who]}
        new = fed.perform(Work(rows, "pfedme", numbers=numbers, **plain_sgd(self, fed)), who)
        average = weighted_average(new["w"], fed.sizes[who])
        return state.put(who, theta=new["theta"]).set(x=pfedme_server(state.x, average, self.beta))

    def personal(self, state, fed):
        return state.theta

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        _check.non_negative("lam", self.lam)
        _check.whole("inner_steps", self.inner_steps)
        for name in ("lr_personal", "beta", *(["lr"] if self.lr is not None else [])):
            _check.positive(name, getattr(self, name))
