"""FedAMP's weights in the plane, and the attention-inducing function behind them."""

import math

import torch

from pfl_lib import attention as attentions
from pfl_lib import formulas
from pfl_lib.book.explore.base import Between, Explorer, Groups, Labels, Positive, Rows, Whole, Word

TWO_GROUPS = [[-2.1, 1.2], [-1.1, 0.3], [-0.7, 1.8], [0.6, -1.6], [2.1, -0.9], [1.3, 0.2]]


class FedAMPPlane(Explorer):
    """Clients one can drag in the plane, and who listens to whom under FedAMP.

    Shows ξ of Eq. (7) as links, the messages u, and where the combination stops being convex.
    ``form="alpha"``: the self-weight is what the step α leaves; ``"self_weight"``: it is fixed.
    ``beside`` the plane stand the weights, or a curve over the distance r: A(r²), its slope A'(r²),
    or the pull 2r·A'(r²). The pull is the slope of r ↦ A(r²): where it falls, A(‖·‖²) is no longer
    convex.

    >>> plane = FedAMPPlane(sigma=2.0, alpha=0.5, points=[[1, 0], [0.5, 0.5], [-1, 2]])
    >>> [round(weight, 4) for weight in plane.compute()["xi"][0]]
    [0.8007, 0.1947, 0.0046]
    """

    modules = ("formulas.js", "fedamp_plane.js")
    default_groups = (0, 0, 0, 1, 1, 1)

    points = Rows(TWO_GROUPS, within=(-3, 3))
    labels = Labels()
    groups = Groups()
    sigma = Positive(2.0)
    alpha = Positive(1.0)
    self_weight = Between(0.3, 0, 1)
    attention = Word("negative_exponential", attentions.KINDS)
    beside = Word("weights", ("weights", "value", "slope", "pull"))
    form = Word("alpha", ("alpha", "self_weight"))
    chosen = Whole(0, 0, 11)

    def compute(self):
        W = torch.tensor(self.points, dtype=torch.float64)
        A = attentions.by_name(self.attention, self.sigma)
        if self.form == "alpha":
            xi = formulas.fedamp_weights(W, A, self.alpha)
        else:
            xi = formulas.attention_weights(W, A, self.self_weight)
        r = (W - W[min(self.chosen, len(W) - 1)]).norm(dim=1)

        def on(r):
            return torch.stack(
                [A.value(r * r), A.derivative(r * r), 2 * r * A.derivative(r * r)], -1
            )

        return {
            "xi": xi.tolist(),
            "u": formulas.mix(xi, W).tolist(),
            "at": torch.cat([r[:, None], on(r)], 1).tolist(),
            "convex_until": math.sqrt(A.convex_until),
            "curves": on(torch.linspace(0, 6, 13, dtype=torch.float64)).tolist(),
            "safe_alpha": float(formulas.safe_alpha(A, len(W))),
            "largest_alpha": float(formulas.largest_convex_alpha(W, A).min()),
        }
