"""Every table and figure has its row, and what a row names is there."""

from pfl_lib.book.experiments import stored
from pfl_lib.book.experiments.coverage import ITEMS, coverage
from tests.support.paths import ROOT


def test_what_a_row_names_is_a_page():
    for *_, where, _ in ITEMS:
        places = [ROOT / "notebooks" / "experiments", ROOT / "notebooks", ROOT / "book"]
        where = where.partition("#")[0]
        kinds = (f"{where}.ipynb", f"{where}.md")
        assert not where or any((p / k).exists() for p in places for k in kinds), where


def test_every_experiment_on_a_paper_has_a_row():
    named = {where.partition("#")[0] for *_, where, _ in ITEMS}
    assert {name for name, _ in stored() if not name.startswith(("own", "natural"))} - named <= {
        "fedacs_p"
    }


def test_what_was_not_run_says_so():
    rows = {row[3]: row[4] for row in coverage({}).rows}
    assert rows["fedamp_iid"] == "not run"
    assert rows["04_fedamp"] == "explained"
    assert "laptop (at this scale" in {r[3]: r[4] for r in coverage().rows}["fedamp_iid"]


def test_a_case_that_is_named_is_one_of_the_experiment_and_counts_alone():
    found = stored("fedala_published")["paper"]
    named = {where.partition("#")[2] for *_, where, _ in ITEMS if where.startswith("fedala_pub")}
    assert named - {""} <= {*found.cases} and len(named) == 3
    one = found.cases[0]
    empty = {("fedala_published", "paper"): found.within([one])}
    said = {item[2]: row[4] for item, row in zip(ITEMS, coverage(empty).rows)}
    assert said["the authors' blocks of clients"] == "not run"
    rows = len(found.methods_in(one))
    assert said["MNIST, the authors' own clients"].startswith(f"paper, {rows} rows (the paper's")
