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


def under(fed, name, rounds=2, **how):
    return pfl_lib.run(pfl_lib.algorithm(name, **how), fed, rounds, progress=False)


def test_uploads_are_counted_also_where_a_round_has_two():
    for name, how, uploads in (("fedamp", {"self_weight": 0.3}, 2), ("spfl", {}, 3)):
        fed = PrivateUploads(pfl_lib.example("mlp"), clip=1.0, noise=2.0)
        assert fed.epsilon(1e-3) == 0.0
        under(fed, name, **how)
        assert fed.epsilon(1e-3) == epsilon_of(2.0, uploads, 1e-3), name
        assert "made" not in fed.describe()["PrivateUploads"]


def test_an_upload_is_noisy_once_whatever_it_is_asked_again():
    """The same noise on two models would cancel in their difference."""
    fed = PrivateUploads(pfl_lib.example(), clip=1.0, noise=1.0)
    pfl_lib.train(fed, fed.initial(), fed.everyone)
    with pytest.raises(ValueError, match="its noise would repeat"):
        pfl_lib.train(fed, fed.initial() + 1, fed.everyone)
    pfl_lib.train(fed, fed.initial(), fed.everyone, uploaded=False)  # stays at home


def test_nobody_looks_at_training_losses_of_large_private_models():
    """Whether a loss is finite would be told without noise; models of this size are looked at."""
    fed = PrivateUploads(pfl_lib.example(), clip=1e5, noise=1.0)
    assert pfl_lib.run("fedavg", fed, 1, progress=False).state.x.abs().max() > 1e4


def with_norm(**how):
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10)
    )
    return pfl_lib.example().replace(model=model, **how)


def test_statistics_that_stay_at_home_need_no_noise():
    method = private(pfl_lib.algorithm("fedbn"), clip=1.0, noise=1.0)
    assert pfl_lib.run(method, with_norm(), 2, progress=False).last >= 0


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: epsilon_of(1e-200, 1, 1e-3), "noise must be larger"),
        (lambda: private("fedpac", 1.0, 1.0), "FedPAC also sends heads"),
        (lambda: private("fedas", 1.0, 1.0), "FedAS also sends the trace"),
        (lambda: private("feddbe", 1.0, 1.0), "FedDBE also sends mean features"),
        (lambda: pfl_lib.run(private("fedavg", 1.0, 1.0), with_norm(), 1), "without running stat"),
        (lambda: PrivateUploads(with_norm()), "without running statistics"),
        (lambda: under(PrivateUploads(pfl_lib.example("mlp")), "fedproto"), "'class sums' tells"),
        (
            lambda: under(PrivateUploads(pfl_lib.example("mlp")), "fedas"),
            "(class sums|fisher trace)' tells",
        ),
        (lambda: under(PrivateUploads(pfl_lib.example()), "ifca", clusters=2), "training losses"),
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
