"""What the page on FedAMP's open choices says."""

import pytest

from tests.support.claims import gains, laptop, percent

FOUND = laptop("own_fedamp")
CASES = pytest.mark.parametrize("case", FOUND.cases)


@CASES
def test_from_w_with_the_printed_beta_clients_are_on_their_own(case):
    here = percent(FOUND, case)
    assert abs(here["start at w, β = 10⁴"] - here["Separate"]) < 0.5
    assert here["FedAMP"] > here["start at w, β = 10⁴"] + 0.5


@CASES
def test_from_w_with_a_beta_of_ten_it_collaborates_about_as_well_as_from_u(case):
    here = percent(FOUND, case)
    assert abs(here["start at w, β = 10"] - here["FedAMP"]) < 0.7


@CASES
def test_the_self_weight_hardly_matters(case):
    sweep = [v for m, v in percent(FOUND, case).items() if m.startswith("self-weight")]
    assert max(sweep) - min(sweep) < 0.6


def test_attention_is_worth_a_little_with_the_same_names_and_several_points_with_others():
    worth = {}
    for case in FOUND.cases:
        here = percent(FOUND, case)
        worth[case] = here["FedAMP"] - here["equal weights"]
    assert 0 < worth["same names"] < 3 < worth["conflicting names"]


@CASES
def test_the_true_gradient_costs_accuracy_here(case):
    here = percent(FOUND, case)
    assert here["α form, true gradient"] < here["α form, printed gradient"] - 0.5


@CASES
def test_a_safe_alpha_with_the_median_rule_holds_clients_where_they_are(case):
    here = percent(FOUND, case)
    assert -1 < here["α form, safe α, λ = 0.01"] - here["Separate"] < 0
    assert here["α form, safe α, λ = 1"] < 30


def test_the_half_kernel_changes_nothing_that_can_be_seen_where_names_agree():
    here = percent(FOUND, "same names")
    assert abs(here["half kernel"] - here["FedAMP"]) < 0.5


FIXED = ("α form, printed gradient", "α form, σ = 3")  # σ = 10 and σ = 3


@pytest.mark.parametrize("form", FIXED)
def test_with_a_fixed_sigma_the_theorems_form_learns(form):
    assert min(gains(FOUND, form, "FedAvg-FT", "same names")) > 0
    here = percent(FOUND, "same names")
    assert 0.3 < here[form] - here["FedAvg-FT"] < 0.8
    assert abs(here[form] - here["FedAMP"]) < 0.4


def test_where_names_conflict_the_narrower_width_is_better_and_neither_reaches_separate():
    here = percent(FOUND, "conflicting names")
    assert here["α form, printed gradient"] + 2 < here["α form, σ = 3"] < here["Separate"]


@CASES
@pytest.mark.parametrize("form", ["printed", "true"])
def test_only_the_rows_with_a_fixed_sigma_have_the_form_of_the_theorems(case, form):
    for row in FOUND.of(f"α form, {form} gradient", case):
        assert row["settings"]["fedamp.sigma"] == 10 and row["last"] > 0.7
    for lam in ("0.01", "1"):
        for row in FOUND.of(f"α form, safe α, λ = {lam}", case):
            assert row["settings"]["fedamp.sigma"] == "median"
