"""What the page on FedALA and AG News says."""

import pytest

from pfl_lib import models
from pfl_lib.book import papers
from tests.support.claims import first, laptop, percent

FOUND = laptop("fedala_agnews")
CASES = pytest.mark.parametrize("case", FOUND.cases)
RANGES = ("FedALA", "FedALA, p = 2", "FedALA, p = 3")


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_papers_counts_of_weights_are_exact(p):
    network = models.fasttext(98_635, 4)
    size = {n: v.numel() for n, v in network.named_parameters()}
    each = [sum(size[n] for n in names) for _, names in models.layers(network)]
    printed = papers.table("fedala", 6)["weights", f"fastText, p = {p}"].mean
    assert sum(each[-p:]) == printed


@CASES
def test_methods_that_end_with_a_model_of_their_own_are_within_a_few_points(case):
    common = ("FedAvg", "FedProx", "Label prior")
    own = [v for m, v in percent(FOUND, case, "best").items() if m not in common]
    assert max(own) - min(own) < 4


@CASES
def test_a_single_model_for_all_is_far_behind(case):
    best = percent(FOUND, case, "best")
    own = [v for m, v in best.items() if m not in ("FedAvg", "FedProx", "Label prior")]
    assert best["FedAvg"] < min(own) - 20


@CASES
def test_fine_tuning_comes_first(case):
    best = percent(FOUND, case, "best")
    papers_own = {m: v for m, v in best.items() if FOUND.paper(m, case)}
    assert first(papers_own) in ("FedAvg-C", "FedProx-C")


@CASES
def test_mixing_one_two_or_three_layers_is_the_same_to_a_third_of_a_point(case):
    spans = [percent(FOUND, case, "best")[m] for m in RANGES]
    assert max(spans) - min(spans) < 0.34


def test_with_the_head_alone_weights_leave_one_and_word_vectors_hardly_move():
    one, two, three = (FOUND.mean(m, "mean weight", FOUND.cases[0]) for m in RANGES)
    assert 0.7 < one < 0.8 < two < three and three > 0.998
