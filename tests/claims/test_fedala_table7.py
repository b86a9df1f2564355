"""What the page on FedALA's Table 7 says."""

from pfl_lib.book.experiments.pages import older
from tests.support.claims import first, gains, laptop, percent

FOUND = laptop("fedala_table7")
ALL, HALF = FOUND.cases
FULL, AWAY = (
    {m: v for m, v in percent(FOUND, c, "best").items() if m == "Separate" or FOUND.paper(m, c)}
    for c in FOUND.cases
)


def test_on_mnist_all_but_four_of_the_methods_are_between_93_and_96_percent():
    assert sum(not 93 < value < 96 for value in FULL.values()) == 4


def test_on_mnist_ditto_is_first_and_fedala_in_the_middle():
    order = sorted(FULL, key=FULL.get, reverse=True)
    assert order[0] == "Ditto" and 6 <= order.index("FedALA") + 1 <= 9


def test_on_mnist_fedala_is_eight_points_above_fedavg():
    assert 8 < FULL["FedALA"] - FULL["FedAvg"] < 9


def test_on_mnist_fedala_is_above_clients_that_never_talk_with_every_seed():
    assert min(gains(FOUND, "FedALA", "Separate", ALL, "best")) > 0.5


def test_with_half_away_fedala_is_a_point_above_fedavg_and_far_below_separate():
    assert AWAY["FedAvg"] < 4 and 0 < AWAY["FedALA"] - AWAY["FedAvg"] < 2
    assert AWAY["Separate"] - AWAY["FedALA"] > 15


def test_with_half_away_fedala_is_still_rising():
    assert {run["best round"] for run in FOUND.of("FedALA", HALF)} == {24}


def test_with_half_away_fine_tuning_is_first():
    assert first(AWAY) in ("FedAvg-C", "FedProx-C")


def test_fedavg_c_is_more_than_a_point_over_separate_with_every_seed():
    assert min(gains(FOUND, "FedAvg-C", "Separate", HALF, "best")) > 1


def test_those_who_took_part_look_better_than_all_by_up_to_two_points():
    more = [100 * FOUND.mean(m, "joined", HALF) - AWAY[m] for m in AWAY]
    assert min(more) > 0 and 1.5 < max(more) < 3


def test_the_label_prior_is_first_on_mnist_and_near_separate_with_half_away():
    best = percent(FOUND, ALL, "best")
    assert first(best) == "Label prior" and first(FULL) == "Ditto"
    assert min(gains(FOUND, "Label prior", "Ditto", ALL, "best")) > 0
    away = percent(FOUND, HALF, "best")
    assert abs(away["Label prior"] - away["Separate"]) < 1 and away["FedAvg"] < 3


def test_the_step_decides():
    ten = "FedALA, η = 10"
    gained = gains(FOUND, ten, "FedALA", ALL, "best")
    assert min(gained) > 0 and 0.6 < sum(gained) / 3 < 1
    away = percent(FOUND, HALF, "best")
    assert away["FedALA"] < 5 and 13.5 < away[ten] < 14.5 < away["Separate"]
    assert 2.8 < away[ten] / away["FedALA"] < 3.2


def test_these_runs_have_the_settings_of_the_authors():
    assert older(FOUND) == []
