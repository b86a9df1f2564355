"""What four public programs called FedAMP compute, each in a few lines of our own, on one input.

Three clients with a few digits, a tiny network, all samples in one batch (see ``parity``).  Every
program is followed from its description: where training starts, what pulls, which model is tested.
"""

import warnings

import torch

from pfl_lib.book.parity import EPOCHS, LR, ROUNDS, _Clients, _federation, _loss, _slope
from pfl_lib.methods import algorithm
from pfl_lib.rounds import run

ALPHA = SIGMA = LAM = 1.0  # what PFLlib and Flower's proposal have as defaults
FLGO = {"sigma": 25.0, "beta": 1e4}  # FLGo's own: HeurFedAMP's σ, and α = 10⁴


def attention(W, alpha=ALPHA, sigma=SIGMA):
    """ξ_ij = α·exp(−‖w_i − w_j‖²/σ)/σ, and what is left of 1 for oneself.

    >>> attention(torch.zeros(20, 5)).diagonal()[0]
    tensor(-18.)
    """
    apart = (W[:, None] - W[None]).square().sum(2)
    xi = alpha * torch.exp(-apart / sigma) / sigma
    xi.fill_diagonal_(0)
    return xi + torch.diag(1 - xi.sum(1))


def cosines(W, sigma, own):
    """HeurFedAMP's weights: softmax of σ·cos over the others, ``own`` for oneself."""
    unit = W / W.norm(dim=1, keepdim=True)
    score = torch.exp(sigma * (unit @ unit.T)).fill_diagonal_(0)
    return (1 - own) * score / score.sum(1, keepdim=True) + own * torch.eye(len(W), dtype=W.dtype)


def pfllib(w, u, slope):
    """From one's own model; the pull is computed from ``.data``, so it has no gradient."""
    for _ in range(EPOCHS):
        w = w - LR * slope(w)
    return w, w


def flower(w, u, slope):
    """From one's own model, with the paper's pull λ/α·(w − u)."""
    for _ in range(EPOCHS):
        w = w - LR * (slope(w) + LAM / ALPHA * (w - u))
    return w, w


def fluke(w, u, slope):
    """From one's own model; the pull is divided by the learning rate; the message is tested."""
    for _ in range(EPOCHS):
        w = w - LR * (slope(w) + LAM / LR * (w - u))
    return w, u


def flgo(w, u, slope, zeroed=False):
    """From the message; gradients are added up over the steps of a round unless ``zeroed``."""
    w, kept = u, torch.zeros_like(u)
    for _ in range(EPOCHS):
        kept = (0 if zeroed else kept) + slope(w) + (w - u) / FLGO["beta"]
        w = w - LR * kept
    return w, w


#: label: the local step, and the weights
PROGRAMS = {
    "PFLlib": (pfllib, attention),
    "fluke": (fluke, attention),
    "Flower's proposal": (flower, attention),
    "FLGo": (flgo, lambda W: cosines(W, FLGO["sigma"], 1 / len(W))),
}


def follow(local, weights, rounds=ROUNDS):
    """The clients' tested models after some rounds, and the weights of the last one."""
    c = _Clients(_federation())
    W = torch.stack([c.start] * c.m)
    xi = torch.eye(c.m, dtype=W.dtype)
    for _ in range(rounds):
        xi = weights(W)
        pairs = [
            local(w, u, lambda v, i=i: _slope(lambda q: _loss(q, c.x[i], c.y[i]), v))
            for i, (w, u) in enumerate(zip(W, xi @ W))
        ]
        W = torch.stack([trained for trained, _ in pairs])
    return torch.stack([tested for _, tested in pairs]), xi


def library(name, **options):
    """The tested models of one of the library's methods on the same input.

    >>> library("separate").shape
    torch.Size([3, 460])
    """
    fed = _federation()
    method = algorithm(name, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights below zero: the page shows them
        history = run(method, fed, ROUNDS, progress=False)
    return method.personal(history.state, fed)


def compare():
    """{program: (self-weight of client 1, {name: largest difference of the tested models})}.

    >>> compare()["PFLlib"][1]["Separate"] < 1e-12
    True
    """
    printed = {"alpha": ALPHA, "sigma": SIGMA, "lam": LAM}
    ours = {
        "Separate": library("separate"),
        "FedAMP from w": library("fedamp", begin="w", **printed),
        "FedAMP from u": library("fedamp", begin="u", **printed),
        "HeurFedAMP": library(
            "heurfedamp", sigma=FLGO["sigma"], self_weight=1 / 3, prox_beta=FLGO["beta"]
        ),
    }
    found = {}
    for label, (local, weights) in PROGRAMS.items():
        tested, xi = follow(local, weights)
        apart = {name: float((tested - w).abs().max()) for name, w in ours.items()}
        found[label] = float(xi[0, 0]), apart
    return found
