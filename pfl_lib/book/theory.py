"""Toy problems small enough to solve exactly, on which the theorems and errata are tried."""

import copy
import functools
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.attention import Attention, negative_exponential, tamed_square_root
from pfl_lib.formulas import (
    ala_mix,
    ala_step,
    attention_weights,
    cosine_similarities,
    fedamp_gradient,
    fedamp_objective,
    leap,
    proximal_step_quadratic,
)
from pfl_lib.work import STEPS, DeprecatedTrain, Settings


class QuadraticFederation(DeprecatedTrain):
    """Clients with F_i(w) = ½·Σ_q h_iq·(w_q − c_iq)², for which local training has an answer.

    The very same algorithm objects run on it, as far as they ask for ordinary local training:
    that returns the exact minimizer instead of some epochs of descent.

    >>> import pfl_lib
    >>> fed = QuadraticFederation(h=torch.ones(2, 1), c=torch.tensor([[0.0], [3.0]]))
    >>> pfl_lib.train(fed, fed.initial(), fed.everyone)
    tensor([[0.],
            [3.]])
    """

    model_name = "quadratic"
    settings = Settings(lr=1.0, optimizer="exact", batch_size=1, epochs=1, seed=0)

    def __init__(self, h, c, start=None):
        self.h, self.c = h, c
        self.m, self.d = c.shape
        self.start = torch.zeros_like(c) if start is None else start
        self.sizes = torch.ones(self.m, dtype=c.dtype)
        self.device, self.dtype, self.k = c.device, c.dtype, 0
        self.sample_counts = (1,) * self.m
        self.layers = [("all", slice(0, self.d))]
        self.head_mask = torch.zeros(self.d, dtype=torch.bool)
        self.buffer_mask = self.norm_mask = self.head_mask  # a bowl has no layers at all

    @property
    def everyone(self):
        return torch.arange(self.m)

    def initial(self):
        return self.start

    def at(self, k):
        here = copy.copy(self)
        here.k = k
        return here

    def with_part(self, positions):
        """The same federation: a client's one sample is all its data."""
        return self

    def perform(self, work, who):
        """argmin F_i, plus (strength/2)·‖w − centre‖² where a proximal term is given."""
        unknown = set(work.rows) - {"w", "centre", "strength"} | set(work.shared)
        if work.step != "descend" or unknown:
            raise ValueError(
                "a QuadraticFederation solves F_i with or without a proximal term; it has no "
                f"answer to step {work.step!r} with {sorted(unknown)}: use a DescentFederation"
            )
        solved = self.c[who]
        if "centre" in work.rows:
            beta = 1 / work.rows["strength"][:, None]
            solved = proximal_step_quadratic(work.rows["centre"], self.h[who], solved, beta)
        return {**work.rows, "w": solved}

    def evaluate(self, w, who=None, split="test"):
        """No accuracy (NaN), since there are no labels; and the loss F_i(w_i)."""
        who = self.everyone if who is None else who
        loss = 0.5 * (self.h[who] * (w - self.c[who]) ** 2).sum(1)
        return torch.full_like(loss, torch.nan), loss

    def loss(self, w):
        """F_i(w_i) of every client."""
        return self.evaluate(w)[1]

    def describe(self):
        """What a run must agree on to be resumed."""
        return {"toy": type(self).__name__, "h": self.h.tolist(), "c": self.c.tolist()}


def iterate(algorithm, fed, rounds):
    """The states after 0, 1, …, ``rounds`` rounds of ``algorithm`` with everyone taking part.

    >>> from pfl_lib import algorithm
    >>> fed = QuadraticFederation(h=torch.ones(2, 1), c=torch.tensor([[0.0], [3.0]]))
    >>> len(iterate(algorithm("separate"), fed, rounds=3))
    4
    """
    states = [algorithm.start(fed)]
    for k in range(rounds):
        states.append(algorithm.round(states[-1], fed.at(k), fed.everyone))
    return states


