"""Own mean, common mean, and what lies between them."""

import torch

from pfl_lib import formulas
from pfl_lib.book.explore.base import Between, Explorer, Rows, Whole

MEAN, SPREAD = 7.0, 4.0  # days: the mean of all hospitals, the spread of one patient; as in the .js
#: nine hospitals: where the true mean lies, in units of τ, and the luck of its sample
LUCK = [
    [-1.5, -0.6], [-1.0, 1.2], [-0.7, -1.5], [-0.3, 0.4], [0.0, -1.0],
    [0.2, 1.7], [0.6, -0.2], [1.1, 0.9], [1.6, -0.9],
]  # fmt: skip


class Shrinkage(Explorer):
    """Nine hospitals, each with ``patients`` stays: their own means drawn towards the common one.

    ``tau`` is the spread of the true means, ``lam`` the share λ of the common mean. Expected errors
    are those of the chapter: own σ²/n, common σ²/nm + (1 − 1/m)τ², and of the mixture least at
    λ = v/(v + τ²) with v = σ²/n. ``points`` holds the truth and the luck of each hospital, both in
    standard deviations.

    >>> Shrinkage(patients=16, tau=1.0).compute()["best"]
    0.5
    """

    modules = ("shrinkage.js",)

    points = Rows(LUCK, at_least=3, within=(-6, 6))
    patients = Whole(16, 1, 256)
    tau = Between(1.0, 0, 3)
    lam = Between(0.0, 0, 1)
    chosen = Whole(0, 0, 11)

    def compute(self):
        luck = torch.tensor(self.points, dtype=torch.float64)
        m, v = len(luck), SPREAD**2 / self.patients
        truth = MEAN + self.tau * luck[:, :1]
        own = truth + v**0.5 * luck[:, 1:]
        xi = (1 - self.lam) * torch.eye(m, dtype=torch.float64) + self.lam / m
        mixed = formulas.mix(xi, own)
        best = v / (v + self.tau**2)

        def expected(lam):
            return v - (1 - 1 / m) * (2 * lam * v - lam**2 * (v + self.tau**2))

        return {
            "truth": truth.flatten().tolist(),
            "own": own.flatten().tolist(),
            "mixed": mixed.flatten().tolist(),
            "here": float(((mixed - truth) ** 2).mean()),
            "expected": {"own": v, "common": expected(1), "mixed": expected(self.lam)},
            "best": best,
            "least": expected(best),
        }
