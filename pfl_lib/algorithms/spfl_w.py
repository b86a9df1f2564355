"""SPFL-w: SPFL that mixes models instead of updates (the SPFL paper, Sec. 4.1)."""

from dataclasses import dataclass

from pfl_lib.algorithms.subclass_personalised import SubclassPersonalised
from pfl_lib.formulas import spfl_w_step


@dataclass(frozen=True)
class SPFLw(SubclassPersonalised):
    """Each client gets the trained models of all, weighted by the similarity of their updates.

    Without the printed factor 1/M, which would shrink every model.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("spfl-w", period=10)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    name = "spfl-w"
    label = "SPFL-w"
    paper = "the SPFL paper, Sec. 4.1"

    def mix(self, w, trained, S, parts, fed):
        return spfl_w_step(trained, S, parts)


@dataclass(frozen=True)
class SPFLw1Step(SPFLw):
    """SPFL-w with one SGD step on every batch.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("spfl-w-1step")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    steps_per_batch: int = 1
    name = "spfl-w-1step"
    label = "SPFL-w (1-step)"
