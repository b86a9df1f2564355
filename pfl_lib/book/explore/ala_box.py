"""FedALA: the learned mixture of a local and a global model, in two parameters."""

import torch

from pfl_lib import formulas
from pfl_lib.book.explore.base import Explorer, Positive, Rows, Whole

STEPS = 30  # as in ala_box.js


class ALABox(Explorer):
    """Local model, global model and the best for the client's data: the path of the mixture.

    ``places`` are these three points; the loss is ½Σ h_q(θ_q − best_q)² with h = (1, curvature).
    The mixture starts at the global model (W = 1) and stays in the box the two models span.

    >>> box = ALABox(places=[[1, 2], [1.5, 1], [1.2, 1.8]], eta=0.1, curvature=1.0)
    >>> [round(w, 6) for w in box.compute()["W"][3]]
    [0.956116, 0.7832]
    """

    modules = ("ala_box.js",)

    places = Rows([[-1.6, -1.2], [1.6, 1.4], [0.3, -0.5]], at_least=3, at_most=3, within=(-3, 3))
    eta = Positive(0.03)
    curvature = Positive(1.0)
    step = Whole(8, 0, STEPS)

    def compute(self):
        local, glob, best = torch.tensor(self.places, dtype=torch.float64)
        H, way = local.new_tensor([1.0, self.curvature]), glob - local
        W, clipped = [torch.ones_like(local)], 0
        for _ in range(STEPS):
            grad = H * (formulas.ala_mix(W[-1], local, glob) - best)
            free = W[-1] - self.eta * way * grad
            clipped += int(((free < 0) | (free > 1)).sum())
            W.append(formulas.ala_step(W[-1], local, glob, grad, self.eta))
        path = [formulas.ala_mix(w, local, glob) for w in W]
        moves = way != 0
        limit = torch.where(moves, (best - local) / torch.where(moves, way, 1), 1).clamp(0, 1)
        nearest = formulas.ala_mix(limit, local, glob)

        def loss(theta):
            return float(0.5 * (H * (theta - best) ** 2).sum())

        return {
            "W": [w.tolist() for w in W],
            "path": [theta.tolist() for theta in path],
            "losses": [loss(theta) for theta in path],
            "limit": limit.tolist(),
            "best": nearest.tolist(),
            "loss_local": loss(local),
            "loss_global": loss(glob),
            "loss_best": loss(nearest),
            "stable_eta": float(2 / (way**2 * H).max()),
            "clipped": clipped,
        }
