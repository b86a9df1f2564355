"""FedALA: places between a local model and the global one."""

import torch

from pfl_lib import _check
from pfl_lib.formulas import ala_mix, ala_step


def shared_and_personal(m=12, spread=2.0, noise=0.5, seed=0):
    """Clients that look for two numbers: the first common to all, the second private.

    Truths and the clients' noisy estimates of them, (m, 2) each.

    >>> truth, own = shared_and_personal(m=3)
    >>> bool((truth[:, 0] == 1).all()), own.shape
    (True, torch.Size([3, 2]))
    """
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(2, _check.whole("m", m), 2, generator=generator, dtype=torch.float64)
    truth = torch.stack([torch.ones(m, dtype=torch.float64), spread * draws[0, :, 1]], 1)
    return truth, truth + noise * draws[1]


def ala_path(local, glob, h, c, lr, steps):
    """The weights W after 0, 1, …, ``steps`` steps of ALA on ½·Σ_q h_q(θ_q − c_q)², from ones.

    >>> one = torch.ones(1)
    >>> ala_path(0 * one, one, h=one, c=0 * one, lr=0.5, steps=2).flatten().tolist()
    [1.0, 0.5, 0.25]
    """
    weights = [torch.ones_like(local)]
    for _ in range(_check.whole("steps", steps, at_least=0)):
        grad = h * (ala_mix(weights[-1], local, glob) - c)
        weights.append(ala_step(weights[-1], local, glob, grad, lr))
    return torch.stack(weights)


def best_mixtures(local, glob, h, c, layers=None):
    """The best weights of three kinds for ½·Σ_q h_q(θ_q − c_q)²: what each kind can reach.

    "one number" for the whole model; "all or nothing" for each layer (``layers`` are slices, by
    default every parameter is one); "each its own", which is the limit of ALA.

    >>> K7 = (torch.tensor(v) for v in ([1.0, 2, -1], [1.5, 1, 0.5], [1.0, 1, 1], [1.2, 1.8, -0.4]))
    >>> best_mixtures(*K7)["each its own"]
    tensor([0.4000, 0.2000, 0.4000])
    """
    way = glob - local
    apart = torch.where(way == 0, 1, way)
    number = ((h * way * (c - local)).sum() / (h * way**2).sum().clamp(min=1e-30)).clamp(0, 1)
    gain = h * ((local - c) ** 2 - (glob - c) ** 2)  # of taking the global value
    whole = torch.zeros_like(local)
    for columns in layers or [slice(q, q + 1) for q in range(len(local))]:
        whole[columns] = (gain[columns].sum() > 0).to(local.dtype)
    return {
        "one number": number.expand_as(local),
        "all or nothing": whole,
        "each its own": torch.where(way == 0, 1, (c - local) / apart).clamp(0, 1),
    }
