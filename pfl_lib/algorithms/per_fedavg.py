"""Per-FedAvg: a global model that is good after one step at home (Fallah et al., NeurIPS 2020)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.algorithms.sgd import plain_sgd
from pfl_lib.formulas import perfedavg_step, weighted_average
from pfl_lib.training import Work, local_step

BATCHES = {"fo": 2, "hf": 3, "exact": 3}  # the Hessian has a batch of its own


def meta_step(rule):
    """The local step on F_i(w − a∇F_i(w)), with the Hessian left out, differenced or exact."""

    @local_step(f"per-fedavg-{rule}")
    def step(s, batches, client):
        gradient = client.grad_of(client.loss)
        at = [lambda w, b=b: gradient(w, b) for b in batches]
        a, delta = client.numbers["lr_inner"], client.numbers["delta"]
        third = at[-1]  # not asked for by "fo"
        return {"w": perfedavg_step(s["w"], at[0], at[1], a, client.lr, rule, third, delta)}


for rule in BATCHES:
    meta_step(rule)


@dataclass(frozen=True)
class PerFedAvg(Algorithm):
    """The loss is that of the model *after* adaptation, so its gradient passes through a step.

    ``variant`` says what becomes of the Hessian in it: "fo" leaves it out, "hf" takes a difference
    of gradients of step ``delta``, "exact" differentiates.  ``lr_inner`` is the paper's α, ``lr``
    its β; None is the federation's.  Each step uses two batches, three with a Hessian.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("per-fedavg")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    variant: str = "fo"
    lr_inner: float | None = None
    lr: float | None = None
    delta: float = 1e-3
    name = "per-fedavg"
    label = "Per-FedAvg"
    paper = "Fallah et al. 2020, Algorithm 1"
    tested = "the global model after one adaptation step at home"

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        return State(x=fed.initial()[0])

    def round(self, state, fed, who):
        work = Work(
            rows={"w": state.x.expand(len(who), -1)},
            step=f"per-fedavg-{self.variant}",
            numbers={"lr_inner": self.inner(fed), "delta": self.delta},
            group=BATCHES[self.variant],
            **plain_sgd(self, fed),
        )
        return state.set(x=weighted_average(fed.perform(work, who)["w"], fed.sizes[who]))

    def inner(self, fed):
        return plain_sgd(self, fed)["lr"] if self.lr_inner is None else self.lr_inner

    def personal(self, state, fed):
        x = state.x.expand(fed.m, -1)
        step = {"steps": 1, "lr": self.inner(fed), "optimizer": "sgd", "tag": "adapt"}
        return fed.train(x, fed.everyone, **step)

    def also(self, state, fed):
        return {"global": state.x.expand(fed.m, -1)}

    def __post_init__(self):
        _check.one_of("variant", self.variant, BATCHES)
        _check.positive("delta", self.delta)
        if self.lr_inner is not None:
            _check.non_negative("lr_inner", self.lr_inner)
        if self.lr is not None:
            _check.positive("lr", self.lr)
