"""FedAMP and HeurFedAMP: weights, messages, gradient, full rounds on quadratics."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from known_answers import assert_known, known
from strategies import models, quick, shuffled_models

from pfl_lib import attention as att
from pfl_lib import formulas as f

W1 = known("K1", "W rows")
exponential = att.negative_exponential(sigma=2.0)
KINDS = [att.by_name(name, sigma=2.0) for name in att.KINDS]
each = pytest.mark.parametrize("A", KINDS, ids=lambda A: A.name)
widths = st.floats(1e-3, 1e3)
shares = st.floats(0, 1)


# ---- known answers


def test_eq_fedamp_weights_printed():
    xi = f.fedamp_weights(W1, exponential, alpha=0.5)
    assert_known(xi, "K1", "xi printed (Eq.7 seed 002): alpha*A'")
    assert_known(f.mix(xi, W1), "K1", "u printed")


def test_eq_fedamp_weights_true_gradient():
    xi = f.fedamp_weights(W1, exponential, alpha=0.5, grad_factor=2)
    assert_known(xi, "K1", "xi true gradient: 2*alpha*A'")
    assert_known(f.mix(xi, W1), "K1", "u true gradient")


def test_eq_fedamp_weights_alpha_too_large_is_shown_not_clipped():
    assert_known(
        f.fedamp_weights(W1, exponential, alpha=10.0),
        "K1",
        "xi printed with alpha=10 (self weight negative in rows 0 and 1)",
    )


def test_eq_fedamp_weights_tamed_square_root():
    A = att.tamed_square_root(sigma=1.0)
    assert_known(
        f.fedamp_weights(W1, A, alpha=0.3), "K1", "tamed-sqrt sigma=1 alpha=0.3: xi printed form"
    )
    assert_known(f.fedamp_objective(W1, A), "K1", "tamed-sqrt: calA(W)")


def test_eq_fedamp_objective():
    assert_known(f.fedamp_objective(W1, exponential), "K1", "calA(W)=sum_{i<j}(1-exp(-d2/sigma))")


def test_eq_fedamp_largest_and_safe_alpha():
    assert_known(
        f.largest_convex_alpha(W1, exponential),
        "K1",
        "largest alpha with xi_ii>=0 for these W (printed form), per row",
    )
    assert_known(f.safe_alpha(exponential, m=3), "K1", "W-independent safe alpha sigma/(m-1)")


@pytest.mark.parametrize(
    ("half", "kernel"),
    [
        (True, "kernel exp(-d2/(2 sigma)) [v1 Eq.9]"),
        (False, "kernel exp(-d2/sigma) [A' of stated A]"),
    ],
)
def test_eq_fedamp_attention_weights(half, kernel):
    A = att.negative_exponential(sigma=2.0, half_kernel=half)
    xi = f.attention_weights(W1, A, self_weight=0.05)
    assert_known(xi, "K1", f"tau-mode tau=0.95, {kernel}: xi")
    assert_known(f.mix(xi, W1), "K1", f"tau-mode tau=0.95, {kernel}: u")


@pytest.mark.parametrize(("sigma", "self_weight"), [(5, 0.2), (25, 0.05)])
def test_eq_heur_weights(sigma, self_weight):
    xi = f.heurfedamp_weights(W1, sigma, self_weight)
    assert_known(xi, "K2", f"sigma={sigma} xi_ii={self_weight}: xi")
    assert_known(f.mix(xi, W1), "K2", f"sigma={sigma} xi_ii={self_weight}: u")


# ---- K3: whole rounds on F_i(w) = ½ Σ h (w − c)²

H, C = known("K3", "H diagonals"), known("K3", "centres c")
LAM, ALPHA = 0.5, 0.5


def local_gradient(W):
    return H * (W - C)


def objective(W):
    return (0.5 * H * (W - C) ** 2).sum() + LAM * f.fedamp_objective(W, exponential)


def fedamp_round(W, grad_factor):
    U = f.mix(f.fedamp_weights(W, exponential, ALPHA, grad_factor), W)
    return U, f.proximal_step_quadratic(U, H, C, beta=ALPHA / LAM)


def test_eq_fedamp_gradient():
    assert_known(objective(W1), "K3", "G(W0), W0=K1 W")
    assert_known(f.fedamp_gradient(W1, exponential), "K3", "gradient of calA at W0")


def test_eq_fedamp_prox_printed_rounds():
    W = W1
    for r in (1, 2, 3):
        U, W = fedamp_round(W, grad_factor=1)
        assert_known(U, "K3", f"printed form, round {r}: U")
        assert_known(W, "K3", f"printed form, round {r}: W")


def test_eq_fedamp_prox_true_gradient_rounds():
    W = W1
    for r in (1, 2, 3):
        _, W = fedamp_round(W, grad_factor=2)
        assert_known(W, "K3", f"true gradient, round {r}: W")
        assert_known(objective(W), "K3", f"true gradient, round {r}: G(W)")


@pytest.mark.parametrize(("grad_factor", "effective"), [(2, LAM), (1, LAM / 2)])
def test_fedamp_fixed_points_are_stationary_and_printed_form_halves_lambda(grad_factor, effective):
    W = W1
    for _ in range(400):
        _, W = fedamp_round(W, grad_factor)
    residual = local_gradient(W) + effective * f.fedamp_gradient(W, exponential)
    assert residual.abs().max() < 1e-12
    if grad_factor == 2:
        assert_known(W, "K3", "true gradient limit point (stationary point of G)")
        assert_known(objective(W), "K3", "G at limit")


@quick
@given(models(), st.floats(0.01, 10))
def test_eq_fedamp_prox_is_the_minimiser(U, beta):
    h, c = torch.ones_like(U) * 1.5, torch.full_like(U, -0.5)
    w = f.proximal_step_quadratic(U, h, c, beta)
    torch.testing.assert_close(h * (w - c) + (w - U) / beta, torch.zeros_like(U), atol=1e-9, rtol=0)


# ---- the factor 2


@each
def test_fedamp_gradient_against_finite_differences(A):
    W = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    step, numeric = 1e-6, torch.zeros_like(W)
    for i in range(4):
        for q in range(3):
            E = torch.zeros_like(W)
            E[i, q] = step
            up, down = f.fedamp_objective(W + E, A), f.fedamp_objective(W - E, A)
            numeric[i, q] = (up - down) / (2 * step)
    gradient = f.fedamp_gradient(W, A)
    torch.testing.assert_close(gradient, numeric, rtol=1e-6, atol=1e-8)
    # W − α∇𝒜 is the message with grad_factor 2; the printed weights make half that step.
    for factor, share in ((2, 1.0), (1, 0.5)):
        U = f.mix(f.fedamp_weights(W, A, 0.01, grad_factor=factor), W)
        torch.testing.assert_close(U, W - 0.01 * share * gradient)


@each
def test_fedamp_gradient_against_autograd(A):
    W = torch.randn(5, 4, dtype=torch.float64).requires_grad_()
    (auto,) = torch.autograd.grad(f.fedamp_objective(W, A), W)
    torch.testing.assert_close(f.fedamp_gradient(W, A), auto)


# ---- properties


def every_weights(W, width=2.0, share=0.3):
    yield f.fedamp_weights(W, att.negative_exponential(sigma=width), alpha=0.1)
    yield f.heurfedamp_weights(W, width, share)
    for name in att.KINDS:
        yield f.attention_weights(W, att.by_name(name, width), share)


@quick
@given(models(), widths, shares)
def test_rows_sum_to_one(W, width, share):
    for xi in every_weights(W, width, share):
        scale = xi.abs().sum(1).clamp(min=1)
        assert bool(((xi.sum(1) - 1).abs() <= 1e-12 * scale).all())


@quick
@given(models(), widths, shares)
def test_attention_and_heur_weights_are_convex(W, width, share):
    for xi in list(every_weights(W, width, share))[1:]:
        assert xi.min() >= 0


@quick
@given(shuffled_models())
def test_weights_are_permutation_equivariant(drawn):
    W, order = drawn
    for xi, moved in zip(every_weights(W), every_weights(W[order])):
        torch.testing.assert_close(moved, xi[order][:, order], rtol=1e-8, atol=1e-10)


@quick
@given(models(clients=(1, 5)), st.integers(1, 5))
def test_equal_rows_give_the_message_back(W, m):
    W = W[:1].expand(m, -1)
    for xi in every_weights(W):
        torch.testing.assert_close(f.mix(xi, W), W, rtol=1e-12, atol=1e-12)


@quick
@given(models(), widths, st.floats(0.001, 10))
def test_alpha_weights_are_symmetric_off_the_diagonal(W, width, alpha):
    xi = f.fedamp_weights(W, att.negative_exponential(sigma=width), alpha)
    assert bool((xi == xi.T).all())


def test_attention_weights_are_not_symmetric():
    xi = f.attention_weights(W1, exponential, 0.05)
    assert (xi - xi.T).abs().max() > 0.05


@quick
@given(models(clients=(2, 6)), shares)
def test_attention_weights_for_wide_sigma_are_uniform(W, share):
    m = len(W)
    xi = f.attention_weights(W, att.negative_exponential(sigma=1e12), share)
    uniform = torch.full_like(xi, (1 - share) / (m - 1)).fill_diagonal_(share)
    torch.testing.assert_close(xi, uniform, rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [1e-3, 1e-20, 1e-37])
def test_attention_weights_for_tiny_sigma_are_the_nearest_neighbour(sigma, dtype):
    W = torch.tensor([[0.0], [1.0], [3.0], [1000.0]], dtype=dtype)
    xi = f.attention_weights(W, att.negative_exponential(sigma=sigma), self_weight=0.25)
    expected = torch.tensor(
        [[0.25, 0.75, 0, 0], [0.75, 0.25, 0, 0], [0, 0.75, 0.25, 0], [0, 0, 0.75, 0.25]],
        dtype=dtype,
    )
    torch.testing.assert_close(xi, expected)


@quick
@given(models(clients=(2, 6)), shares)
def test_heur_weights_at_sigma_zero_are_uniform(W, share):
    xi = f.heurfedamp_weights(W, 0.0, share)
    uniform = torch.full_like(xi, (1 - share) / (len(W) - 1)).fill_diagonal_(share)
    torch.testing.assert_close(xi, uniform)


def test_heur_weights_do_not_overflow():
    for dtype in (torch.float32, torch.float64):
        xi = f.heurfedamp_weights(W1.to(dtype), 1e6, 0.1)
        assert bool(xi.isfinite().all())
        assert xi[2].tolist() == pytest.approx([0.0, 0.9, 0.1])


@each
def test_hearing_nobody_means_keeping_ones_own(A):
    far = torch.tensor([[0.0], [1e3], [-1e3]], dtype=torch.float64)
    xi = f.attention_weights(far, A, self_weight=0.1)
    if A.name in ("scad", "mcp"):
        assert torch.equal(xi, torch.eye(3, dtype=torch.float64))
        assert f.largest_convex_alpha(far, A).tolist() == [math.inf] * 3
    else:
        assert xi.diagonal().tolist() == [0.1] * 3


@quick
@given(models(clients=(2, 6)), widths)
def test_largest_convex_alpha_is_where_the_self_weight_vanishes(W, width):
    A = att.pseudo_huber(sigma=width)
    for factor in (1, 2):
        largest = f.largest_convex_alpha(W, A, factor)
        for i in range(len(W)):
            xi = f.fedamp_weights(W, A, largest[i], factor)
            assert abs(float(xi[i, i])) < 1e-9
        assert bool((largest >= f.safe_alpha(A, len(W), factor) * (1 - 1e-12)).all())


def test_safe_alpha_is_attained_by_equal_models_and_halves_with_the_true_gradient():
    for A in KINDS:
        assert f.safe_alpha(A, 5, grad_factor=2) == pytest.approx(f.safe_alpha(A, 5) / 2)
        xi = f.fedamp_weights(torch.ones(5, 2, dtype=torch.float64), A, f.safe_alpha(A, 5))
        assert bool((xi.diagonal().abs() < 1e-12).all())
    assert f.safe_alpha(exponential, 1) == math.inf


def test_self_weight_may_differ_from_client_to_client():
    own = torch.tensor([0.1, 0.5, 1.0], dtype=torch.float64)
    for xi in (
        f.attention_weights(W1, exponential, own),
        f.heurfedamp_weights(W1, 5.0, own),
    ):
        torch.testing.assert_close(xi.diagonal(), own)
        torch.testing.assert_close(xi.sum(1), torch.ones(3, dtype=torch.float64))


def test_one_client_hears_itself():
    W = torch.tensor([[1.0, 2.0]])
    for xi in every_weights(W):
        assert xi.tolist() == [[1.0]]
    assert f.fedamp_objective(W, exponential) == 0
    assert f.fedamp_gradient(W, exponential).tolist() == [[0.0, 0.0]]


def test_zero_model_gets_a_plain_mean_from_heur():
    W = torch.cat([torch.zeros(1, 2, dtype=torch.float64), W1])
    xi = f.heurfedamp_weights(W, 5.0, 0.4)
    torch.testing.assert_close(xi[0], torch.tensor([0.4, 0.2, 0.2, 0.2], dtype=torch.float64))


def test_weights_can_be_differentiated_even_for_equal_rows():
    for rows in (torch.zeros(3, 2), torch.eye(3, 2)):
        W = rows.double().requires_grad_()
        for xi in every_weights(W):
            (grad,) = torch.autograd.grad((xi * torch.randn_like(xi)).sum(), W)
            assert bool(grad.isfinite().all())


def test_sigma_from_the_median_scales_with_the_models():
    A = exponential.with_sigma(f.median_sigma(W1))
    wide = exponential.with_sigma(f.median_sigma(1000 * W1))
    torch.testing.assert_close(
        f.attention_weights(W1, A, 0.1), f.attention_weights(1000 * W1, wide, 0.1)
    )


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"self_weight must lie in \[0, 1\], got 1.5"):
        f.attention_weights(W1, exponential, 1.5)
    with pytest.raises(ValueError, match=r"self_weight must lie in \[0, 1\], got -0.1"):
        f.heurfedamp_weights(W1, 5.0, -0.1)
    with pytest.raises(ValueError, match="sigma must be a non-negative finite number, got -1"):
        f.heurfedamp_weights(W1, -1, 0.1)
    with pytest.raises(ValueError, match="alpha must be a non-negative finite number, got -0"):
        f.fedamp_weights(W1, exponential, -0.5)
    with pytest.raises(ValueError, match="grad_factor must be a positive"):
        f.fedamp_weights(W1, exponential, 0.5, grad_factor=0)
    with pytest.raises(ValueError, match="m must be a whole number >= 1, got 0"):
        f.safe_alpha(exponential, 0)
    with pytest.raises(ValueError, match="beta must be a positive finite number, got 0"):
        f.proximal_step_quadratic(W1, H, C, 0)
