"""Experiments: measured, resumed, written down, and marked when the code behind them changes."""

import inspect
import json
from pathlib import Path

import jsonschema
import pytest

import pfl_lib
from pfl_lib import Federation, algorithm, algorithms, partition
from pfl_lib.algorithms import with_ala
from pfl_lib.experiments import Case, Results, code, measure, overview, pick, stored
from pfl_lib.experiments.methods import fedamp_nine
from pfl_lib.faults import Faulty

RESULTS = Path(__file__).resolve().parents[1] / "results"
METHODS = {"Separate": algorithm("separate"), "<FedAvg>": algorithm("fedavg")}
FILES = sorted(p for p in RESULTS.glob("*/*.json") if p.stem in ("smoke", "laptop", "paper"))


def federation(seed):
    data = pfl_lib.data.load("digits")
    clients = partition.iid(data, 4, seed=seed)
    return Federation(data, clients, "logistic_regression", lr=0.1, seed=seed, device="cpu")


def case(rounds, **more):
    return Case(federation, METHODS, rounds, **more)


def test_measured_saved_and_shown(tmp_path):
    how = {"seeds": (0, 1), "folder": tmp_path / "checkpoints", "progress": False}
    cases = {"few": case(1), "more": case(3, paper={"Separate": 86.3})}
    results, histories = measure("trial", "smoke", cases, **how)
    assert results.methods == ["Separate", "<FedAvg>"] and results.cases == ["few", "more"]
    runs = [histories["more", "<FedAvg>", seed].last for seed in (0, 1)]
    assert results.mean("<FedAvg>", "last", "more") == sum(runs) / 2
    assert results.spread("<FedAvg>", "last", "more") > 0
    results.save(tmp_path / "trial" / "smoke.json")
    assert Results.load(tmp_path / "trial" / "smoke.json") == results
    assert not list((tmp_path / "trial").glob("*.part"))
    table = results.table("more")
    assert "86.30" in repr(table) and "&lt;FedAvg&gt;" in table._repr_html_()
    ours = 100 * results.mean("Separate", "best", "more")
    assert results.difference("Separate", "more") == pytest.approx(ours - 86.3)
    assert results.difference("Separate", "few") is None
    assert "[86.3]" in repr(results.grid()) and "2 seeds" in results.caption()


def test_an_interrupted_experiment_goes_on(tmp_path):
    how = {"folder": tmp_path, "progress": False}
    measure("trial", "smoke", case(2), keep_models=True, **how)
    continued, _ = measure("trial", "smoke", case(4), **how)
    whole, _ = measure("trial", "smoke", case(4), folder=None, progress=False)
    for run, other in zip(continued.record["runs"], whole.record["runs"]):
        assert run["mean by round"] == other["mean by round"]


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    how = {"folder": tmp_path, "progress": False, "extra": lambda history, fed: {"m": fed.m}}
    first, _ = measure("trial", "smoke", case(2), **how)
    assert not list((tmp_path / "trial" / "smoke").glob("*/round-*"))  # the models are let go
    monkeypatch.setattr("pfl_lib.experiments.measuring.run", lambda *a, **k: pytest.fail("ran"))
    second, _ = measure("trial", "smoke", case(2), **how)
    assert first.record["runs"] == second.record["runs"]
    assert second.values("Separate", "m") == [4]


def test_a_run_with_other_settings_is_not_taken_for_this_one(tmp_path):
    how = {"folder": tmp_path, "progress": False}
    one, other = (Case(federation, {"same name": algorithm("fedavg-ft", ft_epochs=n)}, 1)
                  for n in (1, 9))  # fmt: skip
    first, _ = measure("trial", "smoke", one, **how)
    second, _ = measure("trial", "smoke", other, **how)
    alone, _ = measure("trial", "smoke", other, folder=None, progress=False)
    assert second.record["runs"][0]["last"] == alone.record["runs"][0]["last"]
    assert second.record["runs"][0]["settings"] != first.record["runs"][0]["settings"]


def test_methods_may_be_run_on_different_days(tmp_path):
    how = {"folder": tmp_path, "progress": False}
    first, _ = measure("trial", "smoke", case(2), only=["Separate"], **how)
    assert first.methods == ["Separate"]
    both, histories = measure("trial", "smoke", case(2), only=["<FedAvg>"], **how)
    assert both.methods == ["Separate", "<FedAvg>"]
    assert both.record["runs"][0] == first.record["runs"][0]
    assert histories["", "Separate", 0].rounds == [1, 2]
    with pytest.raises(ValueError, match=r"only must be one of .*'FedAvgg'"):
        measure("trial", "smoke", case(2), only=["FedAvgg"], **how)


def test_fedavg_is_inside_fedavg_ft():
    methods = {"FedAvg": algorithm("fedavg"), "FedAvg-FT": algorithm("fedavg-ft")}
    own, _ = measure("trial", "smoke", Case(federation, methods, 3), folder=None, progress=False)
    once = Case(
        federation,
        {"FedAvg-FT": methods["FedAvg-FT"]},
        3,
        inside={"FedAvg": ("FedAvg-FT", "global")},
    )
    read, histories = measure("trial", "smoke", once, folder=None, progress=False)
    assert read.methods == ["FedAvg", "FedAvg-FT"]
    for run, other in zip(read.record["runs"], own.record["runs"]):
        for what in ("last", "best", "worst 10 %", "clients", "mean by round", "sent"):
            assert run[what] == other[what]
    assert "read from" in histories["", "FedAvg", 0].settings


