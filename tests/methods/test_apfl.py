"""APFL: the mix, the step of all three, and when the mixture moves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import algorithm
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
    small_federation,
)
from tests.support.quadratics import (
    ETA,
    LOCAL,
    V,
    X,
    gradient,
    loss,
)
from tests.support.strategies import quick, vectors


def test_eq_apfl():
    alpha = torch.tensor(0.25, dtype=torch.float64)
    mixed = f.apfl_mix(alpha, V, X)
    assert_known(mixed, "baselines", "APFL client 0, alpha=.25, v=(0,1), w=x: mixed model")
    alpha, v, w = f.apfl_step(alpha, V, X, gradient(0)(mixed), gradient(0)(X), lr=ETA)
    assert_known(v, "baselines", "APFL: new v (chain rule, v - eta*alpha*grad F(mixed))")
    assert_known(w, "baselines", "APFL: new w")
    assert_known(alpha, "baselines", "APFL: new alpha = alpha - eta <v-w, grad F(mixed)>")


def test_eq_apfl_step_is_the_gradient_of_the_mixed_loss():
    alpha = torch.tensor(0.4, dtype=torch.float64)

    def mixed_loss(alpha, v):
        return loss(0, f.apfl_mix(alpha, v, X))

    slopes = torch.func.grad(mixed_loss, argnums=(0, 1))(alpha, V)
    grad = gradient(0)(f.apfl_mix(alpha, V, X))
    new_alpha, new_v, _ = f.apfl_step(alpha, V, X, grad, grad, lr=0.01)
    torch.testing.assert_close((alpha - new_alpha) / 0.01, slopes[0])
    torch.testing.assert_close((V - new_v) / 0.01, slopes[1])


@quick
@given(vectors(3), st.floats(0, 1))
def test_apfl_alpha_stays_in_the_unit_interval(drawn, alpha):
    v, w, grad = drawn
    new, _, _ = f.apfl_step(torch.tensor(alpha, dtype=torch.float64), v, w, grad, grad, lr=1.0)
    assert 0 <= float(new) <= 1
    torch.testing.assert_close(f.apfl_mix(1.0, v, w), v)
    torch.testing.assert_close(f.apfl_mix(0.0, v, w), w)


def test_apfl_rows_with_their_own_alpha():
    alpha = torch.tensor([0.25, 0.75], dtype=torch.float64)
    rows = f.apfl_step(alpha, LOCAL, LOCAL + 1, LOCAL, LOCAL, lr=0.1)
    for i in range(2):
        one = f.apfl_step(alpha[i], LOCAL[i], LOCAL[i] + 1, LOCAL[i], LOCAL[i], lr=0.1)
        for a, b in zip(rows, one):
            torch.testing.assert_close(a[i], b)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.apfl_mix(-0.1, X, X), r"alpha must lie in \[0, 1\]"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_apfl(quadratics):
    fed, method = quadratics(), algorithm("apfl", alpha=0.25)
    state = method.start(fed)
    state = state.put(FIRST, v=torch.tensor([[0.0, 1.0]], dtype=fed.dtype))
    mixed = "APFL client 0, alpha=.25, v=(0,1), w=x: mixed model"
    assert_known(method.personal(state, fed)[0], "baselines", mixed)
    new = method.round(state, fed, FIRST)
    assert_known(new.v[0], "baselines", "APFL: new v (chain rule, v - eta*alpha*grad F(mixed))")
    assert_known(new.x, "baselines", "APFL: new w")
    assert_known(new.alpha[0], "baselines", "APFL: new alpha = alpha - eta <v-w, grad F(mixed)>")
    close(method.personal(new, fed)[0], new.alpha[0] * new.v[0] + (1 - new.alpha[0]) * new.x)


def test_apfl_with_a_fixed_mixture(data, unequal):
    fed = small_federation(data, unequal)
    for alpha, other in ((0.0, "fedavg"), (1.0, "separate")):
        method, limit = algorithm("apfl", alpha=alpha, adapt="never"), algorithm(other)
        state = go(method, fed, 3)
        close(method.personal(state, fed), limit.personal(go(limit, fed, 3), fed), 1e-12)
        assert (state.alpha == alpha).all()


def test_apfls_mixture_moves_when_it_is_told_to(data, unequal):
    """Once a round: not in the first, where v and w are the same, but in the second."""
    fed = small_federation(data, unequal)
    assert (go(algorithm("apfl"), fed, 1).alpha == 0.5).all()
    moved = go(algorithm("apfl"), fed, 2).alpha - 0.5
    assert moved.abs().min() > 1e-6 and moved.abs().max() < 0.5
    assert (go(algorithm("apfl", adapt="step"), fed, 1).alpha != 0.5).sum() == 4  # one has a batch


BAD = [
    ("apfl", {"alpha": 1.5}, r"alpha must lie in \[0, 1\], got 1.5"),
    ("apfl", {"adapt": "epoch"}, "adapt must be one of 'never', 'round', 'step'; got 'epoch'"),
    ("apfl", {"lr": -1.0}, "lr must be a positive"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
