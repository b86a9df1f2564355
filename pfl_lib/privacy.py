"""Differential privacy of whole clients and of single samples: clipping, noise, and guarantees.

Client level: ``private(method, ...)`` is for methods that only need a sum, to which noise is added
once.  ``PrivateUploads`` is for those that need individual models: each upload carries all the
noise itself.  Sample level: ``PrivateSamples`` clips each sample's gradient in every local step and
adds noise there (DP-SGD), whatever the method.

Without sampling the accounting is exact and needs no library, since Gaussian noise composes to one
Gaussian (Dong et al. 2022).  With Poisson sampling (``rate`` below 1) it is done by Opacus: ``pip
install 'pfl_lib[privacy]'``.
"""

import math
import warnings
from dataclasses import dataclass, field, replace

import torch
from scipy.optimize import brentq
from scipy.stats import norm

from pfl_lib import _check
from pfl_lib.faults import FederationWrapper, OtherUploads
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


def epsilon_of(noise, rounds, delta, rate=1.0):
    """The smallest ε with which ``rounds`` noisy sums are (ε, δ)-differentially private.

    ``rate`` is the probability of taking part in a sum, independently of others (Poisson
    sampling); below 1 it needs Opacus, whose bound is at most 0.01 above the true ε.

    >>> round(epsilon_of(noise=2.0, rounds=10, delta=1e-3), 2)
    5.59
    """
    delta = _check.between("delta", delta, 0, 1, "()")
    if _rate(rate) < 1:
        return _sampled_epsilon(noise, rounds, delta, rate)
    if delta_of(0.0, noise, rounds) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high, noise, rounds) > delta:
        high *= 2
    return float(brentq(lambda e: delta_of(e, noise, rounds) - delta, 0.0, high))


def noise_for(epsilon, rounds, delta, rate=1.0):
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
    while delta_of(epsilon, low, rounds) <= delta:
        low /= 2
    full = float(brentq(lambda z: delta_of(epsilon, z, rounds) - delta, low, high, xtol=1e-12))
    if _rate(rate) == 1:
        return full
    low = full  # sampling never needs more noise
    while _sampled_epsilon(low, rounds, delta, rate) < epsilon:
        low, full = low / 2, low
    while full - low > 2e-3 * full:  # ``full`` is always enough
        middle = (low + full) / 2
        enough = _sampled_epsilon(middle, rounds, delta, rate) <= epsilon
        low, full = (low, middle) if enough else (middle, full)
    return full


def _rate(rate):
    if not _check.between("rate", rate, 0, 1) > 0:
        raise ValueError(f"rate must lie in (0, 1], got {rate!r}")
    return rate


def _sampled_epsilon(noise, rounds, delta, rate):
    accountants = _check.optional("opacus.accountants", "rate < 1", "opacus")
    account = accountants.PRVAccountant()
    noise = _check.positive("noise", noise)
    account.history = [(noise, float(rate), _check.whole("rounds", rounds))]
    with warnings.catch_warnings():  # about orders that it does not use
        warnings.simplefilter("ignore")
        return float(account.get_epsilon(delta=delta))


def clipped(updates, clip):
    """Rows scaled down to length ``clip`` where they are longer.

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
    mean, since sample counts are private too.  What never leaves a client is neither clipped nor
    noisy.  The guarantee is ``epsilon_of(noise, rounds, delta)``, for adding or removing one
    client. The server that adds the noise must be trusted, or the noise be added under secure
    aggregation.

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
        update = (w - state.x) * ~self.private_mask(fed)
        generator = keyed_generator(seed, "private", fed.k)
        drawn = torch.randn(w.shape[1], generator=generator).to(w)
        return state.x + (clipped(update, clip).sum(0) + noise * clip * drawn) / len(w)

    return with_average(method, average, "private", clip, noise, seed)


@dataclass(eq=False)
class PrivateUploads(OtherUploads):
    """The federation ``fed`` with every single upload clipped and noisy.

    A client sends its starting model plus clipped(update) plus ``noise``·2·``clip``·g.  Any two
    updates differ by at most 2·clip, so each round is as private as one noisy sum, even against the
    server: ``epsilon_of(noise, rounds, delta)`` holds for any change of one client's data.

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


