"""What the page on FedALA's Table 4 says."""

import pytest
from scipy.stats import kendalltau

from pfl_lib.book import papers
from tests.support.claims import laptop, percent

FOUND = laptop("fedala_table4")
THEIRS = papers.table("fedala", 4)
BEST = percent(FOUND, FOUND.cases[-1], "best")
BASES = ("FedAvg", "FedProx", "Per-FedAvg", "FedRep", "pFedMe", "Ditto", "FedAMP", "FedPHP")
GAIN = {m: BEST[f"{m}+ALA"] - BEST[m] for m in BASES}


@pytest.mark.parametrize("method", ["FedAvg", "FedProx"])
def test_ala_helps_fedavg_and_fedprox_by_more_than_ten_points(method):
    assert GAIN[method] > 10


def test_ala_helps_the_others_by_little_or_nothing():
    assert max(g for m, g in GAIN.items() if m not in ("FedAvg", "FedProx")) < 4


def test_fedrep_loses_half_a_point():
    assert min(GAIN.values()) == GAIN["FedRep"] and -0.6 < GAIN["FedRep"] < 0


def test_the_gains_come_in_much_the_same_order():
    theirs = [THEIRS[m, "Cifar100, gain by ALA"].mean for m in BASES]
    assert kendalltau(list(GAIN.values()), theirs).statistic > 0.3


def with_clients(method):
    return [percent(FOUND, f"Cifar100, {count} clients", "best")[method] for count in (20, 50, 100)]


def test_fedala_falls_from_17_to_4_percent_with_a_hundred_clients():
    few, more, many = with_clients("FedALA")
    assert 16.5 < few < 17.5 and 3.5 < many < 4.5
    assert few > more + 5 and more > many


def test_clients_on_their_own_lose_four_points():
    few, _, many = with_clients("Separate")
    assert 3.5 < few - many < 5


def test_in_the_paper_ditto_and_fedprox_with_ala_are_better_than_fedala():
    column = THEIRS.column("Cifar100, with ALA")
    fedala = papers.table("fedala", 2)["FedALA", "Cifar100, Dirichlet 0.1"].mean
    assert min(column["Ditto"], column["FedProx"]) > fedala
