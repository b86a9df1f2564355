"""IFCA: iterative federated clustering (Ghosh et al., NeurIPS 2020), model averaging."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._clusters import ClusterModels, training_losses
from pfl_lib.methods._hyper import whole
from pfl_lib.methods.base import State
from pfl_lib.random import keyed_generator


def ifca_choice(losses):
    """ĵ_i = argmin_j F_i(x_j): each client's cluster is the one whose model has the least loss.

    Row i of ``losses`` (m, k) holds client i's training loss of every cluster's model. Ties
    go to the first; NaN is never chosen, unless all losses are NaN.

    Equation label: eq-ifca-choice

    >>> ifca_choice(torch.tensor([[0.9, 0.2], [0.1, 0.5]]))
    tensor([1, 0])
    """
    _check.models("losses", losses)
    return losses.nan_to_num(nan=torch.inf).argmin(1)


@dataclass(frozen=True)
class IFCA(ClusterModels):
    """``clusters`` models; in every round each client trains the one with the least loss on its
    training data, and each model becomes the mean of its clients' results.

    The models must start different.  The paper draws them at random; here the first is the
    federation's initial model, and the others are the same numbers, shuffled inside each tensor.
    For the test each client chooses again, by training loss, among the newest models.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("ifca", clusters=2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    clusters: int = whole(3)
    name, label = "ifca", "IFCA"
    order = 3
    place = (1, 0, 3)
    idea = (
        "The server keeps k models. Each client tries all of them on its own data, trains the one "
        "with the least loss, and the server averages among those that chose the same."
    )
    note = (
        "As with k-means, the start decides: a model that nobody chooses in the first round may "
        "never be chosen. The paper restarts with other seeds; so should you. k has to be known."
    )
    equations = ["eq-ifca-choice", "eq-cluster-average"]
    paper = "Ghosh et al., NeurIPS 2020, Algorithm 1, option II"
    weights_by, cost = "training losses, by the client", "(1+k)Σ"
    tested = "of all clusters' models the one with the client's least training loss"

    def start(self, fed):
        first, key = fed.initial(fed.everyone[:1])[0], (fed.settings.seed, "ifca")
        others = [shuffled(first, fed, *key, j) for j in range(1, self.clusters)]
        if others and torch.equal(others[0], first):
            raise ValueError(
                f"{self.label} needs models that begin apart, and all initial numbers of "
                f"{fed.model_name} are alike, tensor by tensor: give it a random start"
            )
        none = torch.zeros(fed.m, dtype=torch.int64, device=first.device)
        return State(x=torch.stack([first, *others]), cluster=none)

    def download(self, state, fed, who):
        cluster = self.choose(state.x, fed, who)
        return State(w=state.x[cluster], cluster=cluster)

    def personal(self, state, fed):
        return state.x[self.choose(state.x, fed, fed.everyone)]

    def newcomer_models(self, state, fed, newcomers):
        return state.x[self.choose(state.x, newcomers, newcomers.everyone)]

    def choose(self, x, fed, who):
        """The cluster of each client by its training loss."""
        return ifca_choice(training_losses(x, fed, who))

    def sent(self, fed, who, k):
        return (1 + self.clusters) * fed.d * len(who)


def shuffled(w, fed, *key):
    """The model ``w`` with the numbers of every tensor in another random order."""
    generator, new = keyed_generator(*key), w.clone()
    for _, where in fed.tensors:
        order = torch.randperm(where.stop - where.start, generator=generator).to(w.device)
        new[where] = w[where][order]
    return new
