"""Differential privacy: the account against an integral, bounds, noise, what is left alone."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

import pfl_lib
from pfl_lib.privacy import PrivateUploads, clipped, delta_of, epsilon_of, noise_for, private


@pytest.mark.parametrize("epsilon, noise, rounds", [(1.0, 1.0, 1), (0.5, 3.0, 10), (4.0, 2.0, 30)])
def test_delta_is_the_area_by_which_two_gaussians_differ(epsilon, noise, rounds):
    """δ(ε) = ∫ max(0, p − e^ε q), with p and q Gaussians whose means are μ apart."""
    mu = math.sqrt(rounds) / noise
    more = lambda t: max(0.0, norm.pdf(t - mu) - math.exp(epsilon) * norm.pdf(t))  # noqa: E731
    area = quad(more, -12, 12 + mu, points=[epsilon / mu + mu / 2], limit=200)[0]
    assert delta_of(epsilon, noise, rounds) == pytest.approx(area, rel=1e-6, abs=1e-12)


def test_rounds_cost_like_less_noise():
    assert epsilon_of(3.0, 9, 1e-4) == pytest.approx(epsilon_of(1.0, 1, 1e-4))
    assert epsilon_of(1e6, 1, 1e-3) == 0.0
    for epsilon in (1.0, 4.0, 8.0):
        assert epsilon_of(noise_for(epsilon, 10, 1e-3), 10, 1e-3) == pytest.approx(epsilon)


def test_no_client_moves_the_sum_by_more_than_the_bound():
    fed = pfl_lib.example()
    method = private(pfl_lib.algorithm("fedavg"), clip=0.3, noise=0.0)
    state = method.start(fed)
    wild = fed.initial() + 1e6 * torch.randn(fed.m, fed.d, generator=torch.Generator())
    x = method.average(wild, None, state, fed)
    assert (x - state.x).norm() <= 0.3 + 1e-5
    still = method.average(state.x.expand(fed.m, -1), None, state, fed)
    torch.testing.assert_close(still, state.x)


def test_noise_is_as_large_as_promised_and_keyed():
    fed = pfl_lib.example()
    method = private(pfl_lib.algorithm("fedavg"), clip=2.0, noise=3.0)
    state = method.start(fed)
    same = state.x.expand(fed.m, -1)
    one, again, later = (method.average(same, None, state, fed.at(k)) for k in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, later)
    assert (one - state.x).std().item() == pytest.approx(3.0 * 2.0 / fed.m, rel=0.05)


def test_heads_that_never_leave_are_left_alone():
    fed = pfl_lib.example("mlp")
    plain = pfl_lib.algorithm("fedrep")
    method = private(plain, clip=1.0, noise=5.0)
    options = {"rounds": 1, "progress": False}
    ours, theirs = (pfl_lib.run(m, fed, **options).state for m in (method, plain))
    head = fed.head_mask
    assert torch.equal(ours.w[:, head], theirs.w[:, head])
    assert not torch.equal(ours.x[~head], theirs.x[~head])
    assert torch.equal(ours.x[head], theirs.x[head])


def test_single_uploads_are_bounded_and_noisy():
    fed = pfl_lib.example()
    for noise, least, most in ((0.0, 0.0, 0.1), (1.0, 0.15, 0.25)):
        sent = pfl_lib.train(PrivateUploads(fed, 0.1, noise), fed.initial(), fed.everyone)
        moved = sent - fed.initial()
        if noise:
            assert least < moved.std().item() < most
        else:
            assert moved.norm(dim=1).max() <= most + 1e-6
    torch.testing.assert_close(clipped(torch.zeros(2, 3), 1.0), torch.zeros(2, 3))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: private(pfl_lib.algorithm("fedamp", self_weight=0.2), 1.0, 1.0), "method must be"),
        (lambda: private(pfl_lib.algorithm("fedavg"), 0.0, 1.0), "clip must be"),
        (lambda: private(pfl_lib.algorithm("fedavg"), 1.0, -1.0), "noise must be"),
        (lambda: noise_for(0.0, 10, 1e-3), "epsilon must be"),
        (lambda: epsilon_of(1.0, 10, 0.0), "delta must lie in"),
        (lambda: delta_of(1.0, 1.0, 0), "rounds must be"),
        (lambda: PrivateUploads(None, 1.0, 1.0), "fed must be a Federation"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
