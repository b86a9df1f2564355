"""FedBuff: a buffer of K updates, each weighted by its age in steps of the server."""

import numpy as np
import pytest
import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from pfl_lib.random import keyed_generator
from tests.support.methods import close, go, last, plain_federation, refused
from tests.support.quadratics import LateToy


def test_eq_fedbuff_weight_and_step_by_hand():
    tau = torch.tensor([0.0, 1.0, 3.0, 8.0], dtype=torch.float64)
    np.testing.assert_allclose(f.fedbuff_weight(tau).numpy(), [1, 2**-0.5, 0.5, 1 / 3])
    assert torch.equal(f.fedbuff_weight(tau, 0.0), torch.ones_like(tau))
    x, total = torch.tensor([1.0, 2.0]), torch.tensor([4.0, -8.0])
    assert f.fedbuff_step(x, total, size=4, lr=0.5).tolist() == [1.5, 1.0]


def simulated(fed, delays, buffer, power, lr, rounds):
    """FedBuff with NumPy: who pulls when, in which order updates come, what the buffer does."""
    x, total, held, steps = np.zeros(4), np.zeros(4), 0, 0
    pulled, age = [None] * len(delays), [0] * len(delays)
    for k in range(rounds):
        for i, q in enumerate(delays):
            if k % (q + 1) == 0:
                pulled[i], age[i] = x.copy(), steps
        here = [i for i, q in enumerate(delays) if k % (q + 1) == q]
        generator = keyed_generator(fed.settings.seed, "arrivals", k)
        for j in torch.randperm(len(here), generator=generator).tolist():
            i = here[j]
            update = -0.1 * (pulled[i] - fed.c[i].numpy())  # one step on ½‖w − c‖²
            total, held = total + (1 + steps - age[i]) ** -power * update, held + 1
            if held == buffer:
                x, total, held, steps = x + lr * total / buffer, np.zeros(4), 0, steps + 1
    return x, total, held, steps


@pytest.mark.parametrize("buffer, power, lr", [(2, 0.5, 1.0), (3, 2.0, 0.5), (7, 0.0, 1.5)])
def test_known_answers_by_another_program(buffer, power, lr):
    delays, rounds = (0, 1, 3, 0), 9
    fed = LateToy(4)
    options = {"buffer": buffer, "staleness_power": power, "lr_server": lr}
    state = go(algorithm("fedbuff", stragglers=delays, **options), fed, rounds)
    x, total, held, steps = simulated(fed, delays, buffer, power, lr, rounds)
    np.testing.assert_allclose(state.x.numpy(), x, atol=1e-12)
    np.testing.assert_allclose(state.total.numpy(), total, atol=1e-12)
    assert (int(state.held), int(state.steps)) == (held, steps) and steps > 0


def test_nobody_late_and_a_buffer_for_all_is_fedavg_among_equals(data, uneven):
    fed = plain_federation(data, uneven)
    here = {"stragglers": 0}
    buffered = last(algorithm("fedbuff", buffer=5, **here), fed, 3)
    averaged = last(algorithm("fedavg-async", weighting="equal", **here), fed, 3)
    close(buffered.x, averaged.x)
    assert int(buffered.steps) == 3 and int(buffered.held) == 0


def test_the_model_rests_until_the_buffer_is_full(data, uneven):
    fed = plain_federation(data, uneven)
    state = last(algorithm("fedbuff", buffer=11, stragglers=0), fed, 2)  # ten have come
    assert torch.equal(state.x, fed.initial()[0]) and int(state.held) == 10
    assert not torch.equal(last(algorithm("fedbuff", buffer=10, stragglers=0), fed, 2).x, state.x)


def test_age_counts_steps_of_the_server_not_rounds():
    """A client two rounds late is not old if the server has not moved meanwhile."""
    fed, delays = LateToy(3), (0, 0, 2)
    waiting, plain = (
        go(algorithm("fedbuff", buffer=7, stragglers=delays, staleness_power=p), fed, 3)
        for p in (0.5, 0.0)
    )
    assert int(waiting.steps) == 1 and torch.equal(waiting.x, plain.x)
    quick, flat = (
        go(algorithm("fedbuff", buffer=1, stragglers=delays, staleness_power=p), fed, 3)
        for p in (0.5, 0.0)
    )
    assert not torch.equal(quick.x, flat.x)


BAD = [
    ("fedbuff", {"buffer": 0}, "buffer must be a whole number >= 1, got 0"),
    ("fedbuff", {"lr_server": -1}, "lr_server must be a positive finite number, got -1"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
