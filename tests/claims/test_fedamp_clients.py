"""What the page on FedAMP's clients, one by one, says."""

import pytest
import torch

from pfl_lib import metrics
from tests.support.claims import laptop

FOUND = laptop("fedamp_grouped")
THREE = ("FMNIST", "EMNIST", "CIFAR100")
ATTENTIVE = pytest.mark.parametrize("ours", ["FedAMP", "FedAMP, median σ", "HeurFedAMP"])


def clients(method, case):
    accuracies = [a for run in FOUND.of(method, case) for a in run["clients"]]
    return torch.tensor(accuracies, dtype=torch.float64)


def gain(ours, theirs, case):
    return 100 * float((clients(ours, case) - clients(theirs, case)).mean())


def firm(ours, theirs, case):
    """Is the comparison won with p < 0.0001?"""
    test = metrics.wilcoxon(clients(ours, case), clients(theirs, case))
    return gain(ours, theirs, case) > 0 and test.p < 1e-4


@ATTENTIVE
def test_not_every_comparison_is_won_at_the_papers_level(ours):
    rivals = [m for m in FOUND.methods if not m.startswith(("FedAMP", "HeurFedAMP"))]
    assert not all(firm(ours, rival, case) for case in THREE for rival in rivals)


@ATTENTIVE
def test_against_global_models_every_comparison_is_won(ours):
    rivals = ("FedAvg", "FedProx", "SCAFFOLD")
    assert all(firm(ours, rival, case) for case in THREE for rival in rivals)


def test_the_printed_width_is_more_than_a_point_behind_fine_tuning_on_emnist():
    assert -2 < gain("FedAMP", "FedAvg-FT", "EMNIST") < -1


def test_the_median_rule_is_nearly_ten_points_ahead_of_fine_tuning_on_cifar100():
    assert 9 < gain("FedAMP, median σ", "FedAvg-FT", "CIFAR100") < 10


def test_on_mnist_the_fine_tuned_model_is_ahead():
    assert gain("FedAMP, median σ", "FedAvg-FT", "MNIST") < 0


@pytest.mark.parametrize("case", FOUND.cases)
def test_under_fedavg_in_no_column_do_most_of_the_clients_do_better_than_alone(case):
    assert metrics.win_rate(clients("FedAvg", case), clients("Separate", case)) < 0.5


@pytest.mark.parametrize("case", FOUND.cases)
def test_with_the_median_rule_more_than_three_of_four_do(case):
    assert metrics.win_rate(clients("FedAMP, median σ", case), clients("Separate", case)) > 0.75
