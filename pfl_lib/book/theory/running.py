"""FedAMP as it is run: few local steps, some clients away, steps that shrink."""

import torch

from pfl_lib import _check
from pfl_lib.book.theory.basics import norm2


def local_descent(problem, W, U, s, steps, smoothness):
    """``steps`` gradient steps from W on F(V) + ‖V − U‖²/(2s), each of the length 1/(L_F + 1/s).

    The local problem never ends above where it began, and its slope is at most ε/s times the move.

    >>> from pfl_lib.book.theory import plane_toy
    >>> from pfl_lib.attention import negative_exponential
    >>> problem = plane_toy(negative_exponential(1.0))
    >>> near = local_descent(problem, 0 * problem.c, problem.c, 1.0, steps=50, smoothness=1.0)
    >>> bool((near - problem.prox(problem.c, 1.0)).abs().max() < 1e-6)
    True
    """
    V = W
    for _ in range(_check.whole("steps", steps)):
        V = V - (problem.loss_gradient(V) + (V - U) / s) / (smoothness + 1 / s)
    return V


def relative_error(steps, s, smoothness):
    """ε for ``local_descent`` on convex losses: (1 + sL_F)·q^E/(1 − q^E) with q = sL_F/(1 + sL_F).

    Equation label: eq-relative-error

    >>> round(relative_error(steps=1, s=1.0, smoothness=1.0), 2)
    2.0
    """
    x = _check.positive("s", s) * _check.positive("smoothness", smoothness)
    q = (x / (1 + x)) ** _check.whole("steps", steps)
    return (1 + x) * q / (1 - q)


def run_as_is(problem, start, s, smoothness, steps=5, share=0.3, seed=0):
    """Rounds with inexact training from W; each client takes part with probability ``share``.

    ``s`` holds the step of every round. Returns the models (rounds + 1, m, d); many starts
    (..., m, d) run side by side, each with its own absences.

    >>> from pfl_lib.book.theory import plane_toy
    >>> from pfl_lib.attention import negative_exponential
    >>> problem = plane_toy(negative_exponential(1.0))
    >>> path = run_as_is(problem, 0 * problem.c, [0.05] * 30, smoothness=1.0)
    >>> bool((problem.value(path).diff() < 1e-12).all())
    True
    """
    share = _check.between("share", share, 0, 1)
    random = torch.Generator().manual_seed(seed)
    path = [start]
    for length in s:
        W = path[-1]
        there = torch.rand(*W.shape[:-1], 1, generator=random) < share
        U = problem.message(W, length * problem.lam)
        new = local_descent(problem, W, U, length, steps, smoothness)
        path.append(torch.where(there, new, W))
    return torch.stack(path)


def as_is_bound(excess, s, smoothness, epsilon=0.0, share=1.0):
    """E Σ_k s_k‖∇G(W^k)‖² ≤ (4/π)(1 + ε + s̄L_F)²(G(W⁰) − G*), s̄ the largest step, π the share.

    Equation label: eq-as-is

    >>> as_is_bound(excess=1.0, s=[0.5, 0.25], smoothness=2.0)
    16.0
    """
    return 4 / share * (1 + epsilon + max(s) * smoothness) ** 2 * excess


def lojasiewicz_constant(problem, path, lowest):
    """The least C with √(G − G∞) ≤ (C/2)‖∇G‖ along a path: Łojasiewicz' inequality, exponent ½.

    >>> from pfl_lib.book.theory import plane_toy
    >>> from pfl_lib.attention import negative_exponential
    >>> problem = plane_toy(negative_exponential(1.0))
    >>> path = problem.path(0 * problem.c, 0.05, 50)
    >>> lojasiewicz_constant(problem, path, problem.value(path[-1])) > 0
    True
    """
    excess = (problem.value(path) - lowest).clamp(min=0)
    slope = norm2(problem.gradient(path)).sqrt()
    seen = excess > 1e-12 * excess[0]
    return (2 * excess[seen].sqrt() / slope[seen]).max().item()
