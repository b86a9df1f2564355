"""Clients that send something else than what they trained, by fault (``Faulty``) or to hide it
(``Masked``).

Both are a federation like the one they are given, but for what is sent.  No algorithm knows of
them, so every algorithm runs on them.
"""

import dataclasses
import math
from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.federation import Federation
from pfl_lib.random import keyed_generator

#: What a faulty client does, and how strongly unless said otherwise.
KINDS = {"sign_flip": 1.0, "scale": 10.0, "noise": 1.0, "stale": None}
SENT = ("", "probe")  # tags of the local phases whose result is sent; others stay at home


@dataclass(eq=False)
class OtherUploads:
    """The federation ``fed``, whose clients send ``sends(...)`` instead of what they trained."""

    fed: object

    def sends(self, began, trained, who, tag):
        """What the clients ``who`` send, having begun at the rows of ``began``."""
        raise NotImplementedError

    def train(self, start, who, **how):
        """Ordinary local training; the models as they are sent."""
        if hasattr(self.fed, "perform"):
            return Federation.train(self, start, who, **how)  # which asks ``perform``
        return self._sent(start, self.fed.train(start, who, **how), who, how.get("tag", ""))

    def perform(self, work, who):
        """A method's own local step; ``"w"`` is what is sent."""
        done = self.fed.perform(work, who)
        return {**done, "w": self._sent(work.rows["w"], done["w"], who, work.tag)}

    def at(self, round_):
        return dataclasses.replace(self, fed=self.fed.at(round_))

    def with_part(self, positions):
        return dataclasses.replace(self, fed=self.fed.with_part(positions))

    def describe(self):
        """What a run must agree on to be resumed, what is sent included."""
        mine = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "fed"}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in mine.items()}
        return {**self.fed.describe(), type(self).__name__: plain}

    def __getattr__(self, name):  # everything else is the federation's own
        if name == "fed" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.fed, name)

    def _sent(self, began, trained, who, tag):
        if tag not in SENT:
            return trained
        return self.sends(began, trained, torch.as_tensor(who).tolist(), tag)


@dataclass(eq=False)
class Faulty(OtherUploads):
    """The federation ``fed``, in which ``clients`` train as asked and then send something else.

    With w the trained model, s the ``strength`` and ``of="model"`` they send, by ``kind``:

    * ``"sign_flip"``: −s·w;
    * ``"scale"``: s·w;
    * ``"noise"``: w plus Gaussian noise of about s times the length of w;
    * ``"stale"``: the model they began this round with, as if they never trained (no strength).

    ``of="update"`` does the same to what training changed, w − (the model they began with), which
    leaves the sent model near the others.  Methods that keep a second model or a head at home keep
    it unspoiled.  A client that sends nothing, as in Separate, still keeps what it would have sent:
    look at the models of the ``honest`` clients only.

    >>> from pfl_lib.theory import QuadraticFederation
    >>> toy = QuadraticFederation(h=torch.ones(3, 1), c=torch.tensor([[1.0], [2.0], [3.0]]))
    >>> Faulty(toy, clients=[2], kind="scale").train(toy.initial(), toy.everyone).flatten()
    tensor([ 1.,  2., 30.])
    """

    clients: tuple[int, ...]
    kind: str = "sign_flip"
    strength: float | None = None
    of: str = "model"
    seed: int = 0

    def __post_init__(self):
        _check.one_of("kind", self.kind, KINDS)
        _check.one_of("of", self.of, ("model", "update"))
        _check.whole("seed", self.seed, at_least=0)
        clients = tuple(torch.as_tensor(self.clients, dtype=torch.int64).flatten().tolist())
        wrong = [i for i in clients if not 0 <= i < self.fed.m]
        if wrong or len(set(clients)) != len(clients):
            raise ValueError(
                f"clients must be different numbers from 0 to {self.fed.m - 1}, got {clients}"
            )
        if len(clients) == self.fed.m:
            raise ValueError(f"clients must leave somebody honest, got all {self.fed.m}")
        if self.kind == "stale" and self.strength is not None:
            raise ValueError(f"kind='stale' has no strength, got strength={self.strength!r}")
        strength = KINDS[self.kind] if self.strength is None else self.strength
        if strength is not None:
            strength = _check.positive("strength", strength)
        self.clients, self.strength = clients, strength

    @property
    def honest(self):
        """The indices of the clients that send what they trained."""
        return torch.tensor([i for i in range(self.fed.m) if i not in self.clients])

    def heard(self, xi):
        """The part of what honest clients hear from others that comes from faulty ones, on average.

        If the faulty speak as loudly as everybody else, that is their number over m − 1.
        """
        others = xi.detach().cpu().clone().fill_diagonal_(0)[self.honest]
        return (others[:, list(self.clients)].sum(1) / others.sum(1).clamp(min=1e-30)).mean().item()

    def sends(self, began, trained, who, tag):
        sent = trained.clone()
        for row, client in enumerate(who):
            if client in self.clients:
                sent[row] = self._spoiled(began[row], trained[row], client, tag)
        return sent

    def _spoiled(self, began, trained, client, tag):
        if self.kind == "stale":
            return began
        base = began if self.of == "update" else torch.zeros_like(began)
        what = trained - base
        if self.kind == "sign_flip":
            return base - self.strength * what
        if self.kind == "scale":
            return base + self.strength * what
        key = (self.seed, "fault", tag, self.fed.k, client)
        noise = torch.randn(len(what), generator=keyed_generator(*key))
        size = self.strength * what.norm() / math.sqrt(len(what))
        return trained + size * noise.to(what)


@dataclass(eq=False)
class Masked(OtherUploads):
    """The federation ``fed`` under secure aggregation, in its simplest form.

    Each pair of clients agrees on a secret random vector; one adds it to its upload, the other
    takes it away.  A single upload then looks like noise of standard deviation ``scale`` a pair,
    but in the average of all, weighted by the samples, the masks cancel.  Real protocols compute
    with whole numbers, where a mask hides perfectly, and cope with clients that vanish.

    A simulation only: methods whose clients go on from the very model they sent go on from the
    masked one.

    >>> from pfl_lib.theory import QuadraticFederation
    >>> toy = QuadraticFederation(h=torch.ones(3, 1), c=torch.tensor([[1.0], [2.0], [3.0]]))
    >>> sent = Masked(toy).train(toy.initial(), toy.everyone)
    >>> bool((sent - toy.c).abs().min() > 0.1), round(sent.mean().item(), 4)
    (True, 2.0)
    """

    scale: float = 1.0
    seed: int = 0

    def __post_init__(self):
        _check.positive("scale", self.scale)
        _check.whole("seed", self.seed, at_least=0)

    def sends(self, began, trained, who, tag):
        masks = torch.zeros(trained.shape, dtype=torch.float64)
        for row, i in enumerate(who):
            for other, j in enumerate(who[:row]):
                key = (self.seed, "mask", tag, self.fed.k, min(i, j), max(i, j))
                drawn = torch.randn(trained.shape[1], generator=keyed_generator(*key))
                masks[row] += drawn
                masks[other] -= drawn
        share = self.fed.sizes[who] / self.fed.sizes[who].mean()  # what cancels is n_i·mask_i
        return trained + self.scale * masks.to(trained) / share[:, None]
