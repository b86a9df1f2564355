"""FedAsync: every arrival moves the global model, a late one less (Xie et al. 2019)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.asynchronous import Asynchronous
from pfl_lib.formulas import fedasync_mixing, fedasync_update
from pfl_lib.random import keyed_generator
from pfl_lib.training import Prox


@dataclass(frozen=True)
class FedAsync(Asynchronous):
    """x ← (1 − α_t)·x + α_t·w on every arrival, α_t = α·(1 + rounds late)^(−a).

    ``staleness_power`` is a, ``rho`` the optional pull towards the model a client started from.
    Several models may arrive in a round: they come in a random order, since the last counts most.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedasync", alpha=0.8)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.3
    True
    """

    alpha: float = 0.8
    staleness_power: float = 0.5
    rho: float = 0.0
    name = "fedasync"
    label = "FedAsync"
    paper = "Xie et al. 2019, Algorithm 1"

    def gather(self, state, fed, here, late):
        share = fedasync_mixing(self.alpha, late.to(fed.dtype), self.staleness_power)
        generator = keyed_generator(fed.settings.seed, "arrivals", fed.k)
        x, w = state.x, state.w[here]
        for j in torch.randperm(len(here), generator=generator).tolist():
            x = fedasync_update(x, w[j], share[j])
        return state.set(x=x)

    def prox(self, state, here):
        return Prox(state.pull[here], self.rho) if self.rho else None

    def __post_init__(self):
        super().__post_init__()
        if not _check.between("alpha", self.alpha, 0, 1) > 0:
            raise ValueError(f"alpha must lie in (0, 1], got {self.alpha!r}")
        _check.non_negative("staleness_power", self.staleness_power)
        _check.non_negative("rho", self.rho)
