"""FedALA: an element-wise, learned mixture of the local and the global model."""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, same_shape


def ala_mix(weights, theta_local, theta_global, learnable=None):
    """Θ̂ = Θ_i + (Θ − Θ_i)⊙W: every parameter somewhere between local (0) and global (1).

    FedALA Eqs. (3)-(4). ``learnable`` marks the top p layers (a boolean mask over parameters);
    below them the global model is taken as it is.

    Equation label: eq-ala-mix

    >>> ala_mix(torch.tensor([0.0, 0.5, 1.0]), torch.zeros(3), torch.ones(3))
    tensor([0.0000, 0.5000, 1.0000])
    """
    same_shape(theta_local=theta_local, theta_global=theta_global, weights=weights)
    mixed = torch.lerp(theta_local, theta_global, weights)  # exact at both ends
    return mixed if learnable is None else torch.where(learnable, mixed, theta_global)


def ala_step(weights, theta_local, theta_global, grad, lr, learnable=None):
    """W ← clip(W − η·(Θ − Θ_i)⊙∇L(Θ̂), 0, 1), with ``grad`` = ∇L at the mix Θ̂.

    FedALA Eq. (5) with the chain rule of appendix Eq. (7); the η inside ∇_W L in the main text is
    a slip. Clipped after every step. Outside ``learnable`` the weights stay.

    Equation label: eq-ala-step

    >>> one = torch.ones(2)
    >>> ala_step(one, torch.zeros(2), one, torch.tensor([0.3, -0.3]), lr=1.0)
    tensor([0.7000, 1.0000])
    """
    same_shape(weights=weights, theta_local=theta_local, theta_global=theta_global, grad=grad)
    lr = checked(_check.positive, "lr", lr)
    new = (weights - lr * (theta_global - theta_local) * grad).clamp(0, 1)
    return new if learnable is None else torch.where(learnable, new, weights)
