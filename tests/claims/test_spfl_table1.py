"""What the page on SPFL's Table 1 says."""

import re

import pytest
import torch

from pfl_lib.book import papers
from pfl_lib.book.experiments.methods import spfl_clients
from pfl_lib.data import Dataset
from tests.support.claims import first, gains, laptop, percent
from tests.support.paths import ROOT

FOUND = laptop("spfl_table1")
OWN_CLASSES = pytest.mark.parametrize("case", ["MNIST, non-IID", "CIFAR10, non-IID"])
ONE, SEVEN = papers.table("spfl", 1), papers.table("spfl", 7)


@OWN_CLASSES
def test_where_clients_have_their_own_classes_spfl_is_the_best_of_the_ten(case):
    here = percent(FOUND, case)
    assert first({m: here[m] for m in here if m != "Label prior"}).startswith("SPFL")


@OWN_CLASSES
def test_the_label_prior_is_ahead_of_spfl_with_every_seed(case):
    lead = gains(FOUND, "Label prior", "SPFL", case)
    assert min(lead) > 0.5 and round(sum(lead) / 3) == (1 if "MNIST" in case else 2)
    over = gains(FOUND, "Label prior", "FedAvg", case)
    assert round(sum(over) / 3) == (3 if "MNIST" in case else 9)


@OWN_CLASSES
@pytest.mark.parametrize("rival", ["FedAvg", "Separate"])
def test_spfl_is_ahead_of_fedavg_and_of_training_alone_with_every_seed(case, rival):
    assert min(gains(FOUND, "SPFL", rival, case)) > 0


@OWN_CLASSES
def test_mixing_models_gains_far_less(case):
    here = percent(FOUND, case)
    assert here["SPFL-w"] - here["FedAvg"] < 0.6 * (here["SPFL"] - here["FedAvg"])


def test_where_all_have_the_same_classes_spfl_is_behind_fedavg_with_every_seed():
    assert max(gains(FOUND, "SPFL", "FedAvg", "MNIST, IID")) < 0


def test_the_papers_tables_1_and_7_are_apart_by_standard_deviations_on_cifar100():
    apart = {
        column: (SEVEN["T = 10", column].mean - ONE["SPFL", column].mean) / ONE["SPFL", column].sd
        for column in ONE.columns
    }
    assert first(apart) == "CIFAR100, IID" and min(apart.values()) >= 0
    assert apart["CIFAR100, IID"] > 3


@pytest.mark.parametrize(
    "name", ["spfl_table1", "spfl_layers", "spfl_knobs", "spfl_finetune", "plga_table2"]
)
def test_emnist_is_the_papers_edition_balanced(name):
    text = (ROOT / "notebooks" / "experiments" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert "emnist_balanced" in text and not re.search(r"emnist(?!_balanced)", text)


def test_emnist_balanced_deals_32_classes_to_each():
    y, names = torch.arange(47).repeat(40), tuple(map(str, range(47)))
    x = torch.zeros(len(y), 1, 4, 4, dtype=torch.uint8)
    made = Dataset("emnist_balanced", x, y, 940, names, mean=(0.0,), std=(1.0,))
    dealt = spfl_clients(made)
    assert ((dealt.counts(made) > 0).sum(1) == 32).all()
