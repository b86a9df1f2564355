"""LGA: where would the straggler be now?"""

from dataclasses import dataclass

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.formulas import leap


@dataclass(frozen=True)
class Straggler:
    """A straggler whose loss is known: the four models LGA sees, and the one it tries to guess.

    ``truth`` is what the straggler would have trained from ``w_now``; ``slope`` and ``hessian``
    are those of its loss at ``w_pull``.

    >>> straggler = logistic_straggler(seed=0)
    >>> isinstance(straggler, Straggler), tuple(straggler.truth.shape)
    (True, (20,))
    """

    w_pull: torch.Tensor
    w_next: torch.Tensor
    w_now: torch.Tensor
    w_local: torch.Tensor
    truth: torch.Tensor
    slope: torch.Tensor
    hessian: torch.Tensor
    lr: float
    local_steps: int

    def taylor(self, hessian):
        """w_now + Δ − βE·H(w_now − w_pull): the first-order guess with a Hessian that is given."""
        gone = self.w_now - self.w_pull
        bend = self.lr * self.local_steps * (hessian @ gone)
        return self.w_now + (self.w_local - self.w_pull) - bend

    def guesses(self):
        """The straggler's model, guessed in every way the chapter on LGA speaks of."""
        seen = (self.w_pull, self.w_next, self.w_now, self.w_local)
        steps = {"lr": self.lr, "local_steps": self.local_steps}
        return {
            "stale": self.w_local,
            "Eq. (10)": leap(*seen, base="pull"),
            "Eq. (11)": leap(*seen),
            "no leap": leap(*seen, rule="none"),
            "compensated": leap(*seen, rule="delay_compensated", **steps),
            "true diagonal": self.taylor(self.hessian.diagonal().diag()),
            "true Hessian": self.taylor(self.hessian),
        }

    def errors(self):
        """How far each guess is from the truth, as a part of the update that is to be guessed."""
        update = (self.truth - self.w_now).norm()
        return {n: float((w - self.truth).norm() / update) for n, w in self.guesses().items()}


def logistic_straggler(lr=0.01, local_steps=20, staleness=6, seed=0, samples=400, d=20):
    """Two clients with logistic regression; one of them arrives ``staleness`` rounds late.

    Full gradients, no noise; meanwhile the global model is the mean of what both would have
    trained from it.

    >>> errors = logistic_straggler().errors()
    >>> errors["stale"] > 1 > errors["no leap"] > errors["true diagonal"] > errors["true Hessian"]
    True
    """
    lr = _check.positive("lr", lr)
    for name, value in (("local_steps", local_steps), ("staleness", staleness)):
        _check.whole(name, value)
    r = np.random.default_rng(seed)
    X, teacher, lot = r.normal(size=(samples, d)), r.normal(size=d), r.random(samples)
    start = 0.3 * r.normal(size=d)
    X2, lot2, other = r.normal(size=(samples, d)), r.random(samples), 0.5 * r.normal(size=d)

    def client(X, lot, teacher):
        X, lot, teacher = (torch.from_numpy(a) for a in (X, lot, teacher))
        y = (lot < torch.sigmoid(X @ teacher)).to(X.dtype)
        return lambda w: X.T @ (torch.sigmoid(X @ w) - y) / len(y)

    def train(w, slope):
        for _ in range(local_steps):
            w = w - lr * slope(w)
        return w

    mine, theirs = client(X, lot, teacher), client(X2, lot2, teacher + other)
    path = [torch.from_numpy(start)]
    for _ in range(staleness):
        path.append((train(path[-1], mine) + train(path[-1], theirs)) / 2)
    return Straggler(
        w_pull=path[0],
        w_next=path[1],
        w_now=path[-1],
        w_local=train(path[0], mine),
        truth=train(path[-1], mine),
        slope=mine(path[0]),
        hessian=torch.func.jacrev(mine)(path[0]),
        lr=lr,
        local_steps=local_steps,
    )


def leap_errors(seeds=10, **options):
    """The errors of ``logistic_straggler(**options)``, each the mean over ``seeds`` seeds.

    >>> errors = leap_errors(seeds=2)
    >>> sorted(errors)
    ['Eq. (10)', 'Eq. (11)', 'compensated', 'no leap', 'stale', 'true Hessian', 'true diagonal']
    """
    runs = [
        logistic_straggler(seed=s, **options).errors() for s in range(_check.whole("seeds", seeds))
    ]
    return {name: sum(run[name] for run in runs) / seeds for name in runs[0]}
