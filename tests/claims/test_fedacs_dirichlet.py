"""What the page on FedACS and the Dirichlet parameter says."""

import pytest

from tests.support.claims import gains, laptop, percent

FOUND = laptop("fedacs_dirichlet")
ALPHAS = (0.1, 0.5, 1, 5, 10)
DATA = pytest.mark.parametrize("data", ["FMNIST", "CIFAR10"])


def cases(data, alphas=ALPHAS):
    return [f"{data}, α = {a:g}" for a in alphas]


@DATA
def test_trend_is_the_reverse_of_the_papers(data):
    ours = [percent(FOUND, case)["FedACS"] for case in cases(data)]
    theirs = [FOUND.paper("FedACS", case) for case in cases(data)]
    assert ours[0] > ours[-1] + 15
    assert theirs[0] < theirs[-1]


@DATA
def test_separate_and_guessing_fall_together_with_fedacs(data):
    for what in ("last", "guessing"):
        ends = [FOUND.mean("Separate", what, case) for case in cases(data)]
        assert ends[0] > ends[-1] + 0.15


@DATA
def test_fedacs_beats_staying_alone_with_every_seed_from_one_half_on(data):
    for case in cases(data, (0.5, 1, 5, 10)):
        assert min(gains(FOUND, "FedACS", "Separate", case)) > 0


@DATA
def test_fedacs_beats_a_single_model_with_every_seed_up_to_one_half(data):
    for case in cases(data, (0.1, 0.5)):
        assert min(FOUND.values("FedACS", "last", case)) > max(FOUND.values("FedAvg", "last", case))


@DATA
def test_at_a_tenth_fedacs_is_not_behind_staying_alone(data):
    here = percent(FOUND, f"{data}, α = 0.1")
    assert here["FedACS"] > here["Separate"]


@DATA
def test_beyond_one_fedavg_is_six_to_eight_points_ahead(data):
    for case in cases(data, (5, 10)):
        here = percent(FOUND, case)
        assert 5.5 < here["FedAvg"] - here["FedACS"] < 8


def test_at_one_fedacs_is_ahead_of_a_single_model_by_little():
    for case in ("FMNIST, α = 1", "CIFAR10, α = 1"):
        here = percent(FOUND, case)
        assert here["FedACS"] > here["FedAvg"]


@DATA
def test_the_label_prior_is_ahead_of_fedacs_in_every_column_and_with_every_seed(data):
    for case in cases(data):
        assert min(gains(FOUND, "Label prior", "FedACS", case)) > 0
        here = percent(FOUND, case)
        assert abs(here["FedAvg-FT"] - here["FedACS"]) < 2
    here = [percent(FOUND, case) for case in cases("CIFAR10")]
    assert all(6 < h["Label prior"] - h["FedACS"] < 10 for h in here)
