"""Experiments: measured, resumed, written down, and marked when the library computes otherwise."""

import json
from pathlib import Path

import jsonschema
import pytest

import pfl_lib
from pfl_lib import Federation, algorithm, partition
from pfl_lib.book.experiments import Case, Results, canary, measure, overview, pick, stored
from pfl_lib.book.experiments.pages import older
from pfl_lib.methods import with_ala

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
    options = {"seeds": (0, 1), "folder": tmp_path / "checkpoints", "progress": False}
    cases = {"few": case(1), "more": case(3, paper={"Separate": 86.3})}
    results, histories = measure("trial", "smoke", cases, **options)
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
    options = {"folder": tmp_path, "progress": False}
    measure("trial", "smoke", case(2), keep_models=True, **options)
    continued, _ = measure("trial", "smoke", case(4), **options)
    whole, _ = measure("trial", "smoke", case(4), folder=None, progress=False)
    for run, other in zip(continued.record["runs"], whole.record["runs"]):
        assert run["mean by round"] == other["mean by round"]


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    options = {"folder": tmp_path, "progress": False, "extra": lambda history, fed: {"m": fed.m}}
    first, _ = measure("trial", "smoke", case(2), **options)
    assert not list((tmp_path / "trial" / "smoke").glob("*/round-*"))  # the models are let go
    monkeypatch.setattr(
        "pfl_lib.book.experiments.measuring.run", lambda *a, **k: pytest.fail("ran")
    )
    second, _ = measure("trial", "smoke", case(2), **options)
    assert first.record["runs"] == second.record["runs"]
    assert second.values("Separate", "m") == [4]


def test_a_run_with_other_settings_is_not_taken_for_this_one(tmp_path):
    options = {"folder": tmp_path, "progress": False}
    one, other = (Case(federation, {"same name": algorithm("fedavg-ft", ft_epochs=n)}, 1)
                  for n in (1, 9))  # fmt: skip
    first, _ = measure("trial", "smoke", one, **options)
    second, _ = measure("trial", "smoke", other, **options)
    alone, _ = measure("trial", "smoke", other, folder=None, progress=False)
    assert second.record["runs"][0]["last"] == alone.record["runs"][0]["last"]
    assert second.record["runs"][0]["settings"] != first.record["runs"][0]["settings"]


def test_methods_may_be_run_on_different_days(tmp_path):
    options = {"folder": tmp_path, "progress": False}
    first, _ = measure("trial", "smoke", case(2), only=["Separate"], **options)
    assert first.methods == ["Separate"]
    both, histories = measure("trial", "smoke", case(2), only=["<FedAvg>"], **options)
    assert both.methods == ["Separate", "<FedAvg>"]
    assert both.record["runs"][0] == first.record["runs"][0]
    assert histories["", "Separate", 0].rounds == [1, 2]
    with pytest.raises(ValueError, match=r"only must be one of .*'FedAvgg'"):
        measure("trial", "smoke", case(2), only=["FedAvgg"], **options)


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


def test_a_run_that_diverges_is_kept_with_its_round(tmp_path, monkeypatch):
    """It stands in the tables as what it is, is not run again, and is in nobody's mean."""
    (tmp_path / "_toc.yml").touch()
    monkeypatch.chdir(tmp_path)
    methods = {"FedAvg": algorithm("fedavg"), "FedAvg-FT": algorithm("fedavg-ft")}
    both = Case(
        lambda seed: pfl_lib.example(seed=seed).replace(lr=0.1),
        methods,
        rounds=8,
        local={"FedAvg-FT": {"lr": 1e30}},
        inside={"its global": ("FedAvg-FT", "global")},
    )
    options = {"folder": tmp_path / "checkpoints", "progress": False}
    found, histories = measure("trial", "paper", both, about="one that breaks", **options)
    assert found.methods == ["FedAvg"], "no mean knows of it"
    (kept,) = found.diverged("FedAvg-FT")
    assert kept["round"] == 1 and "FedAvg-FT, round 1" in kept["what"] and kept["rounds"] == []
    assert found.diverged("its global") and not found.diverged("FedAvg")
    assert histories["", "FedAvg-FT", 0].rounds == []
    assert "diverged (round 1)" in repr(found.table()) and "diverged" in repr(found.grid())
    jsonschema.validate(found.record, json.loads((RESULTS / "schema.json").read_text()))
    assert Results.load(found.save()).diverged() == found.diverged()
    monkeypatch.setattr(
        "pfl_lib.book.experiments.measuring.run", lambda *a, **k: pytest.fail("ran")
    )
    again, _ = measure("trial", "paper", both, **options)
    assert again.diverged() == found.diverged()
    options["folder"] = None
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    stored_, _ = measure("trial", "paper", both, only=["FedAvg"], **options)
    assert stored_.diverged() == found.diverged(), "taken from the stored result"


