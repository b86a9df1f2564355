"""The public FedAMPs: each is the method that the page calls it, and nothing else."""

import pytest
import torch

from pfl_lib.book import public_fedamps

SAME = {("PFLlib", "Separate"), ("Flower's proposal", "FedAMP from w")}


def test_each_program_is_the_method_that_the_page_calls_it():
    for label, (_, gaps) in public_fedamps.compare().items():
        for whom, gap in gaps.items():
            assert (gap < 1e-12) == ((label, whom) in SAME), (label, whom, gap)


def test_flgo_is_heurfedamp_once_gradients_are_set_to_zero():
    weights = public_fedamps.PROGRAMS["FLGo"][1]
    repaired, _ = public_fedamps.follow(
        lambda w, u, slope: public_fedamps.flgo(w, u, slope, zeroed=True), weights
    )
    ours = public_fedamps.library("heurfedamp", sigma=25.0, self_weight=1 / 3, prox_beta=1e4)
    assert (repaired - ours).abs().max() < 1e-12


def test_a_step_of_fluke_leaves_from_the_message():
    w, u = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    g = torch.full_like(w, 0.5)
    trained, tested = public_fedamps.fluke(w, u, lambda v: g)
    assert torch.allclose(trained, u - public_fedamps.LR * g) and tested is u


@pytest.mark.parametrize("m", [2, 20])
def test_close_models_leave_less_than_nothing_for_oneself(m):
    assert public_fedamps.attention(torch.zeros(m, 3))[0, 0] == 2 - m
