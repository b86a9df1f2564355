"""Clients whose loss is F_i(w) = ½ Σ h_i (w − c_i)²: what they should compute is known."""

from types import SimpleNamespace

import torch

from pfl_lib import Federation
from pfl_lib.book.theory import QuadraticFederation
from pfl_lib.local.batches import Samples
from pfl_lib.local.network import Network
from pfl_lib.work import Settings
from tests.support.known_answers import ANSWERS, known
from tests.support.methods import settings

# Two clients with 100 and 300 samples, and the server's model x.
H, C, SIZES = (known("baselines", key) for key in ("h", "c", "n"))
X = known("baselines", "server model x")
ETA = ANSWERS["baselines"]["eta"]
V = torch.tensor([0.0, 1.0], dtype=torch.float64)


def gradient(i):
    return lambda w: H[i] * (w - C[i])


def loss(i, w):
    return (0.5 * H[i] * (w - C[i]) ** 2).sum(-1)


def optimum(weights):
    """argmin Σ_i ½·weights_i·(x − c_i)²."""
    return (weights * C).sum(0) / weights.sum(0)


def descend(direction, start=X, steps=2):
    """Both clients' models after some steps along ``direction(i, w)``."""
    rows = []
    for i in range(2):
        w = start
        for _ in range(steps):
            w = w - ETA * direction(i, w)
        rows.append(w)
    return torch.stack(rows)


LOCAL = descend(lambda i, w: gradient(i)(w))


def quadratic(w, sample):
    h, c = sample.chunk(2, -1)
    return 0.5 * (h * (w - c) ** 2).sum(-1)


class WrittenLoss(Network):
    """A "network" of a few numbers whose loss is ``each(w, samples)``, averaged over a batch."""

    def __init__(self, each, start):
        super().__init__(torch.nn.ParameterList([start]))
        self.each = each

    def loss(self, w, batch):
        return (self.each(w, batch.x) * batch.weight).sum() / batch.weight.sum()

    tested_loss = loss

    def loss_above(self, below, top, batch):
        return self.loss(torch.cat([below, top]), batch)


class Toy(Federation):
    """Client i has ``sizes[i]`` times the same sample.  Engines, batches and weights are real."""

    def __init__(self, samples, start, loss=quadratic, sizes=None, engine="loop", lr=0.1, epochs=1):
        sizes = [1] * len(samples) if sizes is None else sizes
        self.settings = Settings(lr=lr, optimizer="sgd", batch_size=10, epochs=epochs, seed=0)
        self.engine, self.device, self.dtype, self.lr = engine, start.device, start.dtype, lr
        self.network, self._initial = WrittenLoss(loss, start), start
        self.model_name = "quadratic"
        index = tuple(torch.full((n,), i) for i, n in enumerate(sizes))
        self.partition = SimpleNamespace(train=index)
        self.sample_counts = tuple(sizes)
        self.sizes = torch.tensor(sizes, dtype=self.dtype)
        self.layers = [("all", slice(0, len(start)))]
        self._train_samples = Samples(lambda i: samples[i], index, index)


class OneStep(QuadraticFederation):
    """Local training is one gradient step of length 0.1 on ½‖w − c‖²."""

    def perform(self, work, who):
        start = work.rows["w"]
        return {"w": start - 0.1 * (start - self.c[who])}


class LateToy(OneStep):
    """Four numbers in two layers; remembers who trained when, and from where."""

    settings = settings()

    def __init__(self, clients):
        c = torch.arange(4.0 * clients, dtype=torch.float64).view(clients, 4).sin()
        super().__init__(h=torch.ones_like(c), c=c)
        self.layers = [("body", slice(0, 2)), ("output", slice(2, 4))]
        self.seen = []

    def perform(self, work, who):
        self.seen.append((self.k, who.tolist(), work.rows["w"]))
        return super().perform(work, who)


class Scripted(LateToy):
    """One straggler, who pulls w^{t0} and arrives three rounds later with w_k^{t0}."""

    def __init__(self):
        super().__init__(1)
        self.start = known("LGA", "w^{t0}")[None]

    def perform(self, work, who):
        return {"w": known("LGA", "w_k^{t0}")[None]}


def arrival(method):
    """The state after that straggler's arrival; ``method`` has the timetable (3,)."""
    fed = Scripted()
    state = method.start(fed)
    for k, x in enumerate(["w^{t0}", "w^{t1}", "w^{t1}", "w^{t_tau}"]):
        state = method.round(state.set(x=known("LGA", x)), fed.at(k), fed.everyone)
    return state