def test_what_was_measured_before_a_run_broke_is_kept(monkeypatch):
    broken = Case(federation, {"FedAvg": algorithm("fedavg")}, 5)
    one_round = type(algorithm("fedavg")).round

    def until(self, state, fed, who):
        if fed.k == 3:
            raise FloatingPointError("FedAvg, round 4: gone; be careful")
        return one_round(self, state, fed, who)

    monkeypatch.setattr(type(algorithm("fedavg")), "round", until)
    monkeypatch.setattr("pfl_lib.book.experiments.measuring.canary", lambda *a: {"stopped": True})
    found, _ = measure("trial", "smoke", broken, folder=None, progress=False)
    (kept,) = found.diverged()
    assert (kept["round"], kept["what"]) == (4, "FedAvg, round 4: gone")
    assert kept["rounds"] == [1, 2, 3] and len(kept["mean by round"]) == 3


def test_an_unknown_scale_is_refused():
    with pytest.raises(ValueError, match="laptp"):
        pick("laptp", {"smoke": {}, "laptop": {}})


def test_an_empty_plan_is_refused():
    with pytest.raises(ValueError, match="nothing to run"):
        measure("trial", "smoke", case(1), seeds=(), folder=None, progress=False)


def test_runs_of_another_day_are_taken_from_the_stored_result(tmp_path, monkeypatch, capsys):
    (tmp_path / "_toc.yml").touch()
    monkeypatch.chdir(tmp_path)
    options = {"folder": None, "progress": False}
    measure("trial", "paper", case(2), **options)[0].save()
    both, histories = measure("trial", "paper", case(2), only=["<FedAvg>"], **options)
    assert both.methods == ["Separate", "<FedAvg>"]
    assert [key[1] for key in histories] == ["<FedAvg>"]  # the other was not run
    capsys.readouterr()
    options["progress"] = True
    longer, _ = measure("trial", "paper", case(3), only=["<FedAvg>"], **options)
    assert longer.methods == ["<FedAvg>"]  # what is stored is of two rounds
    said = capsys.readouterr().out.strip()
    assert said == "not kept of the stored result: ('', 'Separate', 0) after 2 rounds"


def test_a_seed_can_be_added_to_what_is_stored(tmp_path, monkeypatch):
    (tmp_path / "_toc.yml").touch()
    monkeypatch.chdir(tmp_path)
    options = {"folder": None, "progress": False}
    measure("trial", "paper", {"a": case(2)}, **options)[0].save()
    here, seeds = {"a": case(2)}, range(2)
    more, run_now = measure(
        "trial", "paper", here, seeds=seeds, only=[("a", "<FedAvg>", 1)], **options
    )
    assert list(run_now) == [("a", "<FedAvg>", 1)]
    assert [(r["method"], r["seed"]) for r in more.record["runs"]] == [
        ("Separate", 0), ("<FedAvg>", 0), ("<FedAvg>", 1),
    ]  # fmt: skip


