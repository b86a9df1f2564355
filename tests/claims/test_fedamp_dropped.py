"""What the page on clients that stay away says."""

import statistics

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("fedamp_dropped")
BEST, TUNED = "FedAMP, median σ", "FedAvg-FT"
DATA = ("EMNIST", "MNIST", "FMNIST", "CIFAR100")


def lead(data, away):
    here = percent(FOUND, f"{data}, {away} %")
    return here[BEST] - here[TUNED]


def lost(method, data):
    """From nobody away to half of the clients away, in points."""
    return percent(FOUND, f"{data}, 0 %")[method] - percent(FOUND, f"{data}, 50 %")[method]


@pytest.mark.parametrize("away", [0, 10, 30, 50])
def test_on_cifar100_the_median_rule_is_eight_points_and_more_ahead_whoever_is_away(away):
    assert lead("CIFAR100", away) > 8


@pytest.mark.parametrize("data", ["EMNIST", "FMNIST"])
def test_on_emnist_and_fmnist_it_is_ahead_with_a_tenth_away_and_behind_with_30_percent(data):
    assert lead(data, 10) > 0.5
    assert lead(data, 30) < 0 and lead(data, 50) < 0


@pytest.mark.parametrize("away", [0, 10, 30, 50])
def test_on_mnist_it_is_behind_throughout(away):
    assert lead("MNIST", away) < 0


@pytest.mark.parametrize("case", FOUND.cases)
def test_the_printed_widths_are_nowhere_better_than_the_median_rule(case):
    here = percent(FOUND, case)
    assert max(here["FedAMP"], here["HeurFedAMP"]) < here[BEST] + 0.1


@pytest.mark.parametrize("data", ["EMNIST", "MNIST", "FMNIST"])
def test_being_away_costs_clients_on_their_own_two_to_six_points_as_well(data):
    assert 2 < lost("Separate", data) < 6.5
    assert lost("Separate", data) < lost(BEST, data)


def test_on_cifar100_being_away_costs_clients_on_their_own_nothing():
    assert abs(lost("Separate", "CIFAR100")) < 0.5


@pytest.mark.parametrize("data", DATA)
def test_fine_tuning_loses_less_than_a_point(data):
    assert lost(TUNED, data) < 1


def test_the_untrained_message_is_a_little_better_on_emnist_and_worse_on_the_others():
    better = {}
    for data in DATA:
        runs = FOUND.of(BEST, f"{data}, 50 %")
        better[data] = 100 * statistics.fmean(r["extra_models"]["u"][-1] - r["last"] for r in runs)
    assert 0.5 < better["EMNIST"] < 2
    assert max(better[data] for data in ("MNIST", "FMNIST", "CIFAR100")) < 0
