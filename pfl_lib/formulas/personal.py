"""Personalised baselines with a step of their own: APFL, Per-FedAvg, pFedMe, Ditto.

Written for one client (vectors of d numbers); under ``torch.func.vmap`` for all. A ``gradient``
argument is a function w ↦ ∇F_i(w) on a batch that the caller has fixed.
"""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, column


def apfl_mix(alpha, v, w):
    """v̄ = αv + (1 − α)w: the private model v and the shared model w, mixed.

    APFL (Deng et al. 2020). ``alpha`` may hold one number a client.

    Equation label: eq-apfl-mix

    >>> apfl_mix(0.25, torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))
    tensor([0.3750, 0.6250])
    """
    alpha = column(checked(_check.between, "alpha", alpha, 0, 1))
    return alpha * v + (1 - alpha) * w


def apfl_step(alpha, v, w, grad_mixed, grad_shared, lr):
    """One step of all three: v − ηα∇F(v̄), w − η∇F(w), clip(α − η⟨v − w, ∇F(v̄)⟩, 0, 1).

    APFL (Deng et al. 2020, Algorithm 1). ``grad_mixed`` is ∇F at the mix v̄, ``grad_shared`` at w.
    The factor α in the step of v is the chain rule; some public code leaves it out. All three use
    the old values. Returns (alpha, v, w).

    Equation label: eq-apfl-step

    >>> v, w, g = torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([2.0])
    >>> apfl_step(torch.tensor(0.5), v, w, g, g, lr=0.1)
    (tensor(0.3000), tensor([0.9000]), tensor([-0.2000]))
    """
    lr = checked(_check.positive, "lr", lr)
    slope = ((v - w) * grad_mixed).sum(-1)
    new_alpha = (alpha - lr * slope).clamp(0, 1)
    return new_alpha, v - lr * column(alpha) * grad_mixed, w - lr * grad_shared


def perfedavg_adapt(w, gradient, inner_lr):
    """w̃ = w − a∇F_i(w): the one step that makes the shared model personal.

    Per-FedAvg (Fallah et al. 2020).

    Equation label: eq-perfedavg-adapt

    >>> perfedavg_adapt(torch.tensor([1.0]), lambda w: 2 * w, inner_lr=0.25)
    tensor([0.5000])
    """
    inner_lr = checked(_check.non_negative, "inner_lr", inner_lr)
    return w - inner_lr * gradient(w)


def perfedavg_step(
    w, gradient, gradient_outer, inner_lr, outer_lr, rule="fo", gradient_hessian=None, delta=1e-3
):
    """w − b·(I − a∇²F(w; b₃))·∇F(w̃; b₂) with w̃ = w − a∇F(w; b₁): a step on the *adapted* loss.

    Per-FedAvg (Fallah et al. 2020, Algorithm 1). ``rule`` says what becomes of the Hessian:
    "fo" leaves it out (first order); "hf" replaces its product with a vector by a central
    difference of gradients of step ``delta``; "exact" differentiates the gradient. The gradients
    belong to the batches b₁, b₂, and b₃ (``gradient_hessian``, b₁ when not given).

    Equation label: eq-perfedavg-step

    >>> gradient = lambda w: 2 * w
    >>> perfedavg_step(torch.tensor([1.0]), gradient, gradient, 0.25, 0.1, rule="exact")
    tensor([0.9500])
    """
    _check.one_of("rule", rule, ("fo", "hf", "exact"))
    outer_lr = checked(_check.positive, "outer_lr", outer_lr)
    outer = gradient_outer(perfedavg_adapt(w, gradient, inner_lr))
    if rule == "fo":
        return w - outer_lr * outer
    third = gradient_hessian or gradient
    if rule == "hf":
        delta = checked(_check.positive, "delta", delta)
        curved = (third(w + delta * outer) - third(w - delta * outer)) / (2 * delta)
    else:
        # The Hessian is symmetric, so its product with a vector is the gradient's pull-back.
        curved = torch.func.vjp(third, w)[1](outer)[0]
    return w - outer_lr * (outer - inner_lr * curved)


def pfedme_inner(w, gradient, lam, lr, steps, start=None):
    """θ ≈ argmin F_i(θ) + (λ/2)‖θ − w‖² by ``steps`` gradient steps from w (or ``start``).

    pFedMe (Dinh et al. 2020, Algorithm 1). θ is the personal model. Stable for lr < 2/(λ + L).

    Equation label: eq-pfedme-inner

    >>> pfedme_inner(torch.tensor([0.0]), lambda w: w - 1, lam=1.0, lr=0.5, steps=9)
    tensor([0.5000])
    """
    lam = checked(_check.non_negative, "lam", lam)
    lr = checked(_check.positive, "lr", lr)
    theta = w if start is None else start
    for _ in range(_check.whole("steps", steps)):
        theta = theta - lr * (gradient(theta) + lam * (theta - w))
    return theta


def pfedme_local(w, theta, lam, lr):
    """w ← w − ηλ(w − θ): a gradient step on the Moreau envelope of F_i.

    pFedMe (Dinh et al. 2020, Algorithm 1).

    Equation label: eq-pfedme-local

    >>> pfedme_local(torch.tensor([0.0]), torch.tensor([1.0]), lam=10.0, lr=0.05)
    tensor([0.5000])
    """
    lam = checked(_check.non_negative, "lam", lam)
    lr = checked(_check.positive, "lr", lr)
    return w - lr * lam * (w - theta)


def pfedme_server(w_global, average, beta=1.0):
    """x ← (1 − β)x + β·(average of the participants' w_i); β = 1 is plain averaging.

    pFedMe (Dinh et al. 2020, Algorithm 1). The average is the caller's: plain in the
    original, by sizes in some code (``weighted_average``).

    Equation label: eq-pfedme-server

    >>> pfedme_server(torch.tensor([0.0]), torch.tensor([2.0]), beta=0.5)
    tensor([1.])
    """
    beta = checked(_check.positive, "beta", beta)  # above 1 is allowed: an extrapolation
    return w_global + beta * (average - w_global)


def ditto_gradient(grad, v, w_global, lam):
    """∇F_i(v) + λ(v − x): the personal model v is tied to the global x and to nothing else.

    Ditto (Li et al. 2021, Algorithm 1).

    Equation label: eq-ditto-gradient

    >>> ditto_gradient(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]), lam=0.1)
    tensor([1.2000])
    """
    lam = checked(_check.non_negative, "lam", lam)
    return grad + lam * (v - w_global)
