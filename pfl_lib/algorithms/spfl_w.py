"""SPFL-w: SPFL that mixes models instead of updates (the SPFL paper, Sec. 4.1)."""

from dataclasses import dataclass

from pfl_lib.algorithms.subclass_personalised import SubclassPersonalised
from pfl_lib.formulas import spfl_w_step


@dataclass(frozen=True)
class SPFLw(SubclassPersonalised):
    """Each client gets the trained models of all, weighted by the similarity of their updates.

    Without the printed factor 1/M, which would shrink every model.
    """

    name = "spfl-w"
    label = "SPFL-w"
    paper = "the SPFL paper, Sec. 4.1"

    def mix(self, w, trained, S, parts, fed):
        return spfl_w_step(trained, S, parts)


@dataclass(frozen=True)
class SPFLw1Step(SPFLw):
    """SPFL-w with one SGD step on every batch."""

    steps_per_batch: int = 1
    name = "spfl-w-1step"
    label = "SPFL-w (1-step)"
