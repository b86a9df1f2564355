"""PLGA: personal models between prediction and server."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import algorithm, partition, run
from pfl_lib import formulas as f
from pfl_lib.book.theory import iterate
from tests.support.known_answers import assert_known, known
from tests.support.methods import (
    LATE,
    plain_federation,
    refused,
)
from tests.support.quadratics import (
    arrival,
)
from tests.support.stragglers import ALL, LOCAL, NEXT, NOW, PULL, STAGES
from tests.support.strategies import quick, vectors


def arrived(**hyper):
    """The state after the arrival of a straggler who was three rounds away."""
    return arrival(algorithm("plga", stragglers=(3,), **hyper))


def test_eq_plga_personal():
    _, similarity = f.straggler_similarity(PULL, NEXT, LOCAL)
    for base, name in (("now", "Eq.(12) with (11)"), ("pull", "Eq.(12) with (10)")):
        assert_known(f.plga_personal(f.leap(*ALL, base=base), NOW, similarity), "LGA", name)
    _, similarity = f.straggler_similarity(PULL, NEXT, LOCAL, STAGES)
    personal = f.plga_personal(f.leap(*ALL, stages=STAGES), NOW, similarity, STAGES)
    assert_known(personal, "LGA", "staged PLGA Eq.(14) with (11)")


@quick
@given(vectors(2), st.floats(0, 1))
def test_plga_is_a_convex_combination(drawn, share):
    predicted, now = drawn
    personal = f.plga_personal(predicted, now, torch.tensor(share, dtype=torch.float64))
    torch.testing.assert_close(personal, (1 - share) * predicted + share * now)
    low, high = torch.minimum(predicted, now), torch.maximum(predicted, now)
    assert bool((personal >= low - 1e-12).all()) and bool((personal <= high + 1e-12).all())


@quick
@given(vectors(4), st.floats(0.01, 0.99))
def test_eq_plga_personal_printed_form_loses_the_pulled_model(drawn, share):
    pull, predicted, now, _ = drawn
    printed = pull + (1 - share) * (predicted - pull) + share * (now - pull)
    personal = f.plga_personal(predicted, now, torch.tensor(share, dtype=torch.float64))
    torch.testing.assert_close(personal, printed, rtol=1e-9, atol=1e-10)


def test_plga_eq12_and_eq14():
    whole, staged = arrived(stages=1), arrived()
    torch.testing.assert_close(whole.x, known("LGA", "Eq.(11)"))
    torch.testing.assert_close(whole.p[0], known("LGA", "Eq.(12) with (11)"))
    old = arrived(stages=1, base="pull")
    torch.testing.assert_close(old.p[0], known("LGA", "Eq.(12) with (10)"))
    torch.testing.assert_close(staged.x, known("LGA", "staged Eq.(11)"))
    torch.testing.assert_close(staged.p[0], known("LGA", "staged PLGA Eq.(14) with (11)"))


def test_personal_models_lie_between_prediction_and_server_and_never_come_back(data, uneven):
    fed = plain_federation(data, uneven)
    lga = iterate(algorithm("lga", stragglers=LATE, rule="none"), fed, 4)
    plga = iterate(algorithm("plga", stragglers=LATE, rule="none", stages=1), fed, 4)
    assert all(torch.equal(a.x, b.x) for a, b in zip(lga, plga))
    x_new, x_old, state = plga[4].x, plga[3].x, plga[4]  # in round 3 clients 0, 1, 2, 4 arrive
    assert torch.equal(state.p[3], plga[3].p[3])  # client 3 keeps what it took back in round 2
    for i in (0, 1, 2, 4):
        now = x_new if i < 2 else x_old
        moved = state.w[i] - state.pull[i]
        share = 1 - (state.p[i] - now) @ moved / (moved @ moved)  # p = now + (1 − S̃)·Δ
        torch.testing.assert_close(state.p[i], now + (1 - share) * moved)
        assert 0.1192 <= share <= 0.5


def test_the_public_code_mixes_the_trained_model_with_the_global_one_after_the_pull(data, uneven):
    """Its personal model never sees a prediction; its server is the printed one."""
    straggler = arrived(stages=1, mixes="trained")
    _, share = f.straggler_similarity(PULL, NEXT, LOCAL)
    expected = LOCAL + share * (NEXT - LOCAL)
    torch.testing.assert_close(straggler.p[0], expected)
    assert (expected - arrived(stages=1).p[0]).abs().max() > 0.1, "another rule than the printed"

    fed = plain_federation(data, uneven)
    printed, public = (
        iterate(algorithm("plga", stragglers=LATE, mixes=word, stages=1), fed, 4)
        for word in ("predicted", "trained")
    )
    assert all(torch.equal(a.x, b.x) for a, b in zip(printed, public))
    state = public[4]
    for i in (0, 1):  # on time: the global model after the pull is the newest
        _, share = f.straggler_similarity(state.pull[i], state.x, state.w[i])
        torch.testing.assert_close(state.p[i], state.w[i] + share * (state.x - state.w[i]))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_moving_late_models_to_now_helps_the_server(data, seed):
    """Eq. (11) against averaging stale models, with half of the clients late."""
    fed = plain_federation(data, partition.grouped(data, group_clients=2, seed=seed), seed=seed)
    stale, leapt = (
        run(algorithm(name), fed, 12, evaluate_every=12, progress=False)
        for name in ("fedavg-async", "plga")
    )
    server = sum(leapt.extra_models["server"][-1]) / fed.m
    assert server > stale.last
    assert leapt.last > server  # and the personal models are better still on skewed clients


BAD = [
    ("plga", {"stages": 3}, "stages must be one of 1, 2; got 3"),
    ("plga", {"mixes": "local"}, "mixes must be one of 'predicted', 'trained'; got 'local'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
