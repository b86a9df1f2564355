"""The race against other libraries (benchmarks/race): its rules, on racers that are always here."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "race"))
import race

TINY = ("logistic_regression", 3, 20, 10)


def test_a_race_of_two_and_one_that_falls(monkeypatch):
    monkeypatch.setitem(race.RACERS, "nobody", ("nobody", None, None))
    options, printed = SimpleNamespace(repeats=2, busy=1, limit=5), []
    row = race.race(TINY, ["pfl_lib", "plain", "nobody"], options, printed.append)
    ours, plain = row["ways"]["pfl_lib"], row["ways"]["plain"]
    assert ours["difference"] == 0 < plain["difference"] < 1e-6 < ours["moved"]
    for way in (ours, plain):
        assert way["quiet"]["turns"] == 2 and way["busy"]["turns"] == 1
        assert 0 < way["quiet"]["local"] <= way["quiet"]["whole"]
        assert way["start-up"] > 0 and (way["memory MB"] is None or way["memory MB"] > 50)
    assert ours["quiet"]["whole, times ours"] == 1 and "engine" in ours["plan"]
    assert "KeyError: 'nobody'" in row["ways"]["nobody"]["failed"]
    assert "nobody             not timed: KeyError" in race.table([row])


def test_who_ends_elsewhere_is_not_timed(tmp_path):
    start, ours = np.zeros(4, np.float32), np.ones(4, np.float32)

    def ended_at(vector, way="plain"):
        (tmp_path / "w.bin").write_bytes(vector.astype(np.float32).tobytes())
        process = SimpleNamespace(
            way=way, start_up=1.0, info={"ready": True},
            ask=lambda _: {"file": str(tmp_path / "w.bin")},
        )  # fmt: skip
        return race.compared(process, start, {"vector": ours})

    assert "failed" not in ended_at(ours + 1e-4)
    assert "parameters differ by up to 1.0e-01" in ended_at(ours - [0, 0, 0.1, 0])["failed"]
    assert "ends elsewhere" in ended_at(ours * np.nan)["failed"]
    assert "failed" not in ended_at(ours - 0.1, "pfl_lib-bf16")  # it says so, and is timed


@pytest.mark.parametrize(
    "way, words",
    [
        ("fluke", "fluke is not here; benchmarks/race/install.sh fluke"),
        ("pfllib", "PFLLIB=/path/to/PFLlib make race, then benchmarks/race/install.sh pfllib"),
        ("blazefl-threads", "benchmarks/race/install.sh blazefl"),
    ],
)
def test_what_is_missing_is_named_with_the_remedy(way, words, tmp_path, monkeypatch):
    monkeypatch.setattr(race, "ROOT", tmp_path)
    monkeypatch.delenv("PFLLIB", raising=False)
    assert words in race.missing(way)


def test_what_could_not_be_installed_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(race, "ROOT", tmp_path)
    (tmp_path / ".venv-blazefl.log").write_text("error: needs Python 3.12\n  hint: look\n")
    assert "could not be installed (error: needs Python 3.12)" in race.missing("blazefl")


def test_what_is_here_is_not_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(race, "ROOT", tmp_path)
    (tmp_path / ".venv-pfllib" / "bin").mkdir(parents=True)
    for name in ("bin/python", ".installed"):
        (tmp_path / ".venv-pfllib" / name).touch()
    assert "name a checkout" in race.missing("pfllib")
    monkeypatch.setenv("PFLLIB", str(tmp_path))
    assert race.missing("pfllib") == race.missing("plain") == ""


def test_the_machine_is_busy_only_inside():
    with race.busy_machine() as pid:
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_command_is_one_that_can_be_typed():
    assert race.ordered(["--save", "results/benchmarks/race.json"]) == []
    assert race.ordered(["--quick", "--save", "x", "--only", "mlp"]) == [
        "ARGS='--quick --only mlp'"
    ]
