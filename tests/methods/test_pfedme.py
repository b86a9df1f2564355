"""pFedMe: the inner problem, the step on the envelope, the server."""

import pytest
import torch

from pfl_lib import algorithm, train
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
    small_federation,
    whole_batches,
)
from tests.support.quadratics import (
    LOCAL,
    C,
    H,
    X,
    gradient,
    loss,
    optimum,
)


def test_eq_pfedme():
    exact = f.proximal_step_quadratic(X, H[0], C[0], beta=1 / 15)
    assert_known(exact, "baselines", "pFedMe client 0, lambda=15: exact theta")
    theta = f.pfedme_inner(X, gradient(0), lam=15.0, lr=0.01, steps=5)
    assert_known(theta, "baselines", "pFedMe: theta after K=5 steps lr .01")
    w = f.pfedme_local(X, theta, lam=15.0, lr=0.005)
    assert_known(w, "baselines", "pFedMe: local w after one local round, eta=.005")
    many = f.pfedme_inner(X, gradient(0), lam=15.0, lr=0.05, steps=200)
    torch.testing.assert_close(many, exact)
    resumed = f.pfedme_inner(X, gradient(0), 15.0, 0.01, steps=3, start=theta)
    torch.testing.assert_close(resumed, f.pfedme_inner(X, gradient(0), 15.0, 0.01, steps=8))


def test_eq_pfedme_local_is_a_step_on_the_moreau_envelope():
    def envelope(w):
        theta = f.proximal_step_quadratic(w, H[0], C[0], beta=1 / 15)
        return loss(0, theta) + 7.5 * ((theta - w) ** 2).sum()

    theta = f.proximal_step_quadratic(X, H[0], C[0], beta=1 / 15)
    moved = f.pfedme_local(X, theta, lam=15.0, lr=0.01)
    torch.testing.assert_close((X - moved) / 0.01, torch.func.grad(envelope)(X))


def test_eq_pfedme_server():
    average = f.weighted_average(LOCAL)
    assert_known(f.pfedme_server(X, average), "baselines", "uniform aggregate")
    torch.testing.assert_close(f.pfedme_server(X, average, beta=0.5), (X + average) / 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.pfedme_inner(X, abs, 15, 0.1, 0), "steps must be a whole number >= 1"),
        (lambda: f.pfedme_server(X, X, 0), "beta must be a positive finite number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_pfedme(quadratics):
    fed = quadratics(lr=0.005)
    state = go(algorithm("pfedme"), fed, 1, who=FIRST)
    assert_known(state.theta[0], "baselines", "pFedMe: theta after K=5 steps lr .01")
    assert_known(state.x, "baselines", "pFedMe: local w after one local round, eta=.005")
    exact = go(algorithm("pfedme", inner_steps=300), fed, 1, who=FIRST)
    assert_known(exact.theta[0], "baselines", "pFedMe client 0, lambda=15: exact theta")


def test_pfedme_with_identical_clients_is_one_client(data, twins):
    fed = whole_batches(data, twins, epochs=3)
    state = go(algorithm("pfedme"), fed, 3)
    alone = go(algorithm("pfedme"), fed, 3, who=FIRST)
    close(state.x, alone.x)
    close(state.theta, alone.theta[:1].expand_as(state.theta))


def test_pfedme_without_lambda_is_separate_from_a_model_that_rests(data, unequal):
    fed = whole_batches(data, unequal)
    state = go(algorithm("pfedme", lam=0.0, inner_steps=3, lr_personal=0.1), fed, 2)
    close(state.x, fed.initial()[0], 1e-14)
    close(state.theta, train(fed, fed.initial(), fed.everyone, epochs=3))


def test_pfedmes_server_step(data, unequal):
    fed = small_federation(data, unequal)
    x = fed.initial()[0]
    whole, half = (go(algorithm("pfedme", beta=b), fed, 1).x - x for b in (1.0, 0.5))
    close(half, whole / 2)


def test_rests_between_the_centre_and_the_own_optimum(quadratics):
    fed, best = quadratics(sizes=[2, 2]), optimum(5 * H / (5 + H))
    method = algorithm("pfedme", lam=5.0, lr_personal=0.1, inner_steps=60)
    state = method.round(method.start(fed).set(x=best), fed, fed.everyone)
    close(state.theta, (H * C + 5 * best) / (H + 5), 1e-9)


BAD = [
    ("pfedme", {"lam": -1.0}, "lam must be a non-negative"),
    ("pfedme", {"inner_steps": 0}, "inner_steps must be a whole number >= 1, got 0"),
    ("pfedme", {"lr_personal": 0.0}, "lr_personal must be a positive"),
    ("pfedme", {"beta": 0.0}, "beta must be a positive"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()


@pytest.mark.parametrize("restart", [False, True])
def test_theta_goes_on_from_batch_to_batch_unless_it_restarts(data, twins, restart):
    """Written out: whole batches, two epochs, and so two batches a round."""
    fed = whole_batches(data, twins, epochs=2)
    method = algorithm("pfedme", lr_personal=0.02, inner_steps=3, lr=0.01, restart=restart)
    done = method.round(method.start(fed), fed, fed.everyone)
    for i in range(fed.m):
        w = theta = fed.initial()[i]
        for _ in range(2):
            theta = w if restart else theta
            for _ in range(3):
                moved = train(fed, theta[None], fed.everyone[i : i + 1], lr=1.0, epochs=1)[0]
                theta = theta - 0.02 * ((theta - moved) + method.lam * (theta - w))
            w = w - 0.01 * method.lam * (w - theta)
        close(done.theta[i], theta)
