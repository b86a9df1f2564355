"""FedAMP, HeurFedAMP, FedAvg and Separate: the papers' rounds, and the mistakes others made."""

import pytest
import torch
from known_answers import known

import pfl_lib
from pfl_lib import Federation, algorithm, algorithms, partition, run
from pfl_lib.formulas import attention_weights, heurfedamp_weights, median_sigma
from pfl_lib.theory import QuadraticFederation, iterate


@pytest.fixture(scope="module")
def quadratic():
    return QuadraticFederation(
        known("K3", "H diagonals"), known("K3", "centres c"), start=known("K1", "W rows")
    )


def fedamp(**hyper):
    return algorithm("fedamp", sigma=2.0, alpha=0.5, lam=0.5, **hyper)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_fedamp_rounds_as_printed(quadratic, k):
    """K3: Eqs. (5)-(7) as printed, the proximal step exact."""
    state = iterate(fedamp(), quadratic, k)[-1]
    torch.testing.assert_close(state.u, known("K3", f"printed form, round {k}: U"))
    torch.testing.assert_close(state.w, known("K3", f"printed form, round {k}: W"))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_fedamp_rounds_with_the_true_gradient(quadratic, k):
    state = iterate(fedamp(grad_factor=2), quadratic, k)[-1]
    torch.testing.assert_close(state.w, known("K3", f"true gradient, round {k}: W"))


def test_fedamp_converges_to_a_stationary_point_of_its_objective(quadratic):
    state = iterate(fedamp(grad_factor=2), quadratic, 400)[-1]
    limit = known("K3", "true gradient limit point (stationary point of G)")
    torch.testing.assert_close(state.w, limit, rtol=1e-9, atol=1e-9)


def test_fedamp_as_printed_solves_the_problem_with_half_the_lambda(quadratic):
    printed = iterate(fedamp(), quadratic, 600)[-1].w
    half = algorithm("fedamp", sigma=2.0, alpha=0.25, lam=0.25, grad_factor=2)
    torch.testing.assert_close(iterate(half, quadratic, 600)[-1].w, printed, rtol=0, atol=1e-9)


def test_tau_form_and_heuristic_mix_by_their_formulas(quadratic):
    w = known("K1", "W rows")
    attention = pfl_lib.attention.negative_exponential(sigma=2.0)
    state = iterate(algorithm("fedamp", sigma=2.0, self_weight=0.05), quadratic, 1)[-1]
    torch.testing.assert_close(state.xi, attention_weights(w, attention, 0.05))
    torch.testing.assert_close(
        state.xi, known("K1", "tau-mode tau=0.95, kernel exp(-d2/sigma) [A' of stated A]: xi")
    )
    half = algorithm("fedamp", sigma=2.0, self_weight=0.05, half_kernel=True)
    torch.testing.assert_close(
        iterate(half, quadratic, 1)[-1].xi,
        known("K1", "tau-mode tau=0.95, kernel exp(-d2/(2 sigma)) [v1 Eq.9]: xi"),
    )
    state = iterate(algorithm("heurfedamp", sigma=5.0, self_weight=0.2), quadratic, 1)[-1]
    torch.testing.assert_close(state.xi, heurfedamp_weights(w, 5.0, 0.2))
    torch.testing.assert_close(state.u, known("K2", "sigma=5 xi_ii=0.2: u"))


def test_beta_follows_its_schedule(quadratic):
    from pfl_lib.algorithms.message_passing import scheduled

    beta = [scheduled((1e4, 0.1, 30), k) for k in (0, 29, 30, 61)]
    assert beta == pytest.approx([1e4, 1e4, 1e3, 1e2])
    tight = algorithm("fedamp", sigma=2.0, self_weight=0.2, prox_beta=1e-9)
    state = iterate(tight, quadratic, 1)[-1]
    torch.testing.assert_close(state.w, state.u, rtol=0, atol=1e-6)


def test_median_sigma_does_not_depend_on_the_scale_of_the_models(quadratic):
    median = algorithm("fedamp", self_weight=0.2, multiple=0.5)
    w = known("K1", "W rows")
    xi, _ = median.attend(w, 0)
    torch.testing.assert_close(median.attend(1000 * w, 0)[0], xi)
    number = algorithm("fedamp", sigma=float(median_sigma(w, 0.5)), self_weight=0.2)
    torch.testing.assert_close(number.attend(w, 0)[0], xi)
    for name in ("tamed_square_root", "pseudo_huber", "mcp", "scad"):
        other = algorithm("fedamp", self_weight=0.2, attention=name)
        torch.testing.assert_close(other.attend(1000 * w, 0)[0], other.attend(w, 0)[0])


def test_too_large_an_alpha_warns_with_the_safe_one(quadratic):
    with pytest.warns(UserWarning, match="alpha = 10 .* alpha <= 1 is safe"):
        iterate(algorithm("fedamp", sigma=2.0, alpha=10.0), quadratic, 1)
    xi = iterate(algorithm("fedamp", sigma=2.0, alpha="safe"), quadratic, 1)[-1].xi
    assert xi.diagonal().min() >= 0


# ---- on real clients ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    return pfl_lib.data.load("mnist5k")


@pytest.fixture(scope="module")
def groups(data):
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    return partition.grouped(
        data, group_classes=pairs, group_clients=[5] * 5, group_sizes=[100] * 5, test_size=40
    )


