"""The attention-inducing functions: Definition 1, their derivatives, convexity, hard selection."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import attention as att
from tests.support.strategies import quick

WIDTHS = (0.3, 1.0, 4.0)
ALL = [make(sigma=s) for make in att.KINDS.values() for s in WIDTHS]
ALL.append(att.negative_exponential(sigma=2.0, half_kernel=True))
ALL.append(att.scad(sigma=1.5, a=2.2))
ALL.append(att.mcp(sigma=1.5, gamma=0.7))
each = pytest.mark.parametrize("A", ALL, ids=repr)
grid = torch.linspace(0, 40, 4001, dtype=torch.float64)


@each
def test_definition_1_zero_at_zero_increasing_concave(A):
    value = A.value(grid)
    steps = value.diff()
    assert value[0] == 0
    assert steps.min() >= -1e-12
    assert steps.diff().max() <= 1e-10


@each
def test_derivative_is_the_derivative_of_value(A):
    t = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 20
    t.requires_grad_()
    (slope,) = torch.autograd.grad(A.value(t).sum(), t)
    torch.testing.assert_close(slope, A.derivative(t))


@each
def test_slope_at_zero_is_the_largest_derivative(A):
    assert float(A.derivative(grid)[0]) == pytest.approx(A.slope_at_zero, rel=1e-14)
    assert A.derivative(grid).max() <= A.slope_at_zero * (1 + 1e-14)
    assert A.derivative(grid).min() >= 0


def curvature(A, t):
    """The second derivative of r ↦ A(r²) at r² = t."""
    phi = torch.func.grad(torch.func.grad(lambda r: A.value(r * r)))
    return torch.func.vmap(phi)(t.sqrt())


@each
def test_convex_until_is_where_the_curvature_turns(A):
    limit = A.convex_until
    assert A.convex == math.isinf(limit)
    if A.convex:
        assert curvature(A, grid[1:]).min() >= -1e-12
    else:
        below = limit * torch.linspace(0.001, 0.999, 50, dtype=torch.float64)
        just_above = torch.tensor([limit * 1.001], dtype=torch.float64)
        assert curvature(A, below).min() > 0
        assert curvature(A, just_above).max() < 0


def test_bounded_functions_are_never_convex_whatever_the_width():
    for kind in ("negative_exponential", "scad", "mcp"):
        assert not any(att.by_name(kind, s).convex for s in (1e-3, 1.0, 1e6))


def test_curvature_constants_of_the_kinks():
    """Largest |curvature|, in units of A'(0+): 2 (exponential), 4 (MCP), 4a/(a−1) (SCAD)."""
    for A, expected in (
        (att.negative_exponential(sigma=2.0), 2.0),
        (att.mcp(sigma=2.0, gamma=3.0), 4.0),
        (att.scad(sigma=2.0), 4 * 3.7 / 2.7),
    ):
        t = torch.linspace(1e-9, 20, 200001, dtype=torch.float64)
        assert float(curvature(A, t).abs().max()) == pytest.approx(
            expected * A.slope_at_zero, rel=1e-3
        )


def test_tamed_square_root_is_huber_over_sigma():
    sigma, r = 0.7, torch.linspace(0, 6, 601, dtype=torch.float64)
    huber = torch.nn.functional.huber_loss(r, torch.zeros_like(r), delta=sigma, reduction="none")
    torch.testing.assert_close(att.tamed_square_root(sigma=sigma).value(r * r), huber / sigma)


def test_scad_and_mcp_select_exactly():
    t = torch.tensor([0.0, 0.99, 3.69, 3.7, 3.71, 1e9])
    assert (att.scad(sigma=1.0).derivative(t) == 0).tolist() == [False] * 3 + [True] * 3
    assert (att.mcp(sigma=1.0, gamma=3.7).derivative(t) == 0).tolist() == [False] * 3 + [True] * 3
    flat = torch.tensor([4.0, 1e9], dtype=torch.float64)
    assert att.scad(sigma=1.0).value(flat).tolist() == pytest.approx([2.35, 2.35])
    assert att.mcp(sigma=1.0, gamma=2.0).value(flat).tolist() == [1.0, 1.0]