# ------------------------------------------------------------ problems whose every part is known
@dataclass(frozen=True)
class Problem:
    """FedAMP's problem G(W) = F(W) + λ𝒜(W), on losses that can be minimised exactly.

    Row i of ``c`` is where client i's loss is least. Every method takes one stack of models
    (m, d), or many at once (..., m, d). A kind of loss says ``loss``, ``loss_gradient``, ``prox``.

    >>> problem = plane_toy(negative_exponential(1.0))
    >>> isinstance(problem, Problem)
    True
    >>> bool(problem.loss(problem.c).abs().max() < 1e-9)  # the optima cost nothing in F
    True
    """

    c: torch.Tensor
    attention: Attention
    lam: float

    def loss(self, W):
        """F(W) = Σ_i F_i(w_i)."""
        raise NotImplementedError

    def loss_gradient(self, W):
        """∇F(W), row i for client i."""
        raise NotImplementedError

    def prox(self, U, beta):
        """argmin_W F(W) + ‖W − U‖²/(2β): the clients' half of a round, solved exactly."""
        raise NotImplementedError

    def price(self, W):
        """𝒜(W)."""
        return _each(lambda w: fedamp_objective(w, self.attention), W)

    def price_gradient(self, W):
        """∇𝒜(W), with its factor 2."""
        return _each(lambda w: fedamp_gradient(w, self.attention), W)

    def value(self, W):
        """G(W)."""
        return self.loss(W) + self.lam * self.price(W)

    def gradient(self, W):
        """∇G(W)."""
        return self.loss_gradient(W) + self.lam * self.price_gradient(W)

    def message(self, W, alpha):
        """W − α∇𝒜(W): the server's half of a round."""
        return W - alpha * self.price_gradient(W)

    def round(self, W, alpha):
        """One round of FedAMP with the true gradient and exact local solutions."""
        return self.prox(self.message(W, alpha), alpha / self.lam)

    def path(self, start, alpha, rounds):
        """The models after 0, 1, …, ``rounds`` rounds, as (rounds + 1, m, d)."""
        models = [start]
        for _ in range(_check.whole("rounds", rounds)):
            models.append(self.round(models[-1], alpha))
        return torch.stack(models)

    def steepest(self, path):
        """The least B for which Assumption 1 holds at these models (k, m, d)."""
        pull = self.lam**2 * norm2(self.price_gradient(path))
        return float(torch.maximum(norm2(self.loss_gradient(path)), pull).max().sqrt())

    @property
    def price_smoothness(self):
        """L_A, a Lipschitz constant of ∇𝒜."""
        return coupling_smoothness(self.attention, self.c.shape[-2])

    def settle(self, start, rounds=20_000, tolerance=1e-14):
        """Where FedAMP with the constant step 1/(2L_A) comes to rest: a stationary point of G."""
        alpha = 1 / (2 * self.price_smoothness)
        for _ in range(_check.whole("rounds", rounds)):
            new = self.round(start, alpha)
            if (new - start).abs().max() < tolerance:
                break
            start = new
        return new

    def envelope(self, W, L, rounds=200):
        """argmin_V G(V) + 2L‖V − W‖², and the minimum: v1's W̄ and Ĝ(W), Eq. (18).

        ∇G must be 2L-Lipschitz. Then each step of gradient descent halves the error, or better.
        """
        near = W
        for _ in range(rounds):
            near = near - (self.gradient(near) + 4 * L * (near - W)) / (6 * L)
        return near, self.value(near) + 2 * L * norm2(near - W)


@dataclass(frozen=True)
class Quadratics(Problem):
    """F_i(w) = ½(w − c_i)ᵀH_i(w − c_i), for which Theorem 1 can be tried.

    >>> c = torch.tensor([[0.0], [3.0]])
    >>> problem = Quadratics(c, tamed_square_root(sigma=1.0), 1.0, H=torch.ones(2, 1, 1))
    >>> problem.prox(torch.zeros(2, 1), beta=1.0)
    tensor([[0.0000],
            [1.5000]])
    """

    H: Any = None

    def __post_init__(self):
        if not isinstance(self.H, torch.Tensor) or self.H.shape[-2:] != (self.c.shape[-1],) * 2:
            raise ValueError(f"H must hold one d×d matrix a client, got {self.H!r}")

    @functools.cached_property
    def _eigen(self):
        return torch.linalg.eigh(self.H)

    def loss(self, W):
        return 0.5 * ((W - self.c) * self.loss_gradient(W)).sum((-2, -1))

    def loss_gradient(self, W):
        return (self.H @ (W - self.c)[..., None])[..., 0]

    def prox(self, U, beta):
        curvature, basis = self._eigen  # along the eigenvectors the coordinates do not interact
        turned = ((basis.mT @ v[..., None])[..., 0] for v in (U, self.c))
        u, c = turned
        return (basis @ proximal_step_quadratic(u, curvature, c, beta)[..., None])[..., 0]


