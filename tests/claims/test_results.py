"""What the page of results says about the stored runs."""

from pfl_lib.book.experiments import overview, stored
from pfl_lib.book.experiments.matrix import matrix

RESULTS = stored()


def test_blue_is_rare():
    laptop = {key: kept for key, kept in overview.counted(RESULTS).items() if key[1] == "laptop"}
    rows = [row for _, rows in matrix(laptop).blocks.values() for row in rows]
    here = [pair for row in rows if row.both for pair in row.cells.items()]
    cells = [cell for method, cell in here if method != "Oracle groups"]  # told the groups
    assert len(cells) > 300
    assert sum(c.points > 0 and not c.noise for c in cells) < 0.15 * len(cells)


def test_no_summary_counts_sweeps_costs_or_other_readings():
    shown = {row.experiment for _, rows in matrix().blocks.values() for row in rows}
    assert shown and not shown & {*overview.APART}
    ranked = [row[:3] for row in overview.standing(RESULTS).rows]
    assert ranked == [row[:3] for row in overview.standing(overview.counted(RESULTS)).rows]
    for name in overview.APART:
        assert any(name == stored_name for stored_name, _ in RESULTS)


def scaffold(scale, kinds=("iid", "pathological", "grouped")):
    """SCAFFOLD less FedAvg in points, best round: ours and the paper's by column."""
    ours, theirs = {}, {}
    for kind in kinds:
        found = RESULTS.get((f"fedamp_{kind}", scale))
        for case in found.cases if found else ():
            gap = found.mean("SCAFFOLD", "best", case) - found.mean("FedAvg", "best", case)
            ours[kind, case] = 100 * gap
            theirs[kind, case] = found.paper("SCAFFOLD", case) - found.paper("FedAvg", case)
    return ours, theirs


def test_scaffold_beside_fedavg():
    ours, theirs = scaffold("laptop")
    assert len(ours) == 12
    assert min(theirs.values()) < -38.5 and max(theirs.values()) > 78.5
    assert min(ours.values()) > -0.5 and 21 <= max(ours.values()) < 21.5
    assert all(gap < 8 for (kind, _), gap in ours.items() if kind != "pathological")
    paper, _ = scaffold("paper")
    assert len(paper) == 2 and all(-10.5 < gap < -6 for gap in paper.values())


def test_spfl_is_first_where_clients_differ():
    found = RESULTS["spfl_table1", "laptop"]
    for case in found.cases:
        others = [m for m in found.methods if m != "Label prior"]
        best = max(others, key=lambda m: found.mean(m, "last", case))
        assert (best == "SPFL") == ("non-IID" in case)
        prior, spfl = (found.mean(m, "last", case) for m in ("Label prior", "SPFL"))
        assert prior > spfl


def test_cifar10_is_harder_than_fashion():
    found = RESULTS["fedacs_table1", "laptop"]
    for method in ("Separate", "Ditto"):
        of = {c: 100 * found.mean(method, "last", c) for c in found.cases}
        assert of["FMNIST"] - of["CIFAR10"] > 30
        assert abs(found.paper(method, "FMNIST") - found.paper(method, "CIFAR10")) < 2


def test_alone_is_near_the_best_of_fedalas_table():
    found = RESULTS["fedala_main", "laptop"]
    for case in found.cases:
        best = {m: 100 * found.mean(m, "best", case) for m in found.methods}
        assert best["FedAvg"] + 7 < best["FedALA"] < best["Separate"]
        printed = max(best[m] for m in best if found.paper(m, case))
        assert printed - best["Separate"] < 2
        last = {m: found.mean(m, "last", case) for m in found.methods}
        assert max(last, key=last.get) == "Label prior"


def test_no_small_run_is_held_against_a_paper():
    for (name, scale), found in RESULTS.items():
        carried = overview.carries(name, scale, found)
        networks = {r["settings"]["parameters"] for r in found.record["runs"]}
        if scale != "paper" or (name, scale) == ("fedamp_grouped", "paper"):
            assert not carried.startswith("the paper's network"), (name, scale, networks)
