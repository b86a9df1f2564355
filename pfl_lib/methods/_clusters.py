"""The base of methods with one model per cluster of clients."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._hyper import choice
from pfl_lib.methods.base import Algorithm, State


def cluster_average(X, W, cluster, sizes=None):
    """x_c = Σ_{i in c} n_i w_i / Σ_{i in c} n_i: FedAvg inside each cluster.

    A cluster c without clients keeps row c of ``X``; ``cluster`` gives the cluster of each row of
    ``W``.  Without ``sizes`` all clients count equally.

    Equation label: eq-cluster-average

    >>> W = torch.tensor([[1.0], [3.0], [9.0]])
    >>> cluster_average(torch.zeros(3, 1), W, torch.tensor([0, 0, 2]))
    tensor([[2.],
            [0.],
            [9.]])
    """
    _check.models("X", X)
    _check.models("W", W)
    if not isinstance(cluster, torch.Tensor) or cluster.shape != W.shape[:1]:
        raise ValueError(
            f"cluster must be a tensor with one number for each of the {len(W)} rows of W, "
            f"got {cluster!r}"
        )
    weights = W.new_ones(len(W)) if sizes is None else sizes.to(W.dtype)
    member = (cluster == torch.arange(len(X), device=W.device)[:, None]) * weights
    total = member.sum(1, keepdim=True)
    return torch.where(total > 0, member / torch.where(total > 0, total, 1) @ W, X)


def training_losses(X, fed, who):
    """Each client's training loss of each model: one row per client, one column per model."""
    return torch.stack([fed.evaluate(x.expand(len(who), -1), who, "train")[1] for x in X], 1)


@dataclass(frozen=True)
class ClusterModels(Algorithm):
    """Row c of ``x`` is the model of cluster c, ``cluster`` says where each client belongs.

    ``weighting``: by the clients' "sizes", or "equal".
    """

    weighting: str = choice("equal", ("sizes", "equal"))
    family = "a model for each cluster"
    chapter = "11b_methods"
    shared, private = "one model per cluster", "nothing"
    tested = "the model of the client's cluster"
    newcomer = "of all clusters' models the one with its least training loss"

    def download(self, state, fed, who):
        cluster = state.cluster[who]
        return State(w=state.x[cluster], cluster=cluster)

    def upload(self, state, done, fed, who):
        state = state.put(who, cluster=done.cluster)
        sizes = fed.sizes[who] if self.weighting == "sizes" else None
        return state.set(x=cluster_average(state.x, done.w, done.cluster, sizes))

    def personal(self, state, fed):
        return state.x[state.cluster]

    def newcomer_models(self, state, fed, newcomers):
        models = state.x[state.cluster.unique()]  # of clusters that are not empty
        return models[training_losses(models, newcomers, newcomers.everyone).argmin(1)]
