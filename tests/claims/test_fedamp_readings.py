"""What the page on FedAMP's open readings says of its runs, those that are stored by now."""

import pytest

from pfl_lib.book.experiments import stored

FOUND = stored("fedamp_readings")
RUNS = [run for kept in FOUND.values() for run in kept.record["runs"]]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['method']}, {run['seed']}")
def test_every_run_is_long_enough_for_beta_to_fall(run):
    assert run["rounds"][-1] == 40


@pytest.mark.parametrize(
    "run", FOUND["paper"].record["runs"] if "paper" in FOUND else [], ids=lambda run: run["method"]
)
def test_at_paper_scale_it_is_the_papers_network_on_40_clients(run):
    assert run["settings"]["parameters"] == 1_663_370 and len(run["clients"]) == 40
