"""Every table and figure has its row, and what a row names is there."""

import re

from pfl_lib.book import papers
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


def test_what_is_called_missing_is_missing():
    """A data set or a method that a row misses is in no stored run of its experiment."""
    names = {"EMNIST": "emnist", "CIFAR100": "cifar100", "CIFAR10": "cifar10"}
    results = stored()
    for *_, where, missing in ITEMS:
        runs = [r for (n, _), k in results.items() if n == where for r in k.record["runs"]]
        data = {run["settings"]["data"].removesuffix("_balanced") for run in runs}
        if not missing.startswith("CIFAR100 for"):
            assert (
                not {names[word] for word in re.findall(r"[A-Z]+\d*", missing) if word in names}
                & data
            )
        methods = {run["method"] for run in runs}
        assert not {word for word in missing.split(", ")} & methods, (where, missing)
    dirty = results["fedamp_dirty", "laptop"]
    assert all({"FedProx", "SCAFFOLD", "APFL"} <= {*dirty.methods_in(c)} for c in dirty.cases)
    four = results["fedala_table4", "laptop"]
    printed = {*papers.table("fedala", 2).rows}
    assert len(printed) == 14
    for case in four.cases:
        assert case == "with and without ALA" or len(printed - {*four.methods_in(case)}) == 8
    one = results["spfl_table1", "laptop"]
    assert len(papers.table("spfl", 1).columns) - len(one.cases) == 5
