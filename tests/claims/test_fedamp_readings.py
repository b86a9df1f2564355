"""What the page on FedAMP's open readings says of its runs, those that are stored by now."""

import pytest

from pfl_lib.book.experiments import stored
from tests.support.claims import gains, laptop, percent

FOUND = stored("fedamp_readings")
LAPTOP = laptop("fedamp_readings")
LAST = percent(LAPTOP)
ROWS = ("FedAMP", "FedAMP, half kernel", "FedAMP, pre-trained", "FedAMP, pre-trained, half kernel")
RUNS = [run for kept in FOUND.values() for run in kept.record["runs"]]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['method']}, {run['seed']}")
def test_every_run_but_those_of_the_first_rounds_is_long_enough_for_beta_to_fall(run):
    few = run["case"].endswith("first six rounds")
    assert run["rounds"][-1] == (6 if few else 40)


def test_a_run_of_few_rounds_stands_beside_no_printed_number():
    for kept in FOUND.values():
        for entry in kept.record["cases"]:
            if entry["rounds"] <= 30:  # β first falls in round 30
                assert entry["paper"] == {}


@pytest.mark.parametrize(
    "run", FOUND["paper"].record["runs"] if "paper" in FOUND else [], ids=lambda run: run["method"]
)
def test_at_paper_scale_it_is_the_papers_network_on_40_clients(run):
    assert run["settings"]["parameters"] == 1_663_370 and len(run["clients"]) == 40


@pytest.mark.parametrize("row", ROWS)
def test_with_the_printed_width_nobody_is_chosen_and_all_rows_are_fine_tuned_averages(row):
    assert all(abs(share - 3 / 19) < 0.01 for share in LAPTOP.values(row, "inside"))
    assert abs(LAST[row] - LAST["FedAMP"]) < 0.2 and abs(LAST[row] - LAST["FedAvg-FT"]) < 0.2


def test_the_side_of_tau_is_worth_about_two_and_a_half_points():
    lost = gains(LAPTOP, "FedAMP", "FedAMP, τ on oneself")
    assert min(lost) > 1.9 and 2.1 < sum(lost) / 3 < 2.8


def test_the_trained_model_is_ahead_of_the_message_with_every_seed():
    for w, u in zip(LAPTOP.values("FedAMP"), LAPTOP.message("FedAMP")):
        assert 100 * (w - u) > 1.7
    mean = sum(LAPTOP.message("FedAMP")) / 3
    assert LAST["FedAMP"] - 100 * mean > 2 and abs(100 * mean - LAST["FedAvg"]) < 0.3


def test_scaffold_wants_a_long_step():
    short, middle, long = (LAST[f"SCAFFOLD, step {lr}"] for lr in ("0.01", "0.03", "0.1"))
    assert short < middle < long and long - short > 5 and LAPTOP.diverged() == []
    assert LAST["FedAvg"] < long < LAST["FedAvg-FT"]
    assert LAPTOP.paper("SCAFFOLD, step 0.1") == pytest.approx(98.5, abs=0.06)


def test_on_the_papers_network_the_printed_width_chooses_nobody_in_six_rounds():
    (run,) = (
        run
        for run in FOUND["paper"].of("FedAMP", "MNIST, first six rounds")
        if not run["settings"]["fedamp.pretrain_rounds"]
    )
    assert 0.18 < run["extra"]["inside"] < 0.19 and run["extra"]["inside"] - 7 / 39 < 0.01
    ratios = [run["extra"][f"member : stranger, group {g}"] for g in range(1, 6)]
    assert ratios == sorted(ratios), "the last group holds least"
    assert ratios[0] == pytest.approx(0.97, abs=0.01) and ratios[-1] == pytest.approx(
        1.17, abs=0.01
    )
    u = run["extra_models"]["u"]
    assert run["last"] == pytest.approx(0.965, abs=0.001) and u[-1] == pytest.approx(
        0.963, abs=0.001
    )
    assert run["mean by round"] == sorted(run["mean by round"]) and u == sorted(u)
