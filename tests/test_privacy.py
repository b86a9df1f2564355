"""Differential privacy: the account against an integral, bounds, noise, what is left alone."""

import math
from dataclasses import dataclass

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

import pfl_lib
from pfl_lib.faults import Faulty
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.privacy import (
    PrivateSamples,
    PrivateUploads,
    clipped,
    delta_of,
    epsilon_of,
    noise_for,
    private,
)
from pfl_lib.work import Work
from tests.support.runs import quick_method


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


def test_a_secret_seed_is_another_one_each_time_and_in_no_name():
    fed = pfl_lib.example()
    methods = [private(pfl_lib.algorithm("fedavg"), 1.0, 1.0, seed=None) for _ in range(2)]
    assert {method.name for method in methods} == {"fedavg-private-1-1-secret"}
    state = methods[0].start(fed)
    same = state.x.expand(fed.m, -1)
    one, again = (methods[0].average(same, None, state, fed) for _ in range(2))
    assert torch.equal(one, again) and not torch.equal(
        one, methods[1].average(same, None, state, fed)
    )


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


@pytest.mark.parametrize("kind", [PrivateUploads, PrivateSamples])
def test_a_federation_is_not_wrapped_twice(kind):
    """The second noise would be the first one again, and the account speaks of independent ones."""
    other = Faulty(kind(pfl_lib.example()), [0], "scale")
    for inside in (kind(pfl_lib.example()), other):
        with pytest.raises(ValueError, match=f"fed must not be wrapped in {kind.__name__} twice"):
            kind(inside)


@pytest.mark.parametrize("kind, among", [(PrivateUploads, 8), (PrivateSamples, 338)])
def test_a_delta_that_lets_one_be_shown_is_refused(kind, among):
    """Showing one in n as it is is (0, 1/n)-private; for samples, the largest client counts."""
    fed = kind(pfl_lib.example(), 1.0, 2.0)
    assert among in (fed.m, max(fed.fed.sample_counts))
    pfl_lib.run("fedavg", fed, 1, progress=False)
    with pytest.raises(ValueError, match=f"delta must be below 1/{among}, got {1 / among}"):
        fed.epsilon(1 / among)
    assert fed.epsilon(0.9 / among) == epsilon_of(2.0, 1, 0.9 / among)


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
        (lambda: pfl_lib.run(private("fedavg", 1.0, 1.0), with_norm(), 1), "without running stat"),
        (lambda: PrivateUploads(with_norm()), "without running statistics"),
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


# ---------------------------------------------------------------------- what a local step tells
@pfl_lib.local_step("tell a sum, for a test")
def tell_a_sum(s, batch, client):
    """A step by somebody who does not think of privacy."""
    return {"total": s["total"] + batch.x.sum()}


@pfl_lib.local_step("tell a sum openly, for a test", reveals="the sum of its pixels")
def tell_openly(s, batch, client):
    return tell_a_sum(s, batch, client)


@dataclass(frozen=True)
class Telling(GlobalModel):
    """FedAvg whose clients also send a sum over their samples."""

    step: str = "tell a sum, for a test"
    name, label = "telling", "Telling"

    def local(self, state, received, fed, who):
        rows = {"w": received.w, "total": received.w.new_zeros(len(who))}
        for uploaded in (False, True):  # the flag speaks of the model only
            work = Work(rows, self.step, epochs=1, tag=f"{uploaded}", uploaded=uploaded)
            total = fed.perform(work, who)["total"]
        return received.set(w=received.w, total=total)

    def upload(self, state, done, fed, who):
        return super().upload(state, done, fed, who).set(total=done.total)


@pytest.mark.parametrize(
    "step, words",
    [
        ("tell a sum, for a test", "must say what it reveals: see local_step"),
        ("tell a sum openly, for a test", "reveals the sum of its pixels"),
    ],
)
def test_a_step_that_tells_more_or_does_not_say_is_refused(step, words):
    fed, method = pfl_lib.example(), Telling(step)
    assert pfl_lib.run(method, fed, 1, progress=False).state.total.abs().min() > 0
    for refused in (
        lambda: pfl_lib.run(private(method, 1.0, 10.0), fed, 1, progress=False),
        lambda: pfl_lib.run(method, PrivateUploads(fed, 1.0, 10.0), 1, progress=False),
    ):
        with pytest.raises(ValueError, match=words):
            refused()
    with pytest.raises(ValueError, match="has no private form"):
        pfl_lib.run(method, PrivateSamples(fed), 1, progress=False)
    with pytest.raises(TypeError, match="reveals must be text"):
        pfl_lib.local_step("never registered", reveals=3)


