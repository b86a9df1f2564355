"""LGA: the model of a straggler that arrives late, predicted for now."""

import torch

from pfl_lib import formulas
from pfl_lib.book.explore.base import Between, Explorer, Positive, Rows, Whole

CURVATURE = [1.0, 2.0]  # of the straggler's loss, as in stragglers.js


class Stragglers(Explorer):
    """A straggler pulls, trains on a quadratic and arrives ``staleness`` rounds later.

    ``places``: where the global model starts, where it goes, and the straggler's own optimum.
    Compared with the truth (the same training started now): Eq. (10), Eq. (11), Eq. (11) without
    its leap term, and the delay-compensated form with sign and scale put right. ``round`` is the
    moment shown: before the arrival the server's model moves on while the straggler trains.

    Where the three places lie decides a lot, so the default is a median one. Of 400 random
    placements (β = 0.02, E = 20, τ = 5) the printed leap was worse than none in all; the
    compensated one was better than none in 70 % (by 8 % in the median, three times worse in a
    tenth), and Eq. (11) better than Eq. (10) in 35 %; at the paper's β = 0.001 in all.

    >>> late = Stragglers(staleness=1).compute()["errors"]
    >>> late["eq11"] == late["no_leap"]
    True
    """

    modules = ("stragglers.js",)

    places = Rows([[-1.3, -1.8], [-0.6, 0.8], [1.6, -1.3]], at_least=3, at_most=3, within=(-2, 2))
    staleness = Whole(5, 1, 10)
    lr = Positive(0.02)
    steps = Whole(20, 1, 50)
    drift = Between(0.08, 0.02, 0.6)
    round = Whole(10, 0, 10)

    def check(self):
        super().check()
        start, _, own = self.places
        if start == own or self.places[0] == self.places[1]:
            raise ValueError(f"places must be three different points, got {self.places!r}")

    def compute(self):
        start, goal, own = torch.tensor(self.places, dtype=torch.float64)
        path = [start]
        for _ in range(self.staleness):
            path.append(path[-1] + self.drift * (goal - path[-1]))
        now, local, truth = path[-1], self._train(start, own), self._train(path[-1], own)
        four = (path[0], path[1], now, local)
        S, trust = formulas.straggler_similarity(path[0], path[1], local)
        steps = {"lr": self.lr, "local_steps": self.steps}
        guesses = {
            "eq10": formulas.leap(*four, base="pull"),
            "eq11": formulas.leap(*four),
            "no_leap": formulas.leap(*four, rule="none"),
            "compensated": formulas.leap(*four, rule="delay_compensated", **steps),
        }
        at = min(self.round, self.staleness)
        size = (truth - now).norm()
        return {
            "path": [w.tolist() for w in path],
            "local": local.tolist(),
            "here": path[at].tolist(),
            "training": self._train(start, own, self.steps * at // self.staleness).tolist(),
            "truth": truth.tolist(),
            "S": float(S),
            "trust": float(trust),
            "leap": float(formulas.leap_term(*four).norm() / (local - start).norm()),
            "guesses": {k: w.tolist() for k, w in guesses.items()},
            "errors": {k: float((w - truth).norm() / size) for k, w in guesses.items()},
        }

    def _train(self, w, own, steps=None):
        for _ in range(self.steps if steps is None else steps):
            w = w - self.lr * w.new_tensor(CURVATURE) * (w - own)
        return w