def test_runs_from_a_time_before_a_hyper_parameter_keep_their_canaries(tmp_path, monkeypatch):
    (tmp_path / "_toc.yml").touch()
    monkeypatch.chdir(tmp_path)
    options = {"folder": None, "progress": False}
    methods = {"Ditto": algorithm("ditto"), "Separate": algorithm("separate")}
    table = Case(federation, methods, 1)
    record = measure("trial", "paper", table, **options)[0].record
    for run in record["runs"]:
        run["settings"].pop("ditto.lam", None)
    for entry in record["canary"]:
        entry["hyper"].pop("lam", None)
    Results(record).save()
    both, _ = measure("trial", "paper", table, only=["Separate"], **options)
    kept = [{key: entry[key] for key in canary.DECIDES} for entry in both.record["canary"]]
    assert both.methods == ["Ditto", "Separate"] and len(kept) == 2
    assert all(canary.canary_setting(run["settings"]) in kept for run in both.record["runs"])


# ------------------------------------------------------------------------- is it still the same?
@pytest.fixture
def fresh_canaries():
    """What a test makes a method compute is not remembered for the next."""
    canary.forget()
    yield
    canary.forget()


SOME = {
    "Ditto": algorithm("ditto", lam=0.5),
    "FedAMP": algorithm("fedamp", self_weight=0.3, sigma=1.0),
    "FedAvg": algorithm("fedavg"),
    "FedAvg+ALA": with_ala(algorithm("fedavg"), max_epochs=3),
    "LGA": algorithm("lga", stragglers=(0, 0, 0, 2), local_steps=2),
}


def test_a_method_comes_back_from_its_stored_settings():
    for method in SOME.values():
        kept = json.loads(json.dumps(method.settings()))
        assert canary.build(method.name, kept).settings() == method.settings()


def test_a_result_is_fresh_after_it_was_stored(tmp_path, fresh_canaries):
    methods = {label: SOME[label] for label in ("Ditto", "FedAvg", "FedAvg+ALA")}
    found, _ = measure("trial", "smoke", Case(federation, methods, 1), folder=None, progress=False)
    assert len(found.record["canary"]) == 3
    canary.forget()
    again = Results.load(found.save(tmp_path / "trial.json"))
    assert again.stale() == [] and "STALE" not in again.caption()


def test_a_method_that_computes_otherwise_makes_its_results_stale(monkeypatch, fresh_canaries):
    methods = {label: SOME[label] for label in ("FedAMP", "FedAvg")}
    found, _ = measure("trial", "smoke", Case(federation, methods, 1), folder=None, progress=False)
    canary.forget()
    attend = type(SOME["FedAMP"]).attend

    def twice(self, *given):
        xi, *rest = attend(self, *given)
        return xi.square() / xi.square().sum(1, keepdim=True), *rest

    monkeypatch.setattr(type(SOME["FedAMP"]), "attend", twice)
    assert found.stale() == ["FedAMP"] and "STALE" in found.caption()


def test_a_common_part_that_computes_otherwise_makes_all_stale(monkeypatch, fresh_canaries):
    methods = {label: SOME[label] for label in ("Ditto", "FedAvg")}
    found, _ = measure("trial", "smoke", Case(federation, methods, 1), folder=None, progress=False)
    canary.forget()
    monkeypatch.setattr("pfl_lib.random.keyed_number", lambda seed, *purpose: 7)
    assert found.stale() == ["Ditto", "FedAvg"]


def test_processes_of_one_run_share_their_canaries(monkeypatch, tmp_path, fresh_canaries):
    monkeypatch.setenv(canary.SHARED, str(tmp_path))
    setting = canary.canary_setting(
        {"algorithm": "fedprox", "fedprox.mu": 0.5, "optimizer": "sgd", "participation": 1}
    )
    first = canary.canary(setting)
    assert len(list(tmp_path.iterdir())) == 1
    canary.forget()  # as another process, which finds it
    with monkeypatch.context() as patch:
        patch.setattr(canary, "_numbers", lambda *a: pytest.fail("computed again"))
        assert canary.canary(setting) == first

    class Mine(type(algorithm("fedprox"))):
        """A notebook's own, under a name of the library's."""

    canary.forget()
    with monkeypatch.context() as patch:
        patch.setattr(canary, "_numbers", lambda *a: {"stopped": True})
        assert canary.canary(setting, Mine(mu=0.5)) == {"stopped": True}
    canary.forget()
    assert canary.canary(setting) == first, "a notebook's own method is shared with nobody"


