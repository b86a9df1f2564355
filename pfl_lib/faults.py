"""Wrappers around a federation that change what clients send, or check it.

Clients may send something other than what they trained, by fault (``Faulty``) or to hide it
(``Masked``); ``Guarded``, which every run uses, checks results before they are mixed.  A wrapper is
a federation itself.  Methods do not know of wrappers, so every method runs on them.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from pfl_lib import _check, _deprecated
from pfl_lib.federation import Federation, checked_clients, checked_federation
from pfl_lib.random import keyed_generator
from pfl_lib.work import DeprecatedTrain, Settings, Work

#: The kinds of faults, with their default strengths.
KINDS = {"sign_flip": 1.0, "scale": 10.0, "noise": 1.0, "stale": None}
HUGE = 1e4  # no sound parameter is so large; only from here on can a loss overflow


class _Properties:
    """What ``FederationWrapper`` reads from the federation that it wraps."""

    m: int
    d: int
    k: int
    everyone: Tensor
    sizes: Tensor
    sample_counts: Sequence[int]
    layers: list[tuple[str, slice]]
    head_mask: Tensor
    buffer_mask: Tensor
    norm_mask: Tensor
    tensors: list[tuple[str, slice]]
    head_bias: Tensor | None
    linear_head: tuple[int, int, int] | None
    groups: Tensor | None
    loss: str
    metric: str
    model_name: str
    settings: Settings
    device: torch.device
    dtype: torch.dtype


@dataclass(eq=False)
class FederationWrapper(_Properties, DeprecatedTrain):
    """A wrapper around ``fed`` that may change its clients' results: see ``on_result``.

    >>> import pfl_lib
    >>> class Untouched(FederationWrapper):
    ...     def on_result(self, work, done, who):
    ...         return done
    >>> fed = Untouched(pfl_lib.example())
    >>> fed.m  # all else is unchanged
    8
    """

    fed: Federation

    def on_result(self, work: Work, done: dict[str, Tensor], who: Tensor) -> dict[str, Tensor]:
        """The rows to use as the result of ``work``; the clients ``who`` returned ``done``."""
        raise NotImplementedError

    def perform(self, work: Work, who: Tensor) -> dict[str, Tensor]:
        """Let the clients ``who`` do ``work``; returns the rows after ``on_result``."""
        return self.on_result(work, self.fed.perform(work, who), who)

    def at(self, k: int) -> Self:
        return dataclasses.replace(self, fed=self.fed.at(k))

    def with_part(self, positions: Sequence[Tensor]) -> Self:
        return dataclasses.replace(self, fed=self.fed.with_part(positions))

    def replace(self, **changes: Any) -> Self:
        """The same wrapper, as new, around ``fed.replace(...)``."""
        return self._around(self.fed.replace(**changes))  # type: ignore[attr-defined]

    def hold_out(self, share: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """The same wrapper, as new, around each of ``fed.hold_out(...)``."""
        one, other = map(self._around, self.fed.hold_out(share, seed))  # type: ignore[attr-defined]
        return one, other

    def _around(self, fed: Any) -> Self:
        own = (f for f in dataclasses.fields(self) if f.default_factory is dataclasses.MISSING)
        return type(self)(**{f.name: getattr(self, f.name) for f in own} | {"fed": fed})

    def describe(self) -> dict[str, Any]:
        """Everything a run must agree on to be resumed, the wrapper's own settings included."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "fed" and f.compare]
        mine = {name: getattr(self, name) for name in names}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in mine.items()}
        inside, kind, number = self.fed.describe(), type(self).__name__, 2
        name = kind
        while name in inside:  # ``fed`` has a wrapper of this kind already
            name, number = f"{kind} {number}", number + 1
        return {**inside, name: plain}

    # the rest of the interface is the wrapped federation's, properties too: see ``_Properties``

    def initial(self, who: Tensor | None = None) -> Tensor:
        return self.fed.initial() if who is None else self.fed.initial(who)

    def evaluate(
        self, w: Tensor, who: Tensor | None = None, split: str = "test"
    ) -> tuple[Tensor, Tensor]:
        return self.fed.evaluate(w, who, split)

    def __getattr__(self, name: str) -> Any:
        # attributes of some federations only, such as ``data``
        if name == "fed" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.fed, name)


