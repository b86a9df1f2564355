"""The page on FedAMP's readings and the twelve printed columns: what its board needs is there."""

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