COUNTS = "'label counts' reveals how often each class occurs"
SUMS, TRACE = "'class sums' reveals sums of features", "'fisher trace' reveals the trace"
BEGINS = "reveals where training begins"
REFUSED = {  # by private(...), where it averages at all; and by PrivateUploads
    "label-prior": (COUNTS, COUNTS),
    "feddbe": (SUMS, SUMS),
    "fedpac": (SUMS, SUMS),
    "fedas": (TRACE, TRACE),
    "fedproto": (None, SUMS),
    "ifca": (None, "training losses"),
    "fedala": (None, f"'ala' {BEGINS}"),
    "fedfomo": (None, f"'fedfomo' {BEGINS}"),
    "partialfed": (None, "reveals layers of the client's own model"),
}


@pytest.mark.parametrize("name", pfl_lib.methods.names())
def test_every_method_runs_with_privacy_or_is_refused_for_a_reason_of_its_own(name):
    fed, method = pfl_lib.example("mlp"), quick_method(name)
    averages = isinstance(method, GlobalModel) and method.averages
    for words, begin in zip(
        REFUSED.get(name, (None, None)),
        (
            lambda: pfl_lib.run(private(method, 1.0, 0.01), fed, 2, progress=False),
            lambda: pfl_lib.run(method, PrivateUploads(fed, 1.0, 0.01), 2, progress=False),
        ),
    ):
        if begin.__code__.co_names.count("private") and not averages:
            words = "must be one that averages"
        if words is None:
            assert math.isfinite(begin().last)
        else:
            with pytest.raises((TypeError, ValueError), match=words):
                begin()


def test_what_is_trained_at_home_first_is_part_of_the_update():
    """FedAvg-C trains twice: without noise the server must see no more than the clipped sum."""
    fed = PrivateUploads(pfl_lib.example(), clip=0.1, noise=0.0)
    x = fed.initial()
    tuned = pfl_lib.train(fed, x, fed.everyone, tag="one", uploaded=False)
    again = pfl_lib.train(fed, tuned, fed.everyone, tag="two", uploaded=False)
    assert (again - x).norm(dim=1).min() > 0.1
    sent = pfl_lib.train(fed, again, fed.everyone)
    assert (sent - x).norm(dim=1).max() <= 0.1 + 1e-6
    later = fed.at(1)  # everybody may begin there now: it was not made in this round
    assert (pfl_lib.train(later, sent, fed.everyone) - sent).norm(dim=1).max() <= 0.1 + 1e-6


def test_a_start_that_is_made_of_what_was_trained_at_home_is_refused():
    fed = PrivateUploads(pfl_lib.example(), clip=0.1, noise=1.0)
    x = fed.initial()
    tuned = pfl_lib.train(fed, x, fed.everyone, tag="home", uploaded=False)
    with pytest.raises(ValueError, match="trains from a mix made at home"):
        pfl_lib.train(fed, (x + tuned) / 2, fed.everyone)


def test_wrappers_stay_when_a_setting_or_the_samples_change():
    """A federation that quietly lost its noise would be the worst of all."""
    fed = pfl_lib.example()
    for wrapped in (PrivateSamples(fed, 0.5, 2.0, 0.5), PrivateUploads(fed, 0.5, 2.0)):
        epsilon = wrapped.epsilon(1e-3)
        pfl_lib.run("fedavg", wrapped, 1, progress=False)
        for other in (wrapped.replace(lr=0.03), *wrapped.hold_out()):
            assert type(other) is type(wrapped) and other.noise == 2.0 and other.clip == 0.5
            assert other.epsilon(1e-3) == epsilon == 0.0  # an account of its own
            pfl_lib.run("fedavg", other, 1, progress=False)
        assert wrapped.replace(lr=0.03).settings.lr == 0.03


def test_more_rounds_than_the_account_can_hold_are_refused():
    with pytest.raises(ValueError, match=r"rounds must be fewer .* got 1,000,000: the account"):
        epsilon_of(1.0, 10**6, 1e-3, rate=0.5)
    assert epsilon_of(1.0, 10**6, 1e-3) > 0
