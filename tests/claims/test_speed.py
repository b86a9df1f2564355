"""What the page on speed says of the stored measurements: orders of magnitude, never seconds."""

import json
import statistics

import pytest

from tests.support.paths import ROOT

MEASURED = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (ROOT / "results" / "benchmarks").glob("*.json")
}
DAYS = {name: found for name, found in MEASURED.items() if name.startswith("engine_")}
PEERS = {"PFLlib", "FL-bench", "fluke", "BlazeFL", "pfl-research", "FedJAX", "Flower simulation"}


def test_runs_of_several_days_are_named_by_their_day():
    assert len(DAYS) >= 2
    assert all(name == f"engine_{found['date']}" for name, found in DAYS.items())


@pytest.mark.parametrize("day", DAYS)
def test_stacks_of_dense_networks_gain_most(day):
    """Convolutions look modest beside them."""
    rows = [row for row in DAYS[day]["rows"] if "samples per second" in row]
    gained = {row["workload"]: row["ratio"][row["chosen"]] for row in rows}
    dense = [r for name, r in gained.items() if name.startswith(("logistic", "mlp"))]
    others = [r for name, r in gained.items() if not name.startswith(("logistic", "mlp"))]
    assert min(dense) > 5 > max(others)


def test_a_program_beside_costs_no_workload_more_than_a_core_does():
    """On two cores a factor of two is what one would expect."""
    newest = DAYS[max(DAYS)]
    slower = [row["slower when busy"] for row in newest["rows"] if "slower when busy" in row]
    assert len(slower) >= 14
    assert all(one["library"] <= min(2.2, one["usual way"]) for one in slower)


def test_bfloat16_changes_accuracies_less_than_another_seed():
    found = MEASURED["precision"]
    assert len(found["rows"]) >= 2 and found["seeds"] >= 4
    for row in found["rows"]:
        assert abs(row["mean difference"]) < row["deviation over seeds"], row["method"]
    pairs = [b - a for row in found["rows"] for a, b in zip(row["float32"], row["bf16"])]
    error = statistics.stdev(pairs) / len(pairs) ** 0.5
    assert abs(statistics.fmean(pairs)) < 2.5 * error  # cannot be told from none


def test_everyone_ends_where_we_do_before_being_timed():
    raced = MEASURED["race"]
    for row in raced["rows"]:
        ways = {way["label"]: way for way in row["ways"].values() if way.get("quiet")}
        assert set(ways) >= PEERS
        moved = ways["pfl_lib"]["moved"]
        assert all(w["difference"] < 0.02 * moved for w in ways.values()), row["workload"]


def test_a_global_model_needs_memory_for_participants_and_disks_hold_the_absent():
    held = {
        (p["method"], p["clients"], p.get("disk", False)): p["memory MB"]
        for p in MEASURED["scale"]["rows"]
        if p["by"] == "clients"
    }
    few, many = (held["fedavg", m, False] for m in (100, 100_000))
    assert 0.5 < 1024 * (many - few) / (100_000 - 100) < 2  # kilobytes per client: its samples
    assert held["ditto", 10_000, True] < held["ditto", 10_000, False] / 4
    assert held["ditto", 100_000, True] < 1024  # their models: 3 GB


def test_a_server_step_of_five_thousand_clients_stays_below_a_gigabyte():
    steps = [p for p in MEASURED["scale"]["rows"] if p["by"] == "server step"]
    assert max(p["clients"] for p in steps) == 5_000
    assert all(p["memory MB"] < 1024 for p in steps)
