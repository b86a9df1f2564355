"""The feedback loop of attention: near models hear each other, and so come nearer."""

import torch

from pfl_lib.book import theory
from pfl_lib.book.explore.base import Between, Explorer, Positive, Whole

ROUNDS, SOLVING = 40, 400  # as in feedback_loop.js


class FeedbackLoop(Explorer):
    """Two groups of five clients whose optima lie ``gap`` apart, under FedAMP, self-weight 0.2.

    In a round a client mixes what it hears and covers the part ``drift`` of its way to its own
    optimum (``pfl_lib.book.theory.feedback_loop``). Models that ``start`` near each other may stay
    together and models that start far apart stay apart, with the same clients and the same σ.

    >>> near, far = (FeedbackLoop(start=start).compute()["end"] for start in (0, 3))
    >>> round(near, 1), round(far, 1)
    (0.8, 2.9)
    """

    modules = ("feedback_loop.js",)

    sigma = Positive(1.5)
    gap = Between(3.0, 0.1, 6)
    drift = Between(0.2, 0.05, 0.95)
    start = Between(2.0, 0, 6)
    round = Whole(ROUNDS, 0, ROUNDS)

    def compute(self):
        rates = {"sigma": self.sigma, "drift": self.drift}
        path = theory.feedback_loop(gap=self.gap, start=self.start, rounds=SOLVING, **rates)
        ends = torch.tensor([[0.0], [6.0]], dtype=torch.float64)
        gaps = torch.tensor([self.gap, *(k / 2 for k in range(1, 13))], dtype=torch.float64)
        (low, *below), (high, *above) = (
            theory.feedback_loop(gap=gaps, start=ends, rounds=SOLVING, **rates).apart[-1].tolist()
        )
        return {
            "path": path.apart[: ROUNDS + 1].tolist(),
            "share": path.share[: ROUNDS + 1].tolist(),
            "end": float(path.apart[-1]),
            "low": low,
            "high": high,
            "two": high - low > 0.01,
            "loop": [below, above],
        }
