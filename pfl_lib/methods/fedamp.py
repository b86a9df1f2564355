"""FedAMP: federated attentive message passing (Huang et al., AAAI 2021, Algorithm 1).

v1 is arXiv:2007.03797v1.  The cloud keeps one message u_i = Σ_j ξ_ij w_j per client; row i of the
weights ξ is what client i hears.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from pfl_lib import _check, _schedules
from pfl_lib import attention as attentions
from pfl_lib.methods._attention_mixing import MessagePassing, around_self, own_share, own_weight
from pfl_lib.methods._hyper import choice, flag, hyper, positive
from pfl_lib.methods._similarity import ROWS, median_sigma, squared_distances
from pfl_lib.methods._tensors import checked, own


def fedamp_weights(W, attention, alpha, grad_factor=1):
    """ξ_ij = c·α·A'(‖w_i − w_j‖²) for j ≠ i, and ξ_ii = 1 − Σ_{j≠i} ξ_ij.

    v1 Eq. (4), AAAI Eqs. (5) and (7). ``grad_factor`` c = 1 is what is printed; c = 2 is the true
    gradient step W − α∇𝒜(W), for which d/dw A(‖w − v‖²) = 2A'(‖w − v‖²)(w − v). With c = 1 the
    method minimizes the objective with half the λ. Rows sum to 1 always; a self weight below zero
    says that α is beyond ``largest_convex_alpha``, and is left to be seen. One client hears itself.

    Equation label: eq-fedamp-weights

    >>> from pfl_lib.attention import negative_exponential
    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> fedamp_weights(W, negative_exponential(sigma=2.0), alpha=0.5)
    tensor([[0.8007, 0.1947, 0.0046],
            [0.1947, 0.7789, 0.0263],
            [0.0046, 0.0263, 0.9691]])
    """
    if W.shape[0] == 1:  # then any α is safe, an infinite one too
        return torch.ones_like(_heard(W, attention, grad_factor))
    alpha = checked(_check.non_negative, "alpha", alpha)
    heard = alpha * _heard(W, attention, grad_factor)
    return heard + torch.diag(1 - heard.sum(1))


def attention_weights(W, attention, self_weight):
    """ξ_ii = self_weight, and ξ_ij = (1 − ξ_ii)·A'(t_ij)/Σ_{h≠i} A'(t_ih): what v1 ran.

    v1 Eqs. (7)-(9). The tables' τ is the weight of the *others* (as in Eq. (11); Eq. (7) has it
    the other way round), so self_weight = 1 − τ. The largest A' of a row is divided out first, so
    that a tiny σ leaves the nearest neighbour instead of 0/0. Where all A' vanish (SCAD, MCP, or
    one client alone) nobody is heard: ξ_ii = 1. ``self_weight`` may be a tensor, one per client.

    Equation label: eq-fedamp-attention-weights

    >>> from pfl_lib.attention import negative_exponential
    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> attention_weights(W, negative_exponential(sigma=2.0), self_weight=0.05)
    tensor([[0.0500, 0.9282, 0.0218],
            [0.8368, 0.0500, 0.1132],
            [0.1406, 0.8094, 0.0500]])
    """
    distances, ratio = squared_distances(W), []
    if W.shape[0] == 1:
        return torch.ones_like(distances)
    for me, t in zip(own(W).split(ROWS), distances.split(ROWS)):
        nearest = t.masked_fill(me, torch.inf).amin(1, keepdim=True)
        ratio.append(attention.ratio(torch.where(me, nearest, t), nearest).masked_fill(me, 0))
    return around_self(torch.cat(ratio), self_weight)


def largest_convex_alpha(W, attention, grad_factor=1):
    """The largest α per row with ξ_ii ≥ 0: 1/(c·Σ_{j≠i} A'(t_ij)); inf where nobody is heard.

    Up to it u_i is a convex combination of the models (AAAI Sec. 4 takes that for granted).

    Equation label: eq-fedamp-largest-alpha

    >>> from pfl_lib.attention import negative_exponential
    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> largest_convex_alpha(W, negative_exponential(sigma=2.0))
    tensor([ 2.5090,  2.2619, 16.1662])
    """
    return 1 / _heard(W, attention, grad_factor).sum(1)


def safe_alpha(attention, m, grad_factor=1):
    """An α for which the weights are convex whatever the models: 1/(c·(m − 1)·A'(0+)).

    For the exponential this is σ/(m − 1) with c = 1. One client: any α (inf).

    Equation label: eq-fedamp-safe-alpha

    >>> from pfl_lib.attention import negative_exponential
    >>> safe_alpha(negative_exponential(sigma=2.0), m=3)
    1.0
    """
    m = _check.whole("m", m)
    factor = _check.positive("grad_factor", grad_factor)
    return torch.inf if m == 1 else 1 / (factor * (m - 1) * attention.slope_at_zero)


def fedamp_objective(W, attention):
    """𝒜(W) = Σ_{i<j} A(‖w_i − w_j‖²), the part of FedAMP's objective that couples the clients.

    v1 and AAAI Eqs. (1)-(2); FedACS Eq. (1) sums over ordered pairs, which is twice this.

    Equation label: eq-fedamp-objective

    >>> from pfl_lib.attention import negative_exponential
    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> fedamp_objective(W, negative_exponential(sigma=2.0))
    tensor(2.0975)
    """
    return attention.value(squared_distances(W)).triu(1).sum()


def fedamp_gradient(W, attention):
    """∇𝒜(W): row i is 2·Σ_{j≠i} A'(‖w_i − w_j‖²)(w_i − w_j), with the 2 the papers lost.

    Equation label: eq-fedamp-gradient

    >>> from pfl_lib.attention import negative_exponential
    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> fedamp_gradient(W, negative_exponential(sigma=2.0))
    tensor([[ 0.4260, -0.4260],
            [-0.2313,  0.2313],
            [-0.1947,  0.1947]])
    """
    pull = _heard(W, attention, grad_factor=2)
    centered = W - W.mean(0)  # differences only matter, and small numbers cancel less
    return pull.sum(1, keepdim=True) * centered - pull @ centered


def proximal_step_quadratic(U, H, c, beta):
    """argmin_w F_i(w) + ‖w − u_i‖²/(2β) for F_i(w) = ½·Σ_q h_q(w_q − c_q)²: (βhc + u)/(βh + 1).

    v1 Eq. (5), AAAI Eq. (6), on a loss whose answer is known; β = α/λ. All rows at once.

    Equation label: eq-fedamp-prox

    >>> proximal_step_quadratic(torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([3.0]), 2.0)
    tensor([2.])
    """
    beta = checked(_check.positive, "beta", beta)
    return (beta * H * c + U) / (beta * H + 1)


def _heard(W, attention, grad_factor):
    """c·A'(t_ij) with an empty diagonal."""
    factor = _check.positive("grad_factor", grad_factor)
    return factor * attention.derivative(squared_distances(W)).masked_fill(own(W), 0)


@dataclass(frozen=True)
class FedAMP(MessagePassing):
    """Clients whose models are near hear each other more.

    Two forms; give one of ``alpha`` and ``self_weight``.  With ``alpha`` the weights are α·A' and
    β = α/``lam``; α is a number, "safe" for the largest that keeps every message a convex
    combination, or a schedule: (first, factor, every) for first·factor^⌊k/every⌋ in round k,
    ("power", first, p) for first/(k + 1)^p.  With a number for ``sigma`` this is the method of the
    theorems, whose second halves ask for a falling α.  With ``self_weight`` the others share the
    rest in proportion to A', and β follows ``prox_beta``: what the reported experiments ran.

    ``sigma`` is a number, or "median": ``multiple`` times the median squared distance between the
    round's models, since useful numbers span six orders of magnitude.  Then the function that is
    minimized changes every round, and with a "safe" α also the step: no theorem covers that.
    ``attention`` names the attention-inducing function; ``grad_factor=2`` is the true gradient, 1
    what is printed; ``half_kernel`` is the kernel that v1 prints, with 2σ.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedamp", self_weight=0.3)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    sigma: float | str = positive("median")
    alpha: float | str | tuple | None = hyper(
        None,
        lambda name, value: _schedules.check_value(name, value, by_client=False),
        (0, *_schedules.BAD, ("clients", 1.0, 2.0)),
        words=("safe",),
    )
    self_weight: float | tuple | None = own_share(None)
    lam: float = positive(1.0)
    attention: str = choice("negative_exponential", attentions.KINDS)
    multiple: float = positive(0.1)
    grad_factor: float = choice(1, (1, 2))
    half_kernel: bool = flag(False)
    name, label = "fedamp", "FedAMP"
    family, order = "pair by pair", 1
    place = (3, 4, 2)
    idea = (
        "Each client has a model of its own and hears most from those whose models are near. The "
        "server's step is a gradient step on a price for distance, and comes out as a mixture of "
        "models."
    )
    note = (
        "Two forms: with `alpha` and a fixed number for `sigma` the method of the theorems, with "
        '`self_weight` what the experiments ran. A `sigma` from the data ("median") changes the '
        "objective every round, which no theorem covers."
    )
    equations = [
        "eq-fedamp-problem",
        "eq-fedamp-weights",
        "eq-fedamp-message",
        "eq-fedamp-client",
    ]
    chapter = "04_fedamp"
    paper = "Huang et al., AAAI 2021, Algorithm 1"
    weights_by = "distances between models"
    needs = {"self_weight": 0.3}

    def attend(self, w, k):
        attention = self.attention_for(w)
        if self.self_weight is not None:
            xi = attention_weights(w, attention, own_weight(self.self_weight, k, w))
            return xi, self.pull(w, k)
        safe = safe_alpha(attention, len(w), self.grad_factor)
        alpha: Any = safe
        if self.alpha != "safe":
            alpha = _schedules.at_round("alpha", self.alpha, k)
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
        kind: Any = attentions.KINDS[self.attention]
        if self.sigma == "median":
            sigma = median_sigma(w, self.multiple)
            sigma = sigma.sqrt() if kind.sigma_is_distance else sigma
        else:
            sigma = self.sigma
        return kind(sigma=sigma, half_kernel=True) if self.half_kernel else kind(sigma=sigma)

    def __post_init__(self):
        super().__post_init__()
        if (self.alpha is None) == (self.self_weight is None):
            raise ValueError(
                "give either alpha (the theorems' form) or self_weight (the experiments' form), "
                f"got alpha={self.alpha!r} and self_weight={self.self_weight!r}; for example "
                + ", ".join(f"{name}={value}" for name, value in self.needs.items())
            )
        if self.half_kernel and self.attention != "negative_exponential":
            raise ValueError(
                f"half_kernel belongs to 'negative_exponential', not to {self.attention!r}"
            )