@dataclass(frozen=True)
class FlatBowls(Problem):
    """F_i(w) = Σ_q ρ(w_q − c_iq) with ρ(x) = x²/(1 + x²): smooth, not convex, flat far away.

    ``|ρ'| ≤ 9/(8√3)`` and −½ ≤ ρ'' ≤ 2 everywhere, so the constants of Theorem 2 are known.

    >>> problem = FlatBowls(torch.zeros(1, 1), tamed_square_root(sigma=1.0), 1.0)
    >>> problem.prox(torch.ones(1, 1), beta=0.5)
    tensor([[0.6823]])
    """

    def loss(self, W):
        square = (W - self.c) ** 2
        return (square / (1 + square)).sum((-2, -1))

    def loss_gradient(self, W):
        x = W - self.c
        return 2 * x / (1 + x * x) ** 2

    def prox(self, U, beta):
        """Newton's method for each coordinate, kept between u and c by bisection."""
        if not beta < 2:
            raise ValueError(f"beta must be below 2 for the local problem to be convex, got {beta}")
        low, high, w = torch.minimum(U, self.c), torch.maximum(U, self.c), U
        for _ in range(100):
            square = (w - self.c) ** 2
            slope = self.loss_gradient(w) + (w - U) / beta
            low, high = torch.where(slope < 0, w, low), torch.where(slope > 0, w, high)
            new = w - slope / ((2 - 6 * square) / (1 + square) ** 3 + 1 / beta)
            new = torch.where((new < low) | (new > high), (low + high) / 2, new)
            if (new - w).abs().max() < 4e-15:
                break
            w = new
        return new

    @property
    def smoothness(self):
        """L = max(L_F, λL_A)."""
        return max(2.0, self.lam * self.price_smoothness)

    @property
    def slope_bound(self):
        """B ≥ ‖∇F‖, λ‖∇𝒜‖ at every W; for the exponential only."""
        m, d = self.c.shape[-2:]
        steepest = math.sqrt(2 * self.attention.slope_at_zero / math.e)  # of r ↦ A(r²)
        of_price = self.lam * math.sqrt(m) * (m - 1) * steepest
        return max(9 / (8 * math.sqrt(3)) * math.sqrt(m * d), of_price)


def plane_toy(attention, lam=1.0):
    """Six clients in two groups who each have a noisy estimate of a point in the plane.

    >>> problem = plane_toy(negative_exponential(1.0))
    >>> problem.c.shape
    torch.Size([6, 2])
    """
    truth = torch.tensor([[-2.0, 1.0]] * 3 + [[2.0, -1.0]] * 3, dtype=torch.float64)
    random = torch.Generator().manual_seed(1)
    noise = torch.randn(6, 2, generator=random, dtype=torch.float64)
    return Quadratics(truth + 0.9 * noise, attention, lam, H=torch.eye(2, dtype=torch.float64))


def random_starts(count, like, spread, seed=0):
    """``count`` stacks of models of the shape of ``like``, normal with this spread.

    >>> random_starts(3, like=torch.zeros(6, 2), spread=1.0).shape
    torch.Size([3, 6, 2])
    """
    random = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, *like.shape, generator=random, dtype=like.dtype)


