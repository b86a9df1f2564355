"""What the page on fine-tuning SPFL says."""

import statistics

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("spfl_finetune")
CASES = pytest.mark.parametrize("case", FOUND.cases)
OWN_CLASSES = [case for case in FOUND.cases if "non-IID" in case]
SAME_CLASSES = [case for case in FOUND.cases if "non-IID" not in case]
WAYS = tuple(FOUND.of("SPFL")[0]["extra"]["after"])


def gain(method, way, case):
    """What a way of fine-tuning adds, in points."""
    runs = FOUND.of(method, case)
    return 100 * statistics.fmean(r["extra"]["after"][way] - r["last"] for r in runs)


@CASES
@pytest.mark.parametrize("method", ["SPFL", "Separate"])
def test_fine_tuning_adds_half_a_point_at_most(method, case):
    assert all(abs(gain(method, way, case)) < 0.6 for way in WAYS if way != "β")


@CASES
def test_the_full_training_rate_takes_some_away(case):
    assert gain("SPFL", "β", case) < 0


def test_on_non_iid_data_fedavg_gains_two_points_on_mnist_and_nine_on_cifar10():
    found = {case: gain("FedAvg", "β/10, 100 steps", case) for case in OWN_CLASSES}
    assert 2 < found["MNIST, non-IID"] < 3 and 8.5 < found["CIFAR10, non-IID"] < 9.5


@pytest.mark.parametrize("case", OWN_CLASSES)
def test_fine_tuned_it_is_then_ahead_of_spfl(case):
    here = percent(FOUND, case)
    best = max(gain("FedAvg", way, case) for way in WAYS)
    assert here["FedAvg"] + best > here["SPFL"]


@pytest.mark.parametrize(
    ("case", "least", "most"), [("MNIST, non-IID", 0.1, 0.6), ("CIFAR10, non-IID", 1, 2)]
)
def test_so_it_is_where_the_way_is_chosen_for_both_on_the_first_seed(case, least, most):
    reached = {}
    for method in ("FedAvg", "SPFL"):
        first, *others = [r["extra"]["after"] for r in FOUND.of(method, case)]
        way = max(WAYS, key=first.get)
        reached[method] = 100 * statistics.fmean(after[way] for after in others)
    untuned = 100 * statistics.fmean(FOUND.values("SPFL", "last", case)[1:])
    assert least < reached["FedAvg"] - max(reached["SPFL"], untuned) < most


@pytest.mark.parametrize("case", SAME_CLASSES)
def test_on_iid_data_tuning_the_common_model_does_harm(case):
    assert gain("FedAvg", "β/10, 100 steps", case) < 0
