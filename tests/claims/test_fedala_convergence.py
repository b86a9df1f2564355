"""What the page on FedALA's convergence says."""

import statistics

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("fedala_convergence")


def losses(label, when):
    """Training loss over the rounds, mean over the seeds."""
    runs = FOUND.record["more"][label]
    return [statistics.fmean(values) for values in zip(*(run[when] for run in runs))]


def gap(label):
    return [b - e for b, e in zip(losses(label, "begin"), losses(label, "end"))]


@pytest.mark.parametrize("label", ["FedAvg", "FedALA"])
def test_the_gap_closes(label):
    assert gap(label)[-1] < 0.3 * gap(label)[1]


@pytest.mark.parametrize("label", ["FedAvg", "FedALA"])
def test_rounds_end_at_a_low_training_loss(label):
    assert losses(label, "end")[-1] < 0.1


def test_for_fedala_the_gap_closes_faster():
    assert gap("FedALA")[-1] < 0.5 * gap("FedAvg")[-1]


def test_on_new_digits_fedala_ends_above_fedavg_and_below_separate():
    here = percent(FOUND)
    assert here["FedAvg"] < here["FedALA"] < here["Separate"]


def test_fedala_ends_a_little_below_its_own_best_round():
    assert FOUND.mean("FedALA", "last") < FOUND.mean("FedALA", "best")
