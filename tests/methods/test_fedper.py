"""FedPer: the top layers are private; everything is trained together."""

import numpy as np
import pytest
import torch

from pfl_lib import algorithm, run, train
from pfl_lib import formulas as f
from tests.support.methods import ENGINES, close, go, refused, small_federation
from tests.support.quadratics import Toy


def test_eq_split_model_takes_the_body_of_x_and_the_rest_of_w():
    W, x = np.arange(6.0).reshape(2, 3), np.array([10.0, 20.0, 30.0])
    private = np.array([False, True, True])
    by_hand = np.array([[10.0, 1.0, 2.0], [10.0, 4.0, 5.0]])
    found = f.split_model(*(torch.tensor(t) for t in (x, W, private)))
    np.testing.assert_array_equal(found.numpy(), by_hand)


def test_eq_split_model_refuses_what_is_no_mask():
    with pytest.raises(ValueError, match=r"private must be a mask of the 3 parameters"):
        f.split_model(torch.zeros(3), torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(TypeError, match="x must be a tensor"):
        f.split_model(0.0, torch.zeros(2, 3), torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("engine", ENGINES)
def test_known_answer_body_and_head_step_together(engine):
    """½(h·φ − y)² at two clients with as many samples: one step of both, then the mean of φ."""
    phi, h, eta, y = 0.8, 1.5, 0.1, np.array([2.0, 0.5])
    error = h * phi - y
    new_phi, new_h = phi - eta * error * h, h - eta * error * phi  # both at the old values
    start = torch.tensor([phi, h], dtype=torch.float64)
    product = lambda w, sample: 0.5 * (w[0] * w[1] - sample[..., 0]) ** 2  # noqa: E731
    fed = Toy(torch.tensor(y)[:, None], start, product, engine=engine)
    fed.layers = [("body", slice(0, 1)), ("head", slice(1, 2))]
    method = algorithm("fedper")
    w = method.personal(go(method, fed, 1), fed).numpy()
    np.testing.assert_allclose(w[:, 0], new_phi.mean(), atol=1e-12)
    np.testing.assert_allclose(w[:, 1], new_h, atol=1e-12)


def test_averages_bodies_and_keeps_heads(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedper")
    state = method.round(method.start(fed), fed, fed.everyone)
    trained = train(fed, fed.initial(), fed.everyone)  # the first round begins like FedAvg's
    head = fed.head_mask
    w = method.personal(state, fed)
    assert torch.equal(w[:, head], trained[:, head])
    shares = np.array([7, 50, 20, 33, 12]) / 122
    np.testing.assert_allclose(w[3, ~head].numpy(), shares @ trained[:, ~head].numpy(), atol=1e-12)
    assert (w[1:, head] - w[0, head]).norm(dim=1).min() > 1e-2


def test_with_all_layers_private_it_is_separate(data, unequal):
    fed = small_federation(data, unequal)
    everything = algorithm("fedper", personal_layers=2)
    w = everything.personal(go(everything, fed, 3), fed)
    close(w, go(algorithm("separate"), fed, 3).w, 1e-12)
    assert everything.sent(fed, fed.everyone, 0) == 0


def test_more_layers_than_there_are_is_refused(data, unequal):
    fed = small_federation(data, unequal)
    with pytest.raises(ValueError, match="personal_layers must be at most 2, the layers of 'MLP'"):
        run(algorithm("fedper", personal_layers=3), fed, 1, progress=False)


BAD = [("fedper", {"personal_layers": -1}, "personal_layers must be a whole number >= 0, got -1")]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
