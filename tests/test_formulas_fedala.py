"""FedALA: the mix, the step of its weights, the box, the fixed point."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from known_answers import assert_known, known
from strategies import quick, vectors

from pfl_lib import formulas as f

LOCAL, GLOBAL = known("K7", "Theta_i (local)"), known("K7", "Theta (global)")
C = known("K7", "loss 0.5||Theta^-c||^2, c")
ONE = torch.ones(3, dtype=torch.float64)


def step(weights, lr, learnable=None):
    grad = f.ala_mix(weights, LOCAL, GLOBAL, learnable) - C
    return f.ala_step(weights, LOCAL, GLOBAL, grad, lr, learnable)


@pytest.mark.parametrize(("lr", "eta"), [(0.1, "0.1"), (1.0, "1")])
def test_eq_ala_step_and_mix(lr, eta):
    history = [ONE]
    for _ in range(3):
        history.append(step(history[-1], lr))
    assert_known(torch.stack(history[1:]), "K7", f"eta={eta}: W after steps 1,2,3 (clipped)")
    assert_known(f.ala_mix(history[-1], LOCAL, GLOBAL), "K7", f"eta={eta}: Theta^ after step 3")


def test_eq_ala_mix_only_on_the_top_layers():
    learnable = torch.tensor([False, True, True])
    weights = step(ONE, 0.1, learnable)
    assert weights[0] == 1
    assert_known(
        weights[1:], "K7", "range: only coordinates 1,2 learnable, eta=.1: W^p after 1 step"
    )
    assert_known(
        f.ala_mix(weights, LOCAL, GLOBAL, learnable),
        "K7",
        "range: Theta^ after 1 step (coordinate 0 overwritten by global)",
    )


def test_eq_ala_step_limit_on_a_quadratic():
    weights = ONE
    for _ in range(2000):
        weights = step(weights, 0.1)
    assert_known(weights, "K7", "limit weights clip((c-Theta_i)/(Theta-Theta_i),0,1)")


def test_eq_ala_step_without_a_difference():
    assert_known((GLOBAL - GLOBAL) * C, "K7", "first round Theta==Theta_i: gradient of W")
    half = ONE / 2
    assert torch.equal(f.ala_step(half, GLOBAL, GLOBAL, C, 1.0), half)


def test_eq_ala_step_follows_the_gradient_of_the_weights():
    """∂L/∂W = (Θ − Θ_i)⊙∂L/∂Θ̂, with no η in it."""
    weights = torch.tensor([0.3, 0.5, 0.6], dtype=torch.float64)

    def loss(weights):
        return 0.5 * ((f.ala_mix(weights, LOCAL, GLOBAL) - C) ** 2).sum()

    moved = f.ala_step(weights, LOCAL, GLOBAL, f.ala_mix(weights, LOCAL, GLOBAL) - C, 0.01)
    torch.testing.assert_close((weights - moved) / 0.01, torch.func.grad(loss)(weights))


@quick
@given(vectors(4), st.floats(1e-3, 1e3))
def test_ala_weights_stay_in_the_box_and_the_mix_between_the_models(drawn, lr):
    local, global_, grad, start = drawn
    weights = f.ala_step(start.clamp(0, 1), local, global_, grad, lr)
    assert weights.min() >= 0 and weights.max() <= 1
    mixed = f.ala_mix(weights, local, global_)
    low, high = torch.minimum(local, global_), torch.maximum(local, global_)
    assert bool((mixed >= low - 1e-12).all()) and bool((mixed <= high + 1e-12).all())


@quick
@given(vectors(2))
def test_ala_weights_one_are_fedavg_and_zero_separate_exactly(drawn):
    local, global_ = drawn
    assert torch.equal(f.ala_mix(torch.ones_like(local), local, global_), global_)
    assert torch.equal(f.ala_mix(torch.zeros_like(local), local, global_), local)


@quick
@given(vectors(3))
def test_ala_without_learnable_layers_is_fedavg(drawn):
    local, global_, weights = drawn
    none = torch.zeros_like(local, dtype=torch.bool)
    assert torch.equal(f.ala_mix(weights, local, global_, none), global_)
    assert torch.equal(f.ala_step(weights, local, global_, local, 1.0, none), weights)


def test_ala_oscillates_beyond_the_stable_step():
    """η(Θ − Θ_i)² > 2 in the last coordinate (2.25): η = 1 swings between the walls."""
    weights, seen = ONE, []
    for _ in range(6):
        weights = step(weights, 1.0)
        seen.append(float(weights[2]))
    assert seen == pytest.approx([0.0, 0.9, 0.0, 0.9, 0.0, 0.9])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="weights must have the shape of theta_local"):
        f.ala_mix(ONE[:2], LOCAL, GLOBAL)
    with pytest.raises(ValueError, match="grad must have the shape of weights"):
        f.ala_step(ONE, LOCAL, GLOBAL, C[:1], 1.0)
    with pytest.raises(ValueError, match="lr must be a positive finite number, got -1"):
        f.ala_step(ONE, LOCAL, GLOBAL, C, -1)
