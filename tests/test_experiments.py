"""Experiments: measured, resumed, written down."""

import pfl_lib
from pfl_lib import Federation, algorithm, partition
from pfl_lib.experiments import Results, library_fingerprint, measure

METHODS = {"Separate": algorithm("separate"), "<FedAvg>": algorithm("fedavg")}


def federation(seed):
    data = pfl_lib.data.load("digits")
    clients = partition.iid(data, 4, seed=seed)
    return Federation(data, clients, "logistic_regression", lr=0.1, seed=seed, device="cpu")


def test_measured_saved_and_shown(tmp_path):
    how = {"seeds": (0, 1), "checkpoints": tmp_path / "checkpoints", "progress": False}
    results, histories = measure("trial", "smoke", METHODS, federation, 3, **how)
    assert results.methods == ["Separate", "<FedAvg>"]
    runs = [histories["<FedAvg>", seed].last for seed in (0, 1)]
    assert results.mean("<FedAvg>") == sum(runs) / 2 and results.spread("<FedAvg>") > 0
    results.save(tmp_path / "trial" / "smoke.json")
    assert Results.load(tmp_path / "trial" / "smoke.json") == results
    assert not list((tmp_path / "trial").glob("*.part"))
    table = results.table(paper={"Separate": 86.3})
    assert "86.30" in repr(table) and "&lt;FedAvg&gt;" in table._repr_html_()


def test_an_interrupted_experiment_goes_on(tmp_path):
    how = {"checkpoints": tmp_path, "progress": False}
    measure("trial", "smoke", METHODS, federation, 2, **how)
    continued, _ = measure("trial", "smoke", METHODS, federation, 4, **how)
    whole, _ = measure("trial", "smoke", METHODS, federation, 4, checkpoints=None, progress=False)
    for run, other in zip(continued.record["runs"], whole.record["runs"]):
        assert run["mean by round"] == other["mean by round"]


def test_the_fingerprint_is_that_of_the_code():
    assert library_fingerprint() == library_fingerprint() and len(library_fingerprint()) == 16
