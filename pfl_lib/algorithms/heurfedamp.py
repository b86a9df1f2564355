"""HeurFedAMP: attention by the angle between models (Huang et al., AAAI 2021, Eq. 8)."""

from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib.algorithms.message_passing import MessagePassing, scheduled
from pfl_lib.formulas import heurfedamp_weights


@dataclass(frozen=True)
class HeurFedAMP(MessagePassing):
    """Clients whose models point the same way hear each other more; σ is the sharpness.

    ``self_weight`` is ξ_ii, which is 1 − τ of the tables of the first version of the paper.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("heurfedamp", sigma=25.0, self_weight=0.3)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    sigma: float = 25.0
    self_weight: float = 0.5
    name = "heurfedamp"
    label = "HeurFedAMP"
    paper = "Huang et al., AAAI 2021, Eq. (8)"

    def attend(self, w, k):
        xi = heurfedamp_weights(w, self.sigma, self.self_weight)
        return xi, 1 / scheduled(self.prox_beta, k)

    def __post_init__(self):
        super().__post_init__()
        _check.non_negative("sigma", self.sigma)
        _check.between("self_weight", self.self_weight, 0, 1)
