"""LGA and PLGA: similarity of a straggler, the leap in its readings, the personal model."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from known_answers import assert_known, known
from strategies import quick, vectors

from pfl_lib import formulas as f

PULL, NEXT = known("K6", "w^{t0}"), known("K6", "w^{t1}")
NOW, LOCAL = known("K6", "w^{t_tau}"), known("K6", "w_k^{t0}")
ALL = (PULL, NEXT, NOW, LOCAL)
STAGES = [slice(0, 2), slice(2, 4)]


def test_eq_lga_similarity():
    raw, normalised = f.straggler_similarity(PULL, NEXT, LOCAL)
    assert_known(raw, "K6", "S(k) Eq.8")
    assert_known(normalised, "K6", "S~(k) Eq.9")


def test_eq_lga_similarity_by_stage():
    raw, normalised = f.straggler_similarity(PULL, NEXT, LOCAL, STAGES)
    pairs = torch.stack([raw, normalised], dim=1)
    assert_known(pairs, "K6", "stages [0:2],[2:4]: [S_s,S~_s]")


def test_eq_lga_similarity_limits():
    a, zero = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    across = a.flip(0)
    limits = [f.straggler_similarity(zero, a, b)[1] for b in (-a, across, a)]
    assert_known(torch.stack(limits), "K6", "S~ limits S=-1,0,1")
    assert f.straggler_similarity(zero, zero, a)[0] == 0  # the server did not move


def test_eq_lga_leap_term():
    assert_known(f.leap_term(*ALL), "K6", "leap term")


def test_eq_lga_leap_10_and_11():
    assert_known(f.leap(*ALL, base="pull"), "K6", "Eq.(10)")
    assert_known(f.leap(*ALL), "K6", "Eq.(11)")
    assert_known(f.leap(*ALL, stages=STAGES), "K6", "staged Eq.(11)")


def test_eq_lga_leap_delay_compensated():
    assert_known(
        f.leap(*ALL, rule="delay_compensated", lr=0.1, local_steps=1),
        "K6",
        "delay-compensated form (beta=0.1, E=1, lam=S~, base t0): "
        "w_tau + D - S~/(beta E) D.D.(w_tau-w_t0)",
    )


def test_eq_plga_personal():
    _, similarity = f.straggler_similarity(PULL, NEXT, LOCAL)
    for base, name in (("now", "Eq.(12) with (11)"), ("pull", "Eq.(12) with (10)")):
        assert_known(f.plga_personal(f.leap(*ALL, base=base), NOW, similarity), "K6", name)
    _, similarity = f.straggler_similarity(PULL, NEXT, LOCAL, STAGES)
    personal = f.plga_personal(f.leap(*ALL, stages=STAGES), NOW, similarity, STAGES)
    assert_known(personal, "K6", "staged PLGA Eq.(14) with (11)")


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
