"""What the page on clients with two classes each says."""

import pytest

from tests.support.claims import first, laptop, percent

FOUND = laptop("fedamp_pathological")
BEST = {case: percent(FOUND, case, "best") for case in FOUND.cases}
CASES = pytest.mark.parametrize("case", FOUND.cases)


@CASES
def test_nobody_beats_staying_alone(case):
    assert first(BEST[case]) in ("Separate", "APFL")
    assert BEST[case]["Separate"] > max(BEST[case].values()) - 0.5


@CASES
def test_fedamp_does_better_the_more_it_can_pick_its_neighbors_then_comes_fine_tuning(case):
    here = BEST[case]
    assert here["FedAvg-FT"] < here["FedAMP"] < here["FedAMP, median σ"]


@CASES
def test_global_models_are_behind_fine_tuning(case):
    assert BEST[case]["FedAvg"] < BEST[case]["SCAFFOLD"] < BEST[case]["FedAvg-FT"]


def test_fedavg_breaks_down_the_more_classes_there_are():
    fedavg = {case: BEST[case]["FedAvg"] for case in ("MNIST", "EMNIST", "CIFAR100")}
    assert fedavg["MNIST"] > fedavg["EMNIST"] > fedavg["CIFAR100"]


def test_scaffolds_98_8_percent_on_emnist_do_not_come_back():
    assert BEST["EMNIST"]["SCAFFOLD"] < 30
    assert FOUND.paper("SCAFFOLD", "EMNIST") == pytest.approx(98.8, abs=0.06)


def test_the_papers_fedavg_reaches_19_percent_on_emnist():
    assert 18.5 < FOUND.paper("FedAvg", "EMNIST") < 19.5


def test_most_of_fedavgs_breakdown_is_the_mix_of_labels():
    rounded = {case: (round(b["FedAvg"]), round(b["Label prior"])) for case, b in BEST.items()}
    assert rounded == {
        "MNIST": (61, 89),
        "FMNIST": (60, 91),
        "EMNIST": (6, 66),
        "CIFAR100": (2, 58),
    }
    adds = {case: b["FedAvg-FT"] - b["Label prior"] for case, b in BEST.items()}
    assert [round(adds[c]) for c in ("FMNIST", "CIFAR100", "MNIST", "EMNIST")] == [1, 2, 5, 19]
