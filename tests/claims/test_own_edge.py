"""What the page on where attention pays says."""

import nbformat
import pytest

from tests.support.claims import laptop
from tests.support.paths import ROOT

FOUND = laptop("own_edge")
TRIED = ("FedAMP", "HeurFedAMP", "FedACS")
CASES = pytest.mark.parametrize("case", FOUND.cases)


def chosen(family, case):
    """The family's member that was best on the first seed, in % on the other seeds."""
    seed, *rest = FOUND.record["seeds"]
    runs = {
        m: {r["seed"]: r["last"] for r in FOUND.of(m, case)}
        for m in FOUND.methods
        if m.split(",")[0] == family
    }
    best = max(runs, key=lambda m: runs[m][seed])
    return 100 * sum(runs[best][s] for s in rest) / len(rest)


@CASES
@pytest.mark.parametrize("family", ("Separate", "FedAvg", "FedAvg-FT", *TRIED))
def test_the_pages_choose_on_one_seed_and_report_the_others(family, case):
    assert 100 * FOUND.chosen(family, case) == pytest.approx(chosen(family, case))


@pytest.mark.parametrize("page", ["experiments/own_edge", "13_which"])
def test_both_pages_draw_the_same_map(page):
    """Neither page may go back to a choice of its own."""
    cells = nbformat.read(ROOT / "notebooks" / f"{page}.ipynb", as_version=4).cells
    source = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert ".chosen(" in source and "def chosen" not in source


def gains(conflict):
    return [
        chosen(m, case) - max(chosen("Separate", case), chosen("FedAvg-FT", case))
        for case in FOUND.cases
        if ("conflict" in case) == conflict
        for m in TRIED
    ]


def test_where_the_groups_agree_on_the_names_attention_buys_next_to_nothing():
    found = gains(conflict=False)
    assert min(found) < -2 and abs(sum(found) / len(found)) < 1


def test_where_the_names_conflict_attention_pays():
    assert min(gains(conflict=True)) > 0


@CASES
def test_fine_tuning_ends_below_clients_on_their_own_only_where_names_conflict(case):
    tuned, alone = chosen("FedAvg-FT", case), chosen("Separate", case)
    assert (tuned < alone) == ("conflict" in case) or abs(tuned - alone) < 0.5


@CASES
def test_in_no_setting_are_the_three_kinds_of_attention_two_points_apart(case):
    found = [chosen(m, case) for m in TRIED]
    assert max(found) - min(found) < 2
