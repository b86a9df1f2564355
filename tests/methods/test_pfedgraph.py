"""pFedGraph: the rows of the graph, the pull towards the mixture."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pfl_lib import Federation, algorithm, metrics, partition, run, train
from pfl_lib import formulas as f
from tests.support.methods import close, go, refused


def by_slsqp(s, p, alpha):
    """The same quadratic programme, as printed, by a general solver."""
    result = minimize(
        lambda a: alpha * ((a - p) ** 2).sum() - s @ a,
        np.full(len(p), 1 / len(p)),
        jac=lambda a: 2 * alpha * (a - p) - s,
        bounds=[(0, None)] * len(p),
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return result.x


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.8, 5.0]))
def test_eq_pfedgraph_weights_by_another_solver(seed, alpha):
    random = np.random.default_rng(seed)
    s, p = random.uniform(-1, 1, (4, 4)), random.dirichlet(np.ones(4))
    found = f.pfedgraph_weights(torch.from_numpy(s), torch.from_numpy(p), alpha).numpy()
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
    assert found.min() >= 0
    for row, similar in zip(found, s):
        np.testing.assert_allclose(row, by_slsqp(similar, p, alpha), atol=1e-6)


def test_eq_pfedgraph_weights_by_hand():
    """Nobody at zero: a = p + (s − mean s)/(2α).  Two clients, one of them far too unlike: 1, 0."""
    s, p = np.array([1.0, 0.8, 0.6]), np.array([0.5, 0.3, 0.2])
    S = torch.from_numpy(np.stack([s, s, s]))
    found = f.pfedgraph_weights(S, torch.from_numpy(p), alpha=2.0)[0].numpy()
    np.testing.assert_allclose(found, p + (s - 0.8) / 4, rtol=1e-12)
    unlike = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    half = torch.full((2,), 0.5, dtype=torch.float64)
    close(f.pfedgraph_weights(unlike, half, alpha=0.8), torch.eye(2, dtype=torch.float64))


def test_limits_of_alpha():
    random = np.random.default_rng(1)
    S = f.cosine_similarities(torch.from_numpy(random.normal(size=(5, 9))))
    p = torch.from_numpy(random.dirichlet(np.ones(5)))
    close(f.pfedgraph_weights(S, p, 1e9), p.expand(5, 5), 1e-6)
    close(f.pfedgraph_weights(S, p, 1e-6), torch.eye(5, dtype=torch.float64), 1e-6)


def test_eq_pfedgraph_gradient_is_the_slope_of_the_mean_cosine():
    random = torch.Generator().manual_seed(0)
    w, grad = (torch.randn(6, generator=random, dtype=torch.float64) for _ in range(2))
    others = torch.randn(3, 6, generator=random, dtype=torch.float64)
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

    def mean_cosine(w):
        return (weights * torch.cosine_similarity(others, w.expand(3, 6))).sum()

    direction = weights @ (others / others.norm(dim=1, keepdim=True))
    found = f.pfedgraph_gradient(grad, w, direction, lam=0.3)
    close(found, grad - 0.3 * torch.func.grad(mean_cosine)(w))
    assert abs(float((found - grad) @ w)) < 1e-12  # it turns, and neither stretches nor shrinks
    assert torch.equal(f.pfedgraph_gradient(grad, w, 0 * w, 0.3), grad)


def test_the_first_round_by_hand(federation):
    """No pull yet: plain training from the common start; then the graph of what came of it."""
    fed, method = federation(), algorithm("pfedgraph", alpha=0.5)
    state = go(method, fed, 1)
    w = train(fed, fed.initial(), fed.everyone)
    close(state.w, w)
    moved = (w - fed.initial()).numpy()
    length = np.linalg.norm(moved, axis=1)
    s, p = moved @ moved.T / np.outer(length, length), np.array([7, 50, 20, 33, 12]) / 122
    for i in range(5):
        row = by_slsqp(s[i], p, 0.5)
        np.testing.assert_allclose(state.graph[i].numpy(), row, atol=1e-6)
        np.testing.assert_allclose(state.u[i].numpy(), row @ w.numpy(), atol=1e-5)


def test_the_pull_turns_models_towards_the_mixture(federation):
    fed = federation()

    def cosine(lam):
        method = algorithm("pfedgraph", lam=lam)
        before = go(method, fed, 2)
        after = method.round(before, fed.at(2), fed.everyone)
        unit = after.w / after.w.norm(dim=1, keepdim=True)
        return (before.direction * unit).sum(1).mean()

    assert cosine(-1.0) < cosine(0.0) < cosine(1.0)


def test_without_a_pull_training_is_plain(federation):
    fed, method = federation(), algorithm("pfedgraph", lam=0.0)
    state = go(method, fed, 1)
    after = method.round(state, fed.at(1), fed.everyone)
    close(after.w, train(fed.at(1), state.u, fed.everyone))


def test_large_alpha_hands_everyone_fedavgs_model(federation):
    fed = federation()
    state = go(algorithm("pfedgraph", alpha=1e9, lam=0.0), fed, 3)
    close(state.u, go(algorithm("fedavg"), fed, 3).x.expand(5, -1), 1e-6)


def test_those_who_stay_away_are_not_heard(federation):
    fed, method = federation(), algorithm("pfedgraph")
    state, who = go(method, fed, 1), torch.tensor([0, 3, 4])
    after = method.round(state, fed.at(1), who)
    assert after.graph[who][:, [1, 2]].abs().max() == 0
    close(after.graph[who].sum(1), torch.ones(3, dtype=torch.float64))
    assert torch.equal(after.graph[[1, 2]], state.graph[[1, 2]])
    alone = method.round(state, fed.at(1), torch.tensor([2]))
    assert alone.graph[2].tolist() == [0, 0, 1, 0, 0] and torch.equal(alone.u[2], alone.w[2])


def test_snap_and_since_act(federation):
    fed = federation()
    plain = go(algorithm("pfedgraph"), fed, 2).graph
    snapped = go(algorithm("pfedgraph", snap=0.0), fed, 2).graph
    assert (plain - snapped).abs().max() > 0.01
    since = go(algorithm("pfedgraph", since="round"), fed, 2).graph
    assert (plain - since).abs().max() > 1e-3
    assert torch.equal(go(algorithm("pfedgraph", snap=1.0), fed, 2).graph, plain)


def test_it_listens_to_its_own_group(data):
    thirds = [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    clients = partition.grouped(data, None, thirds, [4] * 3, [40] * 3, test_size=20)
    world = partition.conflicting_labels(clients, data)
    fed = Federation(world, clients, "mlp", lr=0.1, batch_size=10, epochs=2)
    history = run(algorithm("pfedgraph"), fed, 6, evaluate_every=6, progress=False)
    inside = metrics.inside_share(history.state.graph, clients.groups)
    assert inside > metrics.inside_by_chance(clients.groups) + 0.2
    plain = run(algorithm("fedavg"), fed, 6, evaluate_every=6, progress=False)
    assert history.last > plain.last + 0.05


BAD = [
    ("pfedgraph", {"alpha": 0}, "alpha must be a positive finite number, got 0"),
    ("pfedgraph", {"lam": 2}, r"lam must lie in \[-1, 1\], got 2"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()


def test_a_graph_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="similarities must be square"):
        f.pfedgraph_weights(torch.ones(2, 3), torch.ones(3), 1.0)