for _name in _Properties.__annotations__:
    setattr(FederationWrapper, _name, property(attrgetter(f"fed.{_name}")))


@dataclass(eq=False)
class OtherUploads(FederationWrapper):
    """The federation ``fed``, whose clients send ``sends(...)`` instead of their trained models.

    >>> import pfl_lib
    >>> class Silent(OtherUploads):
    ...     def sends(self, began, trained, who, tag):
    ...         return began  # their starting models, as if they had not trained
    >>> fed = Silent(pfl_lib.example())
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, rounds=2, progress=False)
    >>> history.mean[0] == history.mean[1]  # nobody learned anything
    True
    """

    def sends(self, began: Tensor, trained: Tensor, who: list[int], tag: str) -> Tensor:
        """What the clients ``who`` send, given starting and trained models, one row per client."""
        raise NotImplementedError

    def on_result(self, work: Work, done: dict[str, Tensor], who: Tensor) -> dict[str, Tensor]:
        if not work.uploaded:
            return done
        clients = torch.as_tensor(who).tolist()
        return {**done, "w": self.sends(work.rows["w"], done["w"], clients, work.tag)}


@dataclass(eq=False)
class Faulty(OtherUploads):
    """The federation ``fed``, in which ``clients`` train correctly and then send something else.

    With w the trained model, s the ``strength`` and ``of="model"`` they send, by ``kind``:

    * ``"sign_flip"``: −s·w;
    * ``"scale"``: s·w;
    * ``"noise"``: w plus Gaussian noise of about s times the length of w;
    * ``"stale"``: the model they began this round with, as if they never trained (no strength).

    ``of="update"`` does the same to the update, w − (the model they began with), which leaves the
    sent model near the others.  A second model that is never sent (Ditto, APFL, pFedMe) stays
    intact; what a client keeps of the row it sends (FedRep's head, the models that FedPHP, FedALA
    and PartialFed inherit) does not.  So judge the models of the ``honest`` clients only.

    >>> from pfl_lib import train
    >>> from pfl_lib.book.theory import QuadraticFederation
    >>> toy = QuadraticFederation(h=torch.ones(3, 1), c=torch.tensor([[1.0], [2.0], [3.0]]))
    >>> train(Faulty(toy, clients=[2], kind="scale"), toy.initial(), toy.everyone).flatten()
    tensor([ 1.,  2., 30.])
    """

    clients: tuple[int, ...]
    kind: str = "sign_flip"
    strength: float | None = None
    of: str = "model"
    seed: int = 0

    def __post_init__(self):
        checked_federation("fed", self.fed)
        _check.one_of("kind", self.kind, KINDS)
        _check.one_of("of", self.of, ("model", "update"))
        _check.whole("seed", self.seed, at_least=0)
        clients = tuple(checked_clients(self.fed, self.clients, "clients"))
        if len(clients) == self.fed.m:
            raise ValueError(f"clients must leave at least one client honest, got all {self.fed.m}")
        if self.kind == "stale" and self.strength is not None:
            raise ValueError(f"kind='stale' has no strength, got strength={self.strength!r}")
        strength = KINDS[self.kind] if self.strength is None else self.strength
        if strength is not None:
            strength = _check.positive("strength", strength)
        self.clients, self.strength = clients, strength

    @property
    def honest(self):
        """The indices of the clients without a fault."""
        return torch.tensor([i for i in range(self.fed.m) if i not in self.clients])

    def heard(self, xi):
        """The share of the faulty clients in what honest clients receive from others, on average.

        With equal weights for all others, it is the number of faulty clients over m − 1.
        """
        m = self.fed.m
        if _check.models("xi", xi).shape != (m, m):
            raise ValueError(f"xi must be ({m}, {m}), who hears whom, got {tuple(xi.shape)}")
        others = xi.detach().cpu().clone().fill_diagonal_(0)[self.honest]
        return (others[:, list(self.clients)].sum(1) / others.sum(1).clamp(min=1e-30)).mean().item()

    def sends(self, began: Tensor, trained: Tensor, who: list[int], tag: str) -> Tensor:
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
    subtracts it.  A single upload then looks like noise of standard deviation ``scale`` per pair,
    but in the average over all clients, weighted by sample counts, the masks cancel.  Real
    protocols compute with integers, where a mask hides perfectly, and tolerate dropouts.

    A simulation only: methods whose clients continue from the model they sent continue from the
    masked one.

    >>> from pfl_lib import train
    >>> from pfl_lib.book.theory import QuadraticFederation
    >>> toy = QuadraticFederation(h=torch.ones(3, 1), c=torch.tensor([[1.0], [2.0], [3.0]]))
    >>> sent = train(Masked(toy), toy.initial(), toy.everyone)
    >>> bool((sent - toy.c).abs().min() > 0.1), round(sent.mean().item(), 4)
    (True, 2.0)
    """

    scale: float = 1.0
    seed: int = 0

    def __post_init__(self):
        checked_federation("fed", self.fed)
        _check.positive("scale", self.scale)
        _check.whole("seed", self.seed, at_least=0)

    def sends(self, began: Tensor, trained: Tensor, who: list[int], tag: str) -> Tensor:
        masks = torch.zeros(trained.shape, dtype=torch.float64)
        for row, i in enumerate(who):
            for other, j in enumerate(who[:row]):
                key = (self.seed, "mask", tag, self.fed.k, min(i, j), max(i, j))
                drawn = torch.randn(trained.shape[1], generator=keyed_generator(*key))
                masks[row] += drawn
                masks[other] -= drawn
        share = self.fed.sizes[who] / self.fed.sizes[who].mean()  # n_i·mask_i cancels
        return trained + self.scale * masks.to(trained) / share[:, None]


class BrokenClients(FloatingPointError):
    """Clients returned non-finite values; ``found`` holds (client, what) for each.

    >>> print(BrokenClients([(3, "its model"), (5, "its model")]))
    its model of clients 3, 5 is no longer finite
    """

    def __init__(self, found):
        self.found = found
        super().__init__(in_words(found))


def in_words(found):
    """A phrase that names the broken values and their clients.

    >>> in_words([(3, "its model")])
    'its model of client 3 is no longer finite'
    """
    names = sorted({what for _, what in found})
    whose = named({client for client, _ in found})
    return f"{' and '.join(names)} of {whose} {'are' if len(names) > 1 else 'is'} no longer finite"


def named(clients):
    """A phrase that names clients, at most the first ten.

    >>> named([5, 3])
    'clients 3, 5'
    """
    some = ", ".join(map(str, sorted(clients)[:10])) + ", …" * (len(clients) > 10)
    return f"client{'s' * (len(clients) > 1)} {some}"


@dataclass(eq=False)
class Guarded(FederationWrapper):
    """The federation ``fed``, whose clients' results are checked before they are mixed.

    A value that is not finite, or a model whose loss on its client's training data is not, raises
    ``BrokenClients``; with ``restore`` it is replaced by the client's starting value, and ``found``
    records (client, what).

    >>> from pfl_lib import train
    >>> from pfl_lib.book.theory import QuadraticFederation
    >>> toy = QuadraticFederation(h=torch.ones(2, 1), c=torch.tensor([[1.0], [math.nan]]))
    >>> watch = Guarded(toy, restore=True)
    >>> train(watch, toy.initial(), toy.everyone).flatten().tolist(), watch.found
    ([1.0, 0.0], [(1, 'w')])
    """

    restore: bool = False
    found: list[tuple[int, str]] = field(default_factory=list)

    def on_result(self, work: Work, done: dict[str, Tensor], who: Tensor) -> dict[str, Tensor]:
        found, who = [], torch.as_tensor(who)
        for name, rows in done.items():
            if not rows.is_floating_point() or not rows.numel():
                continue
            low, high = rows.reshape(len(rows), -1).aminmax(dim=1)  # NaN where there is one
            size = torch.maximum(high, -low)
            broken = ~torch.isfinite(size)
            found += [(int(i), name) for i in who[broken]]
            if name == "w":
                lost = self._without_loss(rows, who, (~broken & (size >= HUGE)).nonzero().flatten())
                found += [(int(i), "loss") for i in who[lost]]
                broken = broken.index_fill(0, lost, True)
            if self.restore and bool(broken.any()):
                shape = (-1, *[1] * (rows.ndim - 1))
                done = {**done, name: torch.where(broken.view(shape), work.rows[name], rows)}
        if found and not self.restore:
            raise BrokenClients(found)
        self.found += found
        return done

    def _without_loss(self, w, who, huge):
        """Those of the rows ``huge`` whose loss is not finite."""
        if not len(huge) or not getattr(self.fed, "tells_training_losses", True):
            return huge[:0]
        _, loss = self.fed.evaluate(w[huge], who[huge], split="train")
        return huge[~torch.isfinite(loss)]


@dataclass(eq=False)
class Answering(FederationWrapper):
    """The federation ``fed``, which tolerates clients that do not answer.

    They keep their starting rows and are recorded in ``lost``.  They get no more work, and their
    tests are NaN, since their models are unknown.

    >>> import pfl_lib
    >>> from pfl_lib import train
    >>> from pfl_lib.flower import RemoteFederation, in_process
    >>> far = RemoteFederation(in_process(pfl_lib.example()), clients=8, lr=0.1)
    >>> far.transport.silent = {3}
    >>> here = Answering(far.at(0))
    >>> trained = train(here, far.initial(), far.everyone)
    >>> here.lost, bool((trained[3] == far.initial()[3]).all())
    ({3}, True)
    """

    lost: set[int] = field(default_factory=set)

    def on_result(self, work: Work, done: dict[str, Tensor], who: Tensor) -> dict[str, Tensor]:
        return done

    def perform(self, work: Work, who: Tensor) -> dict[str, Tensor]:
        who = torch.as_tensor(who)
        here = (~self._is_lost(who)).nonzero().flatten()
        if len(here) == len(who):
            try:
                return self.fed.perform(work, who)
            except BrokenClients as error:
                self.lost |= {i for i, _ in error.found}
            here = (~self._is_lost(who)).nonzero().flatten()
        rest = dataclasses.replace(work, rows={n: r[here] for n, r in work.rows.items()})
        done = self.perform(rest, who[here])
        return {n: r.index_copy(0, here, done[n]) for n, r in work.rows.items()}

    def evaluate(
        self, w: Tensor, who: Tensor | None = None, split: str = "test"
    ) -> tuple[Tensor, Tensor]:
        """Accuracy and mean loss as in ``fed``, NaN for lost clients."""
        who = self.everyone if who is None else torch.as_tensor(who)
        here = (~self._is_lost(who)).nonzero().flatten()
        if len(here) == len(who):
            return self.fed.evaluate(w, who, split)
        found = self.fed.evaluate(w[here], who[here], split)
        accuracy, loss = (f.new_full((len(who),), math.nan).index_copy(0, here, f) for f in found)
        return accuracy, loss

    def _is_lost(self, who):
        return torch.isin(who, who.new_tensor(sorted(self.lost)))


_deprecated.keep_former_names(__name__)
