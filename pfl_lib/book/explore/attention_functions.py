"""Attention-inducing functions: A, A', and where A(‖·‖²) stops being convex."""

import math

import torch

from pfl_lib import attention as attentions
from pfl_lib.book.explore.base import Between, Explorer, Positive, Word


class AttentionFunctions(Explorer):
    """The price A(r²) of a distance r, the weight A'(r²) it gives, and the pull 2r·A'(r²).

    The pull is the slope of r ↦ A(r²): where it falls, A(‖·‖²) is no longer convex.

    >>> AttentionFunctions(sigma=2.0).compute()["convex_until"]
    1.0
    """

    modules = ("formulas.js", "attention_functions.js")

    attention = Word("negative_exponential", attentions.KINDS)
    sigma = Positive(2.0)
    distance = Between(1.5, 0, 5)

    def compute(self):
        A = attentions.by_name(self.attention, self.sigma)

        def at(r):
            t = r * r
            return torch.stack([A.value(t), A.derivative(t), 2 * r * A.derivative(t)], -1).tolist()

        return {
            "at": at(torch.tensor(self.distance, dtype=torch.float64)),
            "zero": A.slope_at_zero,
            "convex_until": math.sqrt(A.convex_until),
            "curves": at(torch.linspace(0, 5, 13, dtype=torch.float64)),
        }
