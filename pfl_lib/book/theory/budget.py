"""ALA's budget: learning rate × steps × squared difference of the models."""

import math

import numpy as np
import torch
from sklearn.isotonic import IsotonicRegression

from pfl_lib import _check
from pfl_lib.methods import FedALA, State


def ala_once(fed, x, own, lr, passes=1, percent=100):
    """Fresh weights between the global model x (d,) and the clients' ``own`` (m, d): all mixes.

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> x = fed.initial()[0]
    >>> torch.equal(ala_once(fed, x, own=x.expand(fed.m, -1), lr=1.0)[0], x)
    True
    """
    method = _fixed(lr, passes, percent)
    state = State(x=x, **method.memory(fed)).set(ala_own=own)
    received = State(w=x.expand(fed.m, -1))
    return method.mixed(state, received, fed, fed.everyone).w


def ala_spent(fed, rounds, lr, passes=1, percent=100):
    """FedALA whose first stage has so many passes: what its weights were given, what came of it.

    ``effort`` is Σ η·steps over the rounds, ``budget`` is Σ η·steps·mean Δ², both as means over
    the clients; ``weight`` is the mean weight in the end, ``accuracy`` that of the tested mixes.

    >>> import pfl_lib
    >>> spent = ala_spent(pfl_lib.example(), rounds=3, lr=1.0)
    >>> spent["effort"] > 0 and spent["weight"] < 1
    True
    """
    method = _fixed(lr, passes, percent)
    state, top = method.start(fed), method.top(fed)
    steps = torch.tensor([float(_steps(fed, n, percent)) for n in fed.sample_counts])
    effort = budget = torch.zeros(fed.m)
    for k in range(_check.whole("rounds", rounds)):
        apart = ((state.x - state.ala_own)[:, top] ** 2).mean(1)
        # in the first round all models are equal, and ALA has nothing to learn
        given = lr * steps * (0, method.max_epochs, 1)[min(k, 2)]
        effort, budget = effort + given, budget + given * apart
        state = method.round(state, fed.at(k), fed.everyone)
    return {
        "effort": float(effort.mean()),
        "budget": float(budget.mean()),
        "weight": float(state.ala_weights.mean()),
        "accuracy": float(fed.evaluate(method.personal(state, fed))[0].mean()),
    }


def explained(x, y):
    """The share of the variance of ``y`` that the best monotone curve in ``x`` explains.

    >>> explained([1, 2, 3, 4], [0.0, 0.5, 0.9, 1.0])
    1.0
    >>> round(explained([1, 2, 1, 2], [0.0, 1.0, 1.0, 0.0]), 2)
    0.0
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    fits = [IsotonicRegression(increasing=up).fit(x, y).predict(x) for up in (True, False)]
    return float(1 - min(((y - fit) ** 2).sum() for fit in fits) / ((y - y.mean()) ** 2).sum())


def _fixed(lr, passes, percent):
    """FedALA with exactly so many passes in its first stage: no test of convergence."""
    return FedALA(ala_lr=lr, max_epochs=passes, window=passes, tol=1e-300, ala_percent=percent)


def _steps(fed, n, percent):
    used = n if percent == 100 else max(1, round(percent / 100 * n))
    return math.ceil(used / fed.settings.batch_size)
