"""FedAMP as majorise–minimise, and its rounds as they are run: what the proofs claim, on draws."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pfl_lib import attention
from pfl_lib.book import theory
from pfl_lib.book.theory import descend, laplacian, majorizer, norm2, self_weight_floor
from pfl_lib.formulas import attention_weights, fedamp_gradient, fedamp_objective, fedamp_weights
from pfl_lib.methods import FedAMP


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def toy(seed, sigma=2.0, lam=1.0, m=6, curvature=(1.0, 0.2)):
    truth = torch.tensor([[-2.0, 1.0], [2.0, -1.0]]).double()[torch.arange(m) * 2 // m]
    H = torch.diag(torch.tensor(curvature, dtype=torch.float64))
    centers = truth + 0.9 * normal(m, 2, seed=seed)
    return theory.Quadratics(centers, attention.negative_exponential(sigma), lam, H=H)


@pytest.mark.parametrize("name", attention.KINDS)
def test_the_laplacian_majorises_and_touches(name):
    A = attention.by_name(name, sigma=1.3)
    for seed in range(20):
        W, V = normal(5, 3, seed=seed), 2 * normal(5, 3, seed=100 + seed)
        assert majorizer(V, W, A) >= fedamp_objective(V, A) - 1e-12
        assert_close(majorizer(W, W, A), fedamp_objective(W, A))
        assert_close(2 * laplacian(W, A) @ W, fedamp_gradient(W, A))


@pytest.mark.parametrize("c", [1, 2])
def test_weights_are_identity_minus_the_laplacian(c):
    W, A = normal(5, 3), attention.negative_exponential(1.5)
    xi = fedamp_weights(W, A, alpha=0.1, grad_factor=c)
    assert_close(xi, torch.eye(5).double() - c * 0.1 * laplacian(W, A))


@pytest.mark.parametrize("rule", theory.RULES)
def test_no_rule_ever_raises_the_objective_and_all_end_stationary(rule):
    for seed in range(3):
        problem = toy(seed)
        path = descend(problem, problem.c, rule, rounds=200)
        assert (problem.value(path).diff() < 1e-12).all()
        assert problem.gradient(path[-1]).abs().max() < 1e-2


def test_a_round_by_degrees_is_the_attention_form():
    problem = toy(3)
    L = laplacian(problem.c, problem.attention)
    keep = self_weight_floor(L)
    u = attention_weights(problem.c, problem.attention, keep) @ problem.c
    beta = (1 - keep) / (2 * problem.lam * L.diagonal()[:, None])
    assert_close(descend(problem, problem.c, "degrees", rounds=1)[1], problem.prox(u, beta))


def test_below_the_floor_the_objective_can_rise():
    """The floor is not a habit of the proof: without losses, less self-weight overshoots."""
    A = attention.negative_exponential(50.0)
    W = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    floor = self_weight_floor(laplacian(W, A))
    assert floor == pytest.approx(0.5)
    at, below = (attention_weights(W, A, keep) @ W for keep in (floor, 0.0))
    assert fedamp_objective(at, A) < 1e-9 < fedamp_objective(below, A)


def test_the_floor_is_at_most_a_half_and_one_over_the_group():
    for seed in range(20):
        L = laplacian(normal(7, 2, seed=seed), attention.negative_exponential(1.0))
        assert 1 / 7 - 1e-9 <= self_weight_floor(L) <= 0.5 + 1e-9
    for g in (2, 5, 20):
        block = g * torch.eye(g, dtype=torch.float64) - torch.ones(g, g, dtype=torch.float64)
        assert self_weight_floor(torch.block_diag(block, block)) == pytest.approx(1 / g)


def test_mean_shift_is_fedamp_without_losses():
    W, A = normal(6, 2), attention.negative_exponential(1.5)
    keep = 1 / (1 + 1.5 * laplacian(W, A).diagonal())
    assert_close(theory.mean_shift(W, 1.5), attention_weights(W, A, keep) @ W)
    merged = theory.mean_shift(W, 1.5, rounds=200)
    assert_close(merged, merged[:1].expand(6, 2))


def one_beta(h, c, W, beta, keep, rounds, sigma=1.0):
    """FedAMP as reported: a fixed self-weight, one β for all, exact local solutions."""
    method = FedAMP(sigma=sigma, self_weight=keep, prox_beta=beta)
    states = theory.iterate(method, theory.QuadraticFederation(h, c, start=W), rounds)
    return torch.stack([state.w for state in states])


def test_one_beta_for_all_can_go_round_forever():
    h = torch.tensor([[1.0], [0.3], [0.1]]).double()
    c = torch.tensor([[-0.5], [-5.0], [10.0]]).double()
    for start in (0 * c, 3 * normal(3, 1, seed=1)):
        path = one_beta(h, c, start, beta=1.0, keep=0.5, rounds=600)
        early, late = (part.amax(0) - part.amin(0) for part in (path[200:300], path[-100:]))
        assert late.min() > 0.45
        assert_close(early, late, atol=0.01, rtol=0)


def test_long_steps_settle_as_fast_as_proved():
    h, c, keep, sigma = 1 + normal(5, 2).abs(), 0.2 * normal(5, 2, seed=1), 0.3, 4.0
    mu, reach = float(h.min()), float(c.norm(dim=1).max())
    beta = 1.0
    while beta * mu <= 8 * (1 - keep) * (reach * (1 + 2 / (beta * mu))) ** 2 / sigma:
        beta *= 1.1
    diameter = 2 * reach * (1 + 2 / (beta * mu))
    factor = (1 + 2 * (1 - keep) * diameter**2 / sigma) / (1 + beta * mu)
    assert factor < 1
    paths = [one_beta(h, c, start, beta, keep, 12, sigma) for start in (c, 0 * c)]
    apart = (paths[0] - paths[1]).norm(dim=2).amax(1)
    assert (apart[1:] <= factor * apart[:-1] + 1e-12).all() and apart[-1] < 1e-3 * apart[0]


# ------------------------------------------------------------------------------ as it is run
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_rounds_as_run_never_rise_and_keep_the_bound(share, steps):
    problem = toy(0)
    s = [1 / (2 * problem.lam * problem.price_smoothness)] * 150
    lowest = problem.value(problem.settle(problem.c))
    excess = float(problem.value(0 * problem.c) - lowest)
    start = torch.zeros(8, 6, 2, dtype=torch.float64)
    path = theory.run_as_is(problem, start, s, 1.0, steps, share)
    assert (problem.value(path).diff(dim=0) < 1e-12).all()
    found = s[0] * norm2(problem.gradient(path[:-1])).sum(0).mean()
    epsilon = theory.relative_error(steps, s[0], smoothness=1.0)
    assert found <= theory.as_is_bound(excess, s, 1.0, epsilon, share)


def test_the_relative_error_is_what_local_descent_leaves():
    problem = toy(1)
    W, U = normal(6, 2, seed=5), normal(6, 2, seed=6)
    for steps in (1, 2, 7):
        for s in (0.1, 1.0, 5.0):
            V = theory.local_descent(problem, W, U, s, steps, smoothness=1.0)
            left = norm2(problem.loss_gradient(V) + (V - U) / s).sqrt()
            allowed = theory.relative_error(steps, s, 1.0) / s * norm2(V - W).sqrt()
            assert left <= allowed + 1e-12


def test_what_is_left_of_a_path_is_bounded_by_lojasiewicz():
    problem = toy(2)
    ell = problem.lam * problem.price_smoothness
    path = problem.path(0 * problem.c, 1 / (2 * problem.price_smoothness), 1000)
    lowest = problem.value(path[-1])
    moved, C = theory.distance_moved(path), theory.lojasiewicz_constant(problem, path, lowest)
    excess = (problem.value(path) - lowest).clamp(min=0)
    for k in (1, 5, 20):
        bound = moved[k - 1] + 3 * ell / (ell / 2) * C * excess[k].sqrt()
        assert moved[k:].sum() <= bound


def test_bad_input_is_named():
    problem = toy(0)
    with pytest.raises(ValueError, match="rule must be one of"):
        descend(problem, problem.c, "fastest")
    with pytest.raises(ValueError, match="every client has an edge"):
        self_weight_floor(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="share"):
        theory.run_as_is(problem, problem.c, [0.1], 1.0, share=1.5)
