"""What the page on SPFL's knobs says."""

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("spfl_knobs")
ORDER = ("k fewer", "default", "k more")


def at(knob):
    return percent(FOUND, f"MNIST, non-IID, {knob}")


def over(other, knob, method="SPFL"):
    return at(knob)[method] - at(knob)[other]


@pytest.mark.parametrize("period", [5, 20])
def test_the_period_changes_spfl_by_a_few_tenths_of_a_point(period):
    assert abs(over("SPFL", "default", f"SPFL, Γ = {period}")) < 0.2


@pytest.mark.parametrize("epochs", [2, 5])
def test_local_epochs_change_spfl_by_a_few_tenths_of_a_point(epochs):
    assert abs(at(f"E = {epochs}")["SPFL"] - at("default")["SPFL"]) < 0.3


def test_with_six_clients_spfl_loses_one_to_two_points_and_fedavg_more():
    lost = {m: at("default")[m] - at("N = 6")[m] for m in ("SPFL", "FedAvg")}
    assert 1 < lost["SPFL"] < 2 and lost["SPFL"] < lost["FedAvg"] < 2.5


def test_with_fewer_classes_spfl_rises_and_so_do_clients_on_their_own():
    for method in ("SPFL", "Separate"):
        assert at("k fewer")[method] > at("default")[method]


def test_over_the_better_of_the_two_it_leads_by_two_points_with_four_and_six_classes_only():
    lead = {knob: min(over(m, knob) for m in ("Separate", "FedAvg")) for knob in ORDER}
    assert 1.5 < lead["k fewer"] < 2.5 and 1.5 < lead["default"] < 2.5 and lead["k more"] < 0.5


def test_with_more_classes_spfl_is_further_ahead_of_separate_and_less_of_fedavg():
    alone, common = ([over(m, knob) for knob in ORDER] for m in ("Separate", "FedAvg"))
    assert alone == sorted(alone) and common == sorted(common, reverse=True)


def test_with_four_of_ten_classes_it_is_six_points_ahead_of_fedavg_and_two_of_separate():
    assert 5.5 < over("FedAvg", "k fewer") < 6.5
    assert 1.5 < over("Separate", "k fewer") < 2.5


def test_with_eight_of_ten_it_is_ten_points_ahead_of_separate_and_level_with_fedavg():
    assert 9.5 < over("Separate", "k more") < 10.5
    assert abs(over("FedAvg", "k more")) < 0.5
