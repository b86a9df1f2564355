"""Adaptive local aggregation: how much of the downloaded model does each parameter want?

The module of FedALA (Zhang et al., AAAI 2023, Eqs. (4) and (5)); ``with_ala`` lends it to others.
"""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm
from pfl_lib.formulas import ala_mix, ala_step
from pfl_lib.training import Work, local_step


@local_step("ala")
def step(s, batch, client):
    """One step on the weights; the downloaded model ``w`` and the own one stay as they are."""
    weights, own = s["weights"], s["own"]
    below, top = s["w"].split([s["w"].shape[0] - own.shape[0], own.shape[0]])
    mixed = torch.cat([below, ala_mix(weights, own, top)])  # (4)
    g, loss = torch.func.grad_and_value(client.loss)(mixed, batch)
    weights = ala_step(weights, own, top, g[-len(own) :], client.numbers["ala_lr"])  # (5)
    n = batch.weight.sum()
    return {"weights": weights, "loss": s["loss"] + n * loss, "seen": s["seen"] + n}


@dataclass(frozen=True)
class AdaptiveLocalAggregation(Algorithm):
    """Before it trains, a client mixes the model it is handed with its own, element by element.

    ``ala_layers`` is p: only the top p layers are mixed, below them the download is taken whole.
    ``ala_percent`` is s, the part of the local data the weights are learned on, drawn once a
    round; ``ala_lr`` is η.  A client's first time lasts until the mean losses of the last
    ``window`` passes deviate by less than ``tol`` (``max_epochs`` passes at most; the paper does
    not say when it stops), later times are one pass.  The first time is each client's own: the
    first round in which its model and the download differ.
    """

    ala_layers: int = 1
    ala_percent: float = 80
    ala_lr: float = 1.0
    tol: float = 0.1
    window: int = 10
    max_epochs: int = 50

    def fresh(self, fed):
        """What the module remembers: own models, where they began, W (ones), first time over."""
        w = fed.initial()
        never = torch.zeros(fed.m, dtype=torch.bool, device=w.device)
        weights = torch.ones_like(w[:, self.top(fed)])
        return {"ala_own": w, "ala_begin": w, "ala_weights": weights, "ala_started": never}

    def aggregate(self, state, x, fed, who):
        """The state once the clients ``who`` have mixed ``x`` (k, d) with their own models."""
        top = self.top(fed)
        own, weights, started = (state[f"ala_{n}"][who] for n in ("own", "weights", "started"))
        own = own[:, top]
        apart = (own != x[:, top]).any(1)  # where they agree there is nothing to learn
        weights = self.learn(weights, own, x, apart, started, fed, who)
        begin = torch.cat([x[:, : top.start], ala_mix(weights, own, x[:, top])], 1)  # (4)
        new = {"ala_begin": begin, "ala_weights": weights, "ala_started": started | apart}
        return state.put(who, **new)

    def learn(self, weights, own, x, apart, started, fed, who):
        """Pass after pass over the same batches; a client leaves when its weights are learned."""
        how = {"epochs": 1, "share": self.ala_percent / 100, "optimizer": "sgd", "tag": "ala"}
        busy = apart.nonzero().flatten()
        losses = x.new_zeros(len(busy), 0)
        for done in range(1, self.max_epochs + 1):
            if len(busy) == 0:
                break
            rows = {"w": x[busy], "own": own[busy], "weights": weights[busy]}
            rows |= {"loss": x.new_zeros(len(busy)), "seen": x.new_zeros(len(busy))}
            new = fed.perform(Work(rows, "ala", numbers={"ala_lr": self.ala_lr}, **how), who[busy])
            weights = weights.index_copy(0, busy, new["weights"])
            losses = torch.cat([losses, (new["loss"] / new["seen"])[:, None]], 1)
            moving = losses[:, -self.window :].std(1, correction=0) >= self.tol
            stay = ~started[busy] & (moving | (done <= self.window))
            busy, losses = busy[stay], losses[stay]
        return weights

    def top(self, fed):
        """The columns from the top p layers on."""
        layers = self.downloaded(fed)
        if self.ala_layers > len(layers):
            raise ValueError(
                f"ala_layers must be at most {len(layers)}, the layers of {fed.model_name!r}, "
                f"got {self.ala_layers}"
            )
        return slice(layers[-self.ala_layers][1].start if self.ala_layers else fed.d, fed.d)

    def downloaded(self, fed):
        """The layers p counts."""
        return fed.layers

    def __post_init__(self):
        super().__post_init__()
        _check.whole("ala_layers", self.ala_layers, at_least=0)
        if not _check.between("ala_percent", self.ala_percent, 0, 100) > 0:
            raise ValueError(f"ala_percent must lie in (0, 100], got {self.ala_percent!r}")
        for name in ("ala_lr", "tol"):
            _check.positive(name, getattr(self, name))
        for name in ("window", "max_epochs"):
            _check.whole(name, getattr(self, name))
