"""APPLE: all clients' core models, in proportions each client learns (after Luo and Wu, 2022)."""

import math
from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._hyper import choice, non_negative, positive, whole
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.work import Work, local_step


def apple_mix(p, core):
    """θ_i = Σ_j p_ij c_j: the personal model, made of all clients' core models (rows).

    APPLE (Luo and Wu 2022). The weights p need be neither positive nor sum to 1.

    Equation label: eq-apple-mix

    >>> apple_mix(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([2., 1.])
    """
    return p @ core


def apple_gradients(grad, p, core, own, prior, mu, schedule, lengths=None):
    """p_ii·∇F(θ) for the client's core model, and ⟨c_j, ∇F(θ)⟩ + λ(r)μ(p_j − p⁰_j) for the weights.

    APPLE (Luo and Wu 2022): the gradients of F_i(θ_i) + λ(r)(μ/2)‖p_i − p⁰‖² at
    ``grad`` = ∇F_i(θ_i). ``own`` is the client's own row in ``core``, ``prior`` p⁰ = n_j/n,
    ``schedule`` λ(r), ``lengths`` as in ``_slopes``. Returns (gradient of c_i, of p_i).

    Equation label: eq-apple-gradients

    >>> p, core, prior = torch.tensor([0.5, 1.0]), torch.eye(2), torch.tensor([0.5, 0.5])
    >>> apple_gradients(torch.tensor([2.0, 4.0]), p, core, 0, prior, mu=0.1, schedule=1.0)
    (tensor([1., 2.]), tensor([2.0000, 4.0500]))
    """
    mu = checked(_check.non_negative, "mu", mu)
    slopes = _slopes(grad, core, lengths)
    # Under vmap a client's own place is a tensor, and a tensor cannot index as a number does.
    mine = p.gather(0, own.reshape(1)) if isinstance(own, torch.Tensor) else p[own]
    return mine * grad, slopes + schedule * mu * (p - prior)


def _slopes(grad, core, lengths=None):
    """⟨c_j, ∇F(θ)⟩ for every core model (rows): the derivatives of F(Σ_j p_j c_j) in p_j.

    With ``lengths``, the sizes of the model's tensors, the form of public code: the mean of
    c_j⊙∇F(θ) over each tensor, averaged over the tensors.  It is smaller by orders of magnitude,
    and the printed learning rates belong to it.

    >>> _slopes(torch.tensor([2.0, 4.0, 9.0]), torch.ones(1, 3))
    tensor([15.])
    >>> _slopes(torch.tensor([2.0, 4.0, 9.0]), torch.ones(1, 3), lengths=[2, 1])
    tensor([6.])
    """
    if lengths is None:
        return core @ grad
    pieces = zip(core.split(lengths, -1), grad.split(lengths), lengths)
    return sum(c @ g / n for c, g, n in pieces) / len(lengths)


def apple_schedule(round, horizon):
    """λ(r) = (cos(πr/L) + 1)/2 for r < L, then 0: the schedule of the prior.

    APPLE (Luo and Wu 2022, the "cos" scheduler). ``round`` may be a tensor.

    Equation label: eq-apple-schedule

    >>> apple_schedule(torch.tensor([0, 200, 400, 401]), horizon=400)
    tensor([1.0000, 0.5000, 0.0000, 0.0000])
    """
    horizon = _check.positive("horizon", horizon)
    if isinstance(round, torch.Tensor):
        return (torch.cos(math.pi * (round / horizon).clamp(0, 1)) + 1) / 2
    round = _check.non_negative("round", round)
    return (math.cos(math.pi * min(round / horizon, 1)) + 1) / 2


@local_step("apple", reveals="")
def step(s, batch, client):
    """One step on a client's core model ``w`` and on the proportions ``p``; ``core`` is downloaded.

    ``was`` is the client's row of the download: w − was is the change of this round.  So the
    download is never copied, and all clients of a stack share it.
    """
    p, place, added = s["p"], s["place"], s["w"] - s["was"]
    own = torch.arange(len(p), device=p.device) == place
    g = client.grad(apple_mix(p, s["core"]) + (p * own).sum() * added, batch)
    weight = client.numbers["mu"], client.numbers["schedule"]
    lengths = client.lengths if client.numbers["by_tensor"] else None
    g_core, g_p = apple_gradients(g, p, s["core"], place, s["prior"], *weight, lengths)
    g_p = g_p + own * _slopes(g, added[None], lengths)
    return client.move(s, g_core) | {"p": p - client.numbers["lr_p"] * g_p}


