"""CFL: clustered federated learning (Sattler, Müller and Samek, IEEE TNNLS 2021)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._clusters import ClusterModels
from pfl_lib.methods._hyper import choice, positive, whole
from pfl_lib.methods._similarity import cosine_similarities
from pfl_lib.methods.base import State


def cfl_norms(updates, sizes=None):
    """‖Σ_i n_i Δ_i / n‖ and max_i ‖Δ_i‖ of a cluster's updates Δ = after − before.

    A small norm of the mean with large single norms means that clients pull apart, so that no
    common model suits them.  Without ``sizes`` all clients count equally.

    Equation label: eq-cfl-norms

    >>> cfl_norms(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))
    (tensor(0.), tensor(5.))
    """
    _check.models("updates", updates)
    weights = updates.new_ones(len(updates)) if sizes is None else sizes.to(updates.dtype)
    together = weights / weights.sum() @ updates
    return together.norm(), updates.norm(dim=1).max()


def cfl_split(similarities, rule="single"):
    """The two parts of a cluster whose most alike members, one of each part, are least alike.

    argmin over all ways to part of max_{i here, j there} cos(Δ_i, Δ_j). Merging the most alike
    until two parts are left finds it: single linkage, the paper's Algorithm 1. The authors' public
    code has complete linkage instead. Returns 0 or 1 for each client; the first client is in 0.

    Equation label: eq-cfl-split

    >>> cfl_split(torch.tensor([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]]))
    tensor([0, 1, 0])
    """
    _check.models("similarities", similarities)
    _check.one_of("rule", rule, ("single", "complete"))
    if similarities.shape != similarities.T.shape or len(similarities) < 2:
        raise ValueError(
            "similarities must be square, for two clients or more, "
            f"got shape {tuple(similarities.shape)}"
        )
    apart = (1 - similarities.double()).clamp(min=0).fill_diagonal_(0)
    return _two_parts(apart, rule)


def _two_parts(apart, rule):
    """0 or 1 for each client, by SciPy, which knows no other device than the CPU."""
    from scipy.cluster.hierarchy import fcluster, linkage  # imported late, since it takes time
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(apart.cpu().numpy(), checks=False), method=rule)
    parts = torch.from_numpy(fcluster(tree, 2, criterion="maxclust"))
    return (parts != parts[0]).long().to(apart.device)


@dataclass(frozen=True)
class CFL(ClusterModels):
    """FedAvg until it converges, then recursive splits in two wherever clients still pull apart.

    A cluster is split when its mean update is shorter than ``eps1`` while some client's is longer
    than ``eps2``; not before round ``warmup``, not with ``min_size`` clients or fewer, and only in
    a round in which all of its clients take part.  Both lengths depend on network and learning
    rate: the defaults are those of the authors' public example.  ``rule``: see ``cfl_split``.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("cfl", eps1=1.0, eps2=0.1, warmup=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 4, progress=False)
    >>> int(history.state.cluster.max()) > 0
    True
    """

    eps1: float = positive(0.4)
    eps2: float = positive(1.6)
    warmup: int = whole(20, at_least=0)
    min_size: int = whole(2)
    rule: str = choice("single", ("single", "complete"))
    name, label = "cfl", "CFL"
    order = 2
    place = (1, 0, 2)
    idea = (
        "All clients begin in one cluster that runs FedAvg. Where a cluster has come to rest and "
        "some clients still pull, the server parts it in two by the angles between their updates."
    )
    note = (
        "The number of clusters need not be known, but two lengths have to be chosen, and a split "
        "is never undone."
    )
    equations = ["eq-cfl-norms", "eq-cfl-split", "eq-cluster-average"]
    paper = "Sattler et al., IEEE TNNLS 2021, Algorithms 1 and 2"
    weights_by = "angles between updates, by the server"
    needs = {"eps1": 0.4, "eps2": 0.5, "warmup": 1}

    def start(self, fed):
        # a row for every cluster there could ever be
        none = torch.zeros(fed.m, dtype=torch.int64, device=fed.device)
        return State(x=fed.initial(), cluster=none)

    def upload(self, state, done, fed, who):
        if fed.k >= self.warmup:
            done = done.set(cluster=self.parted(state, done, fed, who))
        return super().upload(state, done, fed, who)

    def parted(self, state, done, fed, who):
        """The clusters of the clients ``who`` after this round's splits."""
        updates, cluster = done.w - state.x[done.cluster], done.cluster
        new = int(state.cluster.max()) + 1
        for c in range(new):
            here = (cluster == c).nonzero().flatten()
            here = here[who[here].argsort()]  # the first client keeps the number
            if len(here) <= self.min_size or len(here) < int((state.cluster == c).sum()):
                continue
            sizes = fed.sizes[who][here] if self.weighting == "sizes" else None
            together, alone = cfl_norms(updates[here], sizes)
            if together < self.eps1 and alone > self.eps2:
                away = cfl_split(cosine_similarities(updates[here]), self.rule).bool()
                cluster = cluster.index_fill(0, here[away], new)
                new += 1
        return cluster
