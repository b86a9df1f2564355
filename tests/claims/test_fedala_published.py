"""What the page on FedALA's published clients says: of the printed numbers, and of its own rows."""

import pytest

from pfl_lib.book.experiments import overview, stored
from tests.support.claims import percent

KEPT = stored("fedala_published")["paper"]
CASE = "MNIST, FedALA's clients"
PRINTED = next(c["paper"] for c in KEPT.record["cases"] if c["case"] == CASE)
ROWS = KEPT.methods_in(CASE)


def test_eleven_of_the_printed_numbers_are_within_0_4_points_of_each_other():
    below = {m for m, value in PRINTED.items() if value < 99}
    assert len(PRINTED) == 14 and below == {"FedAvg", "FedProx", "Per-FedAvg"}
    rest = sorted(value for m, value in PRINTED.items() if m not in below)
    assert rest[0] > 99.3 and rest[-1] < 99.75 and rest[-1] - rest[0] < 0.4


@pytest.mark.parametrize("method", [m for m in ("Separate", "Label prior") if m in ROWS])
def test_alone_or_told_the_labels_clients_pass_what_is_printed_for_global_models(method):
    reached = 100 * min(KEPT.values(method, "by sample, best", CASE))
    assert all(PRINTED[m] < reached for m in ("FedAvg", "FedProx", "Per-FedAvg"))


@pytest.mark.parametrize("case", KEPT.cases)
def test_network_and_clients_are_the_papers(case):
    for method in KEPT.methods_in(case):
        for run in KEPT.of(method, case):
            assert run["settings"]["parameters"] == 582_026 and len(run["clients"]) == 20
            if case == CASE:
                assert run["settings"]["partition"].startswith("fedala-mnist-")
    carried = overview.carries("fedala_published", "paper", KEPT)
    assert carried.startswith("the paper's network and clients, ")
    assert carried.endswith(" of its 2,000 rounds")


@pytest.mark.parametrize("case", KEPT.cases)
def test_knowing_the_label_frequencies_is_worth_something(case):
    here = percent(KEPT, case)
    if {"Label prior", "FedAvg"} <= {*here}:
        assert here["Label prior"] > here["FedAvg"]
