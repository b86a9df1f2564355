"""Per-FedAvg: a global model that is good after one local step (Fallah et al., NeurIPS 2020)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import choice, non_negative, positive
from pfl_lib.methods._sgd import plain_sgd
from pfl_lib.methods._tensors import checked
from pfl_lib.work import Work, local_step, train

BATCHES = {"fo": 2, "hf": 3, "exact": 3}  # the Hessian has a batch of its own


def perfedavg_adapt(w, gradient, inner_lr):
    """w̃ = w − a∇F_i(w): the one step that makes the shared model personal.

    Per-FedAvg (Fallah et al. 2020).

    Equation label: eq-perfedavg-adapt

    >>> perfedavg_adapt(torch.tensor([1.0]), lambda w: 2 * w, inner_lr=0.25)
    tensor([0.5000])
    """
    inner_lr = checked(_check.non_negative, "inner_lr", inner_lr)
    return w - inner_lr * gradient(w)


def perfedavg_step(
    w, gradient, gradient_outer, inner_lr, outer_lr, rule="fo", gradient_hessian=None, delta=1e-3
):
    """w − b·(I − a∇²F(w; b₃))·∇F(w̃; b₂) with w̃ = w − a∇F(w; b₁): a step on the *adapted* loss.

    Per-FedAvg (Fallah et al. 2020, Algorithm 1). ``rule`` says what becomes of the Hessian:
    "fo" leaves it out (first order); "hf" replaces its product with a vector by a central
    difference of gradients of step ``delta``; "exact" differentiates the gradient. The gradients
    belong to the batches b₁, b₂, and b₃ (``gradient_hessian``, b₁ when not given).

    Equation label: eq-perfedavg-step

    >>> gradient = lambda w: 2 * w
    >>> perfedavg_step(torch.tensor([1.0]), gradient, gradient, 0.25, 0.1, rule="exact")
    tensor([0.9500])
    """
    _check.one_of("rule", rule, ("fo", "hf", "exact"))
    outer_lr = checked(_check.positive, "outer_lr", outer_lr)
    outer = gradient_outer(perfedavg_adapt(w, gradient, inner_lr))
    if rule == "fo":
        return w - outer_lr * outer
    third = gradient_hessian or gradient
    if rule == "hf":
        delta = checked(_check.positive, "delta", delta)
        curved = (third(w + delta * outer) - third(w - delta * outer)) / (2 * delta)
    else:
        # The Hessian is symmetric, so its product with a vector is the gradient's pull-back.
        curved = torch.func.vjp(third, w)[1](outer)[0]
    return w - outer_lr * (outer - inner_lr * curved)


def meta_step(rule):
    """The local step on F_i(w − a∇F_i(w)), with the Hessian left out, differenced or exact."""

    @local_step(f"per-fedavg-{rule}", reveals="")
    def step(s, batches, client):
        gradient = client.grad_of(client.loss)
        at = [lambda w, b=b: gradient(w, b) for b in batches]
        a, delta = client.numbers["inner_lr"], client.numbers["delta"]
        third = at[-1]  # not asked for by "fo"
        return {"w": perfedavg_step(s["w"], at[0], at[1], a, client.lr, rule, third, delta)}

    return step


for rule in BATCHES:
    meta_step(rule)


@dataclass(frozen=True)
class PerFedAvg(GlobalModel):
    """The loss is that of the model *after* adaptation, so its gradient passes through a step.

    ``variant`` says what becomes of the Hessian in it: "fo" leaves it out, "hf" takes a difference
    of gradients of step ``delta``, "exact" differentiates.  ``inner_lr`` is the paper's α, ``lr``
    its β; None is the federation's.  Each step uses two batches, three with a Hessian.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("per-fedavg")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    variant: str = choice("fo", BATCHES)
    inner_lr: float | None = non_negative(None)
    lr: float | None = positive(None)
    delta: float = positive(1e-3)
    name, label = "per-fedavg", "Per-FedAvg"
    family, order = "fine-tuning", 6
    place = (1, 1, 1)
    idea = (
        "Looks for a model from which one local gradient step is as good as possible. The "
        "clients' step therefore looks at the gradient *after* the step."
    )
    note = (
        "Three variants: `fo` leaves the second derivative out, `hf` takes it by finite "
        "differences, `exact` computes it. Tested after one step of adaptation."
    )
    equations = ["eq-perfedavg-adapt", "eq-perfedavg-step"]
    chapter = "11b_methods"
    paper = "Fallah et al. 2020, Algorithm 1"
    shared, private = "one starting point", "one step from it"
    tested = "the global model after one local adaptation step"
    newcomer = "the global model after one local adaptation step"

    def start(self, fed):
        plain_sgd(self, fed)  # refuses an Adam federation before the first round
        return super().start(fed)

    def local(self, state, received, fed, who):
        work = Work(
            rows={"w": received.w},
            step=f"per-fedavg-{self.variant}",
            numbers={"inner_lr": self.inner(fed), "delta": self.delta},
            group=BATCHES[self.variant],
            **plain_sgd(self, fed),
        )
        return received.set(w=fed.perform(work, who)["w"])

    def inner(self, fed):
        """The length of the adaptation step."""
        return plain_sgd(self, fed)["lr"] if self.inner_lr is None else self.inner_lr

    def personal(self, state, fed):
        x = state.x.expand(fed.m, -1)
        everyone, a = fed.everyone, self.inner(fed)
        return train(fed, x, everyone, steps=1, lr=a, optimizer="sgd", tag="adapt", uploaded=False)