def federation(data, clients, **how):
    how = {"lr": 1e-3, "optimizer": "adam", "batch_size": 50, "epochs": 5, **how}
    return Federation(data, clients, "mlp", device="cpu", **how)


def inside_share(xi, groups):
    """The part of what a client hears from others that comes from its own group."""
    others = xi - torch.diag(xi.diagonal())
    same = groups[:, None] == groups[None, :]
    return float(((others * same).sum(1) / others.sum(1)).mean())


@pytest.mark.parametrize("sigma", [1.0, "median"])
def test_fedamp_finds_the_groups_and_beats_separate(data, groups, sigma):
    fed = federation(data, groups)
    attentive = run(algorithm("fedamp", sigma=sigma, self_weight=0.2), fed, 8, progress=False)
    separate = run(algorithm("separate"), fed, 8, progress=False)
    assert inside_share(attentive.state.xi, groups.groups) > 0.9  # chance is 4/24
    assert attentive.last > separate.last + 0.01
    assert not torch.allclose(attentive.state.w, separate.state.w, atol=1e-3)


def test_fedamp_is_not_separate_even_when_it_starts_at_w(data, groups):
    """A detached penalty would make the two equal from the second round on."""
    fed = federation(data, groups, epochs=1)
    attentive = algorithm("fedamp", sigma=10.0, self_weight=0.2, begin="w", prox_beta=1.0)
    with_pull = run(attentive, fed, 2, evaluate_every=2, progress=False).state.w
    alone = run(algorithm("separate"), fed, 2, evaluate_every=2, progress=False).state.w
    assert (with_pull - alone).norm(dim=1).min() > 1e-2


def test_round_one_of_fedamp_is_separate_training(data, groups):
    """From a common start every message is the common model."""
    fed = federation(data, groups, epochs=1)
    first = run(algorithm("fedamp", sigma=10.0, self_weight=0.2), fed, 1, progress=False).state
    torch.testing.assert_close(first.u, fed.initial())
    alone = fed.train(fed.initial(), fed.everyone)
    torch.testing.assert_close(first.w, alone, rtol=0, atol=2e-3)  # the pull is 10⁻⁴


def test_a_client_that_stays_away_keeps_its_model_and_still_speaks(data, groups):
    fed = federation(data, groups, epochs=1)
    method = algorithm("fedamp", sigma=10.0, self_weight=0.2)
    first = method.round(method.start(fed), fed.at(0), fed.everyone)
    there = fed.everyone[1:]
    second = method.round(first, fed.at(1), there)
    assert torch.equal(second.w[0], first.w[0])
    assert (second.xi[1:, 0] > 0).all()


def test_fedavg_is_the_weighted_mean_and_fine_tuning_leaves_it_alone(data, groups):
    fed = federation(data, partition.iid(data, 7), epochs=1)
    average = algorithm("fedavg").round(algorithm("fedavg").start(fed), fed, fed.everyone)
    trained = fed.train(fed.initial(), fed.everyone)
    mean = (fed.sizes[:, None] * trained).sum(0) / fed.sizes.sum()
    torch.testing.assert_close(average.x, mean)
    plain = run(algorithm("fedavg"), fed, 2, progress=False)
    tuned = run(algorithm("fedavg-ft"), fed, 2, progress=False)
    assert torch.equal(plain.state.x, tuned.state.x)
    assert tuned.also["global"] == plain.accuracy and tuned.accuracy != plain.accuracy


# ---- every algorithm there is ------------------------------------------------------------------


def test_names_and_words():
    assert len(set(algorithms.names())) == len(algorithms.ALL)
    for method in algorithms.ALL:
        assert method.label and method.tested and method.__doc__, method


def test_the_comparison_table_knows_every_method():
    table = pfl_lib.compare(here="fedamp")
    assert [row[0] for row in table.rows] == [method.label for method in algorithms.ALL]
    assert table._repr_html_().count("<strong>") == 1


BAD = [
    ("fedamp", {"sigma": 0.0, "self_weight": 0.2}, "sigma must be a positive finite number, got 0"),
    ("fedamp", {"sigma": 1.0}, "give either alpha .* or self_weight"),
    ("fedamp", {"alpha": 1.0, "self_weight": 0.2}, "give either alpha .* or self_weight"),
    ("fedamp", {"self_weight": 1.5}, r"self_weight must lie in \[0, 1\], got 1.5"),
    ("fedamp", {"alpha": -1.0}, "alpha must be a positive finite number, got -1.0"),
    ("fedamp", {"self_weight": 0.2, "attention": "mpc"}, "Did you mean 'mcp'"),
    ("fedamp", {"self_weight": 0.2, "begin": "v"}, "begin must be one of 'u', 'w'"),
    ("fedamp", {"self_weight": 0.2, "prox_beta": (1.0, 2.0)}, "prox_beta must be a number or"),
    ("fedamp", {"self_weight": 0.2, "half_kernel": True, "attention": "mcp"}, "half_kernel"),
    ("heurfedamp", {"sigma": -1.0}, "sigma must be a non-negative finite number, got -1.0"),
    ("heurfedamp", {"self_weight": -0.1}, r"self_weight must lie in \[0, 1\], got -0.1"),
]


@pytest.mark.parametrize("name, hyper, message", BAD, ids=lambda v: str(v)[:30])
def test_bad_hyper_parameters(name, hyper, message):
    with pytest.raises(ValueError, match=message):
        algorithm(name, **hyper)
