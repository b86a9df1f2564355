"""Constants of the price, and what the theorems on FedAMP promise."""

import math

from pfl_lib import _check


def lowest_curvature(attention):
    """The least second derivative of r ↦ A(r²), 0 where it is convex.

    Equation label: eq-lowest-curvature

    >>> from pfl_lib.attention import negative_exponential
    >>> round(lowest_curvature(negative_exponential(sigma=1.0)), 4)
    -0.8925
    """
    if attention.convex:
        return 0.0
    lowest = {"negative_exponential": -4 * math.exp(-1.5), "mcp": -4.0}
    if attention.name == "scad":
        lowest["scad"] = -4 * attention.a / (attention.a - 1)
    return lowest[attention.name] * attention.slope_at_zero


def weak_convexity(attention, m):
    """ρ such that 𝒜 + (ρ/2)‖·‖² is convex for m clients; the exponential attains it.

    Equation label: eq-weak-convexity

    >>> from pfl_lib.attention import negative_exponential
    >>> round(weak_convexity(negative_exponential(sigma=2.0), m=5), 4)
    2.2313
    """
    return _check.whole("m", m) * -lowest_curvature(attention)


def coupling_smoothness(attention, m):
    """L_A, a Lipschitz constant of ∇𝒜 for m clients: m times the largest curvature of A(r²).

    Equation label: eq-coupling-smoothness

    >>> from pfl_lib.attention import negative_exponential
    >>> coupling_smoothness(negative_exponential(sigma=2.0), m=5)
    5.0
    """
    steepest = max(2 * attention.slope_at_zero, -lowest_curvature(attention))
    return _check.whole("m", m) * steepest


def theorem1_bound(distance2, B, rounds, printed=False):
    """What Theorem 1 promises of the average (so of the best) gap: (‖W⁰ − W*‖² + 5B²)/(2√K).

    ``printed`` leaves out the ½, as v1 Eq. (13) does.

    Equation label: eq-theorem1

    >>> theorem1_bound(distance2=3.0, B=1.0, rounds=16)
    1.0
    """
    bound = (distance2 + 5 * B**2) / math.sqrt(_check.whole("rounds", rounds))
    return bound if printed else bound / 2


#: (a, b, e) of the bound a·(G⁰ − G* + b·L·B²)/√K + e·L²·B²/K in Theorem 2.
THEOREM2 = {"sharp": (6, 18, 384), "printed": (18, 20, 1152), "iterates": (6, 26, 480)}


def theorem2_bound(excess, L, B, rounds, form="sharp"):
    """What Theorem 2 promises of the mean (so of the least) ‖∇G‖²; ``excess`` is G(W⁰) − G*.

    "printed" is v1 Eq. (14) with its O(1/K) written out, "sharp" what the same lines give with
    care; both want B at every point. "iterates" is what remains if B holds at the iterates only.
    Below K = L² the clients' problem need not have one solution, and the theorem says nothing.

    Equation label: eq-theorem2

    >>> theorem2_bound(excess=0.0, L=1.0, B=1.0, rounds=4)
    150.0
    """
    a, b, e = THEOREM2[_check.one_of("form", form, THEOREM2)]
    if not _check.whole("rounds", rounds) > L**2:
        raise ValueError(f"rounds must be above L² = {L**2:g}, as Theorem 2 asks, got {rounds}")
    return a * (excess + b * L * B**2) / math.sqrt(rounds) + e * L**2 * B**2 / rounds


def proximal_gradient_bound(distance2, smoothness, rounds):
    """G(W^K) − G* ≤ ℓ‖W⁰ − W*‖²/(2K), ℓ = λL_A, for a convex G and the constant step α = 1/L_A.

    Equation label: eq-fb-convex

    >>> proximal_gradient_bound(distance2=3.0, smoothness=2.0, rounds=3)
    1.0
    """
    return smoothness * distance2 / (2 * _check.whole("rounds", rounds))


def proximal_gradient_slope_bound(excess, smoothness, rounds):
    """min ‖∇G(W^k)‖² ≤ 18ℓ(G(W⁰) − G*)/K, ℓ = λL_A, for any G and the constant step 1/(2L_A).

    Equation label: eq-fb-slope

    >>> proximal_gradient_slope_bound(excess=1.0, smoothness=2.0, rounds=4)
    9.0
    """
    return 18 * smoothness * excess / _check.whole("rounds", rounds)