#: Local steps with a private form: {step: its private form}.
PRIVATE_STEPS = {"descend": "private descend", "ala": "private ala"}


@dataclass(eq=False)
class PrivateSamples(FederationWrapper):
    """The federation ``fed`` with local steps that are private in each sample (DP-SGD).

    A step samples each of the client's data with probability ``rate``, clips each gradient to
    ``clip`` and adds noise of ``noise``·``clip`` to their sum; a pass over the data is 1/rate steps
    (Abadi et al. 2016).  Whatever a client sends, now and later, to the server or to others, is
    then private in each of its samples, with the ε of ``epsilon(delta)``, for adding or removing
    one sample (the number of samples is not hidden).  The server need not be trusted.  Noise is
    keyed, so that runs can be repeated and resumed: with the seed it can be removed again.

    Steps without a private form are refused, and so is a second phase with the same tag in one
    round, whose noise would be the same (FedALA: ``max_epochs=1``).

    >>> import pfl_lib
    >>> fed = PrivateSamples(pfl_lib.example(), clip=1.0, noise=2.0)
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 3, progress=False)
    >>> round(fed.epsilon(delta=1e-3), 2) == round(epsilon_of(2.0, 3, 1e-3), 2)
    True
    """

    clip: float = 1.0
    noise: float = 1.0
    rate: float = 1.0
    # steps made by each client, by round and tag; no setting, so not part of ``describe``
    made: dict[tuple[int, str], dict[int, int]] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        checked_federation("fed", self.fed)
        _check.positive("clip", self.clip)
        _check.non_negative("noise", self.noise)
        _rate(self.rate)
        if self.fed.buffer_mask.any():
            raise ValueError(
                f"fed must have a model without running statistics, which mix samples; "
                f"{self.fed.model_name} has some"
            )
        if getattr(getattr(self.fed, "data", None), "weights", None) is not None:
            raise ValueError(
                "fed must have samples without weights, by which one may count for much"
            )
        network = getattr(self.fed, "network", None)
        if network is not None and network.draws is not None:
            raise ValueError(f"fed must have a model without dropout, got {self.fed.model_name}")

    def perform(self, work, who):
        clients = torch.as_tensor(who).tolist()
        if work.step not in PRIVATE_STEPS or work.repeats > 1 or work.group > 1:
            raise ValueError(
                f"the local step {work.step!r} has no private form; those that have one are "
                f"{', '.join(map(repr, PRIVATE_STEPS))}, one batch for each step"
            )
        made = self.made.setdefault((self.fed.k, work.tag), {})
        again = [i for i in clients if i in made]
        if again:
            raise ValueError(
                f"client {again[0]} was asked twice in round {self.fed.k} for the phase "
                f"{work.tag!r}: its noise would repeat; one pass must do (FedALA: max_epochs=1)"
            )
        epochs = self.fed.settings.epochs if work.epochs is None else work.epochs
        steps = epochs * math.ceil(1 / self.rate) if work.steps is None else work.steps
        most, d = max(self.fed.sample_counts), self.fed.d
        privacy = {"clip": self.clip, "noise": self.noise, "rate": self.rate}
        numbers = {**work.numbers, **{f"private_{name}": value for name, value in privacy.items()}}
        schedule = {"steps": steps, "epochs": None, "batch_size": most, "noise": most + d}
        step = PRIVATE_STEPS[work.step]
        done = self.fed.perform(replace(work, step=step, numbers=numbers, **schedule), who)
        made.update(dict.fromkeys(clients, steps))
        return done

    def steps_of(self, client):
        """The number of noisy steps this client has made."""
        return sum(steps.get(client, 0) for steps in self.made.values())

    def epsilon(self, delta):
        """The ε at this δ of the client that has made the most steps so far."""
        rounds = sorted({k for k, _ in self.made})
        if not rounds:
            return 0.0
        if rounds[0] > 0:
            raise ValueError(
                f"rounds 0 to {rounds[0] - 1} were made elsewhere, before the run was resumed: "
                "count all steps and ask epsilon_of"
            )
        steps = max(self.steps_of(i) for i in range(self.m))
        return epsilon_of(self.noise, steps, delta, self.rate)
