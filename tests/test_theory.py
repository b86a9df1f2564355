"""The toys on which the theorems are tried: exact steps, known constants, bounds that hold."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pfl_lib import attention
from pfl_lib.book import theory
from pfl_lib.book.theory import holds, norm2, weigh
from pfl_lib.formulas import fedamp_objective
from pfl_lib.methods import FedAMP

exponential, tamed = attention.negative_exponential, attention.tamed_square_root


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


PROBLEMS = {"convex": theory.convex_toy, "nonconvex": theory.nonconvex_toy}


@pytest.fixture(params=PROBLEMS)
def toy(request):
    return PROBLEMS[request.param]()


# ------------------------------------------------------------------------------ the parts
def test_gradients_are_those_of_the_values(toy):
    problem, start = toy
    for value, gradient in (
        (problem.loss, problem.loss_gradient),
        (problem.price, problem.price_gradient),
        (problem.value, problem.gradient),
    ):
        assert_close(torch.func.grad(value)(start), gradient(start))


@pytest.mark.parametrize("beta", [0.01, 0.5, 1.9])
def test_prox_solves_the_local_problem(toy, beta):
    problem, start = toy
    w = problem.prox(start, beta)
    assert (problem.loss_gradient(w) + (w - start) / beta).abs().max() < 1e-11 / beta


def test_many_stacks_at_once_are_each_one(toy):
    problem, start = toy
    many = torch.stack([start, 2 * start, start - 1])
    for name in ("loss", "price", "value", "gradient"):
        function = getattr(problem, name)
        assert_close(function(many), torch.stack([function(W) for W in many]))
    assert_close(problem.round(many, 0.02), torch.stack([problem.round(W, 0.02) for W in many]))


def test_path_is_what_the_algorithm_does():
    h, c, start = 0.5 + normal(4, 3).abs(), normal(4, 3, seed=1), normal(4, 3, seed=2)
    problem = theory.Quadratics(c, tamed(0.7), 0.4, H=torch.diag_embed(h))
    method = FedAMP(sigma=0.7, alpha=0.05, lam=0.4, attention="tamed_square_root", grad_factor=2)
    states = theory.iterate(method, theory.QuadraticFederation(h, c, start=start), 5)
    assert_close(problem.path(start, 0.05, 5), torch.stack([state.w for state in states]))


def test_settled_models_are_stationary(toy):
    problem, start = toy
    assert problem.gradient(problem.settle(start)).abs().max() < 1e-11


def test_envelope_solves_its_problem():
    problem, start = theory.nonconvex_toy()
    near, value = problem.envelope(start, problem.smoothness)
    slope = problem.gradient(near) + 4 * problem.smoothness * (near - start)
    assert slope.abs().max() < 1e-12 and value <= problem.value(start)


@pytest.mark.parametrize("beta", [2.0, 5.0])
def test_flat_bowls_refuse_a_step_without_a_unique_answer(beta):
    problem, start = theory.nonconvex_toy()
    with pytest.raises(ValueError, match="beta must be below 2"):
        problem.prox(start, beta)


def test_quadratics_refuse_matrices_of_another_size():
    with pytest.raises(ValueError, match="H must hold"):
        theory.Quadratics(torch.zeros(2, 3), tamed(1.0), 1.0, H=torch.eye(2))


# -------------------------------------------------------------------------- the constants
def hessian(A, W):
    flat = lambda w: fedamp_objective(w.view_as(W), A)  # noqa: E731
    return torch.linalg.eigvalsh(torch.func.hessian(flat)(W.flatten()))


def curvatures(A):
    r = torch.linspace(1e-3, 6, 4001, dtype=torch.float64)
    return torch.func.vmap(torch.func.grad(torch.func.grad(lambda x: A.value(x * x))))(r)


@pytest.mark.parametrize("name", attention.KINDS)
def test_lowest_curvature_and_smoothness_are_those_of_the_function(name):
    A = attention.by_name(name, sigma=1.7)
    found = curvatures(A)
    assert float(found.min().clamp(max=0)) == pytest.approx(theory.lowest_curvature(A), abs=0.01)
    largest = float(found.abs().max())
    assert theory.coupling_smoothness(A, 1) == pytest.approx(largest, rel=0.01)


def test_weak_convexity_is_attained_by_one_against_the_rest():
    A, m = exponential(2.0), 5
    W = torch.zeros(m, 3, dtype=torch.float64)
    W[0, 0] = math.sqrt(1.5 * 2.0)
    assert theory.weak_convexity(A, m) == pytest.approx(2.2313, abs=1e-4)
    assert float(hessian(A, W)[0]) == pytest.approx(-theory.weak_convexity(A, m), rel=1e-6)
    for seed in range(20):
        spectrum = hessian(A, 2 * normal(m, 3, seed=seed))
        assert spectrum[0] > -theory.weak_convexity(A, m)
        assert spectrum[-1] < theory.coupling_smoothness(A, m)
    assert theory.weak_convexity(tamed(2.0), m) == 0


# ----------------------------------------------------------------------------- Theorem 1
@pytest.mark.parametrize(
    ("K", "gap", "printed", "half_to_mean", "constant"),
    [
        (1, 1.29e1, 1.63e3, 6.6, 5.9e1),
        (4, 6.1e-1, 8.15e2, 9.6, 4.6),
        (16, 1.5e-2, 4.08e2, 13.4, 8.1e-3),
        (64, 2.2e-5, 2.04e2, 16.5, 2e-11),
    ],
)
def test_theorem1_measured(K, gap, printed, half_to_mean, constant):
    problem, start = theory.convex_toy()
    best = problem.settle(start)
    path = problem.path(start, problem.lam / math.sqrt(K), K)
    gaps = problem.value(path) - problem.value(best)
    far, B = float(norm2(start - best)), problem.steepest(path)
    half = theory.theorem1_bound(far, B, K)
    assert float(gaps.min()) == pytest.approx(gap, rel=0.04)
    assert theory.theorem1_bound(far, B, K, printed=True) == pytest.approx(printed, rel=0.01)
    assert half / float(gaps[:-1].mean()) == pytest.approx(half_to_mean, rel=0.01)
    last = problem.path(start, 1 / problem.price_smoothness, K)[-1]
    gap = float(problem.value(last) - problem.value(best))
    assert gap == pytest.approx(constant, rel=0.05)
    assert gap <= theory.proximal_gradient_bound(far, problem.lam * problem.price_smoothness, K)


# ----------------------------------------------------------------------------- Theorem 2
def test_theorem2_constants_of_the_toy():
    problem, start = theory.nonconvex_toy()
    assert problem.smoothness == 2 and problem.slope_bound == pytest.approx(2.516, abs=1e-3)
    assert float(problem.value(start)) == pytest.approx(10.1582, abs=1e-4)
    for seed in range(20):
        W = 2 * normal(5, 3, seed=seed)
        assert norm2(problem.loss_gradient(W)).sqrt() <= problem.slope_bound
        assert problem.lam * norm2(problem.price_gradient(W)).sqrt() <= problem.slope_bound


@pytest.mark.parametrize(
    ("K", "least", "mean", "printed", "constant", "bound"),
    [
        (16, 0.583, 1.36, 3.00e3, 0.086, 7.6),
        (64, 0.208, 0.833, 1.05e3, 0, 1.9),
    ],
)
def test_theorem2_measured(K, least, mean, printed, constant, bound):
    problem, start = theory.nonconvex_toy()
    excess = float(problem.value(start) - problem.value(problem.settle(problem.c)))
    L, B = problem.smoothness, problem.slope_bound
    slopes = norm2(problem.gradient(problem.path(start, problem.lam / math.sqrt(K), K)))
    assert float(slopes.min()) == pytest.approx(least, rel=0.01)
    assert float(slopes[:-1].mean()) == pytest.approx(mean, rel=0.01)
    bounds = {form: theory.theorem2_bound(excess, L, B, K, form) for form in theory.THEOREM2}
    assert bounds["printed"] == pytest.approx(printed, rel=0.01)
    assert mean < bounds["sharp"] < bounds["iterates"] < bounds["printed"]
    path = problem.path(start, 1 / (2 * problem.price_smoothness), K)[1:]
    assert float(norm2(problem.gradient(path)).min()) == pytest.approx(constant, rel=0.01, abs=1e-9)
    ell = problem.lam * problem.price_smoothness
    assert theory.proximal_gradient_slope_bound(excess, ell, K) == pytest.approx(bound, rel=0.02)


@pytest.mark.parametrize("rounds", [1, 4])
def test_theorem2_says_nothing_below_the_square_of_l(rounds):
    with pytest.raises(ValueError, match=f"rounds must be above L² = 4, .* got {rounds}"):
        theory.theorem2_bound(1.0, 2.0, 1.0, rounds)


def test_theorem2_forms_are_named():
    with pytest.raises(ValueError, match="form must be one of"):
        theory.theorem2_bound(1.0, 1.0, 1.0, 4, form="sharpest")


# --------------------------------------------------------------------------- experiments
def test_start_decides_the_end_only_where_the_price_is_not_convex():
    ends = {}
    for A in (exponential(1.0), tamed(1.0)):
        problem = theory.plane_toy(A)
        starts = theory.random_starts(12, problem.c, spread=3.0)
        values = problem.value(problem.settle(starts, rounds=1500, tolerance=1e-8))
        ends[A.name] = len(set(values.numpy().round(3).tolist()))
    assert ends["tamed_square_root"] == 1 < ends["negative_exponential"]


def test_limits_are_unique_exactly_where_the_problem_is_convex():
    mu = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)[:, None]
    lam = torch.tensor([0.2, 0.6, 1.0], dtype=torch.float64)[None]
    counts = theory.count_limits(mu, lam, sigma=1.0, m=4, rounds=600)
    rho = theory.weak_convexity(exponential(1.0), 4)
    assert torch.equal(counts == 1, mu >= lam * rho)


def test_width_sweep_is_a_valley():
    found = theory.width_sweep([0.3, 1.0, 3.0, 10.0])
    assert found["separate"] == pytest.approx(2.358, abs=1e-3)
    assert found["one mean"] == pytest.approx(4.227, abs=1e-3)
    assert found["true groups"] == pytest.approx(0.506, abs=1e-3)
    assert found["error"] == pytest.approx([2.329, 1.379, 2.231, 3.54], abs=0.01)
    assert found["inside"] == pytest.approx([0.999, 0.998, 0.698, 0.45], abs=0.01)


# ------------------------------------------------------------------------------- helpers
def test_holds_says_how_much_of_the_permitted_is_used():
    assert holds(torch.tensor([1.0, 3.0]), 4.0) == (
        "holds 2 of 2 times; at most 0.75 of the permitted"
    )
    falls = holds(torch.tensor([4.0, 6.5]), torch.tensor([7.0, 6.9]), since=7.3)
    assert falls == "holds 2 of 2 times; falls by at least 2 times the promised"
    both = holds(torch.tensor([1.0, -3.0]), torch.tensor([2.0, -2.0]))
    assert both == (
        "holds 2 of 2 times; at most 0.5 of the permitted; falls by at least 1.5 times the promised"
    )


def test_a_proof_is_weighed_line_by_line():
    falling = torch.tensor([4.0, 6.5]), torch.tensor([7.0, 6.9]), 7.3
    rows = weigh({"short": (1.0, 4.0), "fall": falling}).rows
    assert rows == [("short", "yes", "0.25", ""), ("fall", "2 times", "", "2")]
    with pytest.raises(AssertionError, match="violated"):
        weigh({"short": (1.0, 4.0), "long": (4.0, 1.0)})


def test_holds_does_not_take_a_constant_for_tightness():
    left, right, since = normal(20).abs(), 5 + normal(20, seed=1).abs(), torch.zeros(20)
    plain = holds(left, right, since)
    for constant in (10.0, 1000.0):
        assert holds(left + constant, right + constant, since + constant) == plain


def test_holds_gives_no_digits_of_next_to_nothing():
    falls = "holds 1 of 1 times; less than 0.001 of the permitted"
    assert holds(torch.tensor(-1.0), 4.0) == holds(1e-7, 4.0) == falls


def test_holds_leaves_rounding_out():
    tiny = torch.tensor([1.0, 1e-17], dtype=torch.float64)
    assert holds(tiny, torch.tensor([2.0, 1e-17])) == (
        "holds 2 of 2 times; at most 0.5 of the permitted"
    )


def test_holds_raises_when_an_inequality_is_violated():
    with pytest.raises(AssertionError, match=r"violated at place 1: 3\.0 is not at most 2\.0"):
        holds(torch.tensor([1.0, 3.0]), torch.tensor([4.0, 2.0]))
