"""What the page on FedACS's quantile level says."""

import pytest

from tests.support.claims import first, laptop, percent

FOUND = laptop("fedacs_p")
LEVELS = (0.0, 0.25, 0.5, 0.625, 0.8, 0.9)
RIGHT = {"two groups": 0.5, "three unequal groups": 0.625, "five groups": 0.8}
CONFLICT = pytest.mark.parametrize("case", RIGHT)
NO_CONFLICT = "five groups, no conflict"


def levels(case):
    here = percent(FOUND, case)
    return {p: here[f"p = {p:g}"] for p in LEVELS}


@CONFLICT
def test_where_groups_contradict_each_other_the_formula_names_the_best_level(case):
    assert first(levels(case)) == RIGHT[case]


@pytest.mark.parametrize(("case", "p"), [*RIGHT.items(), (NO_CONFLICT, 0.8)])
def test_at_the_right_level_all_that_is_heard_comes_from_the_own_group(case, p):
    assert FOUND.mean(f"p = {p:g}", "inside", case) == 1


@CONFLICT
def test_fedacs_then_beats_staying_alone_and_a_single_model_by_more_than_two_points(case):
    here = percent(FOUND, case)
    assert here[f"p = {RIGHT[case]:g}"] > max(here["Separate"], here["FedAvg"]) + 2


def test_where_groups_do_not_contradict_each_other_hearing_everybody_is_a_little_better():
    here = levels(NO_CONFLICT)
    assert here[0.0] > here[0.8] > here[0.9]
