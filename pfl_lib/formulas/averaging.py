"""One model for all: FedAvg, FedProx, SCAFFOLD, FedAsync (the papers' global baselines)."""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, column, same_shape


def weighted_average(W, sizes=None):
    """x = Σ_i n_i w_i / Σ_i n_i; without ``sizes`` the plain mean.

    FedAvg (McMahan et al. 2017, Algorithm 1); FedALA's server step too.

    Equation label: eq-fedavg

    >>> weighted_average(torch.tensor([[0.0, 4.0], [4.0, 0.0]]), torch.tensor([100.0, 300.0]))
    tensor([3., 1.])
    """
    _check.models("W", W)
    if sizes is None:
        return W.mean(0)
    if not isinstance(sizes, torch.Tensor) or sizes.shape != W.shape[:1]:
        got = tuple(sizes.shape) if isinstance(sizes, torch.Tensor) else repr(sizes)
        raise ValueError(
            f"sizes must be a tensor with one number for each of the {W.shape[0]} rows of W, "
            f"got {got}"
        )
    return (sizes / sizes.sum()).to(W.dtype) @ W


def fedprox_gradient(grad, w, w_global, mu):
    """∇F_i(w) + μ(w − x), the gradient of F_i(w) + (μ/2)‖w − x‖².

    FedProx (Li et al. 2020, Eq. (2)).

    Equation label: eq-fedprox-gradient

    >>> fedprox_gradient(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]), mu=0.5)
    tensor([2.])
    """
    mu = checked(_check.non_negative, "mu", mu)
    return grad + mu * (w - w_global)


def scaffold_gradient(grad, c_local, c_global):
    """∇F_i(y) − c_i + c: the client's drift taken out of its step.

    SCAFFOLD (Karimireddy et al. 2020, Eq. (3)).

    Equation label: eq-scaffold-gradient

    >>> scaffold_gradient(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([0.2]))
    tensor([0.7000])
    """
    return grad - c_local + c_global


def scaffold_control(c_local, c_global, w_global, w_local, lr, steps):
    """c_i⁺ = c_i − c + (x − y_i)/(κη): the mean gradient the client saw, as its new control.

    SCAFFOLD (Karimireddy et al. 2020, Eq. (4), option II), κ local steps of length η. ``steps``
    may differ from client to client: a tensor, one number a row.

    Equation label: eq-scaffold-control

    >>> zero = torch.zeros(1)
    >>> scaffold_control(zero, zero, torch.tensor([1.0]), torch.tensor([0.8]), lr=0.1, steps=2)
    tensor([1.0000])
    """
    lr = checked(_check.positive, "lr", lr)
    steps = checked(_check.whole, "steps", steps)
    return c_local - c_global + (w_global - w_local) / (column(steps) * lr)


def scaffold_server(w_global, c_global, w_local, c_old, c_new, clients, lr=1.0):
    """x⁺ = x + η_g·mean(y_i − x) and c⁺ = c + (k/m)·mean(c_i⁺ − c_i) over the k participants.

    SCAFFOLD (Karimireddy et al. 2020, Eq. (5)); ``clients`` is m, all there are. Plain means:
    the original does not weigh by sizes. Returns (x⁺, c⁺).

    Equation label: eq-scaffold-server

    >>> x, c = torch.zeros(1), torch.zeros(1)
    >>> y, old, new = torch.tensor([[2.0]]), torch.tensor([[0.0]]), torch.tensor([[4.0]])
    >>> scaffold_server(x, c, y, old, new, clients=2)
    (tensor([2.]), tensor([2.]))
    """
    _check.models("w_local", w_local)
    same_shape(w_local=w_local, c_old=c_old, c_new=c_new)
    present, clients = w_local.shape[0], _check.whole("clients", clients, w_local.shape[0])
    lr = checked(_check.positive, "lr", lr)
    x = w_global + lr * (w_local - w_global).mean(0)
    return x, c_global + (present / clients) * (c_new - c_old).mean(0)


def fedasync_mixing(alpha, staleness, a):
    """α_t = α·(1 + staleness)^(−a): the share of a late model.

    FedAsync (Xie et al. 2019), polynomial staleness; ``staleness`` in rounds, 0 when on time.

    Equation label: eq-fedasync-mixing

    >>> fedasync_mixing(0.6, torch.tensor([0.0, 3.0]), a=0.5)
    tensor([0.6000, 0.3000])
    """
    alpha = checked(_check.between, "alpha", alpha, 0, 1)
    staleness = checked(_check.non_negative, "staleness", staleness)
    a = checked(_check.non_negative, "a", a)
    return alpha * (1 + staleness) ** -a


def fedasync_update(w_global, w_new, mixing):
    """x ← (1 − α_t)·x + α_t·w on the arrival of one model w.

    FedAsync (Xie et al. 2019, Algorithm 1).

    Equation label: eq-fedasync-update

    >>> fedasync_update(torch.tensor([0.0]), torch.tensor([10.0]), mixing=0.3)
    tensor([3.])
    """
    mixing = checked(_check.between, "mixing", mixing, 0, 1)
    return w_global + column(mixing) * (w_new - w_global)
