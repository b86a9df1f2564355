"""The papers' telling numbers beside ours: what the last column says, checked in the files."""

import pytest

from pfl_lib.book import papers
from pfl_lib.book.experiments import headlines as told
from pfl_lib.book.experiments import stored
from pfl_lib.book.experiments.standings import moved

RESULTS = stored()
ROWS = {(row[0], str(row[1])): row for row in told.headlines().rows}


def best(found, method, case):
    return 100 * found.mean(method, "best", case)


def test_every_headline_has_its_run_and_its_page():
    there = [
        one
        for one in told.HEADLINES
        if (one.experiment, one.scale) in RESULTS
        and told.value(RESULTS[one.experiment, one.scale], one)
    ]
    assert len(told.headlines().rows) == len(there) >= 17
    for row in ROWS.values():
        assert row[1].href.startswith("experiments/") and row[-1].endswith(".")
        assert int(row[4]) >= 1


@pytest.mark.parametrize(
    "paper, table, method, column, row",
    [
        ("fedamp", 3, "FedAMP", "MNIST", ("FedAMP, Table 3", "MNIST: FedAMP")),
        ("fedamp", 1, "Separate", "MNIST", ("FedAMP, Table 1", "MNIST: Separate")),
        (
            *("fedala", 7, "FedALA", "MNIST, 20 clients, all join"),
            ("FedALA, Table 7", "MNIST, FedALA's clients: FedALA"),
        ),
    ],
)
def test_the_papers_numbers_are_those_of_its_tables(paper, table, method, column, row):
    printed = papers.table(paper, table)[method, column].mean
    assert float(ROWS[row][2]) == pytest.approx(printed, abs=0.051)


def test_what_is_said_of_fedamp():
    found = RESULTS["fedamp_grouped", "paper"]
    printed = papers.table("fedamp", 3).column("MNIST")
    assert abs(best(found, "FedAMP", "MNIST") - printed["FedAMP"]) < 0.5
    assert best(found, "FedAvg", "MNIST") > best(found, "FedAMP", "MNIST")
    assert best(found, "FedAvg-FT", "MNIST") > printed["FedAvg-FT"] + 5
    chance = 19 / 99  # of the others, who is of one's own group
    assert found.mean("FedAMP", "inside", "MNIST") == pytest.approx(chance, abs=0.01)
    (scaffold,) = found.of("SCAFFOLD", "MNIST")
    assert scaffold["settings"]["scaffold.lr"] == 0.01 and scaffold["rounds"][-1] == 15
    assert scaffold["best"] == scaffold["last"], "still rising"
    without, message = (
        float(ROWS["FedAMP, Table 3", f"EMNIST: FedAMP − FedAvg-FT{u}"][3].replace("−", "-"))
        for u in ("", " (u)")
    )
    assert without < 0 < message and abs(message - 2.3) < 0.15
    small = papers.table("fedamp", 3)["Separate", "MNIST"].mean
    assert papers.table("fedamp", 1)["Separate", "MNIST"].mean > small + 10


def test_what_is_said_of_spfl_and_plga():
    found = RESULTS["spfl_table1", "laptop"]
    mnist, cifar = "MNIST, non-IID", "CIFAR10, non-IID"
    for case in (mnist, cifar):
        gain, prior = (
            found.mean(m, "last", case) - found.mean("FedAvg", "last", case)
            for m in ("SPFL", "Label prior")
        )
        assert prior > gain > 0
    assert abs(float(ROWS["SPFL, Table 1", f"{mnist}: SPFL − FedAvg"][3]) - 1.8) < 0.2
    own = {(one.scale, one.case): one for one in told.HEADLINES if one.experiment == "plga_order"}
    gaps = {
        key: there[0]
        for key, one in own.items()
        if (there := told.value(RESULTS["plga_order", key[0]], one))
    }
    assert gaps["laptop", "shuffled"] > 0 > gaps["laptop", "class by class"]
    assert gaps["paper", "shuffled"] > 0
    assert all(told.printed(None, one) < 0 for one in own.values())


def test_what_is_said_of_fedacs():
    rows = RESULTS["fedacs_table1", "laptop"]
    assert abs(100 * rows.mean("Separate", "last", "FMNIST") - 75.98) < 1
    assert 100 * rows.mean("Separate", "last", "CIFAR10") < 77.29 - 30
    found = RESULTS["fedacs_dirichlet", "laptop"]
    ends = [f"FMNIST, α = {a}" for a in ("0.1", "10")]
    assert found.paper("FedACS", ends[0]) < found.paper("FedACS", ends[1])
    for what, method in (("last", "FedACS"), ("last", "Separate"), ("guessing", "Separate")):
        first, last = (found.mean(method, what, case) for case in ends)
        assert first > last


def test_what_is_said_of_fedala():
    found, case = RESULTS["fedala_published", "paper"], "MNIST, FedALA's clients"
    ala, prior = (found.of(m, case)[0]["extra"] for m in ("FedALA", "Label prior"))
    assert abs(ala["by sample, best"] - prior["by sample, best"]) < 0.001
    (slow,), (fast,) = ([found.of(m, case)[0]] for m in ("FedAvg", "FedALA"))
    assert moved(slow) > moved(fast) and fast["rounds"][-1] == 20
    main, case = RESULTS["fedala_main", "laptop"], "Cifar10, Dirichlet 0.1"
    assert best(main, "FedALA", case) < best(main, "Ditto", case)
    assert best(main, "FedALA, η = 10", case) > best(main, "Ditto", case)
