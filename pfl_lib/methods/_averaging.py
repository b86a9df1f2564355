"""A global model averaged by sample counts: the base of FedAvg and its relatives."""

from dataclasses import dataclass, fields, make_dataclass
from typing import ClassVar

import torch

from pfl_lib import _check
from pfl_lib.methods.base import Algorithm, State, as_method


def weighted_average(W, sizes=None):
    """x = Σ_i n_i w_i / Σ_i n_i; without ``sizes`` the plain mean.

    FedAvg (McMahan et al. 2017, Algorithm 1); FedALA's server step too.

    Equation label: eq-fedavg

    >>> weighted_average(torch.tensor([[0.0, 4.0], [4.0, 0.0]]), torch.tensor([100.0, 300.0]))
    tensor([3., 1.])
    """
    _check.models("W", W)
    if sizes is None:
        return W.mean(0)
    if not isinstance(sizes, torch.Tensor) or sizes.shape != W.shape[:1]:
        got = tuple(sizes.shape) if isinstance(sizes, torch.Tensor) else repr(sizes)
        raise ValueError(
            f"sizes must be a tensor with one number for each of the {W.shape[0]} rows of W, "
            f"got {got}"
        )
    return (sizes / sizes.sum()).to(W.dtype) @ W


def with_average(method, average, word, *settings, **more):
    """``method``, which must be one that averages, with another ``average`` in its server step.

    ``word`` is added to its label and, together with ``settings``, to its name; ``more`` replaces
    other parts of the method.
    """
    method = as_method("method", method)
    if not isinstance(method, GlobalModel) or not method.averages:
        raise TypeError(f"method must be one that averages models, such as FedAvg, got {method!r}")
    if method.replaced:
        raise ValueError(
            f"method must still have its own average: {method.label} already has another one "
            f"({method.replaced}), which would be lost"
        )
    kind, own = type(method), {f.name: getattr(method, f.name) for f in fields(method)}
    told = [s if isinstance(s, str) else f"{s:g}" for s in settings]
    name = "-".join([kind.name, word.replace(" ", "-"), *told])
    facts = {"average": average, "label": f"{kind.label}, {word}", "name": name, "replaced": word}
    facts |= more
    return make_dataclass(kind.__name__, [], bases=(kind,), namespace=facts, frozen=True)(**own)


@dataclass(frozen=True)
class GlobalModel(Algorithm):
    """The server sends one model x to all clients and averages their results; x is tested."""

    shared, private, weights_by = "one model", "nothing", "sample counts"
    tested = "the global model"
    newcomer = "what a client has that has just joined, beginning at the global model"
    handed = "global model"
    averages: ClassVar[bool] = True  # whether the server step calls ``average``
    replaced: ClassVar[str] = ""  # what stands in the place of its own ``average``
    newcomer_rounds: ClassVar[int] = 1  # until a newcomer has its own state

    def start(self, fed):
        return State(x=fed.initial(fed.everyone[:1])[0])

    def download(self, state, fed, who):
        return State(w=state.x.expand(len(who), -1))

    def upload(self, state, done, fed, who):
        return state.set(x=self.average(done.w, fed.sizes[who], state, fed))

    def private_mask(self, fed):
        """Which of the d columns never leave their client: none of a global model."""
        return torch.zeros(fed.d, dtype=torch.bool, device=fed.device)

    def average(self, w, weights, state, fed):
        """The average of the clients' models; ``robust`` and ``private`` replace it."""
        return weighted_average(w, weights)

    def personal(self, state, fed):
        return state.x.expand(fed.m, -1)

    def extra_models(self, state, fed):
        """The global model, where clients are tested with another."""
        tested = type(self).personal is GlobalModel.personal
        return {} if tested else {"global": state.x.expand(fed.m, -1)}

    def newcomer_models(self, state, fed, newcomers):
        """Newcomers take part in one or more rounds like any client; x stays unchanged."""
        joined = self.joined(state, newcomers)
        if len(joined) > 1:  # private state beside x, which a round fills
            for _ in range(self.newcomer_rounds):
                joined = self.round(joined, newcomers, newcomers.everyone).set(x=state.x)
        return self.personal(joined, newcomers)

    def joined(self, state, newcomers):
        """The state in which newcomers join: x unchanged, and their own models equal to x."""
        fresh, initial = self.start(newcomers), newcomers.initial()
        x = state.x.expand_as(initial)
        own = [n for n, t in fresh.items() if t.shape == x.shape and torch.equal(t, initial)]
        return fresh.set(**dict.fromkeys(own, x), x=state.x)