def test_an_unknown_scale_is_refused():
    with pytest.raises(ValueError, match="laptp"):
        pick("laptp", {"smoke": {}, "laptop": {}})


# ------------------------------------------------------------------------- which code it was
@pytest.mark.parametrize("method", algorithms.ALL, ids=lambda method: method.name)
def test_the_fingerprints_of_every_method_name_its_own_code(method):
    given = {"self_weight": 0.5} if method.name == "fedamp" else {}
    prints = code.fingerprints(method(**given), federation(0))
    assert f"{method.__module__}.{method.__qualname__}" in prints
    assert "pfl_lib.training.batch_table" in prints and "pfl_lib.partition.iid" in prints
    assert code.changed(prints) == []


def test_the_fingerprints_name_what_a_method_stands_on():
    prints = code.fingerprints(with_ala(algorithm("ditto")), federation(0))
    assert "pfl_lib.algorithms.ditto.Ditto" in prints
    prints = code.fingerprints(algorithm("fedavg"), Faulty(federation(0), [1], "noise"))
    assert "pfl_lib.faults.Faulty" in prints


def test_rewriting_a_function_adds_no_name_to_the_fingerprints():
    """Folders of runs are named by all of them: with a new name none would be found again."""
    data = pfl_lib.data.load("mnist5k")
    clients = partition.grouped(data, group_sizes=60, test_size=40)
    known = set(stored("fedamp_grouped")["laptop"].record["code"])
    for method in fedamp_nine("mnist", "grouped").values():
        found = code.fingerprints(method, pfl_lib.Federation(data, clients, "mlp"))
        assert set(found) <= known, method.label


def test_an_empty_plan_is_refused():
    with pytest.raises(ValueError, match="nothing to run"):
        measure("trial", "smoke", case(1), seeds=(), folder=None, progress=False)


def test_a_changed_function_makes_a_result_stale(monkeypatch):
    prints = code.fingerprints(algorithm("fedavg"), federation(0))
    name = "pfl_lib.formulas.averaging.weighted_average"
    assert name in prints
    assert code.changed(prints | {name: "another"}) == [name]
    assert code.changed({"pfl_lib.gone.function": "0"}) == ["pfl_lib.gone.function"]
    results, _ = measure("trial", "smoke", case(1), folder=None, progress=False)
    assert "STALE" not in results.caption()
    results.record["code"][name] = "another"
    assert results.stale() == [name] and name in results.caption()


def test_comments_and_docstrings_do_not_count():
    def first(x):
        """One."""
        return x + 1  # plus one

    def second(x):
        return x + 1

    one, two = (inspect.getsource(f).replace(f.__name__, "f") for f in (first, second))
    assert one != two
    assert code.meaning(one) == code.meaning(two) != code.meaning(one.replace("1", "2"))


# ----------------------------------------------------------------------- the committed results
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_result_file_is_whole(path):
    record = json.loads(path.read_text())
    jsonschema.validate(record, json.loads((RESULTS / "schema.json").read_text()))
    assert (record["experiment"], record["scale"]) == (path.parent.name, path.stem)
    seen = {(r["case"], r["method"], r["seed"]) for r in record["runs"]}
    assert len(seen) == len(record["runs"])
    for run in record["runs"]:
        mean = sum(run["clients"]) / len(run["clients"])
        assert mean == pytest.approx(run["last"], abs=1e-4)
        assert run["best"] == pytest.approx(max(run["mean by round"]), abs=1e-4)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_result_file_is_fresh_or_named_as_stale(path):
    stale = json.loads((RESULTS / "stale.json").read_text())
    name = f"{path.parent.name}/{path.stem}"
    changed = Results.load(path).stale()
    if name in stale:
        assert changed, f"{name} is fresh again: take it out of results/stale.json"
    else:
        assert changed == [], (
            f"{name} was measured with other code. Run it again, or name it in results/stale.json "
            "with the reason; the book then shows it as stale."
        )


def test_every_result_belongs_to_an_experiment():
    notebooks = {p.stem for p in (RESULTS.parent / "notebooks" / "experiments").glob("*.ipynb")}
    assert {name for name, _ in stored()} <= notebooks


def test_the_overview_puts_the_largest_disagreement_first():
    paper = {"Separate": 10.0, "FedAvg": 99.0, "FedAvg-FT": 50.0}
    names = {"Separate": "separate", "FedAvg": "fedavg", "FedAvg-FT": "fedavg-ft"}
    methods = {label: algorithm(name) for label, name in names.items()}
    methods["FedAMP, σ = 3"] = algorithm(
        "fedamp", sigma=3.0, self_weight=0.5
    )  # a sweep does not count
    trial = Case(federation, methods, 1, paper=paper)
    found, _ = measure("trial", "laptop", {"a": trial}, folder=None, progress=False)
    every = {("trial", "laptop"): found}
    assert [row[0] for row in overview.ran(every).rows] == ["trial"]
    rows = overview.disagreements(every).rows
    gaps = [abs(float(row[-1])) for row in rows]
    assert len(rows) == 3 and gaps == sorted(gaps, reverse=True)
    assert overview.disagreements(every, scale="paper").rows == []
    assert overview.same_order(every).rows[0][3] == "3"
    standing = {row[0]: row for row in overview.standing(every, least=1).rows}
    assert set(standing) == set(names) and standing["Separate"][3] == ""
    places = sorted(float(row[2]) for row in standing.values())
    assert places == [0.0, 0.5, 1.0]
