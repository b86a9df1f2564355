"""What the page on things that break says: of a full disk, of networks, of long runs."""

import json
from datetime import date

from devtools.sphinxext.pfl_pages import in_trust, over_flower, soaked, wrong_arguments
from tests.support import api_fuzz, enduring
from tests.support.paths import ROOT


def test_text_and_table_agree_that_a_run_on_a_full_disk_stops_and_can_go_on():
    record = json.loads((ROOT / "results" / "soak" / "disk.json").read_text(encoding="utf-8"))
    table = soaked(record["measured"])
    page = (ROOT / "book" / "reliability.md").read_text(encoding="utf-8")
    (text,) = (part for part in page.split("\n- ") if part.startswith("**A full disk.**"))
    for sentence in (table, text):
        assert sentence.index("stops") < sentence.index("goes on")
    assert "bit-identical" in table


def stored(folder):
    paths = (ROOT / "results" / folder).glob("*.json")
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def test_no_run_over_a_network_ended_in_a_wrong_number_or_too_late():
    records = stored("flower")
    rows = records["cables"]["rows"]
    assert len(rows) == 8 and records["cables"]["clients"] == 5
    assert len(set(records["cables"]["addresses"])) == 6  # the SuperLink's, and each node's own
    for row in rows:
        assert row["largest difference"] == 0
        assert row["seconds"] < row["seconds at most"]
    lossy, lying = rows[1], next(row for row in rows if "lies" in row["what"])
    assert lossy["absences"] == 0 < lossy["packets"]["lost"]
    assert [1 in who for who in lying["who"]] == [True, *[False] * 8, True]
    assert all({0, 2, 3, 4} <= set(who) for who in lying["who"])
    assert records["cables"]["stranger"]["exit code"] != 0
    report = dict(over_flower(records))
    assert len(report) > len(rows)
    for name in ("death", "worker", "network", "many"):
        if name in records:
            rows = records[name].get("rows", [records[name]])
            assert all(row["largest difference"] == 0 for row in rows)


def test_long_runs_end_as_if_nobody_had_killed_them_and_memory_stays_level():
    found = {n: r["measured"] for n, r in stored("soak").items() if n.startswith("endure")}
    assert {measured["method"] for measured in found.values()} == set(enduring.METHODS)
    for measured in found.values():
        assert measured["clients"] == 500 == measured["rounds"] and measured["kills"] > 0
        assert measured["differs from the run in peace"] == [] and measured["growth"] <= 0.02
        assert f"{measured['kills']} kills; results that differ: 0" in soaked(measured)


def test_the_table_of_trust_names_every_method_and_its_commands():
    records = stored("trust")
    report = "".join(what for what, _ in in_trust(records))
    assert all(name in report for name in ("FedAvg", "FedAMP", "FedALA", "FedRep"))
    assert all(
        record["command"].startswith("python -m devtools.trust") for record in records.values()
    )
    for record in records.values():  # the first four runs did not write down their machine
        assert date.fromisoformat(record["date"]) and record["torch"]
        assert record["date"] == "2026-11-18" or {"library", "python", "machine"} <= set(record)


def test_every_group_of_callables_was_tried_with_every_kind_of_value():
    measured = stored("soak")["api"]["measured"]
    assert measured["wrong"] == {}
    assert measured["values"] == {kind: list(values) for kind, values in api_fuzz.KINDS.items()}
    assert list(measured["groups"]) == list(api_fuzz.GROUPS)
    assert sum(group["callables"] for group in measured["groups"].values()) == len(api_fuzz.FUZZED)
    for group in measured["groups"].values():
        for kind, counts in group["kinds"].items():
            tried = group["arguments"] * len(api_fuzz.KINDS[kind])
            assert counts["refused"] + counts["taken"] == tried > counts["taken"]
    lines = wrong_arguments(measured)
    assert len(lines) == 2 + len(measured["groups"]) + 1
    assert f"| all | {len(api_fuzz.FUZZED)} |" in lines[-1]
