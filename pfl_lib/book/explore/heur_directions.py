"""HeurFedAMP: directions and sharpness."""

import torch

from pfl_lib import attention as attentions
from pfl_lib import formulas
from pfl_lib.book.explore.base import Between, Explorer, Groups, Labels, Positive, Rows, Whole

FAN = [[1.3, 0.5], [0.9, 0.7], [0.5, 0.9], [-0.8, 0.5], [-1.1, 0.2], [-0.3, -1.2]]


class HeurDirections(Explorer):
    """Clients as directions: HeurFedAMP's weights beside FedAMP's.

    On the unit circle ‖w_i − w_j‖² = 2 − 2cos, so FedAMP with σ' = 2/σ gives the same weights; off
    it FedAMP sees lengths and HeurFedAMP does not.

    >>> shown = HeurDirections(points=[[1, 0], [0, 1], [-1, 0]]).compute()
    >>> [round(weight, 4) for weight in shown["heur"][0]] == [round(w, 4) for w in shown["amp"][0]]
    True
    """

    modules = ("formulas.js", "heur_directions.js")
    default_groups = (0, 0, 0, 1, 1, 2)

    points = Rows(FAN, within=(-2, 2))
    labels = Labels()
    groups = Groups()
    sigma = Positive(5.0)
    self_weight = Between(0.25, 0, 1)
    chosen = Whole(0, 0, 11)

    def compute(self):
        W = torch.tensor(self.points, dtype=torch.float64)
        own = self.self_weight
        heur = formulas.heurfedamp_weights(W, self.sigma, own)
        amp = formulas.attention_weights(W, attentions.negative_exponential(2 / self.sigma), own)
        return {
            "heur": heur.tolist(),
            "amp": amp.tolist(),
            "u": formulas.mix(heur, W).tolist(),
        }
