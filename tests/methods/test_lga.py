"""LGA: the similarity of a straggler, the leap in its readings, and arrivals."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import algorithm, run
from pfl_lib import formulas as f
from pfl_lib.book.theory import iterate
from tests.support.known_answers import assert_known, key, known
from tests.support.methods import (
    LATE,
    last,
    plain_federation,
    refused,
)
from tests.support.quadratics import (
    LateToy,
    arrival,
)
from tests.support.stragglers import ALL, LOCAL, NEXT, NOW, PULL, STAGES
from tests.support.strategies import quick, vectors


def arrived(**hyper):
    """The state after the arrival of a straggler who was three rounds away."""
    return arrival(algorithm("lga", stragglers=(3,), **hyper))


def test_eq_lga_similarity():
    raw, normalised = f.straggler_similarity(PULL, NEXT, LOCAL)
    assert_known(raw, "LGA", "S(k) Eq.8")
    assert_known(normalised, "LGA", "S~(k) Eq.9")


def test_eq_lga_similarity_by_stage():
    raw, normalised = f.straggler_similarity(PULL, NEXT, LOCAL, STAGES)
    pairs = torch.stack([raw, normalised], dim=1)
    assert_known(pairs, "LGA", "stages [0:2],[2:4]: [S_s,S~_s]")


def test_eq_lga_similarity_limits():
    a, zero = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    across = a.flip(0)
    limits = [f.straggler_similarity(zero, a, b)[1] for b in (-a, across, a)]
    assert_known(torch.stack(limits), "LGA", "S~ limits S=-1,0,1")
    assert f.straggler_similarity(zero, zero, a)[0] == 0  # the server did not move


def test_eq_lga_leap_term():
    assert_known(f.leap_term(*ALL), "LGA", "leap term")


def test_eq_lga_leap_10_and_11():
    assert_known(f.leap(*ALL, base="pull"), "LGA", "Eq.(10)")
    assert_known(f.leap(*ALL), "LGA", "Eq.(11)")
    assert_known(f.leap(*ALL, stages=STAGES), "LGA", "staged Eq.(11)")


def test_eq_lga_leap_delay_compensated():
    assert_known(
        f.leap(*ALL, rule="delay_compensated", lr=0.1, local_steps=1),
        "LGA",
        "delay-compensated form (beta=0.1, E=1, lam=S~, base t0): "
        "w_tau + D - S~/(beta E) D.D.(w_tau-w_t0)",
    )


def test_the_leap_can_be_scaled():
    four = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    none, printed, threefold = (f.leap(*four, scale=scale) for scale in (0.0, 1.0, 3.0))
    assert torch.equal(none, f.leap(*four, rule="none"))
    assert torch.allclose(threefold - none, 3 * (printed - none))
    with pytest.raises(ValueError, match="scale"):
        f.leap(*four, scale=-1.0)


def test_a_larger_leap_moves_the_server():
    x = {scale: arrived(leap_scale=scale).x for scale in (0.0, 1.0, 5.0)}
    assert torch.equal(x[0.0], arrived(rule="none").x)
    assert torch.allclose(x[5.0] - x[0.0], 5 * (x[1.0] - x[0.0]))
    assert not torch.equal(x[1.0], x[0.0])


@quick
@given(vectors(3))
def test_similarity_ranges(drawn):
    raw, normalised = f.straggler_similarity(*drawn)
    assert -1 <= float(raw) <= 1
    assert 1 / (1 + math.e**2) - 1e-15 <= float(normalised) <= 0.5
    assert float(normalised) == pytest.approx(
        math.exp(float(raw)) / (math.e + math.exp(float(raw)))
    )


@quick
@given(vectors(3))
def test_one_round_late_the_printed_leap_vanishes(drawn):
    pull, next_, local = drawn
    predicted = f.leap(pull, next_, next_, local)
    torch.testing.assert_close(predicted, next_ + (local - pull))


@quick
@given(vectors(4), st.sampled_from(["printed", "delay_compensated", "none"]))
def test_bases_differ_by_what_the_server_did(drawn, rule):
    pull, _, now, _ = drawn
    more = {"rule": rule, "lr": 0.1, "local_steps": 3}
    gap = f.leap(*drawn, base="now", **more) - f.leap(*drawn, base="pull", **more)
    torch.testing.assert_close(gap, now - pull, rtol=1e-9, atol=1e-7)


def test_delay_compensation_points_to_the_right_side_on_a_quadratic():
    """E small steps on ½h(w − c)²: the Taylor term has the sign of the true change of Δ."""
    h, c, lr, steps = torch.tensor([1.0, 3.0]), torch.tensor([1.0, -1.0]), 0.01, 5

    def train(w):
        for _ in range(steps):
            w = w - lr * h * (w - c)
        return w

    pull, now = torch.tensor([0.0, 0.0]), torch.tensor([0.4, -0.3])
    local = train(pull)
    true_change = (train(now) - now) - (local - pull)
    correction = f.leap_term(
        pull, now / 4, now, local, "delay_compensated", lr=lr, local_steps=steps
    )
    printed = f.leap_term(pull, now / 4, now, local)
    assert torch.equal(correction.sign(), true_change.sign())
    assert torch.equal(printed.sign(), -true_change.sign())


def test_rows_and_vmap_agree_with_vectors():
    rows = torch.randn(4, 3, 6, dtype=torch.float64)
    stages = [slice(0, 2), torch.tensor([2, 5])]
    for stages_ in (None, stages):

        def one(pull, next_, now, local, stages_=stages_):
            predicted = f.leap(pull, next_, now, local, stages=stages_)
            _, similarity = f.straggler_similarity(pull, next_, local, stages_)
            return f.plga_personal(predicted, now, similarity, stages_)

        singly = torch.stack([one(*(r[k] for r in rows)) for k in range(3)])
        torch.testing.assert_close(one(*rows), singly)
        torch.testing.assert_close(torch.func.vmap(one)(*rows), singly)
        pull = rows[0, 0]  # one global model for all stragglers
        shared = torch.func.vmap(one, in_dims=(None, None, None, 0))(pull, *rows[1:3, 0], rows[3])
        torch.testing.assert_close(shared[2], one(pull, rows[1, 0], rows[2, 0], rows[3, 2]))


def test_columns_in_no_stage_get_no_leap_and_stay_predicted():
    stages = [slice(0, 2)]
    _, similarity = f.straggler_similarity(PULL, NEXT, LOCAL, stages)
    predicted = f.leap(*ALL, stages=stages)
    torch.testing.assert_close(predicted[2:], (NOW + LOCAL - PULL)[2:])
    personal = f.plga_personal(predicted, NOW, similarity, stages)
    torch.testing.assert_close(personal[2:], predicted[2:])


def test_small_moves_keep_their_cosine_in_float32():
    zero = torch.zeros(3)
    a, b = torch.tensor([3e-15, 4e-15, 0.0]), torch.tensor([3e-15, 0.0, 0.0])
    raw, _ = f.straggler_similarity(zero, a, b)
    assert float(raw) == pytest.approx(0.6, rel=1e-5)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="lr and local_steps must be given"):
        f.leap(*ALL, rule="delay_compensated", lr=0.1)
    with pytest.raises(ValueError, match="base must be one of 'now', 'pull'; got 'then'"):
        f.leap(*ALL, base="then")
    with pytest.raises(ValueError, match="rule must be one of"):
        f.leap(*ALL, rule="corrected")
    with pytest.raises(ValueError, match=r"w_local must have the shape of w_pull, \(4,\)"):
        f.leap(PULL, NEXT, NOW, LOCAL[:2])


@pytest.mark.parametrize(
    "hyper, answer",
    [
        ({}, "Eq.(11)"),
        ({"base": "pull"}, "Eq.(10)"),
        ({"rule": "delay_compensated"}, "delay-compensated form"),
    ],
)
def test_lga_eq10_and_eq11(hyper, answer):
    torch.testing.assert_close(arrived(**hyper).x, known("LGA", key("LGA", answer)))


def test_lga_without_the_leap_adds_the_move_to_the_model_of_now():
    moved = known("LGA", "w_k^{t0}") - known("LGA", "w^{t0}")
    torch.testing.assert_close(arrived(rule="none").x, known("LGA", "w^{t_tau}") + moved)


def test_lga_one_round_late_is_w_next_plus_the_move():
    """For delay 1 the printed leap is zero."""
    fed = LateToy(2)
    states = iterate(algorithm("lga", stragglers=(0, 1)), fed, 2)
    moved = -0.1 * (states[0].x - fed.c[1])
    fresh = states[1].x - 0.1 * (states[1].x - fed.c[0])
    torch.testing.assert_close(states[2].x, (fresh + states[1].x + moved) / 2)
    none = iterate(algorithm("lga", stragglers=(0, 1), rule="none"), LateToy(2), 2)
    torch.testing.assert_close(states[2].x, none[2].x)


def test_lga_remembers_the_model_after_the_pull(data, uneven):
    fed = plain_federation(data, uneven)
    states = iterate(algorithm("lga", stragglers=(0, 2, 3, 3, 5)), fed, 4)
    for i in (1, 2, 3, 4):  # all pulled in round 0
        assert torch.equal(states[2].next[i], states[1].x)
        assert torch.equal(states[2].pull[i], states[0].x)
    assert torch.equal(states[4].next[4], states[1].x)  # and keeps it


def test_lga_from_the_pull_without_a_leap_is_fedavg_async(data, uneven):
    fed = plain_federation(data, uneven)
    plain = last(algorithm("fedavg-async", stragglers=LATE, weighting="equal"), fed, 6).x
    stale = last(algorithm("lga", stragglers=LATE, base="pull", rule="none"), fed, 6).x
    torch.testing.assert_close(stale, plain, rtol=0, atol=1e-12)


def test_local_steps_of_the_delay_compensated_form(data, uneven):
    """E is what the engine really does: all batches of all epochs, or the number of steps."""
    fed = plain_federation(data, uneven, epochs=2)
    by_epoch = algorithm("lga", stragglers=LATE, rule="delay_compensated")
    assert by_epoch.steps(fed, fed.everyone).flatten().tolist() == [4, 8, 4, 8, 4]
    assert algorithm("lga", local_steps=7).steps(fed, fed.everyone) == 7
    with pytest.raises(ValueError, match="reads gradients off SGD steps"):
        run(by_epoch, plain_federation(data, uneven, optimizer="adam"), 1, progress=False)


BAD = [
    ("lga", {"stragglers": -1}, "stragglers must be a whole number >= 0, got -1"),
    ("lga", {"stragglers": "half"}, "stragglers must be one of 'spfl', 'alternating'; got 'half'"),
    ("lga", {"stragglers": (0, 1.5)}, "each delay in stragglers must be a whole number >= 0"),
    ("lga", {"stragglers": (0, ())}, "a client with no delay at all"),
    ("lga", {"base": "then"}, "base must be one of 'now', 'pull'; got 'then'"),
    ("lga", {"rule": "prnted"}, "Did you mean 'printed'"),
    ("lga", {"weighting": "size"}, "Did you mean 'sizes'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
