"""FedAsync: every arrival moves the global model, a late one less (Xie et al. 2019)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._asynchronous import Asynchronous
from pfl_lib.methods._averaging import weighted_average
from pfl_lib.methods._hyper import between, choice, non_negative
from pfl_lib.methods._tensors import checked, column
from pfl_lib.random import keyed_generator
from pfl_lib.work import Prox


def fedasync_mixing(alpha, staleness, a):
    """α_t = α·(1 + staleness)^(−a): the share of a late model.

    FedAsync (Xie et al. 2019), polynomial staleness; ``staleness`` in rounds, 0 when on time.

    Equation label: eq-fedasync-mixing

    >>> fedasync_mixing(0.6, torch.tensor([0.0, 3.0]), a=0.5)
    tensor([0.6000, 0.3000])
    """
    alpha = checked(_check.between, "alpha", alpha, 0, 1)
    staleness = checked(_check.non_negative, "staleness", staleness)
    a = checked(_check.non_negative, "a", a)
    return alpha * (1 + staleness) ** -a


def fedasync_update(w_global, w_new, mixing):
    """x ← (1 − α_t)·x + α_t·w on the arrival of one model w.

    FedAsync (Xie et al. 2019, Algorithm 1).

    Equation label: eq-fedasync-update

    >>> fedasync_update(torch.tensor([0.0]), torch.tensor([10.0]), mixing=0.3)
    tensor([3.])
    """
    mixing = checked(_check.between, "mixing", mixing, 0, 1)
    return w_global + column(mixing) * (w_new - w_global)


@dataclass(frozen=True)
class FedAsync(Asynchronous):
    """x ← (1 − α_t)·x + α_t·w on every arrival, α_t = α·(1 + staleness)^(−a).

    ``staleness_power`` is a, ``rho`` the optional pull towards the model a client started from.
    Several models may arrive in a round: they come in a random order, since the last counts most.
    ``staleness`` counts the "rounds" or, as Xie et al. do, the server's "updates" since the pull.
    ``mixing="late"`` is what the SPFL paper's public code runs: only late models are mixed with the
    global one, by rounds, and then everything that arrived is averaged by the clients' sizes.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedasync", alpha=0.8)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.3
    True
    """

    alpha: float = between(0.8, 0, 1, "(]")
    staleness_power: float = non_negative(0.5)
    rho: float = non_negative(0.0)
    staleness: str = choice("rounds", ("rounds", "updates"))
    mixing: str = choice("each", ("each", "late"))
    name, label = "fedasync", "FedAsync"
    order = 3
    place = (1, 0, 1)
    idea = (
        "The server mixes each arriving model into the global one at once, with a weight that "
        "falls with the model's age."
    )
    note = "With a large mixing weight the last arrival of a round dominates."
    equations = ["eq-fedasync-mixing", "eq-fedasync-update"]
    paper = "Xie et al. 2019, Algorithm 1"
    weights_by = "staleness"

    def __post_init__(self):
        super().__post_init__()
        if self.mixing == "late" and self.staleness == "updates":
            raise ValueError(
                "staleness must be 'rounds' with mixing='late', where the server makes one update "
                "a round; got 'updates'"
            )

    def gather(self, state, fed, here, late):
        x, w = state.x, state.w[here]
        if self.mixing == "late":
            share = fedasync_mixing(self.alpha, late.to(fed.dtype), self.staleness_power)
            share = torch.where(late > 0, share, 1)
            return state.set(x=weighted_average(fedasync_update(x, w, share), fed.sizes[here]))
        generator = keyed_generator(fed.settings.seed, "arrivals", fed.k)
        order = torch.randperm(len(here), generator=generator)
        if self.staleness == "updates":
            late = self.updates_since(state.pulled[here], fed)
            late[order] += torch.arange(len(here))  # those of this round that came before
        share = fedasync_mixing(self.alpha, late.to(fed.dtype), self.staleness_power)
        for j in order.tolist():
            x = fedasync_update(x, w[j], share[j])
        return state.set(x=x)

    def updates_since(self, pulled, fed):
        """How many models the server has taken from the rounds ``pulled`` up to this round."""
        table = self.timetable(fed)
        taken = [len(table.arrivals(k)) for k in range(fed.k)]
        return torch.tensor([sum(taken[k:]) for k in pulled.tolist()], device=fed.device)

    def prox(self, pulled):
        return Prox(pulled, self.rho) if self.rho else None
