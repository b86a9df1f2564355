"""What the page on natural clients says."""

import pytest

from pfl_lib.book.experiments.standings import by_seed, lead, paired
from tests.support.claims import laptop

FOUND = laptop("natural")
CASES, SIX = ("people", "writers", "watch"), "people, six passes"
EVERY = pytest.mark.parametrize("case", CASES)


def percent(method, case, what="last"):
    return 100 * FOUND.mean(method, what, case)


def ahead(case):
    """Those whose interval lies above Separate."""
    return {m for m in FOUND.methods_in(case) if lead(FOUND, m, case)[1] > 0}


@EVERY
def test_every_method_was_run_with_five_seeds_or_is_said_to_have_diverged(case):
    assert len(FOUND.methods_in(case)) == (45 if case == "writers" else 44)
    for method in FOUND.methods_in(case):
        assert len(FOUND.of(method, case)) + len(FOUND.diverged(method, case)) == 5


@EVERY
def test_every_method_had_four_trials(case):
    trials = FOUND.record["more"]["trials"][case]
    assert {len(tried) for tried in trials.values()} == {4}
    assert set(FOUND.methods_in(case)) == set(trials)


def test_separate_is_hard_to_beat():
    assert ahead("watch") == set()
    below = [m for m in FOUND.methods_in("watch") if lead(FOUND, m, "watch")[2] < 0]
    assert len(below) == 34
    assert ahead("writers") == {"APPLE"} and 1 < lead(FOUND, "APPLE", "writers")[0] < 2
    assert ahead("people") == {"FedAvg-C", "FedProx-C", "SPFL", "SPFL-w", "FedPAC"}
    assert all(2 < lead(FOUND, m, "people")[0] < 5 for m in ahead("people"))


@EVERY
def test_one_model_for_all_is_behind_and_the_label_prior_does_not_help(case):
    mean, _, high = lead(FOUND, "FedAvg", case)
    assert high < 0 and -9 < mean < -3
    assert lead(FOUND, "Label prior", case, "FedAvg")[1] < 0


@EVERY
def test_newcomers_turn_the_order_around(case):
    late = {m: percent(m, case, "newcomers") for m in FOUND.methods_in(case)}
    assert late["Separate"] == min(late.values()) and 32 < late["Separate"] < 57
    assert 81 < late["FedAvg"] < 86.5
    assert max(late["FedAvg-C"], late["FedProx-C"]) == max(late.values()) < 94.5
    for method in ("FedRep", "FedProto", "FedACS"):
        assert late[method] < late["FedAvg"] - 5


def test_the_largest_lead_is_gone_when_the_yardstick_works_as_much():
    apart, low, high = paired(
        by_seed(FOUND, "FedAvg-C", "people"), by_seed(FOUND, "FedAvg-FT", SIX)
    )
    assert low < 0 < high and max(-low, high) < 0.6 and abs(apart) < 0.5
    newcomers = percent("FedAvg-C", "people", "newcomers") - percent("FedAvg-FT", SIX, "newcomers")
    assert abs(newcomers) < 0.5
    assert percent("Separate", SIX) - percent("Separate", "people") < 2
    assert percent("FedAvg", SIX) - percent("FedAvg", "people") < 2
    assert lead(FOUND, "FedAvg-FT", SIX)[1] > 2
