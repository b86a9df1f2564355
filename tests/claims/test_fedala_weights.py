"""What the page on learning FedALA's weights says."""

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("fedala_weights")
SEEN = FOUND.record["more"]
CURVES = pytest.mark.parametrize(
    "curve",
    [pytest.param(c, id=f"{d} {k}") for d, s in SEEN.items() for k, c in s["loss"].items()],
)


@CURVES
def test_one_pass_takes_0_2_to_2_percent_off_the_loss(curve):
    assert 0.001 < 1 - curve[1] / curve[0] < 0.0205


@CURVES
def test_twelve_passes_take_three_to_twelve_percent(curve):
    assert 0.025 < 1 - curve[-1] / curve[0] < 0.125


@CURVES
def test_one_pass_never_does_the_work(curve):
    assert 3 * (curve[0] - curve[1]) < curve[0] - curve[-1]


@pytest.mark.parametrize("data", SEEN)
def test_after_round_2_each_round_moves_the_weights_by_less_than_a_tenth_as_much(data):
    moved = SEEN[data]["moved"]
    assert moved[1] > 10 * max(moved[2:])


@pytest.mark.parametrize("what", ["best", "last"])
def test_weights_kept_for_ever_cost_a_point_on_mnist_and_six_on_cifar10(what):
    cost = {}
    for case in FOUND.cases:
        here = percent(FOUND, case, what)
        cost[case] = here["FedALA"] - here["FedALA, weights kept"]
    assert 1 < cost["mnist"] < 2 and 5 < cost["cifar10"] < 7