def test_names_and_text_of_the_code_do_not_matter(monkeypatch, fresh_canaries):
    """The same computation in other words, in another place: the result stays fresh."""
    found, _ = measure(
        "trial", "smoke", Case(federation, {"FedAvg": SOME["FedAvg"]}, 1), folder=None,
        progress=False,
    )  # fmt: skip
    canary.forget()
    averaging = type(SOME["FedAvg"])

    class Renamed(averaging):
        """Another class, whose round goes by another name first."""

        def one_round(self, state, fed, who):
            return averaging.round(self, state, fed, who)

        round = one_round

    monkeypatch.setitem(pfl_lib.methods.BY_NAME, "fedavg", Renamed)
    assert isinstance(canary.build("fedavg", {}), Renamed)
    assert found.stale() == []


def test_a_method_that_is_gone_makes_its_results_stale(fresh_canaries):
    found, _ = measure("trial", "smoke", case(1), folder=None, progress=False)
    for part in (found.record["canary"][0], found.record["runs"][0]["settings"]):
        assert part["algorithm"] == "separate"
        part["algorithm"] = "no such method"
    assert found.stale() == ["Separate"]


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
def test_a_result_file_is_fresh(path):
    assert Results.load(path).stale() == [], (
        "these methods compute something else than when the result was measured: run the "
        "experiment again, or undo the change"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_run_has_its_canary(path):
    record = json.loads(path.read_text())
    settings = [{k: e[k] for k in canary.DECIDES} for e in record["canary"]]
    assert all(canary.canary_setting(run["settings"]) in settings for run in record["runs"])


def test_only_result_files_are_kept_among_the_results():
    """Checkpoints have a folder of their own, which is not committed."""
    wrong = [p for p in RESULTS.rglob("*") if p.is_file() and p.suffix != ".json"]
    assert wrong == []
    assert not any(c > "~" for p in RESULTS.rglob("*") for c in p.name)


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
    assert [row[0] for row in overview.index(every).rows] == ["trial"]
    rows = overview.disagreements(every).rows
    gaps = [abs(float(row[-1])) for row in rows]
    assert len(rows) == 3 and gaps == sorted(gaps, reverse=True)
    assert overview.disagreements(every, scale="paper").rows == []
    order = overview.same_order(every).rows[0]
    assert order[3] == "3" and float(order[-1]) in (0.333, 1.0)  # three methods: 2/6, or all
    standing = {row[0]: row for row in overview.standing(every, least=1).rows}
    assert set(standing) == set(names) and standing["Separate"][3] == ""
    places = sorted(float(row[2]) for row in standing.values())
    assert places == [0.0, 0.5, 1.0]


def test_the_standing_of_fedamp_is_told_apart_by_its_width():
    widths = {"sigma": "median", "self_weight": 0.5}, {"sigma": 3.0, "self_weight": 0.5}
    forms = [*widths, {"sigma": 0.1, "alpha": 1000.0}]
    plain = {"Separate": algorithm("separate"), "FedAvg": algorithm("fedavg")}
    cases = {
        str(i): Case(federation, plain | {"FedAMP": algorithm("fedamp", **options)}, 1)
        for i, options in enumerate(forms)
    }
    found, _ = measure("trial", "laptop", cases, folder=None, progress=False)
    rows = {row[0]: row[1] for row in overview.standing({("trial", "laptop"): found}, least=1).rows}
    amp = {f"FedAMP, {form}": "1" for form in ("median σ", "given σ", "α = 1000")}
    assert rows == {"Separate": "3", "FedAvg": "3", **amp}


@pytest.mark.parametrize(
    ("clients", "rounds", "words"),
    [(100, 100, ""), (40, 100, ", 40 of its 100 clients"), (100, 3, "")],
)
def test_what_a_run_carries_says_how_many_of_the_papers_clients_it_had(clients, rounds, words):
    """FedAMP's paper prints no number of rounds, so none is missed."""
    settings = {"data": "mnist", "model": "mcmahan_cnn", "parameters": 1_663_370}
    run = {"case": "", "clients": [0.9] * clients, "rounds": [rounds]}
    record = {
        "source": "Huang et al. (FedAMP, AAAI 2021), Table 3",
        "cases": [{"case": "", "paper": {"FedAMP": 97.6}}],
        "runs": [run | {"settings": settings | {"partition": "grouped-0a1b"}}],
    }
    carried = overview.carries("fedamp_grouped", "paper", Results(record))
    assert carried == "the paper's network and clients" + words


def test_tables_show_the_message_beside_the_trained_model():
    """FedAMP's paper says that u and w can both be used: both stand in the table."""
    methods = {label: SOME[label] for label in ("FedAMP", "FedAvg")}
    found, histories = measure(
        "trial", "smoke", Case(federation, methods, 2), folder=None, progress=False
    )
    u = histories["", "FedAMP", 0].extra_models["u"]
    rows = {row[0]: row for row in found.table().rows}
    assert "FedAvg: its message u" not in rows
    assert rows["FedAMP: its message u"][1] == f"{100 * sum(u[-1]) / len(u[-1]):.2f}"
    assert [row[0] for row in found.grid("last").rows] == [
        "FedAMP", "FedAMP: its message u", "FedAvg",
    ]  # fmt: skip


def test_a_method_may_have_local_settings_of_its_own_and_be_run_for_one_case():
    case = Case(
        lambda seed: pfl_lib.example(seed=seed),
        {"Separate": algorithm("separate"), "FedAvg": algorithm("fedavg")},
        rounds=1,
        local={"FedAvg": {"lr": 0.5}},
    )
    options = {"folder": None, "progress": False}
    both, _ = measure("mine", "smoke", {"a": case, "b": case}, **options)
    assert {r["method"]: r["settings"]["lr"] for r in both.of("FedAvg")} == {"FedAvg": 0.5}
    assert both.of("Separate")[0]["settings"]["lr"] == 0.1
    some, _ = measure("mine", "smoke", {"a": case, "b": case}, only=[("b", "FedAvg")], **options)
    assert [(r["case"], r["method"]) for r in some.record["runs"]] == [("b", "FedAvg")]
    with pytest.raises(ValueError, match="only must be one of"):
        measure("mine", "smoke", {"a": case}, only=[("b", "FedAvg")], **options)


def test_rows_with_older_settings_are_told():
    def notes(**settings):
        run = {"method": "m", "case": "", "seed": 0, "settings": settings, "rounds": [5, 50]}
        return older(Results({"experiment": "fedala_x", "runs": [run]}))

    assert notes(**{"fedala.tol": 0.01, "fedphp.expected": 50, "pfedme.restart": False}) == []
    assert notes(algorithm="apple", **{"apple.p_gradient": "tensor mean"}) == []
    assert "mean over each tensor" in notes(algorithm="apple")[0]  # as old rows have no such key
    assert "public code goes on" in notes(algorithm="fedfomo")[0]
    (words,) = notes(algorithm="fedala", **{"fedala.tol": 0.01})
    assert "mix once more before the test" in words
    assert "threshold 0.1" in notes(**{"fedala.tol": 0.1})[0]
    assert (
        "a horizon of 100 rounds; its authors' would be 25"
        in (notes(**{"fedphp.expected": 100, "participation": 0.5})[0])
    )
    assert "restarting" in notes(**{"pfedme.restart": True})[0]
