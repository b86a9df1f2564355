"""FedRoD: a balanced generic head, a personal head that the body does not feel."""

import numpy as np
import pytest
import torch

from pfl_lib import Federation, algorithm, run
from pfl_lib import formulas as f
from tests.support.linear import CLASSES, flat, linear_federation, parts, samples, slopes
from tests.support.methods import ENGINES, close, go, refused, small_federation


def test_eq_fedrod_balanced_is_the_balanced_softmax():
    z, n, y, gamma = np.array([0.3, -1.0, 2.0]), np.array([5.0, 1.0, 2.0]), 1, 0.5
    by_hand = -np.log(n[y] ** gamma * np.exp(z[y]) / (n**gamma * np.exp(z)).sum())
    logits = f.balanced_logits(torch.tensor(z), torch.tensor(n), gamma)
    found = torch.nn.functional.cross_entropy(logits, torch.tensor(y))
    np.testing.assert_allclose(found.item(), by_hand, rtol=1e-12)
    assert torch.equal(f.balanced_logits(torch.tensor(z), torch.tensor(n), 0.0), torch.tensor(z))


@pytest.mark.parametrize("engine", ENGINES)
def test_known_answer_of_one_round(data, unequal, engine):
    """One whole batch at each client, every gradient by hand."""
    fed, method = linear_federation(data, unequal, engine=engine), algorithm("fedrod")
    state = method.start(fed)
    rows = 0.1 * np.random.default_rng(0).normal(size=(fed.m, 40))  # personal heads
    new = method.round(state.set(p=torch.tensor(rows)), fed, fed.everyone)
    B, A, b = parts(fed.initial()[0])
    trained, heads = [], []
    for i in range(fed.m):
        s, y = samples(fed, i)
        counts = np.bincount(y, minlength=CLASSES)
        z = s @ B.T @ A.T + b
        with np.errstate(divide="ignore"):
            gB, gA, gb = slopes(B, A, s, z + np.log(counts), y)
        trained.append(flat(B - 0.1 * gB, A - 0.1 * gA, b - 0.1 * gb))
        P, p = rows[i, :30].reshape(CLASSES, 3), rows[i, 30:]
        _, gP, gp = slopes(B, P, s, z + s @ B.T @ P.T + p, y)
        heads.append(np.concatenate([(P - 0.1 * gP).ravel(), p - 0.1 * gp]))
    shares = np.array([7, 50, 20, 33, 12]) / 122
    np.testing.assert_allclose(new.x.numpy(), shares @ np.array(trained), atol=1e-12)
    np.testing.assert_allclose(new.p.numpy(), np.array(heads), atol=1e-12)


def test_predictions_add(data, unequal):
    fed, method = linear_federation(data, unequal), algorithm("fedrod")
    state = go(method, fed, 2)
    x, p = state.x.numpy(), state.p.numpy()
    for i, w in enumerate(method.personal(state, fed).numpy()):
        np.testing.assert_allclose(w[-40:], x[-40:] + p[i], atol=1e-15)
        np.testing.assert_array_equal(w[:-40], x[:-40])


def test_the_personal_head_does_not_change_the_body(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedrod")
    state = go(method, fed, 1)
    other = state.set(p=state.p + 1.0)
    a, b = (method.round(one, fed.at(1), fed.everyone) for one in (state, other))
    assert torch.equal(a.x, b.x)
    assert (a.p - b.p).abs().max() > 0.1


def test_the_balanced_loss_acts_and_without_it_x_is_fedavgs(data, unequal):
    fed = small_federation(data, unequal)
    plain = go(algorithm("fedavg"), fed, 3).x
    close(go(algorithm("fedrod", gamma=0.0), fed, 3).x, plain, 1e-12)
    assert (go(algorithm("fedrod"), fed, 3).x - plain).norm() > 1e-2


def test_a_head_that_is_not_linear_is_refused(data, unequal):
    fed = Federation(data, unequal, "logistic_regression", device="cpu")
    with pytest.raises(ValueError, match=r"FedRoD needs .* one linear layer with a bias"):
        run(algorithm("fedrod"), fed, 1, progress=False)
    scaled = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    with pytest.raises(ValueError, match="FedRoD needs"):
        run(algorithm("fedrod"), Federation(data, unequal, scaled, device="cpu"), 1, progress=False)


BAD = [("fedrod", {"gamma": -1.0}, "gamma must be a non-negative")]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
