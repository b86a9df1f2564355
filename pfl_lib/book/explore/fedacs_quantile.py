"""FedACS: cosines, the quantile that cuts them, and the links that are left."""

import torch

from pfl_lib import formulas
from pfl_lib.book.explore.base import Between, Explorer, Groups, Labels, Rows, Whole, Word

SPREAD = [[1.5, 0.3], [1.0, 0.8], [1.3, -0.5], [-0.6, 1.2], [-1.2, 0.9], [-0.9, -1.1]]


class FedACSQuantile(Explorer):
    """The similarity matrix of FedACS, the threshold δ (the p-quantile of it), what is kept.

    >>> points = [[2, 0], [0.9, 0.5], [0.2, 1.5], [-0.7, 0.9]]
    >>> round(FedACSQuantile(points=points, p=0.5).compute()["delta"], 4)
    0.6491
    """

    modules = ("formulas.js", "fedacs_quantile.js")
    default_groups = (0, 0, 0, 1, 1, 2)

    points = Rows(SPREAD, within=(-2, 2))
    labels = Labels()
    groups = Groups()
    p = Between(0.5, 0, 1)
    negatives = Word("drop", ("drop", "keep"))
    chosen = Whole(0, 0, 11)

    def compute(self):
        W = torch.tensor(self.points, dtype=torch.float64)
        weights, delta = formulas.fedacs_weights(W, self.p, self.negatives)
        others = weights - torch.diag(weights.diagonal())
        return {
            "S": formulas.cosine_similarities(W).tolist(),
            "delta": float(delta),
            "weights": weights.tolist(),
            "u": formulas.mix(weights, W).tolist(),
            "heard": (others != 0).sum(1).tolist(),
        }
