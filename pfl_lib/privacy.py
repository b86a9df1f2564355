"""Differential privacy of whole clients and of single samples: clipping, noise, and guarantees.

Client level: ``private(method, ...)`` is for methods that only need a sum, to which noise is added
once.  ``PrivateUploads`` is for those that need individual models: each upload carries all the
noise itself.  Sample level: ``PrivateSamples`` clips each sample's gradient in every local step and
adds noise there (DP-SGD), whatever the method.

Without sampling the accounting is exact and needs no library, since Gaussian noise composes to one
Gaussian (Dong et al. 2022).  With Poisson sampling (``rate`` below 1) it is done by Opacus: ``pip
install 'pfl_lib[privacy]'``.

Two things stand between these simulations and a promise to real people.  Noise is keyed, so that
runs can be repeated and resumed: with the seed it can be removed again (``private`` also takes a
secret one).  And the accounting is for
real numbers; the last digits of floating-point noise may tell more (Mironov 2012).
"""

import math
import secrets
import warnings
from dataclasses import dataclass, field, replace

import torch
from scipy.optimize import brentq
from scipy.stats import norm

from pfl_lib import _check
from pfl_lib.faults import FederationWrapper, OtherUploads
from pfl_lib.federation import checked_federation
from pfl_lib.methods._averaging import with_average
from pfl_lib.methods.base import as_method
from pfl_lib.random import keyed_generator
from pfl_lib.work import TOLD


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
    sampling); below 1 it needs Opacus, whose bound is about 0.01 above the true ε.  The
    ``participation`` of a run is no such rate, since it draws a fixed number of clients: count all
    its rounds, with ``rate`` 1.

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
        if high > 1e30:
            raise ValueError(f"noise must be larger: with {noise!r} there is no ε to speak of")
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


MOST_POINTS = 2e7  # of the account's grid; it needs some hundred bytes for each


def _sampled_epsilon(noise, rounds, delta, rate):
    accountants = _check.optional("opacus.accountants", "rate < 1", "opacus")
    account = accountants.PRVAccountant()
    noise, rounds = _check.positive("noise", noise), _check.whole("rounds", rounds)
    account.history = [(noise, float(rate), rounds)]
    with warnings.catch_warnings():  # about orders that it does not use
        warnings.simplefilter("ignore")
        bound = accountants.RDPAccountant()
        bound.history = account.history
        # its grid: twice the ε of δ/4000 or so, in steps of 0.01/√(rounds·…)
        points = bound.get_epsilon(delta / 4000) * math.sqrt(rounds * math.log(12e3 / delta)) * 200
        if not points < MOST_POINTS:
            few = f"rounds must be fewer with noise {noise:g}, rate {rate:g}, got {rounds:,}:"
            raise ValueError(f"{few} the account fits into no memory; rate=1 is an upper bound")
        try:
            return float(account.get_epsilon(delta=delta))
        except ValueError:  # its sums over the grid are no more exact than that
            raise ValueError(f"delta must be larger for rate below 1, got {delta:g}") from None


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


def private(method, clip, noise, seed: int | None = 0):
    """``method``, a method that averages, with bounded updates and a noisy sum.

    The new model is x + (Σ clipped(w_i − x) + noise·clip·g) / m with g standard normal: the plain
    mean, since sample counts are private too.  What never leaves a client is neither clipped nor
    noisy.  The guarantee is ``epsilon_of(noise, rounds, delta)``, for adding or removing one
    client's updates; the number of clients is not hidden.  The server that adds the noise must be
    trusted, or the noise be added under secure aggregation.  Whoever knows ``seed`` can take the
    noise off again; with ``seed=None`` it is a secret of the operating system, and no run can be
    repeated.

    Local steps that tell more than a model (see ``local_step``: FedPAC, FedDBE, FedAS, the label
    prior) are refused in the run, and so are models with running statistics, which noise would make
    negative.

    >>> import pfl_lib
    >>> method = private(pfl_lib.algorithm("fedavg"), clip=1.0, noise=0.1)
    >>> method.label
    'FedAvg, private'
    >>> pfl_lib.run(method, pfl_lib.example(), 3, progress=False).last > 0.5
    True
    """
    clip, noise = _check.positive("clip", clip), _check.non_negative("noise", noise)
    key = secrets.randbits(62) if seed is None else _check.whole("seed", seed, at_least=0)
    method = as_method("method", method)

    def average(self, w, weights, state, fed):
        update = (w - state.x) * ~self.private_mask(fed)
        generator = keyed_generator(key, "private", fed.k)
        drawn = torch.randn(w.shape[1], generator=generator).to(w)
        return state.x + (clipped(update, clip).sum(0) + noise * clip * drawn) / len(w)

    def start(self, fed):
        _without_statistics(fed, fed.buffer_mask & ~self.private_mask(fed))
        return type(method).start(self, _OnlyModels(fed))

    def round(self, state, fed, who):
        return type(method).round(self, state, _OnlyModels(fed), who)

    settings = clip, noise, "secret" if seed is None else seed
    return with_average(method, average, "private", *settings, start=start, round=round)


