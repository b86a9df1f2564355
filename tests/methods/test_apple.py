"""APPLE: the mixture of cores, its gradients, and the prior that lets go."""

import pytest
import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
)
from tests.support.quadratics import (
    LOCAL,
    SIZES,
    C,
    H,
    gradient,
    loss,
)

HOLD = 1e-300  # a learning rate too small to move anything


def test_eq_apple():
    p, prior = torch.tensor([0.5, 0.5], dtype=torch.float64), SIZES / SIZES.sum()
    mixed = f.apple_mix(p, LOCAL)
    assert_known(mixed, "baselines", "APPLE client 0: mixture, p=(.5,.5)")
    core, weights = f.apple_gradients(
        gradient(0)(mixed), p, LOCAL, own=0, prior=prior, mu=0.1, schedule=1.0
    )
    assert_known(
        p - 0.01 * weights, "baselines", "APPLE: new p, eta2=.01, lambda(r)=1, mu=.1, p0=n/N"
    )
    assert_known(LOCAL[0] - 0.1 * core, "baselines", "APPLE: new core model 0, eta1=.1")


def test_the_mean_by_tensor_is_public_codes_slope():
    """Written out: the mean of c_j⊙∇F over every tensor, averaged over the tensors."""
    grad, core = torch.tensor([2.0, 4.0, 9.0]), torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])
    half = torch.tensor([0.5, 0.5])
    given = {"own": 0, "prior": half, "mu": 0.1, "schedule": 1.0, "lengths": [2, 1]}
    _, slopes = f.apple_gradients(grad, half, core, **given)
    expected = [((2 + 8) / 2 + 27) / 2, ((0 + 4) / 2 - 9) / 2]
    torch.testing.assert_close(slopes, torch.tensor(expected))


def test_eq_apple_gradients_against_autograd():
    p, prior = torch.tensor([0.7, -0.2], dtype=torch.float64), SIZES / SIZES.sum()

    def objective(core, p):
        return loss(1, f.apple_mix(p, core)) + 0.3 * 0.05 * ((p - prior) ** 2).sum()

    by_core, by_p = torch.func.grad(objective, argnums=(0, 1))(LOCAL, p)
    for own in (1, torch.tensor(1)):
        core, weights = f.apple_gradients(
            gradient(1)(f.apple_mix(p, LOCAL)), p, LOCAL, own, prior, mu=0.1, schedule=0.3
        )
        torch.testing.assert_close(core, by_core[1])
        torch.testing.assert_close(weights, by_p)


def test_eq_apple_schedule():
    name = "APPLE: lambda(r), cos scheduler, L=400, r=100"
    assert_known(f.apple_schedule(100, 400), "baselines", name)
    assert_known(f.apple_schedule(torch.tensor(100.0, dtype=torch.float64), 400), "baselines", name)
    assert f.apple_schedule(0, 400) == 1
    assert f.apple_schedule(400, 400) == f.apple_schedule(9999, 400) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.apple_schedule(-1, 400), "round must be a non-negative finite number"),
        (lambda: f.apple_schedule(1, 0), "horizon must be a positive finite number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_apple(quadratics):
    fed, method = quadratics(), algorithm("apple")
    half = torch.full((2, 2), 0.5, dtype=fed.dtype)
    state = method.start(fed).set(core=LOCAL, p=half)
    assert_known(method.personal(state, fed)[0], "baselines", "APPLE client 0: mixture, p=(.5,.5)")
    new = method.round(state, fed, FIRST)
    assert_known(new.p[0], "baselines", "APPLE: new p, eta2=.01, lambda(r)=1, mu=.1, p0=n/N")
    assert_known(new.core[0], "baselines", "APPLE: new core model 0, eta1=.1")
    assert torch.equal(new.core[1], LOCAL[1]) and torch.equal(new.p[1], half[1])


def test_apple_goes_on_from_its_own_new_core_model(quadratics):
    """Second batch: the mix holds the core model as it is now, not as it was downloaded."""
    fed, method = quadratics(epochs=2), algorithm("apple", mu=0.0)
    state = method.start(fed).set(core=LOCAL)
    core, p = LOCAL.clone(), method.prior(fed)
    for _ in range(2):
        g = H[0] * (p @ core - C[0])
        p, change = p - 0.01 * core @ g, 0.1 * p[0] * g
        core[0] -= change
    new = method.round(state, fed, FIRST)
    close(new.core[0], core[0], 1e-12)
    close(new.p[0], p, 1e-12)


def test_apple_with_only_oneself_in_the_mix_is_separate(federation):
    fed, method = federation(), algorithm("apple", lr_p=HOLD)
    state = method.start(fed)
    state = state.set(p=torch.eye(fed.m, dtype=fed.dtype))
    for k in range(2):
        state = method.round(state, fed.at(k), fed.everyone)
    close(method.personal(state, fed), go(algorithm("separate"), fed, 2).w)


def test_apples_prior_holds_the_proportions_and_then_lets_go(federation):
    fed = federation()
    state = go(algorithm("apple"), fed, 1)
    spread = []
    for mu, k in ((0.0, 1), (50.0, 1), (50.0, 20)):
        method = algorithm("apple", lr_p=0.01, mu=mu, horizon=20)
        p = method.round(state, fed.at(k), fed.everyone).p
        spread.append(float((p - method.prior(fed)).norm()))
    assert spread[1] < 0.5 * spread[0] and spread[1] < 0.5 * spread[2]


BAD = [
    ("apple", {"lr_p": -1.0}, "lr_p must be a positive finite number, got -1.0"),
    ("apple", {"horizon": 0.2}, "horizon must be a whole number >= 1, got 0.2"),
    ("apple", {"lr_core": 0.0}, "lr_core must be a positive finite number, got 0.0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
