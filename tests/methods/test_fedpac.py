"""FedPAC: features at common class means, heads mixed by a quadratic program."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from pfl_lib import algorithm
from pfl_lib import formulas as f
from pfl_lib.methods.fedpac import fedpac_statistics, simplex_minimum
from tests.support.linear import CLASSES, WIDTH, flat, linear_federation, parts, samples, slopes
from tests.support.methods import ENGINES, close, go, refused, small_federation, whole_batches


def test_eq_fedpac_pull():
    phi, targets = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[1.0, 0.0], [3.0, 1.0]])
    found = f.fedpac_pull(torch.tensor(phi), torch.tensor(targets), 0.5)
    np.testing.assert_allclose(found, [0.5 * 4 / 2, 0.5 * 10 / 2])


def test_eq_fedpac_matrix_is_the_risk_of_a_mix():
    """αᵀPα = Σ_j α_j² V_j + ‖H_i − Σ_j α_j H_j‖² whenever the weights sum to one."""
    rng = np.random.default_rng(0)
    H, V, alpha = rng.normal(size=(4, 3, 2)), rng.random(4), rng.dirichlet(np.ones(4))
    for i in range(4):
        P = f.fedpac_matrix(torch.tensor(H), torch.tensor(V), i).numpy()
        by_hand = (alpha**2 * V).sum() + ((H[i] - np.tensordot(alpha, H, 1)) ** 2).sum()
        assert alpha @ P @ alpha == pytest.approx(by_hand, rel=1e-12)


def test_statistics_are_shares_times_means_and_the_variance():
    rng = np.random.default_rng(1)
    phi, y = rng.normal(size=(12, 2)), np.array([0] * 7 + [2] * 5)
    sums = np.array([phi[y == c].sum(0) for c in range(3)])
    counts = np.bincount(y, minlength=3).astype(float)
    given = (sums[None], counts[None], np.array([(phi**2).sum()]))
    H, V = (t.numpy()[0] for t in fedpac_statistics(*(torch.tensor(t) for t in given)))
    share = counts / 12
    means = [phi[y == c].mean(0) if counts[c] else np.zeros(2) for c in range(3)]
    np.testing.assert_allclose(H, share[:, None] * means, atol=1e-12)
    second = sum(share[c] * (phi[y == c] ** 2).sum(1).mean() for c in (0, 2))
    np.testing.assert_allclose(V, (second - (H**2).sum()) / 12, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_quadratic_program_is_solved(seed):
    """Against SciPy's SLSQP, a different method, and the conditions of optimality."""
    rng = np.random.default_rng(seed)
    m = 2 + seed
    X = rng.normal(size=(m, 3))
    P = X @ X.T + np.diag(rng.random(m) * 0.1)
    alpha = simplex_minimum(P)
    other = minimize(
        lambda a: a @ P @ a, np.full(m, 1 / m), jac=lambda a: 2 * P @ a, method="SLSQP",
        bounds=[(0, None)] * m, constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    )  # fmt: skip
    assert other.success and alpha @ P @ alpha <= other.fun + 1e-9
    np.testing.assert_allclose(alpha, other.x, atol=1e-4)
    assert alpha.min() >= 0 and alpha.sum() == pytest.approx(1, abs=1e-12)
    slope = P @ alpha  # equal on the support, nowhere less
    assert np.ptp(slope[alpha > 0]) < 1e-9 and slope.min() > slope[alpha > 0].min() - 1e-9


def test_programs_with_known_solutions():
    np.testing.assert_allclose(simplex_minimum(np.diag([1.0, 2.0, 4.0])), [4 / 7, 2 / 7, 1 / 7])
    np.testing.assert_allclose(simplex_minimum(np.zeros((4, 4))), np.full(4, 0.25))
    far = np.array([[1.0, 0.0], [0.0, 1e6]])
    np.testing.assert_allclose(simplex_minimum(far), [1, 0], atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_known_answer_of_one_round(data, unequal, engine):
    """Head step, then body step with pull, at every client; then averages and mixtures."""
    fed, method = linear_federation(data, unequal, engine=engine), algorithm("fedpac", lam=0.7)
    common = np.random.default_rng(4).normal(size=(CLASSES, WIDTH))
    state = method.start(fed)
    state = state.set(common=torch.tensor(common), known=torch.ones(CLASSES, dtype=fed.dtype))
    new = method.round(state, fed, fed.everyone)
    B, A, b = parts(fed.initial()[0])
    trained, H, V = [], [], []
    for i in range(fed.m):
        s, y = samples(fed, i)
        phi, n = s @ B.T, len(y)
        _, gA, gb = slopes(B, A, s, phi @ A.T + b, y)
        A1, b1 = A - 0.1 * gA, b - 0.1 * gb
        pull = 0.7 * 2 * (phi - common[y]) / WIDTH / n
        gB, _, _ = slopes(B, A1, s, phi @ A1.T + b1, y, to_features=pull)
        trained.append(flat(B - 0.1 * gB, A1, b1))
        H.append([phi[y == c].sum(0) / n for c in range(CLASSES)])
        V.append(((phi**2).sum() / n - np.square(H[-1]).sum()) / n)
    trained, H = np.array(trained), np.array(H)
    shares = np.array([7, 50, 20, 33, 12]) / 122
    head = np.arange(fed.d) >= WIDTH * 64
    w = method.personal(new, fed).numpy()
    np.testing.assert_allclose(w[:, ~head], [shares @ trained[:, ~head]] * 5, atol=1e-11)
    for i in range(fed.m):
        apart = (H[i] - H).reshape(5, -1)
        P = apart @ apart.T + np.diag(V)
        best = minimize(
            lambda a, P=P: a @ P @ a / np.trace(P), shares, method="SLSQP", bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 1000},
        )  # fmt: skip
        np.testing.assert_allclose(w[i, head], best.x @ trained[:, head], atol=1e-3)


def test_clients_with_the_same_data_share_one_head(data, twins):
    fed, method = whole_batches(data, twins), algorithm("fedpac")
    w = method.personal(go(method, fed, 2), fed)
    close(w, w[:1].expand_as(w), 1e-9)


def test_the_pull_acts(data, unequal):
    fed = small_federation(data, unequal)
    without, pulled = (go(algorithm("fedpac", lam=lam), fed, 3).x for lam in (0.0, 1.0))
    assert (without - pulled).norm() > 1e-2


BAD = [
    ("fedpac", {"lam": -1.0}, "lam must be a non-negative"),
    ("fedpac", {"head_epochs": -1}, "head_epochs must be a whole number >= 0, got -1"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