def test_half_kernel_is_the_true_gradient_with_the_printed_kernel():
    """2·d/dt A(t/2) = e^(−t/(2σ))/σ: the slip of v1's Eq. (9) and the lost 2, both at once."""
    A = att.negative_exponential(sigma=1.7, half_kernel=True)
    torch.testing.assert_close(2 * A.derivative(grid), torch.exp(-grid / 3.4) / 1.7)


@each
def test_value_keeps_small_distances_in_float32(A):
    t = torch.tensor([1e-12, 1e-9, 1e-6])
    torch.testing.assert_close(A.value(t), A.slope_at_zero * t, rtol=1e-4, atol=0)


@each
def test_under_vmap_and_in_both_precisions(A):
    for dtype in (torch.float32, torch.float64):
        t = torch.rand(3, 4, dtype=dtype) * 5
        for function in (A.value, A.derivative):
            mapped = torch.func.vmap(function)(t)
            assert mapped.dtype == dtype
            torch.testing.assert_close(mapped, function(t))


@quick
@given(st.floats(1e-6, 1e6), st.floats(0, 1e3), st.floats(0, 1e3))
def test_ratio_is_a_quotient_of_derivatives(sigma, nearest, further):
    t = torch.tensor([nearest, nearest + further], dtype=torch.float64)
    for kind in att.KINDS:
        A = att.by_name(kind, sigma)
        ratio = A.ratio(t, t[:1])
        assert bool((ratio >= 0).all()) and bool((ratio <= 1).all())
        if A.derivative(t[0]) > 1e-200:
            torch.testing.assert_close(ratio, A.derivative(t) / A.derivative(t[0]))


def test_with_sigma_takes_a_tensor_and_keeps_the_rest():
    wide = att.mcp(sigma=1.0, gamma=5.0).with_sigma(torch.tensor(2.0, dtype=torch.float64))
    same = att.mcp(sigma=2.0, gamma=5.0)
    assert wide.gamma == 5.0
    torch.testing.assert_close(wide.value(grid), same.value(grid))
    torch.testing.assert_close(wide.derivative(grid), same.derivative(grid))
    for A in ALL:
        tensor = A.with_sigma(torch.tensor(3.0))
        number = A.with_sigma(3.0)
        torch.testing.assert_close(tensor.value(grid.float()), number.value(grid.float()))
        assert float(tensor.slope_at_zero) == pytest.approx(number.slope_at_zero)
        assert float(tensor.convex_until) == pytest.approx(number.convex_until)


def test_frozen_and_comparable():
    A = att.scad(sigma=1)
    assert att.scad(sigma=1.0) == A
    with pytest.raises(dataclasses.FrozenInstanceError):
        A.sigma = 2.0


@pytest.mark.parametrize("sigma", [0, -1.0, math.inf, math.nan, "wide"])
@pytest.mark.parametrize("kind", att.KINDS)
def test_bad_sigma_is_refused_by_name(kind, sigma):
    with pytest.raises(ValueError, match="sigma must be a positive finite number, got"):
        att.by_name(kind, sigma)


def test_other_bad_input():
    with pytest.raises(ValueError, match="a must be above 1, got 1"):
        att.scad(sigma=1.0, a=1.0)
    with pytest.raises(ValueError, match="gamma must be a positive finite number"):
        att.mcp(sigma=1.0, gamma=0)
    with pytest.raises(ValueError, match="0-dim tensor"):
        att.mcp(sigma=torch.ones(2))
    with pytest.raises(ValueError, match="Did you mean 'pseudo_huber'"):
        att.by_name("pseudo-huber", sigma=1.0)
