"""FedACS: the quantile, the selection, its guards, and one local step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from known_answers import assert_known, known
from strategies import models, quick, shuffled_models

from pfl_lib import formulas as f

W4 = known("K4", "W rows")
levels = st.floats(0, 1)


@pytest.mark.parametrize("p", [0, 0.25, 0.5, 0.75])
def test_eq_fedacs_weights_keeping_negative_cosines(p):
    weights, delta = f.fedacs_weights(W4, p, negatives="keep")
    assert_known(delta, "K4", f"p={p}: delta")
    assert_known(weights, "K4", f"p={p}: weights")
    assert_known(f.mix(weights, W4), "K4", f"p={p}: u")


def test_eq_fedacs_weights_dropping_negative_cosines():
    weights, _ = f.fedacs_weights(W4, 0)
    assert_known(weights, "K4", "p=0 with negatives dropped (recommended default): weights")
    assert_known(f.mix(weights, W4), "K4", "p=0 with negatives dropped: u")


def test_eq_fedacs_weights_at_p_one_hear_only_themselves():
    for negatives in ("keep", "drop"):
        weights, delta = f.fedacs_weights(W4, 1, negatives)
        assert_known(delta, "K4", "p=1: delta")
        assert_known(f.mix(weights, W4), "K4", "p=1 guarded: u equals W")


def test_eq_fedacs_select_without_a_threshold():
    S = f.cosine_similarities(W4)
    weights = f.fedacs_select(S, -torch.inf, negatives="keep")
    assert_known(weights, "K4", "delta=-inf: weights (some negative)")


def test_eq_fedacs_local():
    weights, _ = f.fedacs_weights(W4, 0.5)
    centres = known("K4", "p=0.5 then Eq.(5), beta=0.1, F_i=0.5||w-c_i||^2: centres")
    u = f.mix(weights, W4)
    assert_known(f.fedacs_local(u, u - centres, lr=0.1), "K4", "p=0.5 then Eq.(5): w")


@quick
@given(models(), levels)
def test_fedacs_rows_are_convex_combinations(W, p):
    weights, delta = f.fedacs_weights(W, p)
    assert delta.ndim == 0
    assert weights.min() >= 0
    torch.testing.assert_close(weights.sum(1), torch.ones(len(W), dtype=W.dtype))


@quick
@given(models(), levels)
def test_fedacs_rows_sum_to_one_with_negatives_kept(W, p):
    weights, _ = f.fedacs_weights(W, p, negatives="keep")
    scale = weights.abs().sum(1).clamp(min=1)
    assert bool(((weights.sum(1) - 1).abs() <= 1e-12 * scale).all())


@quick
@given(shuffled_models(), levels)
def test_fedacs_select_is_permutation_equivariant(drawn, p):
    # On the matrix of cosines: between equal models the last digit decides what is above δ.
    W, order = drawn
    S = f.cosine_similarities(W)
    moved = S[order][:, order]
    delta = f.fedacs_threshold(S, p)
    assert f.fedacs_threshold(moved, p) == delta
    torch.testing.assert_close(
        f.fedacs_select(moved, delta), f.fedacs_select(S, delta)[order][:, order]
    )


@quick
@given(models(), levels)
def test_fedacs_threshold_is_the_linear_quantile(W, p):
    S = f.cosine_similarities(W)
    torch.testing.assert_close(f.fedacs_threshold(S, p), torch.quantile(S.flatten(), p))


@quick
@given(models(clients=(1, 1)), st.integers(1, 6), levels)
def test_fedacs_equal_models_give_the_message_back(row, m, p):
    W = row.expand(m, -1)
    weights, _ = f.fedacs_weights(W, p)
    torch.testing.assert_close(f.mix(weights, W), W)


@pytest.mark.parametrize("m", [2, 5, 10])
def test_fedacs_quantile_from_which_only_the_self_is_left(m):
    """p ≥ m/(m + 1) puts δ = 1: the printed strict test would select nobody."""
    S = torch.full((m, m), 0.3, dtype=torch.float64).fill_diagonal_(1.0)
    p = m / (m + 1)
    assert float(f.fedacs_threshold(S, p)) == pytest.approx(1.0)
    assert torch.equal(f.fedacs_select(S, 1.0), torch.eye(m, dtype=torch.float64))


def test_fedacs_opposing_clients_with_a_row_sum_below_zero():
    W = torch.tensor([[1, 0.1], [-1, 0.2], [-1, -0.3], [0.2, 1.0]], dtype=torch.float64)
    S = f.cosine_similarities(W)
    assert S[0].sum() < 0  # the printed weights of row 0 would be −1.55, 1.48, 1.52, −0.45
    kept = f.fedacs_select(S, -torch.inf, negatives="keep")
    dropped = f.fedacs_select(S, -torch.inf, negatives="drop")
    torch.testing.assert_close(kept[0], dropped[0])
    assert dropped.min() >= 0


def test_fedacs_zero_model_hears_itself():
    W = torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]])
    weights, _ = f.fedacs_weights(W, 0.2)
    assert weights[0].tolist() == [1.0, 0.0, 0.0]


def test_fedacs_one_client():
    weights, delta = f.fedacs_weights(torch.tensor([[1.0, 2.0]]), 0.5)
    assert weights.tolist() == [[1.0]] and delta == 1


def test_fedacs_frozen_gradient_is_four_times_the_claimed_one():
    """For symmetric scores with unit row sums ∇Σ s_ij‖w_i − w_j‖² = 4(W − SW), not W − SW."""
    generator = torch.Generator().manual_seed(1)
    W = torch.randn(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    S = torch.rand(4, 4, dtype=torch.float64, generator=generator) + 0.1
    S = S + S.T
    for _ in range(300):
        scale = S.sum(1).rsqrt()
        S = scale[:, None] * S * scale
    (grad,) = torch.autograd.grad((S * f.squared_distances(W)).sum(), W)
    torch.testing.assert_close(grad, 4 * (W - f.mix(S, W)).detach())


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\], got 1\.2"):
        f.fedacs_weights(W4, 1.2)
    with pytest.raises(ValueError, match="negatives must be one of 'drop', 'keep'; got 'dorp'"):
        f.fedacs_weights(W4, 0.5, negatives="dorp")
    with pytest.raises(ValueError, match="lr must be a positive finite number, got 0"):
        f.fedacs_local(W4, W4, 0)
