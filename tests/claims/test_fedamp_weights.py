"""What the page on hidden groups in FedAMP's weights says."""

import pytest

from pfl_lib.book import kinship
from tests.support.claims import laptop

FOUND = laptop("fedamp_weights")
LAST = FOUND.cases[-1]
CHANCE = FOUND.record["more"]["chance"]
INSIDE, RECOVERY, ACCURACY = (
    {m: FOUND.mean(m, what, LAST) for m in FOUND.methods if "σ" in m}
    for what in ("inside", "recovery", "last")
)
PRINTED = ("FedAMP, σ = 10", "HeurFedAMP, σ = 50")


@pytest.mark.parametrize("width", PRINTED)
def test_with_the_printed_widths_groups_are_seen_but_weights_are_nearly_equal(width):
    assert RECOVERY[width] > 0.99 and INSIDE[width] < CHANCE + 0.15


@pytest.mark.parametrize("width", PRINTED)
def test_with_the_printed_widths_groups_are_seen_in_every_seed_from_the_second_round_on(width):
    assert all(v == 1 for case in FOUND.cases for v in FOUND.values(width, "recovery", case))


def test_the_printed_widths_have_the_two_lowest_accuracies():
    assert set(sorted(ACCURACY, key=ACCURACY.get)[:2]) == set(PRINTED)


@pytest.mark.parametrize("width", ["FedAMP, σ = 0.1", "HeurFedAMP, σ = 5000"])
def test_too_narrow_a_width_hears_only_a_part_of_the_own_group_and_costs_accuracy(width):
    assert INSIDE[width] > 0.99 and RECOVERY[width] < 0.9
    assert ACCURACY[width] < ACCURACY["FedAMP, σ = median"] - 0.01


@pytest.mark.parametrize("width", ["FedAMP, σ = median", "HeurFedAMP, σ = 500"])
def test_a_width_that_follows_the_models_avoids_both(width):
    assert RECOVERY[width] > 0.99 and INSIDE[width] > 0.95
    assert ACCURACY[width] > ACCURACY["FedAMP, σ = 10"] + 0.05


def test_among_strangers_size_decides_and_not_kinship():
    """The page's section on size: kin are found, small clients are everybody's neighbors."""
    once = kinship.measured(1)
    assert all(kin > 0.99 for kin, _ in once.values())
    smallest, largest = once["models"][1][-1], sum(once["models"][1][:3])
    assert 0.7 < smallest < 0.9 and largest == 0
    assert sum(once["updates per step"][1][:2]) > 0.95
    later = kinship.measured(6)
    assert later["models"][1][-1] > 0.7
    for kind in ("models", "updates per step"):
        assert 0.5 < later[kind][0] < 0.9
    for kind in ("last layer only", "directions of updates"):
        assert later[kind][0] > 0.95
