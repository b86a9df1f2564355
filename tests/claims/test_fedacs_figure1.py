"""What the page on FedACS's Figure 1 says."""

import pytest

from tests.support.claims import first, laptop, percent

FOUND = laptop("fedacs_figure1")


def case(words):
    return next(c for c in FOUND.cases if words in c)


def test_with_two_classes_fedacs_is_a_point_behind_clients_on_their_own():
    here = percent(FOUND, case("two classes"))
    assert here["Separate"] - 2 < here["FedACS"] < here["Separate"]


@pytest.mark.parametrize("setting", ["Dirichlet 0.5", "50 samples"])
def test_with_dirichlet_and_with_50_samples_fedacs_is_first(setting):
    assert first(percent(FOUND, case(setting))) == "FedACS"


def test_with_500_clients_fedacs_and_fedamp_end_where_separate_ends():
    here = percent(FOUND, case("clients"))
    assert abs(here["FedACS"] - here["Separate"]) < 0.5
    assert abs(here["FedAMP"] - here["Separate"]) < 1


def test_with_500_clients_fedacs_is_nine_points_behind_apfl_and_five_behind_fedavg():
    here = percent(FOUND, case("clients"))
    assert 8 < here["APFL"] - here["FedACS"] < 10
    assert 4 < here["FedAvg"] - here["FedACS"] < 6
