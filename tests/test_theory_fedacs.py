"""The toys behind the chapters on HeurFedAMP and FedACS, named after their equations."""

import math

import pytest
import torch
from torch.testing import assert_close

from pfl_lib import formulas, train
from pfl_lib.book import papers, theory
from pfl_lib.book.theory import (
    DescentFederation,
    PulledQuadratics,
    QuadraticFederation,
    balanced,
    best_tau,
    fedacs_theorem_bound,
    fedacs_toy,
    heur_share,
    iterate,
    message_noise,
    norm2,
)
from pfl_lib.methods import FedACS, HeurFedAMP, Separate


def doubles(*rows):
    return torch.tensor(rows, dtype=torch.float64)


# --- HeurFedAMP -------------------------------------------------------------------------------


@pytest.mark.parametrize("similar", [1, 4, 9, 19, 61, 99])
def test_tau_rule_has_the_least_tau_noise(similar):
    best = best_tau(similar)
    for tau in (best - 1e-3, best + 1e-3):
        assert message_noise(tau, similar) > message_noise(best, similar)
    assert message_noise(best, similar) == pytest.approx(1 / (similar + 1))


@pytest.mark.parametrize(
    "data, partition, similar",
    [
        ("mnist", "grouped", 19),
        ("fashion_mnist", "grouped", 19),
        ("emnist", "grouped", 9),
        ("cifar100", "grouped", 4),
        ("mnist", "iid", 99),
        ("emnist", "iid", 61),
        ("cifar100", "iid", 99),
    ],
)
def test_tau_rule_gives_the_tables(data, partition, similar):
    assert papers.settings("heurfedamp", data, partition)["tau"] == round(best_tau(similar), 3)


def test_tau_noise_is_the_variance_of_a_message():
    draws = torch.randn(200_000, 5, generator=torch.Generator().manual_seed(0))
    message = 0.3 * draws[:, 0] + 0.7 * draws[:, 1:].mean(1)
    assert float(message.var()) == pytest.approx(message_noise(0.7, 4), rel=0.02)


def test_heur_share_is_that_of_the_weights():
    """Four directions in two groups, all cosines inside and all cosines outside alike."""
    W = doubles([3, 1, 0, 0.5], [3, 1, 0, -0.5], [3, -1, 0.5, 0], [3, -1, -0.5, 0])
    S = formulas.cosine_similarities(W)
    xi = formulas.heurfedamp_weights(W, sigma=7.0, self_weight=0.2)
    share = heur_share(7.0, float(S[0, 1] - S[0, 2]), m=4, group=2)
    assert float(xi[0, 1] / (1 - xi[0, 0])) == pytest.approx(share)
    assert heur_share(0.0, 0.1, m=25, group=5) == pytest.approx(4 / 24)


# --- FedACS -----------------------------------------------------------------------------------


def test_descent_takes_the_step_of_fedacs_local():
    h, c, start = doubles([1, 2], [3, 1]), doubles([1, 0], [-1, 2]), doubles([0, 0], [1, 1])
    fed = DescentFederation(h, c, start, lr=0.1)
    expected = formulas.fedacs_local(start, h * (start - c), lr=0.1)
    assert_close(train(fed, start, fed.everyone), expected)
    again = formulas.fedacs_local(expected, h * (expected - c), lr=0.1)
    twice = DescentFederation(h, c, start, lr=0.1, steps=2)
    assert_close(train(twice, start, fed.everyone), again)
    assert_close(train(twice.at(3), start[1:], torch.tensor([1])), again[1:])


def test_descent_tends_to_the_proximal_step():
    h, c = doubles([1, 2], [3, 1]), doubles([1, 0], [-1, 2])
    method, start = HeurFedAMP(sigma=3.0, self_weight=0.3, prox_beta=2.0), doubles([1, 1], [2, -1])
    exact = iterate(method, QuadraticFederation(h, c, start), 3)[-1]
    many = iterate(method, DescentFederation(h, c, start, lr=0.2, steps=500), 3)[-1]
    assert_close(many.w, exact.w)