def _without_statistics(fed, statistics):
    if statistics.any():
        raise ValueError(
            "fed must have a model without running statistics, which mix samples; "
            f"{fed.model_name} has some"
        )


def _check_told(step, mixes=""):
    """Refuse a local step that tells what noise on models does not hide, or does not say it."""
    if TOLD[step].reveals is None:
        raise ValueError(f"the local step {step!r} must say what it reveals: see local_step")
    if more := TOLD[step].reveals or mixes:
        raise ValueError(f"the local step {step!r} reveals {more}, which this noise does not hide")


@dataclass(eq=False)
class _OnlyModels(FederationWrapper):
    """A federation whose clients tell nothing but their models."""

    tells_training_losses = False

    def perform(self, work, who):
        _check_told(work.step)
        return self.fed.perform(work, who)

    def evaluate(self, w, who=None, split="test"):
        """Tests; losses on training data (IFCA) would leave the clients without noise."""
        if split == "train":
            raise ValueError("split must be 'test': training losses would leave without noise")
        return self.fed.evaluate(w, who, split)


@dataclass(eq=False)
class _Accounted(_OnlyModels):
    """A federation that counts what each client has released, by round and phase."""

    # noisy releases of each client, by round and tag; no setting, so not part of ``describe``
    made: dict[tuple[int, str], dict[int, int]] = field(
        default_factory=dict, compare=False, kw_only=True
    )

    def _counted(self, perform, work, who, releases):
        """``perform(work, who)``, noted as so many releases; a second time noise would repeat."""
        made = self.made.setdefault((self.fed.k, work.tag), {})
        clients = torch.as_tensor(who).tolist()
        again = [i for i in clients if i in made]
        if again:
            raise ValueError(
                f"client {again[0]} was asked twice in round {self.fed.k} for the phase "
                f"{work.tag!r}: its noise would repeat; wrap the federation anew for each run, "
                "do not repeat rounds (broken='drop'), and train in one pass (FedALA: max_epochs=1)"
            )
        done = perform(work, who)
        made.update(dict.fromkeys(clients, releases))
        return done

    def _check_fed(self):
        checked_federation("fed", self.fed)
        inside = self.fed
        while isinstance(inside, FederationWrapper):
            if type(inside) is type(self):  # the draws would be the same, and not independent
                raise ValueError(f"fed must not be wrapped in {type(self).__name__} twice")
            inside = inside.fed
        if hasattr(inside, "transport"):
            raise ValueError(
                "fed must be in this process: of remote clients the server sees models before this "
                "noise, or knows the seed of it; private(method, …) protects against all but the "
                "server"
            )

    def _made_by(self, client):
        return sum(made.get(client, 0) for made in self.made.values())

    def _spent(self, delta, rate, among):
        if _check.between("delta", delta, 0, 1, "()") * among >= 1:
            raise ValueError(
                f"delta must be below 1/{among:,}, got {delta!r}: with that, showing one in "
                f"{among:,} as it is would count as private"
            )
        rounds = sorted({k for k, _ in self.made})
        if not rounds:
            return 0.0
        if rounds[0] > 0:
            raise ValueError(
                f"rounds 0 to {rounds[0] - 1} were made elsewhere, before the run was resumed: "
                "count all of them and ask epsilon_of"
            )
        return epsilon_of(self.noise, max(map(self._made_by, range(self.m))), delta, rate)


