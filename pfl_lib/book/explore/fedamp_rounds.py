"""FedAMP through time, on quadratic losses whose proximal step has a closed form."""

import math

import torch
from scipy.sparse.csgraph import connected_components

from pfl_lib import attention as attentions
from pfl_lib import formulas
from pfl_lib.book.explore.base import Explorer, Groups, Labels, Positive, Rows, Whole, Word
from pfl_lib.book.explore.fedamp_plane import TWO_GROUPS

ROUNDS, REACH, SOLVING = 60, 0.4, 400  # as in fedamp_rounds.js


class FedAMPRounds(Explorer):
    """Clients with losses ½‖w − c_i‖²: their models under FedAMP, round by round.

    ``points`` are the optima c_i; models start there, or all at the middle. Groups form, merge or
    stay apart; the objective G is shown, and where Theorem 1 applies (a convex A, the true
    gradient, α = λ/√K) its bound beside it.

    >>> rounds = FedAMPRounds()
    >>> sorted(rounds.compute())
    ['G', 'alpha', 'best', 'bound', 'groups', 'own', 'path']
    """

    modules = ("formulas.js", "fedamp_rounds.js")
    default_groups = (0, 0, 0, 1, 1, 1)

    points = Rows(TWO_GROUPS, within=(-3, 3))
    labels = Labels()
    groups = Groups()
    sigma = Positive(2.0)
    lam = Positive(1.5)
    alpha = Positive(0.1)
    attention = Word("negative_exponential", ("negative_exponential", "tamed_square_root"))
    gradient = Word("true", ("true", "printed"))
    step = Word("free", ("free", "theorem"))
    start = Word("optima", ("optima", "middle"))
    round = Whole(15, 0, ROUNDS)
    chosen = Whole(0, 0, 11)

    def compute(self):
        c = torch.tensor(self.points, dtype=torch.float64)
        A = attentions.by_name(self.attention, self.sigma)
        alpha = self.lam / math.sqrt(ROUNDS) if self.step == "theorem" else self.alpha
        factor = 2 if self.gradient == "true" else 1
        path, own = [torch.zeros_like(c) if self.start == "middle" else c], 1.0
        for k in range(ROUNDS):
            xi = formulas.fedamp_weights(path[k], A, alpha, factor)
            own = min(own, float(xi.diagonal().min()))
            path.append(self._train(xi @ path[k], c, alpha))
        result = {
            "alpha": alpha,
            "path": [w.tolist() for w in path[::15]],
            "G": [self._objective(w, c, A) for w in path],
            "own": own,
            "best": None,
            "bound": None,
            "groups": self._count_groups(path[self.round]),
        }
        if A.convex:
            star = self._minimizer(c, A)
            result["best"] = self._objective(star, c, A)
            if self.step == "theorem" and factor == 2:
                pulls = [self.lam * formulas.fedamp_gradient(w, A) for w in path]
                B = max(float(g.norm()) for g in [*pulls, *(w - c for w in path)])
                R = float((path[0] - star).norm())
                result["bound"] = (R**2 + 5 * B**2) / (2 * math.sqrt(ROUNDS))
        return result

    def _train(self, u, c, alpha):
        return formulas.proximal_step_quadratic(u, torch.ones_like(c), c, alpha / self.lam)

    def _objective(self, w, c, A):
        return float(0.5 * ((w - c) ** 2).sum() + self.lam * formulas.fedamp_objective(w, A))

    def _count_groups(self, w):
        near = formulas.squared_distances(w) < REACH**2
        return int(connected_components(near.numpy(), directed=False)[0])

    def _minimizer(self, c, A):
        """The best W of a convex G, by accelerated proximal gradient steps of length σ/m."""
        alpha = self.sigma / len(c)
        root = math.sqrt(alpha / self.lam / (1 + alpha / self.lam))
        w = v = c
        for _ in range(SOLVING):
            new = self._train(v - alpha * formulas.fedamp_gradient(v, A), c, alpha)
            w, v = new, new + (1 - root) / (1 + root) * (new - w)
        return w
