"""FedBABU: a head that never moves in training, and is fine-tuned for the test."""

import numpy as np
import pytest
import torch

from pfl_lib import Federation, algorithm, run, train
from tests.support.methods import ENGINES, close, go, refused, small_federation
from tests.support.quadratics import Toy


@pytest.mark.parametrize("engine", ENGINES)
def test_known_answer_the_body_moves_and_the_head_is_tuned_after(engine):
    """½(h·φ − y)² at two clients: one step of φ each, their mean, then one local step of h."""
    phi, h, eta, y = 0.8, 1.5, 0.1, np.array([2.0, 0.5])
    mean = (phi - eta * (h * phi - y) * h).mean()
    tuned = h - eta * (h * mean - y) * mean
    start = torch.tensor([phi, h], dtype=torch.float64)
    product = lambda w, sample: 0.5 * (w[0] * w[1] - sample[..., 0]) ** 2  # noqa: E731
    fed = Toy(torch.tensor(y)[:, None], start, product, engine=engine)
    fed.head_mask = torch.tensor([False, True])
    method = algorithm("fedbabu")
    state = go(method, fed, 1)
    np.testing.assert_allclose(state.x.numpy(), [mean, h], atol=1e-12)
    w = method.personal(state, fed).numpy()
    np.testing.assert_allclose(w[:, 0], mean, atol=1e-12)
    np.testing.assert_allclose(w[:, 1], tuned, atol=1e-12)


def test_the_head_never_moves_in_training_and_the_body_does(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedbabu")
    x, first, head = go(method, fed, 4).x, fed.initial()[0], fed.head_mask
    assert torch.equal(x[head], first[head])
    assert (x - first)[~head].norm() > 0.1


@pytest.mark.parametrize("part", ["head", "body", "all"])
def test_fine_tuning_moves_the_part_it_names(data, unequal, part):
    fed, method = small_federation(data, unequal), algorithm("fedbabu", part=part, ft_steps=2)
    state, head = go(method, fed, 2), fed.head_mask
    moved = (method.personal(state, fed) - state.x).abs().amax(0) > 0
    assert bool(moved[head].any()) == (part != "body")
    assert bool(moved[~head].any()) == (part != "head")


def test_without_fine_tuning_everybody_uses_the_global_model(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedbabu", ft_steps=0)
    state = go(method, fed, 2)
    assert torch.equal(method.personal(state, fed), state.x.expand(fed.m, -1))


def test_the_body_is_fedavgs_under_a_mask(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedbabu")
    trained = train(fed, fed.initial(), fed.everyone, mask=~fed.head_mask)
    shares = torch.tensor([7, 50, 20, 33, 12], dtype=torch.float64) / 122
    close(method.round(method.start(fed), fed, fed.everyone).x, shares @ trained, 1e-12)


def test_needs_a_body_and_a_head(data, unequal):
    fed = Federation(data, unequal, "logistic_regression", device="cpu")
    with pytest.raises(ValueError, match=r"FedBABU needs .* body .* 650 of 650 parameters"):
        run(algorithm("fedbabu"), fed, 1, progress=False)


BAD = [
    ("fedbabu", {"part": "tail"}, "part must be one of 'head', 'body', 'all'; got 'tail'"),
    ("fedbabu", {"ft_epochs": -1}, "ft_epochs must be a whole number >= 0, got -1"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
