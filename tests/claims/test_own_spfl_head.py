"""What the page on SPFL taken apart says."""

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("own_spfl_head")
CASES = pytest.mark.parametrize("case", ["MNIST", "FMNIST"])


def change(method, case):
    """Against SPFL as it is, in points."""
    here = percent(FOUND, case)
    return here[method] - here["SPFL"]


@CASES
def test_the_printed_step_learns_nothing(case):
    assert change("printed step", case) < -70


def test_flatter_loses_a_point_and_a_half_on_mnist_and_four_on_fmnist():
    assert -2 < change("temperature 100", "MNIST") < -1.5
    assert -4.5 < change("temperature 100", "FMNIST") < -3.5


@CASES
@pytest.mark.parametrize("temperature", ["0.05", "0.3"])
def test_sharper_is_worse_by_two_to_three_points(case, temperature):
    assert -3.5 < change(f"temperature {temperature}", case) < -1.5


@CASES
def test_weights_in_stages_do_nothing_that_can_be_seen(case):
    assert abs(change("one stage", case)) < 0.2


def test_two_steps_on_a_batch_do_little():
    assert abs(change("SPFL, 1 step", "MNIST")) < 0.2
    assert -1.5 < change("SPFL, 1 step", "FMNIST") < 0


def test_on_mnist_a_doubled_rate_gives_more_than_the_second_step():
    twice = percent(FOUND, "MNIST, twice the rate")["SPFL, 1 step"]
    assert twice > percent(FOUND, "MNIST")["SPFL"]


@CASES
def test_the_head_at_home_costs_about_a_point(case):
    assert -1.5 < change("local head", case) < -0.5


def test_the_head_at_home_helps_spfl_w_on_fmnist():
    assert change("SPFL-w, local head", "FMNIST") > change("SPFL-w", "FMNIST")


@CASES
def test_spfl_w_and_fedrep_are_behind(case):
    assert change("SPFL-w", case) < -0.9
    assert change("FedRep", case) < min(-1, change("local head", case))