@dataclass(eq=False)
class PrivateUploads(_Accounted, OtherUploads):
    """The federation ``fed`` with every single upload clipped and noisy.

    A client sends its starting model plus clipped(update) plus ``noise``·2·``clip``·g.  Any two
    updates differ by at most 2·clip, so each upload is as private as one noisy sum, even against
    the server: ``epsilon_of(noise, uploads, delta)`` holds for any change of one client's data.
    Most methods have one upload per round, SPFL has two where it probes; ``epsilon(delta)`` counts.

    Only models are protected.  Local steps that tell more, or do not say what they tell (see
    ``local_step``), are refused, and so are training losses (IFCA).  What a client does at home
    before it trains counts as part of its update; where its own data decide beside that where it
    begins (FedALA, FedFomo), the noise would not hide them, and the method is refused.

    >>> import pfl_lib
    >>> fed = PrivateUploads(pfl_lib.example(), clip=1.0, noise=1.0)
    >>> sent = pfl_lib.train(fed, fed.initial(), fed.everyone)
    >>> bool((sent - fed.initial()).norm(dim=1).min() > 10)  # noise above all
    True
    >>> fed.epsilon(delta=1e-3) == epsilon_of(noise=1.0, rounds=1, delta=1e-3)
    True
    """

    clip: float = 1.0
    noise: float = 1.0
    seed: int = 0
    # where each client began and ended what it did at home in a round: {client: {k: [(w, w)]}}
    home: dict[int, dict[int, list]] = field(default_factory=dict, compare=False, kw_only=True)

    def __post_init__(self):
        self._check_fed()
        _check.positive("clip", self.clip)
        _check.non_negative("noise", self.noise)
        _check.whole("seed", self.seed, at_least=0)
        _without_statistics(self.fed, self.fed.buffer_mask)

    def perform(self, work, who):
        _check_told(work.step, TOLD[work.step].mixes)
        clients, first = torch.as_tensor(who).tolist(), work.rows["w"]
        known = [self._known(i, w, work.uploaded) for i, w in zip(clients, first)]
        if not work.uploaded:
            done = self.fed.perform(work, who)
            for i, began, ended in zip(clients, known, done["w"]):
                self.home[i][self.fed.k].append((began, ended))
            return done

        def perform(work, who):
            done = self.fed.perform(work, who)
            began = torch.stack(known) if known else first
            return {**done, "w": self.sends(began, done["w"], clients, work.tag)}

        return self._counted(perform, work, who, 1)

    def _known(self, client, w, uploaded):
        """Where others think that the client begins: not at ``w`` if that was made at home."""
        past = self.home.get(client, {}).get(self.fed.k, [])
        self.home[client] = {self.fed.k: past}  # earlier rounds are over
        found = [began for began, ended in past if torch.equal(w, ended)]
        if past and uploaded and not found and not any(torch.equal(w, began) for began, _ in past):
            raise ValueError(f"client {client} trains from a mix made at home: no noise hides that")
        return found[0] if found else w

    def epsilon(self, delta):
        """The ε of what the busiest client has sent so far, for this δ (below 1/clients)."""
        return self._spent(delta, 1.0, among=self.m)

    def sends(self, began, trained, who, tag):
        keys = [(self.seed, "private", tag, self.fed.k, client) for client in who]
        drawn = [torch.randn(trained.shape[1], generator=keyed_generator(*key)) for key in keys]
        size = 2 * self.noise * self.clip
        return began + clipped(trained - began, self.clip) + size * torch.stack(drawn).to(trained)


@dataclass(eq=False)
class PrivateSamples(_Accounted):
    """The federation ``fed`` with local steps that are private in each sample (DP-SGD).

    A step takes each of the client's samples with probability ``rate``, clips each gradient to
    ``clip`` and adds noise of ``noise``·``clip`` to their sum; a pass over the data is 1/rate steps
    (Abadi et al. 2016).  Whatever a client sends, now and later, to the server or to others, is
    then private in each of its samples, with the ε of ``epsilon(delta)``, for adding or removing
    one sample (the number of samples is not hidden).  The server need not be trusted.

    Steps without a private form are refused, and so is a second phase with the same tag in one
    round, whose noise would be the same (FedALA: ``max_epochs=1``); ``rate`` takes the place of
    the part of the data that ALA would draw.

    >>> import pfl_lib
    >>> fed = PrivateSamples(pfl_lib.example(), clip=1.0, noise=2.0)
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 3, progress=False)
    >>> round(fed.epsilon(delta=1e-3), 2) == round(epsilon_of(2.0, 3, 1e-3), 2)
    True
    """

    clip: float = 1.0
    noise: float = 1.0
    rate: float = 1.0

    def __post_init__(self):
        self._check_fed()
        _check.positive("clip", self.clip)
        _check.non_negative("noise", self.noise)
        _rate(self.rate)
        _without_statistics(self.fed, self.fed.buffer_mask)
        if getattr(getattr(self.fed, "data", None), "weights", None) is not None:
            raise ValueError(
                "fed must have samples without weights, by which one may count for much"
            )
        network = getattr(self.fed, "network", None)
        if network is not None and network.draws is not None:
            raise ValueError(f"fed must have a model without dropout, got {self.fed.model_name}")

    def perform(self, work, who):
        step = TOLD[work.step].private
        if step is None:
            raise ValueError(f"the local step {work.step!r} has no private form: see local_step")
        if work.repeats > 1 or work.group > 1:
            raise ValueError("a step must take one batch, and each batch once, to be private")
        epochs = self.fed.settings.epochs if work.epochs is None else work.epochs
        steps = epochs * math.ceil(1 / self.rate) if work.steps is None else work.steps
        most, d = max(self.fed.sample_counts), self.fed.d
        privacy = {"clip": self.clip, "noise": self.noise, "rate": self.rate}
        numbers = {**work.numbers, **{f"private_{name}": value for name, value in privacy.items()}}
        # no ``share``: a part of fixed size lets another sample in for one that is left out
        schedule = {"steps": steps, "epochs": None, "batch_size": most, "noise": most + d}
        schedule |= {"step": step, "share": 1.0}
        work = replace(work, numbers=numbers, **schedule)
        return self._counted(self.fed.perform, work, who, steps)

    def steps_of(self, client):
        """The number of noisy steps this client has made."""
        return self._made_by(_check.whole("client", client, at_least=0, at_most=self.m - 1))

    def epsilon(self, delta):
        """The ε of the client that has made the most steps so far, for this δ (below 1/samples)."""
        return self._spent(delta, self.rate, among=max(self.fed.sample_counts))