def test_fedacs_with_exact_local_training_is_separate():
    fed = QuadraticFederation(doubles([1.0], [2.0]), doubles([1.0], [-1.0]), doubles([1.0], [2.0]))
    heard, alone = (iterate(a, fed, 3)[-1].w for a in (FedACS(p=0.0), Separate()))
    assert_close(heard, alone)


def test_balanced_rows_sum_to_one():
    S = balanced(doubles([1, 0.2, 0.5], [0.2, 1, 0.9], [0.5, 0.9, 1]))
    assert_close(S.sum(1), torch.ones(3, dtype=torch.float64))
    assert_close(S, S.T)
    for bad in (doubles([1, 0], [0, 1]), doubles([1, 0.5], [0.4, 1])):
        with pytest.raises(ValueError, match="symmetric with positive entries"):
            balanced(bad)


def test_fedacs_regulariser_and_its_gradient():
    problem, W = fedacs_toy()
    pairs = ((W[:, None] - W[None]) ** 2).sum(-1)
    assert_close(problem.pull(W), (problem.s * pairs).sum())
    assert_close(torch.func.grad(problem.pull)(W), problem.pull_gradient(W))
    assert_close(torch.func.grad(problem.value)(W), problem.gradient(W))
    assert_close(problem.pull_gradient(W), 4 * (W - problem.s @ W))  # unit rows
    many = torch.stack([W, 2 * W])
    assert_close(problem.gradient(many)[1], problem.gradient(2 * W))
    with pytest.raises(ValueError, match="symmetric"):
        PulledQuadratics(W, W, torch.rand(6, 6).double(), 0.2)


def test_near_solves_the_envelope_problem():
    problem, W = fedacs_toy()
    for strength in (0.0, 3.0):
        Z = problem.near(W, strength)
        assert_close(problem.gradient(Z) + strength * (Z - W), torch.zeros_like(W))
    both = problem.near(torch.stack([W, 2 * W]), 3.0)
    assert_close(both[1], problem.near(2 * W, 3.0))


def test_a_quarter_step_is_the_mixing_of_the_algorithm():
    problem, start = fedacs_toy()
    W, U = problem.path(start, alpha=0.25, beta=0.1, rounds=3)
    assert_close(U[0], formulas.mix(problem.s, start))
    assert_close(W[1], formulas.fedacs_local(U[0], problem.loss_gradient(U[0]), 0.1))


@pytest.mark.parametrize("rounds", [16, 256])
def test_fedacs_theorem_bounds_the_analysed_scheme(rounds):
    problem, start = fedacs_toy()
    beta, L = 1 / math.sqrt(rounds), problem.smoothness
    W, U = problem.path(start, problem.lam * beta, beta, rounds)
    B = problem.slope_bound(W, U)
    excess = float(problem.value(start) - problem.value(problem.near(start, 0.0)))
    mean = float(norm2(problem.gradient(W[:-1])).mean())
    for form in theory.FEDACS_THEOREM:
        assert mean <= fedacs_theorem_bound(excess, L, B, rounds, form)


def test_fedacs_theorem_by_thirteen_never_falls_below_three_b_squared():
    far = fedacs_theorem_bound(excess=1.0, L=2.0, B=1.5, rounds=10**14, form="by (13)")
    assert far == pytest.approx(3 * 1.5**2, rel=1e-3)
    assert fedacs_theorem_bound(1.0, 2.0, 1.5, 10**14) < 1e-3
    with pytest.raises(ValueError, match="form must be one of"):
        fedacs_theorem_bound(1.0, 2.0, 1.5, 10, form="printed")


def test_the_algorithm_leaves_the_problem_the_theorem_is_about():
    problem, start = fedacs_toy()
    slope, spread = [], []
    for rounds in (16, 256, 1024):
        W, _ = problem.path(start, 0.25, 1 / math.sqrt(rounds), rounds)
        slope.append(float(norm2(problem.gradient(W[-1]))))
        spread.append(float(norm2(W[-1] - W[-1].mean(0)).sqrt()))
    assert slope == sorted(slope) and spread == sorted(spread, reverse=True)
    assert slope[0] == pytest.approx(3.93, abs=0.01) and spread[0] == pytest.approx(0.902, abs=1e-3)
