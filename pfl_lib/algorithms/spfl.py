"""SPFL: subclass personalised federated learning (the SPFL paper, Algorithm 1)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.subclass_personalised import SubclassPersonalised
from pfl_lib.formulas import spfl_step


@dataclass(frozen=True)
class SPFL(SubclassPersonalised):
    """Each client's model moves by everybody's updates, weighted by their similarity to its own.

    ``rule`` and ``lr_server`` are ω and α of Eq. (7): "softmax" with α = 1 (weights that sum to
    one), "size_renorm", or "literal", with whose weights the printed α = 0.01 hardly moves.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("spfl", period=10)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.8
    True
    """

    rule: str = "softmax"
    lr_server: float = 1.0
    name = "spfl"
    label = "SPFL"

    def mix(self, w, trained, S, parts, fed):
        begin = trained.clone()  # what stays at home is as trained there
        for part in parts:
            begin[:, part] = w[:, part]
        return spfl_step(begin, w - trained, S, self.rule, fed.sizes, self.lr_server, parts)  # (7)

    def __post_init__(self):
        super().__post_init__()
        _check.one_of("rule", self.rule, ("softmax", "size_renorm", "literal"))
        _check.positive("lr_server", self.lr_server)


@dataclass(frozen=True)
class SPFL1Step(SPFL):
    """SPFL with one SGD step on every batch.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("spfl-1step")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    steps_per_batch: int = 1
    name = "spfl-1step"
    label = "SPFL (1-step)"
