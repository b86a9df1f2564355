"""What the page on late clients says."""

import pytest

from pfl_lib.book import papers
from pfl_lib.book.experiments.methods import AS_RUN, plga_methods
from tests.support.claims import laptop

FOUND = laptop("plga_table2")
CASES = pytest.mark.parametrize("case", ["MNIST", "CIFAR10"])
ON_TIME = ("Separate", "FedAvg", "Per-FedAvg", "FedAvg-FT", "Label prior")
LATE = [method for method in FOUND.methods if method not in ON_TIME]


def of(method, what, case):
    return 100 * FOUND.mean(method, what, case)


@CASES
def test_throwing_late_models_away_costs_the_server_two_to_four_points(case):
    lost = of("FedAvg (Async)", "server", case) - of("FedAvg (Sync)", "server", case)
    assert 2 < lost < 4.5


@CASES
def test_predicting_them_is_within_a_point_of_plain_averaging(case):
    gain = of("LGA", "server", case) - of("FedAvg (Async)", "server", case)
    assert abs(gain) < 1


def lead(case):
    """LGA's server minus FedAvg (Async)'s by round, in points, mean over the seeds."""
    pairs = zip(FOUND.of("LGA", case), FOUND.of("FedAvg (Async)", case))
    gaps = [
        [100 * (a - b) for a, b in zip(x["mean by round"], y["mean by round"])] for x, y in pairs
    ]
    return [sum(column) / len(gaps) for column in zip(*gaps)]


def test_lga_is_sooner_on_mnist_not_better():
    ahead = dict(zip(FOUND.of("LGA", "MNIST")[0]["rounds"], lead("MNIST")))
    assert 2.5 < ahead[6] < 3 < ahead[12] and abs(ahead[60]) < 0.3
    assert abs(sum(lead("CIFAR10")) / 10) < 0.5 and max(lead("CIFAR10")) < 1


@CASES
def test_plgas_personal_models_beat_all_five_server_models_by_two_to_eight_points(case):
    lead = [of("PLGA", "last", case) - of(m, "server", case) for m in LATE]
    assert len(lead) == 5 and min(lead) > 1.5 and max(lead) < 8.5


@CASES
def test_clients_of_fedavg_async_and_lga_are_as_good_as_plgas_personal_models(case):
    plga = of("PLGA", "last", case)
    assert plga < min(of(m, "client", case) for m in ("FedAvg (Async)", "LGA"))
    assert abs(of("PLGA", "client", case) - of("FedAvg (Async)", "client", case)) < 1


@CASES
def test_only_clients_of_fedavg_sync_are_a_point_behind(case):
    assert 0.5 < of("PLGA", "last", case) - of("FedAvg (Sync)", "client", case) < 2


def fall(method, what="last"):
    """From 2 to 10 rounds late, in points."""
    return of(method, what, "MNIST, 2 rounds late") - of(method, what, "MNIST, 10 rounds late")


def test_a_personal_mix_is_patient():
    assert 0.5 < fall("PLGA") < 1.5
    assert fall("PLGA") < fall("LGA") < fall("FedAvg (Async)")
    assert 2.5 < fall("FedAvg (Async)") < 3


def test_at_paper_scale_two_rows_are_what_their_code_ran():
    rows = plga_methods(stragglers="alternating", published=True)
    mixed, averaged = rows["FedAsync" + AS_RUN], rows["Per-FedAvg" + AS_RUN]
    assert (mixed.mixing, mixed.stragglers) == ("late", "alternating")
    assert (averaged.name, averaged.cached, averaged.repeats) == ("fedavg-async", True, 2)
    assert {*rows} - {*plga_methods()} == {"FedAsync" + AS_RUN, "Per-FedAvg" + AS_RUN}
    assert papers.settings("fedasync", "mnist", "class_subset", paper="spfl")["mixing"] == "late"
