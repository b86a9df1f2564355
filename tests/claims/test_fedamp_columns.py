"""The page on FedAMP's readings and the twelve printed columns: what its board needs is there."""

import statistics

from pfl_lib.book import papers
from pfl_lib.book.experiments import stored

TABLES = {"IID": 1, "pathological": 2, "grouped": 3}
PRINTED = {
    f"{kind}, {data}"
    for kind, number in TABLES.items()
    for data in papers.table("fedamp", number).columns
}


def test_twelve_columns_are_printed_and_a_stored_run_has_them():
    assert len(PRINTED) == 12
    for kept in stored("fedamp_columns").values():
        assert {*kept.cases} == PRINTED


def test_every_reading_has_a_message_and_both_rivals_beside_it():
    for kept in stored("fedamp_columns").values():
        for case in kept.cases:
            here = kept.methods_in(case)
            readings = [m for m in here if "FedAMP" in m]
            assert not readings or {"FedAvg-FT", "Separate"} <= {*here}
            for m in readings:
                assert len(kept.message(m, "best", case)) == len(kept.of(m, case))


def signs(kept, label, model, kind):
    """In how many of a table's columns a reading is ahead of fine-tuned FedAvg, as the paper."""
    right = 0
    for case in kept.cases:
        if case.startswith(kind):
            printed = papers.table("fedamp", TABLES[kind]).column(case.split(", ")[1])
            theirs = printed[label.split(",")[0]] - printed["FedAvg-FT"]
            found = []
            for run in kept.of(label, case):
                (alone,) = (v for k, v in run["settings"].items() if k.endswith(".pretrain_rounds"))
                means = run["extra_models"]["u"] if model == "u" else run["mean by round"]
                last = run["rounds"][-1]
                found.append(max(a for k, a in zip(run["rounds"], means) if k + alone <= last))
            ours = statistics.fmean(found) - kept.mean("FedAvg-FT", "best", case)
            right += (ours > 0) == (theirs > 0)
    return right


def test_the_iid_columns_speak_for_the_message_and_the_grouped_do_not():
    kept = stored("fedamp_columns")["laptop"]
    readings = [m for m in kept.methods if "FedAMP" in m]
    assert len(readings) == 9
    for m in readings:
        assert signs(kept, m, "w", "IID") == 0
        assert signs(kept, m, "u", "IID") == (0 if "τ on oneself" in m else 4)
    for m in ("FedAMP", "FedAMP, half kernel", "FedAMP, alone first"):
        assert signs(kept, m, "u", "grouped") == 0


def test_everybody_has_trained_equally_long_where_readings_are_scored():
    kept = stored("fedamp_columns")["laptop"]
    for m in kept.methods:
        for run in kept.of(m):
            alone = [v for k, v in run["settings"].items() if k.endswith(".pretrain_rounds")]
            assert run["rounds"][-1] == 16 and alone in ([], [0], [8])
