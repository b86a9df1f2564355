"""FedDBE: a private shift of the features, and a mean that is held at the consensus."""

import numpy as np
import pytest
import torch

from pfl_lib import algorithm, train
from pfl_lib import formulas as f
from tests.support.linear import WIDTH, flat, linear_federation, parts, samples, slopes
from tests.support.methods import ENGINES, close, go, refused, small_federation


def test_eq_feddbe_bias_is_a_shift_of_the_features():
    rng = np.random.default_rng(1)
    A, b, m, phi = (
        rng.normal(size=(4, 3)),
        rng.normal(size=4),
        rng.normal(size=3),
        rng.normal(size=3),
    )
    found = f.feddbe_bias(*(torch.tensor(t) for t in (A, b, m))).numpy()
    np.testing.assert_allclose(A @ phi + found, A @ (phi + m) + b, atol=1e-12)


def test_eq_feddbe_pull():
    mean, consensus = np.array([1.0, 2.0, -1.0]), np.array([0.0, 2.0, 1.0])
    found = f.feddbe_pull(torch.tensor(mean), torch.tensor(consensus), 6.0)
    assert found.item() == pytest.approx(6 / (2 * 3) * (1 + 0 + 4))


@pytest.mark.parametrize("engine", ENGINES)
def test_known_answer_of_one_round(data, unequal, engine):
    """One whole batch at each client; loss, pull and both gradients by hand."""
    fed = linear_federation(data, unequal, engine=engine)
    method = algorithm("feddbe", kappa=4.0, momentum=0.5)
    state = method.start(fed)
    shifts = np.random.default_rng(2).normal(size=(fed.m, WIDTH))
    consensus = np.array([0.5, -1.0, 2.0])
    state = state.set(shift=torch.tensor(shifts), consensus=torch.tensor(consensus))
    new = method.round(state, fed, fed.everyone)
    B, A, b = parts(fed.initial()[0])
    trained, moved = [], []
    for i in range(fed.m):
        s, y = samples(fed, i)
        phi, m = s @ B.T, shifts[i]
        mean = 0.5 * phi.mean(0)  # the running mean begins at 0
        pull = 4.0 / WIDTH * (mean - consensus) * 0.5 / len(y)  # in each sample's features
        z = (phi + m) @ A.T + b
        gB, gA, gb = slopes(B, A, s, z, y, to_features=pull)
        gA = gA + np.outer(gb, m)  # the head reads the shifted features
        trained.append(flat(B - 0.1 * gB, A - 0.1 * gA, b - 0.1 * gb))
        moved.append(m - 0.1 * gb @ A)
    shares = np.array([7, 50, 20, 33, 12]) / 122
    np.testing.assert_allclose(new.x.numpy(), shares @ np.array(trained), atol=1e-12)
    np.testing.assert_allclose(new.shift.numpy(), np.array(moved), atol=1e-12)


def test_the_consensus_is_the_mean_feature_of_models_trained_once(data, unequal):
    fed = linear_federation(data, unequal)
    trained = train(fed, fed.initial(), fed.everyone, tag="consensus").numpy()
    total = sum((samples(fed, i)[0] @ parts(trained[i])[0].T).sum(0) for i in range(fed.m))
    found = algorithm("feddbe").start(fed).consensus
    np.testing.assert_allclose(found.numpy(), total / 122, atol=1e-12)


def test_each_part_acts_and_without_both_it_is_fedavg(data, unequal):
    fed = small_federation(data, unequal)
    plain = go(algorithm("fedavg"), fed, 3).x
    off = algorithm("feddbe", kappa=0.0, memory=False)
    state = go(off, fed, 3)
    close(state.x, plain, 1e-12)
    close(off.personal(state, fed), plain.expand(fed.m, -1), 1e-12)
    pulled = go(algorithm("feddbe", kappa=1.0, memory=False), fed, 3)
    shifted = go(algorithm("feddbe", kappa=0.0), fed, 3)
    assert not pulled.shift.any() and (pulled.x - plain).norm() > 1e-3
    assert shifted.shift.norm(dim=1).min() > 1e-3 and (shifted.x - plain).norm() > 1e-4


def test_the_pull_keeps_the_mean_features_at_the_consensus(data, unequal):
    fed = linear_federation(data, unequal)
    far = []
    for kappa in (0.0, 1.0):
        state = go(algorithm("feddbe", kappa=kappa), fed, 5)
        B = parts(state.x)[0]
        mean = sum((samples(fed, i)[0] @ B.T).sum(0) for i in range(fed.m)) / 122
        far.append(np.linalg.norm(mean - state.consensus.numpy()))
    assert far[1] < 0.7 * far[0]


BAD = [
    ("feddbe", {"kappa": -1.0}, "kappa must be a non-negative"),
    ("feddbe", {"momentum": 0}, r"momentum must lie in \(0, 1\], got 0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
