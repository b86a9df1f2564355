"""SPFL: the similarity matrices, the server step in its readings, SPFL-w, the local step."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from known_answers import assert_known, known
from strategies import models, quick, shuffled_models

from pfl_lib import formulas as f

G5 = known("K5", "g rows (g = w_before - w_after)")
W5 = known("K5", "w rows")
SIZES = known("K5", "|D_j|")
STAGES = [slice(0, 2), slice(2, 4)]
INDICES = [torch.tensor([0, 1]), torch.tensor([2, 3])]


@pytest.mark.parametrize("stages", [STAGES, INDICES], ids=["slices", "indices"])
def test_eq_sngs(stages):
    assert_known(f.sngs(G5), "K5", "S~ whole model (Eq.5)")
    first, second = f.sngs(G5, stages)
    assert_known(first, "K5", "S~_s stage 0 (Eq.6)")
    assert_known(second, "K5", "S~_s stage 1 (Eq.6)")


@pytest.mark.parametrize("stages", [STAGES, INDICES], ids=["slices", "indices"])
@pytest.mark.parametrize(
    ("rule", "lr", "name"),
    [
        ("literal", 0.01, "Eq.(7) literal, alpha=0.01"),
        ("softmax", 1.0, "softmax-only, alpha=1 (recommended)"),
        ("size_renorm", 1.0, "size*softmax renormalised, alpha=1"),
    ],
)
def test_eq_spfl_step(rule, lr, name, stages):
    S = f.sngs(G5, stages)
    assert_known(f.spfl_step(W5, G5, S, rule, SIZES, lr, stages), "K5", name)


def test_eq_spfl_w_step():
    new = f.spfl_w_step(W5 - G5, f.sngs(G5, STAGES), STAGES)
    assert_known(new, "K5", "SPFL-w: sum_j S~_s(i,j) w_j with w_j the locally trained models w-g")


def test_eq_spfl_local_step():
    h = torch.tensor([1.0, 4.0], dtype=torch.float64)
    c = torch.tensor([1.0, -1.0], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)

    def gradient(w):
        return h * (w - c)

    twice = f.spfl_local_step(zero, gradient, 0.01)
    double = f.spfl_local_step(zero, gradient, 0.01, rule="double")
    assert_known(twice, "K5", "ClientUpdate: two beta steps on the same batch (recommended)")
    assert_known(
        double,
        "K5",
        "ClientUpdate, F=0.5 sum H(w-c)^2, H=(1,4), c=(1,-1), w=0, beta=.01: one 2beta step",
    )
    torch.testing.assert_close(twice, double + 0.01**2 * h * gradient(zero))  # + β²H∇F


@quick
@given(models(), st.floats(0.05, 50))
def test_sngs_rows_are_positive_and_sum_to_one(G, temperature):
    S = f.sngs(G, temperature=temperature)
    assert S.min() > 0
    torch.testing.assert_close(S.sum(1), torch.ones(len(G), dtype=G.dtype))


@quick
@given(models())
def test_sngs_weights_differ_by_e_squared_at_most(G):
    S = f.sngs(G)
    assert float((S.amax(1) / S.amin(1)).max()) <= math.e**2 * (1 + 1e-12)


@quick
@given(shuffled_models())
def test_spfl_is_permutation_equivariant(drawn):
    G, order = drawn
    W = G.flip(1) + 1
    moved = f.spfl_step(W[order], G[order], f.sngs(G[order]))
    torch.testing.assert_close(moved, f.spfl_step(W, G, f.sngs(G))[order])


@quick
@given(models(), st.floats(0.01, 2))
def test_spfl_uniform_weights_apply_the_mean_update(G, lr):
    m = len(G)
    uniform = torch.full((m, m), 1 / m, dtype=G.dtype)
    W = torch.ones_like(G)
    expected = W - lr * G.mean(0)  # FedAvg with server step lr, since all models are equal
    torch.testing.assert_close(f.spfl_step(W, G, uniform, lr=lr), expected)
    sizes = torch.full((m,), 7.0)
    renormed = f.spfl_step(W, G, uniform, "size_renorm", sizes, lr)
    torch.testing.assert_close(renormed, expected)
    literal = f.spfl_step(W, G, uniform, "literal", sizes, lr)  # m times too short
    torch.testing.assert_close(literal, W - lr / m * G.mean(0))


@quick
@given(models(clients=(1, 1)), st.integers(1, 5))
def test_spfl_equal_updates_are_applied_whole(row, m):
    G = row.expand(m, -1)
    W = torch.randn(G.shape, dtype=G.dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(f.spfl_step(W, G, f.sngs(G)), W - G)


def test_sngs_temperature_from_plain_mean_to_oneself():
    hot, cold = f.sngs(G5, temperature=1e9), f.sngs(G5, temperature=1e-3)
    torch.testing.assert_close(hot, torch.full_like(hot, 1 / 3))
    torch.testing.assert_close(cold, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(f.sngs(G5, STAGES, temperature=1.0), f.sngs(G5, STAGES))


def test_spfl_columns_in_no_stage_stay():
    body = [slice(0, 3)]
    S = f.sngs(G5, body)
    for new in (f.spfl_step(W5, G5, S, stages=body), f.spfl_w_step(W5, S, body)):
        assert torch.equal(new[:, 3], W5[:, 3])
        assert not torch.equal(new[:, :3], W5[:, :3])


def test_spfl_one_matrix_serves_all_stages_and_nothing_is_changed_in_place():
    S, before = f.sngs(G5), W5.clone()
    torch.testing.assert_close(f.spfl_step(W5, G5, S, stages=STAGES), f.spfl_step(W5, G5, S))
    assert torch.equal(W5, before)


def test_spfl_zero_updates_and_one_client():
    assert f.sngs(torch.zeros(3, 2)).tolist() == torch.full((3, 3), 1 / 3).tolist()
    G = torch.tensor([[1.0, 2.0]])
    assert f.sngs(G).tolist() == [[1.0]]
    assert f.spfl_step(torch.zeros(1, 2), G, f.sngs(G)).tolist() == [[-1.0, -2.0]]


def test_bad_input_is_named():
    S = f.sngs(G5)
    with pytest.raises(ValueError, match="sizes must hold the clients' numbers of samples"):
        f.spfl_step(W5, G5, S, rule="literal")
    with pytest.raises(ValueError, match="rule must be one of 'softmax', 'size_renorm', 'literal'"):
        f.spfl_step(W5, G5, S, rule="mean")
    with pytest.raises(ValueError, match="G must have the shape of W"):
        f.spfl_step(W5, G5[:, :2], S)
    with pytest.raises(ValueError, match="S must hold one matrix for each of 1 stages, got 2"):
        f.spfl_step(W5, G5, f.sngs(G5, STAGES))
    with pytest.raises(ValueError, match="stages must be None or a non-empty list"):
        f.sngs(G5, stages=[])
    with pytest.raises(ValueError, match="stages must be None or a non-empty list"):
        f.sngs(G5, stages=slice(0, 2))
    with pytest.raises(ValueError, match="temperature must be a positive finite number, got 0"):
        f.sngs(G5, temperature=0)
