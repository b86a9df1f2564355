"""Differential privacy of whole clients: bounded uploads, noise, and what they promise.

``private(method, ...)`` is for methods that need only a sum: noise is added once, to the sum.
``PrivateUploads`` is for those that need single models: each upload carries all the noise itself.
Every client takes part in every round, so the account is exact and needs no library: rounds of
Gaussian noise compose to one Gaussian (Dong et al. 2022).
"""

import math
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from scipy.stats import norm

from pfl_lib import _check
from pfl_lib.faults import OtherUploads
from pfl_lib.federation import checked_federation
from pfl_lib.methods._averaging import with_average
from pfl_lib.random import keyed_generator


def delta_of(epsilon, noise, rounds):
    """δ of ``rounds`` sums, each with Gaussian noise of ``noise`` times its sensitivity.

    δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with μ = √rounds / noise (Balle and Wang 2018).

    >>> round(delta_of(epsilon=1.0, noise=1.0, rounds=1), 4)
    0.1269
    """
    epsilon = _check.non_negative("epsilon", epsilon)
    mu = math.sqrt(_check.whole("rounds", rounds)) / _check.positive("noise", noise)
    first = norm.cdf(mu / 2 - epsilon / mu)
    return float(first - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu)))


def epsilon_of(noise, rounds, delta):
    """The smallest ε with which ``rounds`` noisy sums are (ε, δ)-differentially private.

    >>> round(epsilon_of(noise=2.0, rounds=10, delta=1e-3), 2)
    5.59
    """
    delta = _check.between("delta", delta, 0, 1, "()")
    if delta_of(0.0, noise, rounds) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high, noise, rounds) > delta:
        high *= 2
    return float(brentq(lambda e: delta_of(e, noise, rounds) - delta, 0.0, high))


def noise_for(epsilon, rounds, delta):
    """The least noise with which ``rounds`` noisy sums are (ε, δ)-differentially private.

    >>> noise = noise_for(epsilon=4.0, rounds=10, delta=1e-3)
    >>> round(epsilon_of(noise, 10, 1e-3), 6)
    4.0
    """
    epsilon = _check.positive("epsilon", epsilon)
    delta = _check.between("delta", delta, 0, 1, "()")
    low, high = 1e-2, 1.0
    while delta_of(epsilon, high, rounds) > delta:
        high *= 2
    return float(brentq(lambda z: delta_of(epsilon, z, rounds) - delta, low, high, xtol=1e-12))


def clipped(updates, clip):
    """Rows longer than ``clip`` shortened to that length.

    >>> clipped(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), clip=1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    _check.models("updates", updates)
    clip = _check.positive("clip", clip)
    length = updates.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return updates * (clip / length).clamp(max=1)


def private(method, clip, noise, seed=0):
    """``method``, a method that averages, with bounded updates and a noisy sum.

    The new model is x + (Σ clipped(w_i − x) + noise·clip·g) / m with g standard normal: the plain
    mean, since numbers of samples are private too.  What never leaves a client is neither bounded
    nor noisy.  The promise: ``epsilon_of(noise, rounds, delta)``, for adding or leaving out one
    client.  Whoever adds the noise must be trusted, or it is added under secure aggregation.

    >>> import pfl_lib
    >>> method = private(pfl_lib.algorithm("fedavg"), clip=1.0, noise=0.1)
    >>> method.label
    'FedAvg, private'
    >>> pfl_lib.run(method, pfl_lib.example(), 3, progress=False).last > 0.5
    True
    """
    clip, noise = _check.positive("clip", clip), _check.non_negative("noise", noise)
    _check.whole("seed", seed, at_least=0)

    def average(self, w, weights, state, fed):
        update = w - state.x
        if hasattr(self, "private_mask"):
            update = update * ~self.private_mask(fed)
        generator = keyed_generator(seed, "private", fed.k)
        drawn = torch.randn(w.shape[1], generator=generator).to(w)
        return state.x + (clipped(update, clip).sum(0) + noise * clip * drawn) / len(w)

    return with_average(method, average, "private", clip, noise, seed)


@dataclass(eq=False)
class PrivateUploads(OtherUploads):
    """The federation ``fed``, each of whose uploads is bounded and noisy on its own.

    A client sends what it began with plus clipped(update) plus ``noise``·2·``clip``·g.  Any two
    updates differ by at most 2·clip, so each round is as private as one noisy sum, and that against
    the server too: ``epsilon_of(noise, rounds, delta)`` holds for whatever client i does.

    >>> import pfl_lib
    >>> fed = PrivateUploads(pfl_lib.example(), clip=1.0, noise=1.0)
    >>> sent = pfl_lib.train(fed, fed.initial(), fed.everyone)
    >>> bool((sent - fed.initial()).norm(dim=1).min() > 10)  # noise above all
    True
    """

    clip: float = 1.0
    noise: float = 1.0
    seed: int = 0

    def __post_init__(self):
        checked_federation("fed", self.fed)
        _check.positive("clip", self.clip)
        _check.non_negative("noise", self.noise)
        _check.whole("seed", self.seed, at_least=0)

    def sends(self, began, trained, who, tag):
        keys = [(self.seed, "private", tag, self.fed.k, client) for client in who]
        drawn = [torch.randn(trained.shape[1], generator=keyed_generator(*key)) for key in keys]
        size = 2 * self.noise * self.clip
        return began + clipped(trained - began, self.clip) + size * torch.stack(drawn).to(trained)
