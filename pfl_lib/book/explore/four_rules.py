"""The same clients under FedAvg, FedAMP, HeurFedAMP and FedACS."""

import torch

from pfl_lib import attention as attentions
from pfl_lib import formulas
from pfl_lib.book.explore.base import Between, Explorer, Groups, Labels, Positive, Rows, Whole

TWO_SIDES = [[2.4, 1.0], [1.3, 0.4], [1.2, 2.1], [-0.6, 1.7], [-2.2, 0.9], [-1.1, -0.7]]


class FourRules(Explorer):
    """One picture, four rules: what each server step makes of the same clients.

    FedAMP and HeurFedAMP share the self-weight. ``inside`` of ``compute()`` is the share of the
    weight that stays in a client's own group, on average.

    >>> round(FourRules().compute()["inside"]["fedavg"], 4)
    0.5
    """

    modules = ("formulas.js", "four_rules.js")
    default_groups = (0, 0, 0, 1, 1, 1)

    points = Rows(TWO_SIDES, within=(-3, 3))
    labels = Labels()
    groups = Groups()
    sigma = Positive(1.5)
    sharpness = Positive(5.0)
    self_weight = Between(0.33, 0, 1)
    p = Between(0.5, 0, 1)
    chosen = Whole(0, 0, 11)

    def compute(self):
        W = torch.tensor(self.points, dtype=torch.float64)
        own, m = self.self_weight, len(W)
        A = attentions.negative_exponential(self.sigma)
        weights = {
            "fedavg": W.new_full((m, m), 1 / m),
            "fedamp": formulas.attention_weights(W, A, own),
            "heurfedamp": formulas.heurfedamp_weights(W, self.sharpness, own),
            "fedacs": formulas.fedacs_weights(W, self.p)[0],
        }
        group = torch.tensor(self.groups or [0] * m)
        same = group[:, None] == group[None, :]
        return {
            "weights": {k: xi.tolist() for k, xi in weights.items()},
            "u": {k: formulas.mix(xi, W).tolist() for k, xi in weights.items()},
            "inside": {k: float((xi * same).sum() / m) for k, xi in weights.items()},
        }
