"""FedAMP as majorise–minimise: concave attention turns the models into a graph with a Laplacian."""

import torch

from pfl_lib import _check
from pfl_lib.book.theory.basics import norm2
from pfl_lib.formulas import squared_distances

#: How ``descend`` chooses the springs 1/β_i of a round.
RULES = ("constant", "spectral", "degrees", "accelerated")


def laplacian(W, attention):
    """The Laplacian of the graph whose edges weigh A'(‖w_i − w_j‖²); ∇𝒜(W) is 2·L·W.

    Equation label: eq-laplacian

    >>> from pfl_lib.attention import negative_exponential
    >>> laplacian(torch.tensor([[0.0], [0.0], [9.0]]), negative_exponential(1.0)).round()
    tensor([[ 1., -1., -0.],
            [-1.,  1., -0.],
            [-0., -0.,  0.]])
    """
    apart = ((W[..., :, None, :] - W[..., None, :, :]) ** 2).sum(-1)
    a = attention.derivative(apart) * (1 - torch.eye(W.shape[-2], dtype=W.dtype))
    return torch.diag_embed(a.sum(-1)) - a


def majorizer(V, W, attention):
    """𝒜(W) + ⟨V, LV⟩ − ⟨W, LW⟩ with L at W: nowhere below 𝒜, equal to it at V = W.

    Equation label: eq-majoriser

    >>> from pfl_lib.attention import negative_exponential
    >>> W, A = torch.tensor([[0.0], [1.0]]), negative_exponential(1.0)
    >>> majorizer(W, W, A).item() == A.value(torch.tensor(1.0)).item()
    True
    """
    L = laplacian(W, attention)
    here = attention.value(squared_distances(W)).triu(1).sum()
    return here + (V * (L @ V)).sum() - (W * (L @ W)).sum()


def self_weight_floor(L):
    """1 − 1/κ, κ the largest eigenvalue of the normalised Laplacian: the least self-weight with
    which a round with β_i = (1 − self-weight)/(2λ·degree_i) majorises; never above ½.

    Equation label: eq-self-weight-floor

    >>> block = 4 * torch.eye(4) - torch.ones(4, 4)  # four clients who hear each other alike
    >>> round(self_weight_floor(block), 4)
    0.25
    """
    return 1 - 1 / _kappa(L).item()


def _kappa(L):
    """The largest eigenvalue of the normalised Laplacian, for each of a stack of them."""
    degree = L.diagonal(dim1=-2, dim2=-1)
    if not (degree > 0).all():
        raise ValueError("L must be the Laplacian of a graph in which every client has an edge")
    scale = degree.rsqrt()
    return torch.linalg.eigvalsh(scale[..., :, None] * L * scale[..., None, :])[..., -1]


def springs(L, problem, rule):
    """β_i of every client, (m, 1), with which a round at this Laplacian cannot raise G.

    >>> from pfl_lib.book.theory import plane_toy
    >>> from pfl_lib.attention import negative_exponential
    >>> problem = plane_toy(negative_exponential(2.0))
    >>> springs(laplacian(problem.c, problem.attention), problem, "degrees").shape
    torch.Size([6, 1])
    """
    if rule == "degrees":
        degree = L.diagonal(dim1=-2, dim2=-1)[..., None]
        return 1 / (2 * problem.lam * _kappa(L)[..., None, None] * degree)
    alpha = 1 / problem.price_smoothness
    if rule == "spectral":
        alpha = 1 / (2 * torch.linalg.eigvalsh(L)[..., -1, None, None])
    return torch.ones_like(L[..., :1]) * alpha / problem.lam


def descend(problem, start, rule="constant", rounds=100):
    """The models after 0, 1, …, ``rounds`` rounds of FedAMP with exact local solutions.

    "constant" is α = 1/L_A; "spectral" α = 1/(2λ_max(L)) of the round's own Laplacian; "degrees"
    gives each client its own spring (the attention form with the least safe self-weight);
    "accelerated" is "spectral" from a point beyond the last models, thrown back when G rises.
    Several problems at once: ``problem.c`` and ``start`` are stacks, (…, m, d).

    Equation label: eq-mm-round

    >>> from pfl_lib.book.theory import plane_toy
    >>> from pfl_lib.attention import negative_exponential
    >>> problem = plane_toy(negative_exponential(2.0))
    >>> G = problem.value(descend(problem, problem.c, "degrees", rounds=20))
    >>> bool((G.diff() < 0).all())
    True
    """
    _check.one_of("rule", rule, RULES)
    path, ahead, t = [start], start, torch.ones_like(start[..., :1, :1])
    for _ in range(_check.whole("rounds", rounds)):
        L = laplacian(ahead, problem.attention)
        beta = springs(L, problem, "spectral" if rule == "accelerated" else rule)
        last, new = path[-1], problem.prox(ahead - 2 * problem.lam * beta * (L @ ahead), beta)
        ahead = new
        if rule == "accelerated":  # where that was too far: begin again from the last models
            rises = (problem.value(new) > problem.value(last))[..., None, None]
            longer = (1 + (1 + 4 * t * t).sqrt()) / 2
            ahead = torch.where(rises, last, new + (t - 1) / longer * (new - last))
            new, t = torch.where(rises, last, new), torch.where(rises, 1.0, longer)
        path.append(new)
    return torch.stack(path)


def rounds_until(problem, path, lowest, part=1e-6):
    """The first round whose excess over ``lowest`` is at most ``part`` of the excess at the start.

    None if no round of the path is.

    >>> from pfl_lib.book.theory import plane_toy
    >>> from pfl_lib.attention import negative_exponential
    >>> problem = plane_toy(negative_exponential(2.0))
    >>> path = descend(problem, problem.c, rounds=200)
    >>> 10 < rounds_until(problem, path, problem.value(path[-1])) < 200
    True
    """
    excess = problem.value(path) - lowest
    there = (excess <= part * excess[0]).nonzero().flatten()
    return there[0].item() if len(there) else None


def mean_shift(points, sigma, rounds=1):
    """Blurring mean shift: each point moves to the mean of all points, weighed by e^(−t/σ).

    A round of FedAMP without losses and with the self-weight 1/(1 + σ·degree): the point itself,
    with weight e^0 = 1, is among those it hears.

    >>> mean_shift(torch.tensor([[0.0], [1.0], [50.0]]), sigma=1.0).flatten()
    tensor([ 0.2689,  0.7311, 50.0000])
    """
    for _ in range(_check.whole("rounds", rounds)):
        points = (-squared_distances(points) / sigma).softmax(-1) @ points
    return points


def distance_moved(path):
    """‖W^{k+1} − W^k‖ for every round of a path (rounds + 1, m, d).

    >>> distance_moved(torch.tensor([[[0.0]], [[3.0]], [[3.0]]])).tolist()
    [3.0, 0.0]
    """
    return norm2(path.diff(dim=0)).sqrt()
