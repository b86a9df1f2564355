"""FedAMP and HeurFedAMP (Huang et al.: v1 is arXiv:2007.03797v1, the other AAAI 2021).

The cloud keeps one message u_i = Σ_j ξ_ij w_j a client; these functions compute the weights ξ.
Row i of ``W`` is client i's model; row i of the weights is what client i hears.
"""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, own
from pfl_lib.formulas.similarity import cosine_similarities, squared_distances


def fedamp_weights(W, attention, alpha, grad_factor=1):
    """ξ_ij = c·α·A'(‖w_i − w_j‖²) for j ≠ i, and ξ_ii = 1 − Σ_{j≠i} ξ_ij.

    v1 Eq. (4), AAAI Eqs. (5) and (7). ``grad_factor`` c = 1 is what is printed; c = 2 is the true
    gradient step W − α∇𝒜(W), for which d/dw A(‖w − v‖²) = 2A'(‖w − v‖²)(w − v). With c = 1 the
    method minimises the objective with half the λ. Rows sum to 1 always; a self weight below zero
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


def mix(weights, W):
    """u_i = Σ_j ξ_ij w_j: the messages, one row a client.

    v1 Eq. (6), AAAI Eq. (5); also the aggregation of HeurFedAMP (8) and FedACS (4).

    Equation label: eq-fedamp-message

    >>> mix(torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[1., 2.],
            [0., 4.]])
    """
    return weights @ W


def attention_weights(W, attention, self_weight):
    """ξ_ii = self_weight, and ξ_ij = (1 − ξ_ii)·A'(t_ij)/Σ_{h≠i} A'(t_ih): what v1 ran.

    v1 Eqs. (7)-(9). The tables' τ is the weight of the *others* (as in Eq. (11); Eq. (7) has it
    the other way round), so self_weight = 1 − τ. The largest A' of a row is divided out first, so
    that a tiny σ leaves the nearest neighbour instead of 0/0. Where all A' vanish (SCAD, MCP, or
    one client alone) nobody is heard: ξ_ii = 1. ``self_weight`` may be a tensor, one a client.

    Equation label: eq-fedamp-attention-weights

    >>> from pfl_lib.attention import negative_exponential
    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> attention_weights(W, negative_exponential(sigma=2.0), self_weight=0.05)
    tensor([[0.0500, 0.9282, 0.0218],
            [0.8368, 0.0500, 0.1132],
            [0.1406, 0.8094, 0.0500]])
    """
    t = squared_distances(W)
    if W.shape[0] == 1:
        return torch.ones_like(t)
    me = own(W)
    nearest = t.masked_fill(me, torch.inf).amin(1, keepdim=True)
    ratio = attention.ratio(torch.where(me, nearest, t), nearest).masked_fill(me, 0)
    return _around_self(ratio, self_weight)


def heurfedamp_weights(W, sigma, self_weight):
    """ξ_ii = self_weight, and ξ_ij = (1 − ξ_ii)·softmax_{j≠i}(σ·cos(w_i, w_j)).

    v1 Eqs. (10)-(11), AAAI Eq. (8). v1's τ is 1 − self_weight. σ is a sharpness here: 0 is the
    plain mean of the others, and a larger σ attends *more*, the opposite of FedAMP's σ.

    Equation label: eq-heur-weights

    >>> W = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]])
    >>> heurfedamp_weights(W, sigma=5.0, self_weight=0.2)
    tensor([[0.2000, 0.7975, 0.0025],
            [0.7007, 0.2000, 0.0993],
            [0.0172, 0.7828, 0.2000]])
    """
    sigma = checked(_check.non_negative, "sigma", sigma)
    cosines = cosine_similarities(W)
    if W.shape[0] == 1:
        return torch.ones_like(cosines)
    scores = (sigma * cosines).masked_fill(own(W), -torch.inf)
    return _around_self(torch.exp(scores - scores.amax(1, keepdim=True)), self_weight)


def largest_convex_alpha(W, attention, grad_factor=1):
    """The largest α, a row, with ξ_ii ≥ 0: 1/(c·Σ_{j≠i} A'(t_ij)); inf where nobody is heard.

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
    centred = W - W.mean(0)  # differences only matter, and small numbers cancel less
    return pull.sum(1, keepdim=True) * centred - pull @ centred


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


def _around_self(ratio, self_weight):
    """Rows of non-negative scores (zero diagonal) made into shares of 1 − self_weight."""
    self_weight = checked(_check.between, "self_weight", self_weight, 0, 1)
    total = ratio.sum(1)
    heard = total > 0
    mine = torch.where(heard, self_weight * torch.ones_like(total), 1)
    share = ratio / torch.where(heard, total, 1)[:, None]
    return (1 - mine)[:, None] * share + torch.diag(mine)
