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


def test_with_batch_normalization_statistics_at_home_pay_on_the_people():
    case, kept = "people, batch norm", ("FedBN", "FedAvg, local statistics")
    for method in kept:
        mean, low, _ = lead(FOUND, method, case, "FedAvg")
        assert 4.5 < mean < 5.5 and low > 2
        assert lead(FOUND, method, case)[1] > 0 and 3.5 < lead(FOUND, method, case)[0] < 4.5
    assert abs(lead(FOUND, *kept[:1], case, kept[1])[0]) < 0.5


def test_with_batch_normalization_among_the_writers():
    case, statistics = "writers, batch norm", "FedAvg, local statistics"
    mean, low, _ = lead(FOUND, statistics, case, "FedAvg")
    assert 2.5 < mean < 3.5 and low > 0
    assert lead(FOUND, statistics, case)[1] < 0 < lead(FOUND, statistics, case)[2]
    ends = sorted(100 * v for v in FOUND.values("FedBN", "last", case))
    assert 46 <= ends[0] < 47 and ends[1] > 87 and ends[-1] < 90.5
    broke = next(run for run in FOUND.of("FedBN", case) if run["last"] < 0.5)
    assert 0.895 < broke["mean by round"][-2] < 0.905 and broke["rounds"][-2:] == [25, 30]


@pytest.mark.parametrize("case", ["people, batch norm", "writers, batch norm"])
def test_with_batch_normalization_newcomers_gain_little_or_nothing(case):
    late = {m: percent(m, case, "newcomers") for m in FOUND.methods_in(case)}
    assert max(late["FedBN"], late["FedAvg, local statistics"]) < late["FedAvg"] + 2
    assert late["FedAvg"] > late["Separate"] + 30
    assert {len(FOUND.of(m, case)) for m in late} == {5}
