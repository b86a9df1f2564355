"""What the page on one client's way through its loss says."""

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("fedala_trajectory")
SEEDS = pytest.mark.parametrize("run", FOUND.record["more"]["losses"])


@SEEDS
def test_with_the_mixing_on_rounds_begin_at_less_than_half_of_fedavgs_training_loss(run):
    assert run["FedALA"]["begin"][-1] < 0.5 * run["FedAvg"]["begin"][-1]


@SEEDS
def test_with_the_mixing_on_rounds_end_lower(run):
    assert run["FedALA"]["end"][-1] < run["FedAvg"]["end"][-1]


def test_on_new_digits_fedala_is_six_points_better_than_fedavg_and_a_point_worse_than_separate():
    here = percent(FOUND)
    assert 5.5 < here["FedALA"] - here["FedAvg"] < 6.5
    assert 0.5 < here["Separate"] - here["FedALA"] < 1.5


def test_the_training_loss_of_separate_is_lowest_of_all():
    loss = {m: FOUND.mean(m, "training loss") for m in FOUND.methods}
    assert loss["Separate"] < loss["FedALA"] < loss["FedAvg"]
