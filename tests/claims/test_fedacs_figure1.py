"""What the page on FedACS's Figure 1 says."""

import pytest

from tests.support.claims import first, laptop, percent

FOUND = laptop("fedacs_figure1")
YARDSTICKS = ("FedAvg-FT", "Label prior")


def case(words):
    return next(c for c in FOUND.cases if words in c)


def test_with_two_classes_fedacs_is_a_point_behind_clients_on_their_own():
    here = percent(FOUND, case("two classes"))
    assert here["Separate"] - 2 < here["FedACS"] < here["Separate"]


@pytest.mark.parametrize("setting", ["Dirichlet 0.5", "50 samples"])
def test_with_dirichlet_and_with_50_samples_fedacs_is_first(setting):
    here = percent(FOUND, case(setting))
    assert first({m: here[m] for m in here if m not in YARDSTICKS}) == "FedACS"
    assert abs(here["FedAvg-FT"] - here["FedACS"]) < 0.6


@pytest.mark.parametrize("setting", ["Dirichlet 0.5", "50 samples", "clients"])
def test_the_label_prior_is_first_of_all_where_classes_are_dealt_by_dirichlet(setting):
    here = percent(FOUND, case(setting))
    assert first(here) == "Label prior"
    assert here["Label prior"] > sorted(here.values())[-2] + 2


def test_with_two_classes_the_label_prior_is_level_with_clients_on_their_own():
    here = percent(FOUND, case("two classes"))
    assert abs(here["Label prior"] - here["Separate"]) < 0.3


def test_with_500_clients_fine_tuning_is_eight_points_ahead_of_fedacs():
    here = percent(FOUND, case("clients"))
    assert 8 < here["FedAvg-FT"] - here["FedACS"] < 9


def test_with_500_clients_fedacs_and_fedamp_end_where_separate_ends():
    here = percent(FOUND, case("clients"))
    assert abs(here["FedACS"] - here["Separate"]) < 0.5
    assert abs(here["FedAMP"] - here["Separate"]) < 1


def test_with_500_clients_fedacs_is_nine_points_behind_apfl_and_five_behind_fedavg():
    here = percent(FOUND, case("clients"))
    assert 8 < here["APFL"] - here["FedACS"] < 10
    assert 4 < here["FedAvg"] - here["FedACS"] < 6
