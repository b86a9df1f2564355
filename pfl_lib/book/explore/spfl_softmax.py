"""SPFL: cosines of the clients' updates, stage by stage, through a softmax."""

import math

import torch

from pfl_lib import formulas
from pfl_lib.book.explore.base import Explorer, Groups, Labels, Positive, Rows, Whole, Word

BODY = [[1.2, 0.3], [1.1, -0.1], [0.8, 0.5], [0.9, 0.8], [0.4, 1.2], [0.2, 1.0]]
HEAD = [[1.1, 0.6], [0.5, 0.9], [-0.9, 0.8], [-1.2, 0.3], [-0.3, -1.1], [0.4, -1.0]]


class SPFLSoftmax(Explorer):
    """Updates of body and head, their cosines, and the softmax weights S̃ of either stage.

    >>> round(SPFLSoftmax().compute()["most"], 3)  # e², the flatness of the paper's softmax
    7.389
    """

    modules = ("formulas.js", "spfl_softmax.js")

    body = Rows(BODY, within=(-1.5, 1.5))
    head = Rows(HEAD, within=(-1.5, 1.5))
    labels = Labels()
    groups = Groups()
    temperature = Positive(1.0)
    stages = Word("two", ("two", "one"))
    chosen = Whole(0, 0, 11)

    def __init__(self, **settings):
        if "body" not in settings and "head" not in settings:
            settings.setdefault("groups", [0, 0, 1, 1, 2, 2])
        super().__init__(**settings)

    def check(self):
        for name in ("head", "labels", "groups"):
            given = getattr(self, name)
            if (given or name == "head") and len(given) != len(self.body):
                raise ValueError(
                    f"{name} must have one entry a row of body, {len(self.body)}, got {len(given)}"
                )

    def compute(self):
        body = torch.tensor(self.body, dtype=torch.float64)
        head = torch.tensor(self.head, dtype=torch.float64)
        updates, stages = torch.cat([body, head], 1), [slice(0, 2), slice(2, 4)]
        S = formulas.sngs(updates, stages if self.stages == "two" else None, self.temperature)
        # From zero with α = 1 a model moves by −Σ_j S̃(i, j)·g_j.
        moves = -formulas.spfl_step(torch.zeros_like(updates), updates, S, stages=stages)
        return {
            "body": (S[0] if S.ndim == 3 else S).tolist(),
            "head": (S[1] if S.ndim == 3 else S).tolist(),
            "move_body": moves[:, :2].tolist(),
            "move_head": moves[:, 2:].tolist(),
            "ratio": float((S.amax(-1) / S.amin(-1)).max()),  # in one row
            "most": math.exp(2 / self.temperature),
        }
