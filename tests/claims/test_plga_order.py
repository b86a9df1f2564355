"""What the page on the order of the samples says."""

import pytest

from pfl_lib.book import papers
from pfl_lib.book.experiments import stored
from tests.support.claims import laptop

FOUND = laptop("plga_order")
SERVERS = ("FedAvg (Sync)", "FedAvg (Async)", "LGA")


def ahead(method, case):
    """The clients' models minus the server's, in points."""
    return 100 * (FOUND.mean(method, "client", case) - FOUND.mean(method, "server", case))


@pytest.mark.parametrize("method", SERVERS)
def test_clients_are_ahead_when_shuffled_and_behind_class_by_class(method):
    assert ahead(method, "shuffled") > 0.5
    assert -1.6 < ahead(method, "class by class") < -0.4


def gaps(case):
    """The server of FedAvg (Sync) minus that of FedAvg (Async), in points, seed by seed."""
    pair = (FOUND.values(m, "server", case) for m in ("FedAvg (Sync)", "FedAvg (Async)"))
    return [100 * (a - b) for a, b in zip(*pair)]


def test_throwing_away_is_no_worse_when_stragglers_alternate():
    assert len(gaps("shuffled")) == 3 and min(gaps("shuffled")) > 0


def test_throwing_away_costs_more_than_a_point_when_they_are_always_late():
    late = gaps("shuffled, always late")
    assert sum(late) / 3 < -1 and max(late) < 0


def test_at_the_papers_scale_shuffled_clients_are_ahead_of_the_server():
    kept = stored("plga_order")["paper"]
    (run,) = (r for r in kept.of("FedAvg (Sync)", "shuffled") if r["seed"] == 0)
    assert run["rounds"][-1] == 800 and run["settings"]["parameters"] != 79_510  # not the MLP
    printed = papers.table("spfl", 2)
    behind = [printed["FedAvg (Sync)", f"MNIST, {who}"].mean for who in ("client", "server")]
    assert run["extra"]["client"] > run["extra"]["server"] and behind[0] < behind[1]
