"""HeurFedAMP: weights by angles, and their limits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import algorithm
from pfl_lib import formulas as f
from pfl_lib.book.theory import QuadraticFederation, iterate
from tests.support.known_answers import assert_known, known
from tests.support.methods import (
    refused,
)
from tests.support.strategies import models, quick

W1 = known("FedAMP weights", "W rows")
shares = st.floats(0, 1)


@pytest.mark.parametrize(("sigma", "self_weight"), [(5, 0.2), (25, 0.05)])
def test_eq_heur_weights(sigma, self_weight):
    xi = f.heurfedamp_weights(W1, sigma, self_weight)
    assert_known(xi, "HeurFedAMP weights", f"sigma={sigma} xi_ii={self_weight}: xi")
    assert_known(f.mix(xi, W1), "HeurFedAMP weights", f"sigma={sigma} xi_ii={self_weight}: u")


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


def test_zero_model_gets_a_plain_mean_from_heur():
    W = torch.cat([torch.zeros(1, 2, dtype=torch.float64), W1])
    xi = f.heurfedamp_weights(W, 5.0, 0.4)
    torch.testing.assert_close(xi[0], torch.tensor([0.4, 0.2, 0.2, 0.2], dtype=torch.float64))


def test_a_round_mixes_by_its_formula():
    """The proximal step is exact here, the messages are what is compared."""
    fed = QuadraticFederation(
        known("FedAMP rounds", "H diagonals"), known("FedAMP rounds", "centres c"), start=W1
    )
    state = iterate(algorithm("heurfedamp", sigma=5.0, self_weight=0.2), fed, 1)[-1]
    torch.testing.assert_close(state.xi, f.heurfedamp_weights(W1, 5.0, 0.2))
    torch.testing.assert_close(state.u, known("HeurFedAMP weights", "sigma=5 xi_ii=0.2: u"))


BAD = [
    ("heurfedamp", {"sigma": -1.0}, "sigma must be a non-negative finite number, got -1.0"),
    ("heurfedamp", {"self_weight": -0.1}, r"self_weight must lie in \[0, 1\], got -0.1"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
