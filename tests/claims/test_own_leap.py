"""What the page on LGA's leap says."""

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("own_leap")
CASES = pytest.mark.parametrize("case", FOUND.cases)
SMALL, LARGE = FOUND.cases


@CASES
@pytest.mark.parametrize("base", ["Eq. 10", "Eq. 11"])
def test_there_is_nothing_to_choose_between_the_leaps(case, base):
    three = [v for m, v in percent(FOUND, case).items() if m.startswith(base)]
    assert max(three) - min(three) < 0.25


def leaps(case):
    return [FOUND.mean(m, "leap", case) for m in FOUND.methods if "printed" in m or "repaired" in m]


def test_a_leap_is_a_hundred_thousandth_of_the_clients_move_or_a_ten_thousandth():
    assert max(leaps(SMALL)) < 3e-5
    assert max(leaps(LARGE)) < 2e-4


def test_the_present_base_gains_about_a_point_at_the_small_rate():
    here = percent(FOUND, SMALL)
    assert 0.5 < here["Eq. 11, no leap"] - here["Eq. 10, no leap"] < 1.5


def test_at_the_large_rate_the_difference_is_within_the_spread():
    here = percent(FOUND, LARGE)
    spread = 100 * FOUND.spread("Eq. 11, no leap", "last", LARGE)
    assert 0 < here["Eq. 11, no leap"] - here["Eq. 10, no leap"] < spread


@CASES
def test_eq_10_without_a_leap_is_fedavg_async(case):
    here = percent(FOUND, case)
    assert here["Eq. 10, no leap"] == here["FedAvg (Async)"]
