"""What the page on FedALA's share of data and number of layers says."""

import pytest

from pfl_lib import models
from pfl_lib.book import papers
from tests.support.claims import gains, laptop, percent

FOUND = laptop("fedala_s_p")
BEST = percent(FOUND, what="best")
SHARES = [BEST[f"s = {s} (p = 1)"] for s in (5, 10, 20, 40, 60, 80, 100)]
LAYERS = ["s = 80 (p = 1)", *(m for m in FOUND.methods if m.startswith("p ="))]
MEANS = [FOUND.mean(m, "mean weight") for m in LAYERS]


def top_layers(model):
    """How many weights the top 1, 2, … layers hold."""
    size = dict(model.named_parameters())
    each = [sum(size[n].numel() for n in names) for _, names in models.layers(model)]
    return {p: sum(each[-p:]) for p in range(1, len(each) + 1)}


def test_the_printed_counts_of_resnet_are_those_of_ten_classes():
    printed = papers.table("fedala", 1).row("weights (millions)")
    for p, count in top_layers(models.resnet18(3, 10, stem="imagenet")).items():
        assert count / 1e6 == pytest.approx(printed[f"p = {p} (s = 80)"], abs=6e-4)


def test_the_printed_counts_of_the_cnn_are_those_of_a_small_gray_image_and_ten_classes():
    counts = top_layers(models.fedala_cnn(1, 28, 10))
    for p, printed in zip((4, 3, 2, 1), papers.table("fedala", 6).mean[1]):
        assert counts[p] == printed


def test_with_the_true_sizes_one_layer_means_twenty_times_as_many_weights():
    ten, many = (top_layers(models.resnet18(3, c, stem="imagenet")) for c in (10, 200))
    assert many[1] == pytest.approx(20 * ten[1], rel=0.01)
    assert many[1] < 0.01 * max(many.values())


def test_more_data_for_the_weights_helps_by_about_seven_points():
    assert sorted(SHARES) == SHARES and 6.5 < SHARES[-1] - SHARES[0] < 7.5


def test_more_data_helps_by_more_than_four_points_with_each_seed():
    assert min(gains(FOUND, "s = 100 (p = 1)", "s = 5 (p = 1)", what="best")) > 4


def test_the_number_of_layers_does_not_matter_to_a_quarter_of_a_point():
    assert max(BEST[m] for m in LAYERS) - min(BEST[m] for m in LAYERS) < 0.3


def test_these_runs_are_far_below_separate_and_still_climbing():
    assert max(SHARES) < BEST["Separate"] - 5
    for label in ("s = 5 (p = 1)", *LAYERS):
        for run in FOUND.of(label, FOUND.cases[0]):
            assert run["mean by round"][-1] > run["mean by round"][-6]


def test_ala_is_as_its_authors_ran_it():
    for experiment in ("fedala_s_p", "fedala_convergence"):
        runs = [r["settings"] for r in laptop(experiment).record["runs"]]
        ala = [s for s in runs if s["algorithm"] == "fedala"]
        assert ala and {s["fedala.tol"] for s in ala} == {0.01}
        assert {s["fedala.remix_before_test"] for s in ala} == {True}


def test_all_weights_are_above_0_99_on_average_and_rise_with_the_layers():
    assert min(MEANS) > 0.99 and MEANS[-1] > MEANS[0]
