"""FedAMP: federated attentive message passing (Huang et al., AAAI 2021, Algorithm 1)."""

import warnings
from dataclasses import dataclass

from pfl_lib import _check
from pfl_lib import attention as attentions
from pfl_lib.algorithms.message_passing import MessagePassing, scheduled
from pfl_lib.formulas import attention_weights, fedamp_weights, median_sigma, safe_alpha


@dataclass(frozen=True)
class FedAMP(MessagePassing):
    """Clients whose models are near hear each other more.

    Two forms; give one of ``alpha`` and ``self_weight``.  With ``alpha`` (a number, or "safe" for
    the largest α that keeps every message a convex combination) the weights are α·A' and
    β = α/``lam``: the method of the theorems.  With ``self_weight`` the others share the rest in
    proportion to A', and β follows ``prox_beta``: what the reported experiments ran.

    ``sigma`` is a number, or "median": ``multiple`` times the median squared distance between the
    round's models, since useful numbers span six orders of magnitude.  ``attention`` names the
    attention-inducing function; ``grad_factor=2`` is the true gradient, 1 what is printed.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedamp", self_weight=0.3)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    sigma: float | str = "median"
    alpha: float | str | None = None
    self_weight: float | None = None
    lam: float = 1.0
    attention: str = "negative_exponential"
    multiple: float = 0.1
    grad_factor: float = 1
    half_kernel: bool = False
    name = "fedamp"
    label = "FedAMP"
    paper = "Huang et al., AAAI 2021, Algorithm 1"

    def attend(self, w, k):
        attention = self.attention_for(w)
        if self.self_weight is not None:
            xi = attention_weights(w, attention, self.self_weight)
            return xi, 1 / scheduled(self.prox_beta, k)
        safe = safe_alpha(attention, len(w), self.grad_factor)
        alpha = safe if self.alpha == "safe" else self.alpha
        xi = fedamp_weights(w, attention, alpha, self.grad_factor)
        if xi.diagonal().min() < -1e-6:
            warnings.warn(
                f"alpha = {alpha:g} gives some client a negative weight for its own model; "
                f"alpha <= {float(safe):.4g} is safe for any models with this sigma",
                stacklevel=2,
            )
        return xi, self.lam / alpha  # 1/β = λ/α

    def attention_for(self, w):
        """The attention-inducing function of this round."""
        kind = attentions.KINDS[self.attention]
        if self.sigma == "median":
            sigma = median_sigma(w, self.multiple)
            sigma = sigma.sqrt() if kind.sigma_is_distance else sigma
        else:
            sigma = self.sigma
        return kind(sigma=sigma, half_kernel=True) if self.half_kernel else kind(sigma=sigma)

    def __post_init__(self):
        super().__post_init__()
        if self.sigma != "median":
            _check.positive("sigma", self.sigma)
        if (self.alpha is None) == (self.self_weight is None):
            raise ValueError(
                "give either alpha (the theorems' form) or self_weight (the experiments' form), "
                f"got alpha={self.alpha!r} and self_weight={self.self_weight!r}"
            )
        if self.self_weight is not None:
            _check.between("self_weight", self.self_weight, 0, 1)
        elif self.alpha != "safe":
            _check.positive("alpha", self.alpha)
        _check.positive("lam", self.lam)
        _check.positive("multiple", self.multiple)
        _check.one_of("grad_factor", self.grad_factor, (1, 2))
        _check.one_of("attention", self.attention, attentions.KINDS)
        if self.half_kernel and self.attention != "negative_exponential":
            raise ValueError(
                f"half_kernel belongs to 'negative_exponential', not to {self.attention!r}"
            )
