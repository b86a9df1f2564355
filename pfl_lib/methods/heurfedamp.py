"""HeurFedAMP: attention by the angle between models (Huang et al., AAAI 2021, Eq. 8)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._attention_mixing import MessagePassing, around_self, own_share, own_weight
from pfl_lib.methods._hyper import non_negative
from pfl_lib.methods._similarity import cosine_similarities
from pfl_lib.methods._tensors import checked, own


def heurfedamp_weights(W, sigma, self_weight):
    """ξ_ii = self_weight, and ξ_ij = (1 − ξ_ii)·softmax_{j≠i}(σ·cos(w_i, w_j)).

    v1 Eqs. (10)-(11), AAAI Eq. (8). v1's τ is 1 − self_weight. σ is a sharpness here: 0 is the
    plain mean of the others, and a larger σ attends *more*, the opposite of FedAMP's σ.

    Equation label: eq-heur-weights

    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> heurfedamp_weights(W, sigma=5.0, self_weight=0.2)
    tensor([[0.2000, 0.7975, 0.0025],
            [0.7007, 0.2000, 0.0993],
            [0.0172, 0.7828, 0.2000]])
    """
    sigma = checked(_check.non_negative, "sigma", sigma)
    cosines = cosine_similarities(W)
    if W.shape[0] == 1:
        return torch.ones_like(cosines)
    scores = (sigma * cosines).masked_fill(own(W), -torch.inf)
    return around_self(torch.exp(scores - scores.amax(1, keepdim=True)), self_weight)


@dataclass(frozen=True)
class HeurFedAMP(MessagePassing):
    """Clients whose models point the same way hear each other more; σ is the sharpness.

    ``self_weight`` is ξ_ii, which is 1 − τ of the tables of the first version of the paper (where
    the text calls τ "self-attention"): a number, or ("clients", ...) with one per client, or a
    schedule, as ``prox_beta``.  Algorithm 2 there has τ and β by client and round.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("heurfedamp", sigma=25.0, self_weight=0.3)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    sigma: float = non_negative(25.0)
    self_weight: float | tuple = own_share(0.5)
    name, label = "heurfedamp", "HeurFedAMP"
    family, order = "pair by pair", 2
    place = (3, 4, 2)
    idea = (
        "FedAMP by angles: what counts is the angle between two models, not their distance, and "
        "each client's own model keeps a fixed weight."
    )
    note = "A larger $\\sigma$ attends *more* sharply, the opposite of FedAMP's $\\sigma$."
    equations = ["eq-cosine-similarity", "eq-heur-weights", "eq-fedamp-message"]
    chapter = "06_heurfedamp"
    paper = "Huang et al., AAAI 2021, Eq. (8)"
    weights_by = "angles between models"

    def attend(self, w, k):
        xi = heurfedamp_weights(w, self.sigma, own_weight(self.self_weight, k, w))
        return xi, self.pull(w, k)