def convex_toy(seed=0, m=6, d=4, sigma=0.5, lam=0.3):
    """Quadratics in two groups with the tamed square root, and a start: all of Theorem 1 holds.

    >>> problem, start = convex_toy()
    >>> bool(problem.value(problem.round(start, 0.1)) < problem.value(start))
    True
    """
    random = np.random.default_rng(seed)
    H = []
    for _ in range(m):
        basis = np.linalg.qr(random.normal(size=(d, d)))[0]
        H.append(basis @ np.diag(random.uniform(0.2, 2, d)) @ basis.T)
    c = np.vstack([random.normal(-1, 0.2, (m // 2, d)), random.normal(1, 0.2, (m - m // 2, d))])
    start = np.random.default_rng(100 + seed).normal(0, 2, (m, d))
    curvatures = torch.from_numpy(np.stack(H))
    problem = Quadratics(torch.from_numpy(c), tamed_square_root(sigma), lam, H=curvatures)
    return problem, torch.from_numpy(start)


def nonconvex_toy(sigma=2.0, lam=0.15):
    """Flat bowls in two groups with the exponential, and a start: all of Theorem 2 holds.

    >>> problem, start = nonconvex_toy()
    >>> type(problem).__name__, tuple(start.shape)
    ('FlatBowls', (5, 3))
    """
    random = np.random.default_rng(3)
    c = np.vstack([random.normal(-1.2, 0.3, (3, 3)), random.normal(1.2, 0.3, (2, 3))])
    start = torch.from_numpy(random.normal(0, 1.5, (5, 3)))
    return FlatBowls(torch.from_numpy(c), negative_exponential(sigma), lam), start


# ------------------------------------------------------------------------ constants and bounds
def lowest_curvature(attention):
    """The least second derivative of r ↦ A(r²), 0 where it is convex.

    Equation label: eq-lowest-curvature

    >>> round(lowest_curvature(negative_exponential(sigma=1.0)), 4)
    -0.8925
    """
    if attention.convex:
        return 0.0
    lowest = {"negative_exponential": -4 * math.exp(-1.5), "mcp": -4.0}
    if attention.name == "scad":
        lowest["scad"] = -4 * attention.a / (attention.a - 1)
    return lowest[attention.name] * attention.slope_at_zero


def weak_convexity(attention, m):
    """ρ such that 𝒜 + (ρ/2)‖·‖² is convex for m clients; the exponential attains it.

    Equation label: eq-weak-convexity

    >>> round(weak_convexity(negative_exponential(sigma=2.0), m=5), 4)
    2.2313
    """
    return _check.whole("m", m) * -lowest_curvature(attention)


def coupling_smoothness(attention, m):
    """L_A, a Lipschitz constant of ∇𝒜 for m clients: m times the largest curvature of A(r²).

    Equation label: eq-coupling-smoothness

    >>> coupling_smoothness(negative_exponential(sigma=2.0), m=5)
    5.0
    """
    steepest = max(2 * attention.slope_at_zero, -lowest_curvature(attention))
    return _check.whole("m", m) * steepest


def theorem1_bound(distance2, B, rounds, printed=False):
    """What Theorem 1 promises of the average (so of the best) gap: (‖W⁰ − W*‖² + 5B²)/(2√K).

    ``printed`` leaves out the ½, as v1 Eq. (13) does.

    Equation label: eq-theorem1

    >>> theorem1_bound(distance2=3.0, B=1.0, rounds=16)
    1.0
    """
    bound = (distance2 + 5 * B**2) / math.sqrt(_check.whole("rounds", rounds))
    return bound if printed else bound / 2


#: (a, b, e) of the bound a·(G⁰ − G* + b·L·B²)/√K + e·L²·B²/K in Theorem 2.
THEOREM2 = {"sharp": (6, 18, 384), "printed": (18, 20, 1152), "iterates": (6, 26, 480)}


def theorem2_bound(excess, L, B, rounds, form="sharp"):
    """What Theorem 2 promises of the mean (so of the least) ‖∇G‖²; ``excess`` is G(W⁰) − G*.

    "printed" is v1 Eq. (14) with its O(1/K) written out, "sharp" what the same lines give with
    care; both want B at every point. "iterates" is what remains if B holds at the iterates only.
    Below K = L² the clients' problem need not have one solution, and the theorem says nothing.

    Equation label: eq-theorem2

    >>> theorem2_bound(excess=0.0, L=1.0, B=1.0, rounds=4)
    150.0
    """
    a, b, e = THEOREM2[_check.one_of("form", form, THEOREM2)]
    if not _check.whole("rounds", rounds) > L**2:
        raise ValueError(f"rounds must be above L² = {L**2:g}, as Theorem 2 asks, got {rounds}")
    return a * (excess + b * L * B**2) / math.sqrt(rounds) + e * L**2 * B**2 / rounds


def proximal_gradient_bound(distance2, smoothness, rounds):
    """G(W^K) − G* ≤ ℓ‖W⁰ − W*‖²/(2K), ℓ = λL_A, for a convex G and the constant step α = 1/L_A.

    Equation label: eq-fb-convex

    >>> proximal_gradient_bound(distance2=3.0, smoothness=2.0, rounds=3)
    1.0
    """
    return smoothness * distance2 / (2 * _check.whole("rounds", rounds))


def proximal_gradient_slope_bound(excess, smoothness, rounds):
    """min ‖∇G(W^k)‖² ≤ 18ℓ(G(W⁰) − G*)/K, ℓ = λL_A, for any G and the constant step 1/(2L_A).

    Equation label: eq-fb-slope

    >>> proximal_gradient_slope_bound(excess=1.0, smoothness=2.0, rounds=4)
    9.0
    """
    return 18 * smoothness * excess / _check.whole("rounds", rounds)


# --------------------------------------------------------------------------------- experiments
def bistable_centres(mu, lam, sigma, m):
    """Optima (m, 1) of one client against m − 1 equal ones, at the most ambiguous distance.

    With F_i = (μ/2)(w − c_i)² and the exponential, two stationary points are first possible where
    the curvature of A(r²) is least, at r² = 3σ/2; the distance of the optima is such that the
    models stand at this r when they are at rest.

    >>> bistable_centres(mu=1.0, lam=1.0, sigma=1.0, m=3).round(decimals=2)
    tensor([[2.8600],
            [0.0000],
            [0.0000]], dtype=torch.float64)
    """
    r = math.sqrt(1.5 * sigma)
    gap = r * (1 + 2 * lam * m / (mu * sigma) * math.exp(-1.5))
    c = torch.zeros(m, 1, dtype=torch.float64)
    c[0] = gap
    return c


def count_limits(mu, lam, sigma=1.0, m=4, starts=6, rounds=2000, tolerance=0.02, seed=0):
    """How many different places FedAMP comes to rest in, from several starts, for each (μ, λ).

    The clients are those of ``bistable_centres``; the local solutions are exact.

    >>> count_limits(mu=[1.0, 1.0], lam=[0.1, 2.0], starts=4, rounds=200)
    tensor([1, 2])
    """
    mu, lam = torch.broadcast_tensors(*(torch.as_tensor(v, dtype=torch.float64) for v in (mu, lam)))
    pairs = torch.stack([mu.flatten(), lam.flatten()], 1)
    c = torch.stack([bistable_centres(a, b, sigma, m) for a, b in pairs.tolist()])[:, None]
    random = torch.Generator().manual_seed(seed)
    noise = torch.rand(len(pairs), starts, m, 1, generator=random, dtype=torch.float64)
    way = torch.linspace(0, 1, starts, dtype=torch.float64)[:, None, None]
    W = c * way + 0.1 * noise  # the lone client from beside the others to its own optimum
    A = negative_exponential(sigma)
    alpha = 1 / coupling_smoothness(A, m)
    h, weight = pairs.T[..., None, None, None]
    for _ in range(rounds):
        U = W - alpha * _each(lambda w: fedamp_gradient(w, A), W)
        W = proximal_step_quadratic(U, h, c, alpha / weight)
    counts = torch.tensor([_distinct(limits, tolerance) for limits in W.flatten(2)])
    return counts.reshape(mu.shape)


def width_sweep(sigmas, seeds=20, m=10, d=5, separation=4.0, noise=0.7, coupling=1.0, rounds=400):
    """FedAMP on two noisy groups for each width σ, the coupling 2λA'(0) held fixed.

    Mean squared distance to the truth, and the share of attention inside the own group; beside
    them what training alone, one mean for all, and the mean of the true group would give.

    >>> found = width_sweep([1.0, 10.0], seeds=3, rounds=50)
    >>> sorted(found)
    ['error', 'inside', 'one mean', 'separate', 'true groups']
    >>> found["true groups"] < found["separate"]
    True
    """
    group = torch.arange(m) * 2 // m
    truth = torch.zeros(m, d, dtype=torch.float64)
    truth[group == 1, 0] = separation
    drawn = np.stack([np.random.default_rng(seed).normal(size=(m, d)) for seed in range(seeds)])
    own = truth + noise * torch.from_numpy(drawn)
    same = (group[:, None] == group[None]).double()

    def error(models):
        return float(norm2(models - truth).mean() / m)

    found = {
        "separate": error(own),
        "one mean": error(own.mean(1, keepdim=True).expand_as(own)),
        "true groups": error(same @ own / same.sum(1, keepdim=True)),
        "error": [],
        "inside": [],
    }
    for sigma in sigmas:
        A, eye = negative_exponential(sigma), torch.eye(d, dtype=torch.float64)
        problem = Quadratics(own, A, coupling * sigma / 2, H=eye)
        W = own
        for _ in range(rounds):
            W = problem.round(W, 1 / problem.price_smoothness)
        xi = _each(lambda w, A=A: attention_weights(w, A, 0.0), W)
        found["error"].append(error(W))
        found["inside"].append(float((xi * same).sum(-1).mean()))
    return found


# ---------------------------------------------------------- HeurFedAMP: how much, and from whom
def message_noise(tau, similar):
    """(1 − τ)² + τ²/N: the noise left in u = (1 − τ)w + τ·(mean of N alike), w having 1.

    Equation label: eq-tau-noise

    >>> message_noise(tau=0.5, similar=1)
    0.5
    """
    return (1 - tau) ** 2 + tau**2 / _check.whole("similar", similar)


def best_tau(similar):
    """N/(N + 1), where ``message_noise`` is least: the plain mean of a client and its N like.

    Equation label: eq-tau-rule

    >>> best_tau(similar=19)
    0.95
    """
    return _check.whole("similar", similar) / (similar + 1)


def heur_share(sigma, gap, m, group):
    """Of what a client hears from others, the part from its own group: HeurFedAMP's, idealised.

    All cosines inside a group of ``group`` clients are alike, and larger by ``gap`` than those to
    the m − ``group`` strangers.

    Equation label: eq-heur-share

    >>> heur_share(sigma=0.0, gap=0.05, m=25, group=5)
    0.16666666666666666
    """
    strangers = (m - group) / (_check.whole("group", group, at_least=2) - 1)
    return 1 / (1 + strangers * math.exp(-sigma * gap))


# ------------------------------------------ FedACS: the scheme of its theorem and the one it runs
class DescentFederation(QuadraticFederation):
    """The quadratic clients again, who now train by ``steps`` gradient steps from their start.

    An epoch is one step here, so SPFL and the asynchronous methods run on it too.

    >>> import pfl_lib
    >>> fed = DescentFederation(torch.ones(1, 1), torch.tensor([[1.0]]), lr=0.5, steps=2)
    >>> pfl_lib.train(fed, fed.initial(), fed.everyone)
    tensor([[0.7500]])
    """

    def __init__(self, h, c, start=None, lr=0.1, steps=1):
        super().__init__(h, c, start)
        self.lr, self.steps = _check.positive("lr", lr), _check.whole("steps", steps)
        self.settings = Settings(lr=lr, optimizer="sgd", batch_size=1, epochs=steps, seed=0)

    def perform(self, work, who):
        """Any local step of the library; its one batch is all a client has."""
        batch = SimpleNamespace(weight=torch.ones(1, dtype=self.dtype))
        after = []
        for row, i in enumerate(who.tolist()):
            loss = lambda w, batch, i=i: 0.5 * (self.h[i] * (w - self.c[i]) ** 2).sum()  # noqa: E731
            client = SimpleNamespace(
                loss=loss,
                loss_above=lambda below, top, batch, loss=loss: loss(
                    torch.cat([below, top]), batch
                ),
                grad=torch.func.grad(loss),
                move=lambda s, g: {"w": s["w"] - self.lr * g},
                numbers=work.numbers,
                lr=self.lr,
            )
            s = {name: rows[row] for name, rows in work.rows.items()} | dict(work.shared)
            for _ in range(work.repeats * (work.steps or work.epochs or self.steps)):
                s |= STEPS[work.step](s, batch, client)
            after.append(s)
        return {name: torch.stack([s[name] for s in after]) for name in work.rows}

    def describe(self):
        return {**super().describe(), "lr": self.lr, "steps": self.steps}


def balanced(S):
    """A positive symmetric matrix scaled, rows and columns alike, until every row sums to 1.

    >>> balanced(torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    tensor([[0.6667, 0.3333],
            [0.3333, 0.6667]])
    """
    if not (S > 0).all() or not torch.equal(S, S.T):
        raise ValueError("S must be symmetric with positive entries")
    for _ in range(1000):
        r = S.sum(1).rsqrt()
        S = r[:, None] * S * r
    return S


@dataclass(frozen=True)
class PulledQuadratics:
    """FedACS's problem F + λR, R(W) = Σ_ij s_ij‖w_i − w_j‖², with s frozen and quadratic losses.

    F_i(w) = ½Σ_q h_iq(w_q − c_iq)²; s is symmetric. Models are (m, d), or many at once (..., m, d).

    >>> problem, start = fedacs_toy()
    >>> isinstance(problem, PulledQuadratics)
    True
    """

    h: torch.Tensor
    c: torch.Tensor
    s: torch.Tensor
    lam: float

    def __post_init__(self):
        if not torch.allclose(self.s, self.s.T):
            raise ValueError("s must be symmetric; R's gradient is another one otherwise")

    @functools.cached_property
    def _laplacian(self):
        return torch.diag(self.s.sum(1)) - self.s

    def loss_gradient(self, W):
        """∇F(W)."""
        return self.h * (W - self.c)

    def pull(self, W):
        """R(W).

        Equation label: eq-fedacs-regulariser
        """
        return 2 * (W * (self._laplacian @ W)).sum((-2, -1))

    def pull_gradient(self, W):
        """∇R(W) = 4Σ_j s_ij(w_i − w_j), row i.

        Equation label: eq-fedacs-regulariser-gradient
        """
        return 4 * self._laplacian @ W

    def value(self, W):
        """F_λ(W)."""
        loss = 0.5 * (self.h * (W - self.c) ** 2).sum((-2, -1))
        return loss + self.lam * self.pull(W)

    def gradient(self, W):
        """∇F_λ(W)."""
        return self.loss_gradient(W) + self.lam * self.pull_gradient(W)

    @property
    def smoothness(self):
        """L = max(L_F, λL_R)."""
        of_pull = 4 * torch.linalg.eigvalsh(self._laplacian)[-1]
        return max(float(self.h.max()), self.lam * float(of_pull))

    def near(self, W, strength):
        """argmin_Z F_λ(Z) + (strength/2)‖Z − W‖², exactly; strength 0 gives the minimiser."""
        system = torch.diag_embed(self.h.T + strength) + 4 * self.lam * self._laplacian
        right = self.h * self.c + strength * W
        return torch.linalg.solve(system, right.mT[..., None])[..., 0].mT

    def path(self, start, alpha, beta, rounds):
        """U = W − α∇R(W), W⁺ = U − β∇F(U): all W (rounds + 1, m, d) and all U (rounds, m, d).

        The theorem takes α = λ/√K and β = 1/√K. The algorithm mixes, U = sW: for unit rows that
        is α = ¼, whatever λ and K.
        """
        W, U = [start], []
        for _ in range(_check.whole("rounds", rounds)):
            U.append(W[-1] - alpha * self.pull_gradient(W[-1]))
            W.append(U[-1] - beta * self.loss_gradient(U[-1]))
        return torch.stack(W), torch.stack(U)

    def slope_bound(self, W, U):
        """B ≥ ‖∇F‖, λ‖∇R‖ wherever the proof looks: the iterates, their envelope points, between.

        Both gradients are affine here, so their norms are largest at the ends of a segment.
        """
        ends = torch.cat([W, U])
        ends = torch.cat([ends, self.near(ends, 4 * self.smoothness)])
        slopes = torch.cat([self.loss_gradient(ends), self.lam * self.pull_gradient(ends)])
        return float(norm2(slopes).max().sqrt())


#: (a, e, f) of a·(excess + 16LB²)/√K + e·L²B²/K + f·B² in FedACS's theorem.
FEDACS_THEOREM = {"repaired": (6, 240, 0), "by (17)": (18, 720, 0), "by (13)": (6, 0, 3)}


def fedacs_theorem_bound(excess, L, B, rounds, form="repaired"):
    """A bound on the mean (so on the least) ‖∇F_λ‖² of the analysed scheme.

    "by (13)" is what the printed proof gives when its sum is done with care, "by (17)" what its
    last inequality gives, "repaired" that one with the strong convexity of the envelope problem.

    Equation label: eq-fedacs-theorem

    >>> fedacs_theorem_bound(excess=0.0, L=1.0, B=1.0, rounds=16)
    39.0
    """
    a, e, f = FEDACS_THEOREM[_check.one_of("form", form, FEDACS_THEOREM)]
    rounds = _check.whole("rounds", rounds)
    return a * (excess + 16 * L * B**2) / math.sqrt(rounds) + e * (L * B) ** 2 / rounds + f * B**2


def fedacs_toy():
    """Two groups of three clients with frozen similarities of unit rows, and a start.

    >>> problem, start = fedacs_toy()
    >>> problem.c.shape, problem.s.shape
    (torch.Size([6, 3]), torch.Size([6, 6]))
    """
    random = np.random.default_rng(2)
    h = random.uniform(0.3, 1.5, (6, 3))
    c = 2 + np.vstack([random.normal(-1, 0.3, (3, 3)), random.normal(1, 0.3, (3, 3))])
    start = random.normal(2, 1.5, (6, 3))
    centers = torch.from_numpy(c)
    s = balanced(cosine_similarities(centers).clamp(min=0.05))
    return PulledQuadratics(torch.from_numpy(h), centers, s, lam=0.2), torch.from_numpy(start)


# ------------------------------------------------------- LGA: where would the straggler be now?
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


def leap_errors(seeds=10, **how):
    """The errors of ``logistic_straggler(**how)``, each the mean over ``seeds`` seeds.

    >>> errors = leap_errors(seeds=2)
    >>> sorted(errors)
    ['Eq. (10)', 'Eq. (11)', 'compensated', 'no leap', 'stale', 'true Hessian', 'true diagonal']
    """
    runs = [logistic_straggler(seed=s, **how).errors() for s in range(_check.whole("seeds", seeds))]
    return {name: sum(run[name] for run in runs) / seeds for name in runs[0]}


# ------------------------------------- FedALA: places between a local model and the global one
def shared_and_personal(m=12, spread=2.0, noise=0.5, seed=0):
    """Clients who look for two numbers: the first is common to all, the second each one's own.

    Truths and the clients' noisy estimates of them, (m, 2) each.

    >>> truth, own = shared_and_personal(m=3)
    >>> bool((truth[:, 0] == 1).all()), own.shape
    (True, torch.Size([3, 2]))
    """
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(2, _check.whole("m", m), 2, generator=generator, dtype=torch.float64)
    truth = torch.stack([torch.ones(m, dtype=torch.float64), spread * draws[0, :, 1]], 1)
    return truth, truth + noise * draws[1]


def ala_path(local, glob, h, c, lr, steps):
    """The weights W after 0, 1, …, ``steps`` steps of ALA on ½·Σ_q h_q(θ_q − c_q)², from ones.

    >>> one = torch.ones(1)
    >>> ala_path(0 * one, one, h=one, c=0 * one, lr=0.5, steps=2).flatten().tolist()
    [1.0, 0.5, 0.25]
    """
    weights = [torch.ones_like(local)]
    for _ in range(_check.whole("steps", steps, at_least=0)):
        grad = h * (ala_mix(weights[-1], local, glob) - c)
        weights.append(ala_step(weights[-1], local, glob, grad, lr))
    return torch.stack(weights)


def best_mixtures(local, glob, h, c, layers=None):
    """The best weights of three kinds for ½·Σ_q h_q(θ_q − c_q)²: what each kind can reach.

    "one number" for the whole model; "all or nothing" for each layer (``layers`` are slices, by
    default every parameter is one); "each its own", which is the limit of ALA.

    >>> K7 = (torch.tensor(v) for v in ([1.0, 2, -1], [1.5, 1, 0.5], [1.0, 1, 1], [1.2, 1.8, -0.4]))
    >>> best_mixtures(*K7)["each its own"]
    tensor([0.4000, 0.2000, 0.4000])
    """
    way = glob - local
    apart = torch.where(way == 0, 1, way)
    number = ((h * way * (c - local)).sum() / (h * way**2).sum().clamp(min=1e-30)).clamp(0, 1)
    gain = h * ((local - c) ** 2 - (glob - c) ** 2)  # of taking the global value
    whole = torch.zeros_like(local)
    for columns in layers or [slice(q, q + 1) for q in range(len(local))]:
        whole[columns] = (gain[columns].sum() > 0).to(local.dtype)
    return {
        "one number": number.expand_as(local),
        "all or nothing": whole,
        "each its own": torch.where(way == 0, 1, (c - local) / apart).clamp(0, 1),
    }


# ------------------------------------------------------------------------------ small helpers
def norm2(W):
    """‖W‖² of each stack of models (..., m, d).

    >>> norm2(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(25.)
    """
    return (W * W).sum((-2, -1))


def holds(left, right, since=0.0, tolerance=1e-9):
    """Asserts left ≤ right everywhere, up to rounding; says how much of what it permits is used.

    Both sides are compared with where they begin, ``since``: the actual change left − since with
    the permitted one, right − since. So a constant on both sides cannot make a bound look tight.
    A permitted change below zero is a promise: the left side falls by at least as much. Changes
    that are nothing but rounding do not count.

    >>> holds(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 2.5]))
    'holds 2 of 2 times; at most 0.8 of the permitted'
    >>> holds(left=101.0, right=104.0, since=100.0)
    'holds 1 of 1 times; at most 0.25 of the permitted'
    >>> holds(left=6.0, right=8.0, since=10.0)
    'holds 1 of 1 times; falls by at least 2 times the promised'
    """
    left, right, since = torch.broadcast_tensors(*map(torch.as_tensor, (left, right, since)))
    worst = int((right - left).argmin())
    rounding = tolerance * (1 + float(right.abs().max()))
    if (right - left).min() < -rounding:
        raise AssertionError(
            f"violated at place {worst}: {float(left.flatten()[worst])!r} is not at most "
            f"{float(right.flatten()[worst])!r}"
        )
    permitted = right - since
    share = (left - since) / permitted
    sentence = [f"holds {left.numel()} of {left.numel()} times"]
    if (permitted > rounding).any():
        most = float(share[permitted > rounding].max())
        words = f"at most {most:.2g}" if most > 1e-3 else "less than 0.001"  # or even a fall
        sentence.append(f"{words} of the permitted")
    if (permitted < -rounding).any():
        least = float(share[permitted < -rounding].min())
        sentence.append(f"falls by at least {least:.2g} times the promised")
    return "; ".join(sentence)


def _each(function, W):
    """``function`` of every stack of models in W (..., m, d)."""
    if W.ndim == 2:
        return function(W)
    flat = torch.func.vmap(function)(W.reshape(-1, *W.shape[-2:]))
    return flat.reshape(*W.shape[:-2], *flat.shape[1:])


def _distinct(points, tolerance):
    """How many of these points (n, d) are farther than ``tolerance`` from all counted before."""
    kept: list[torch.Tensor] = []
    for point in points:
        if all((point - other).abs().max() > tolerance for other in kept):
            kept.append(point)
    return len(kept)
