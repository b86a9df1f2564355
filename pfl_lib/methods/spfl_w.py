"""SPFL-w: SPFL that mixes models instead of updates (the SPFL paper, Sec. 4.1)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._similar_updates import SimilarUpdates, by_stage
from pfl_lib.methods.base import preset


def spfl_w_step(W, S, stages=None) -> torch.Tensor:
    """w_{s,i} ← Σ_j S̃_s(i, j)·w_{s,j} over the locally trained models: SPFL-w.

    SPFL Sec. 4.1, without its factor 1/M: rows of S̃ sum to 1 already.

    Equation label: eq-spfl-w-step

    >>> spfl_w_step(torch.tensor([[0.0], [4.0]]), torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    tensor([[1.],
            [3.]])
    """
    _check.models("W", W)
    return by_stage(W, stages, S, lambda omega, s: omega @ W[:, s])


@dataclass(frozen=True)
class SPFLw(SimilarUpdates):
    """Each client gets the trained models of all, weighted by the similarity of their updates.

    Without the printed factor 1/M, which would shrink every model.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("spfl-w", period=10)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    name, label = "spfl-w", "SPFL-w"
    family, order = "pair by pair", 6
    idea = "SPFL's weights, applied to the trained models instead of the updates."
    note = (
        "The rows of weights sum to one already; the paper's extra factor $1/M$ would shrink the "
        "model every round."
    )
    equations = ["eq-sngs", "eq-spfl-w-step"]
    chapter = "08_spfl"
    paper = "the SPFL paper, Sec. 4.1"
    shared = "models, pairwise"

    def mix(self, w, trained, S, stages, fed):
        return spfl_w_step(trained, S, stages)


SPFLw1Step = preset(
    SPFLw,
    "SPFLw1Step",
    steps_per_batch=1,
    name="spfl-w-1step",
    label="SPFL-w (1-step)",
    order=7,
    idea="SPFL-w with one gradient step on each batch.",
    note="Softmax of cosines is flat, so this stays close to FedAvg.",
)