@dataclass(frozen=True)
class APPLE(Algorithm):
    """Client i uses θ_i = Σ_j p_ij·c_j, and learns its core model c_i and its proportions p_i.

    After the cited original; FedALA only sketches it.  The penalty λ(r)(μ/2)‖p_i − p⁰‖² holds the
    proportions near the clients' shares of the samples for ``horizon`` rounds (FedALA: a fifth of
    all rounds).  ``p_gradient="tensor mean"`` uses public code's form of the derivative in p (the
    mean over each tensor, averaged): the printed ``lr_p`` belongs to it, and is about a thousand
    times too large for the derivative itself.  ``lr_p`` is η₂; ``lr_core`` is η₁, None the
    federation's.  The gradient of c_i carries the factor p_ii, about 1/m at first, so the first
    rounds are slow.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("apple", mu=0.1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.2
    True
    """

    lr_p: float = positive(0.01)
    mu: float = non_negative(0.1)
    horizon: int = whole(20)
    lr_core: float | None = positive(None)
    p_gradient: str = choice("derivative", ("derivative", "tensor mean"))
    name, label = "apple", "APPLE"
    family, order = "pair by pair", 9
    place = (3, 4, 3)
    idea = (
        "Each client owns a core model and learns how to mix everybody's cores into the model it "
        "uses. Weights may be negative."
    )
    note = (
        "A penalty holds the mixture near the sample shares in the first rounds and is then faded "
        "out."
    )
    equations = ["eq-apple-mix", "eq-apple-gradients", "eq-apple-schedule"]
    chapter = "11b_methods"
    paper = "after Luo and Wu, 2022"
    shared, private = "core models", "a mixture of all cores"
    weights_by, cost = "each client's loss", "(1+M)Σ"
    tested = "the client's mix of everybody's newest core models"
    newcomer = "all core models and one of its own, in proportions it learns in a local round"

    def start(self, fed):
        return State(core=fed.initial(), p=self.prior(fed).repeat(fed.m, 1))

    def download(self, state, fed, who):
        return State(w=state.core[who], core=state.core)

    def local(self, state, received, fed, who):
        rows = {"w": received.w, "was": received.w, "p": state.p[who], "place": who}
        new = fed.perform(self.work(rows, received.core, self.prior(fed), fed.k), who)
        return State(w=new["w"], p=new["p"])

    def work(self, rows, core, prior, k, **options):
        """Steps on core models and proportions in round ``k``."""
        schedule = apple_schedule(k, self.horizon)
        return Work(
            rows,
            "apple",
            shared={"core": core, "prior": prior},
            numbers={
                "mu": self.mu,
                "lr_p": self.lr_p,
                "schedule": schedule,
                "by_tensor": self.p_gradient == "tensor mean",
            },
            lr=self.lr_core,
            **options,
        )

    def upload(self, state, done, fed, who):
        return state.put(who, core=done.w, p=done.p)

    def prior(self, fed):
        """The clients' shares of the samples, p⁰."""
        return fed.sizes / fed.sizes.sum()

    def personal(self, state, fed):
        return apple_mix(state.p, state.core)

    def newcomer_models(self, state, fed, newcomers):
        """A newcomer's own core begins at the members' mean, and without a weight."""
        everyone, prior = newcomers.everyone, self.prior(fed)
        own = apple_mix(prior, state.core).expand(newcomers.m, -1)
        core, prior = torch.cat([state.core, own[:1]]), torch.cat([prior, prior.new_zeros(1)])
        place = torch.full_like(everyone, fed.m)
        rows = {"w": own, "was": own, "p": prior.repeat(newcomers.m, 1), "place": place}
        done = newcomers.perform(self.work(rows, core, prior, fed.k, uploaded=False), everyone)
        mixed = apple_mix(done["p"][:, :-1], state.core)
        return mixed + done["p"][:, -1:] * done["w"]

    def sent(self, fed, who, k):
        return (1 + fed.m) * fed.d * len(who)
