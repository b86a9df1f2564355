"""The papers' settings and result tables, and whether they are transcribed right.

With PFL_PAPERS set to a folder of the papers' texts every number is also looked up there.
"""

import html
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest

from pfl_lib import methods, models, partition
from pfl_lib._groups import GROUPED
from pfl_lib.book import papers
from pfl_lib.book.experiments.methods import fedala_fourteen
from pfl_lib.book.papers._given import HOME, METHODS, RUNS

METHOD_NAMES = (
    *("separate", "fedavg", "fedprox", "scaffold", "fedavg-2step", "fedavg-ft", "fedprox-ft"),
    *("fedavg-c", "fedprox-c", "fedupdate", "per-fedavg", "pfedme", "ditto", "apfl", "fedrep"),
    *("fedamp", "heurfedamp", "fedacs", "spfl", "spfl-1step", "spfl-w", "spfl-w-1step"),
    *("fedavg-sync", "fedavg-async", "fedasync", "lga", "plga", "fedala", "fedphp", "fedfomo"),
    *("apple", "partialfed"),
)

EVERY_RUN = [
    (method, data, partition, paper)
    for paper, methods in METHODS.items()
    for method in methods
    for partition, names in RUNS[paper].items()
    for data in names
]
EVERY_TABLE = [(paper, number) for paper, numbers in papers.tables().items() for number in numbers]
NEEDED = ("lr", "optimizer", "batch_size", "epochs", "rounds", "clients", "model", "participation")


# --- settings --------------------------------------------------------------------------------


def test_settings_know_every_method():
    assert set(papers.names()["methods"]) == set(METHOD_NAMES) == set(HOME)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_settings_without_data_come_from_the_home_paper(method):
    found = papers.settings(method)
    assert found.paper == HOME[method] and "batch_size" in found


@pytest.mark.parametrize(("method", "data", "partition", "paper"), EVERY_RUN)
def test_settings_are_complete_and_sourced(method, data, partition, paper):
    found = papers.settings(method, data, partition, paper=paper)
    assert found.paper == paper and not found.missing
    assert set(NEEDED) <= set(found)
    assert all(found.source(name).strip() for name in found)
    for name in found.chosen():
        assert re.fullmatch(r"not given: our choice \(.+\)", found.source(name))


@pytest.mark.parametrize(("partition", "number"), [("grouped", 2), ("iid", 3), ("pathological", 4)])
def test_settings_of_fedamp_are_those_of_its_tables(partition, number):
    table = papers.table("fedamp_v1", number)
    for column, data in zip(table.columns, ("mnist", "fashion_mnist", "emnist", "cifar100")):
        amp = papers.settings("fedamp", data, partition)
        heur = papers.settings("heurfedamp", data, partition)
        assert amp["sigma"] == table["sigma of FedAMP", column].mean
        assert heur["sigma"] == table["sigma of HeurFedAMP", column].mean
        assert amp["tau_printed"] == heur["tau_printed"] == table["tau of both", column].mean
        assert amp["self_weight"] == heur["self_weight"] == pytest.approx(1 - amp["tau"], abs=1e-12)
        assert f"Table {number}" in amp.source("self_weight")


def test_settings_correct_the_tau_of_emnist():
    found = papers.settings("fedamp", "emnist", "iid")
    assert (found["tau_printed"], found["tau"], found["self_weight"]) == (0.084, 0.984, 0.016)
    assert found["tau"] == round(1 - 1 / found["clients"], 3)
    assert "0.084" in found.source("tau") and "changed" in found.source("tau")


def test_settings_of_the_proximal_schedule_are_data_and_a_function():
    beta = papers.settings("heurfedamp")["prox_beta"]
    assert beta._asdict() == {"start": 1e4, "factor": 0.1, "every": 30}
    assert [beta(k) for k in (0, 29, 30, 90)] == pytest.approx([1e4, 1e4, 1e3, 10.0])


def test_settings_of_fedacs_are_our_choice():
    found = papers.settings("fedacs", "cifar10", "scarce")
    for name in ("p", "lr", "epochs", "batch_size", "rounds", "model", "negatives"):
        assert name in found.chosen()
    assert found["samples"] == 50 and "samples" not in found.chosen()


def test_settings_tell_the_papers_apart():
    assert papers.settings("fedavg", "mnist", "pathological")["clients"] == 100
    assert papers.settings("fedavg", "mnist", "pathological", paper="fedala")["clients"] == 20
    assert papers.settings("fedamp", "cifar10", "dirichlet")["alpha"] == 1000
    assert papers.settings("pfedme", "mnist", "class_subset")["inner_steps"] == 2
    assert papers.settings("pfedme", "mnist", "dirichlet")["inner_steps"] == 5


def test_settings_and_partition_have_the_same_groups():
    for name, groups in GROUPED.items():
        found = papers.settings("fedamp", name, "grouped")
        assert found["group_clients"] == groups["clients"]
        assert found["group_sizes"] == groups["sizes"]
        assert sum(groups["clients"]) == found["clients"]


def test_settings_say_what_is_still_open():
    found = papers.settings("fedamp")
    assert {"sigma", "self_weight", "model", "clients"} <= set(found.missing)
    assert "Say data and partition for:" in str(found)
    assert "sigma" not in papers.settings("fedamp", "mnist")


def test_settings_of_spfl_and_plga_know_the_public_code():
    assert papers.settings("spfl", "emnist", "class_subset")["edition"] == "balanced"
    assert "edition" not in papers.settings("spfl", "mnist", "class_subset")
    assert papers.settings("spfl")["weight_decay"] == 1e-4
    late = papers.settings("plga")
    assert (late["stragglers"], late["local_steps"], late["shuffle"]) == ("alternating", 20, False)
    assert "shuffle" not in papers.settings("spfl")
    built = methods.FedAsync(**papers.settings("fedasync").fit(methods.FedAsync))
    assert (built.mixing, built.alpha, built.stragglers) == ("late", 0.8, "alternating")


def test_settings_are_frozen():
    found = papers.settings("fedala", "mnist", "dirichlet")
    with pytest.raises(AttributeError, match="frozen"):
        found.method = "fedavg"
    with pytest.raises(AttributeError, match="frozen"):
        del found.method
    with pytest.raises(TypeError):
        found["lr"] = 1.0
    with pytest.raises(KeyError, match="batch_size"):
        found["learning_rate"]
    assert found == dict(found) and len(found) == len(list(found))


def test_settings_name_the_parameters_of_the_methods():
    """A value that a method has no parameter for would be lost in silence."""
    run = {"lr", "optimizer", "batch_size", "epochs", "rounds", "participation", "runs", "model"}
    run |= {"weight_decay", "shuffle"}
    clients = {"clients", "a", "form", "samples", "test_share", "classes_per_client"}
    clients |= {"group_clients", "group_sizes", "share", "test_size", "edition", "length"}
    words = {"tau", "tau_printed", "periods", "received", "scheduler"}  # stated, not set
    for method, data, split, paper in EVERY_RUN:
        found = papers.settings(method, data, split, paper=paper)
        if kind := methods.BY_NAME.get(method):
            assert set(found) - set(found.fit(kind)) <= run | clients | words, (method, paper)


def test_settings_fit_what_one_calls():
    def train(lr, epochs, seed=0):
        return lr, epochs, seed

    assert train(**papers.settings("fedala", "mnist").fit(train)) == (0.1, 1, 0)


@pytest.mark.parametrize(("method", "data", "split", "paper"), EVERY_RUN)
def test_settings_build_the_method_and_its_clients(method, data, split, paper):
    found = papers.settings(method, data, split, paper=paper)
    if kind := methods.BY_NAME.get(method):
        assert kind(**found.fit(kind)).name == method
    assert found["model"] in models.names()
    needs = {
        "iid": {"clients"},
        "pathological": {"clients", "classes_per_client"},
        "grouped": {"group_clients", "group_sizes", "share", "test_size"},
        "class_subset": {"clients", "classes_per_client", "test_share"},
        "dirichlet": {"clients", "a", "form"},
        "scarce": {"samples"},
    }[split]
    assert needs <= set(found.fit(getattr(partition, split)))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("fedmap",), "method.*'fedamp'"),
        (("fedamp", "mnst"), "data.*'mnist'"),
        (("fedamp", "mnist", "group"), "partition.*'grouped'"),
        (("fedamp", "mnist", "grouped", "fedam"), "paper.*'fedamp'"),
        (("fedamp", "ag_news", "grouped"), "no paper here ran 'fedamp' with data='ag_news'"),
    ],
)
def test_settings_refuse_what_is_not_known(arguments, hint):
    with pytest.raises(ValueError, match=hint):
        papers.settings(*arguments)


def test_settings_print_and_escape(capsys):
    found = papers.settings("fedamp", "mnist", "grouped")
    found.show()
    assert "Huang et al. v1, Table 2" in capsys.readouterr().out
    assert "sigma=100.0" in repr(found)
    text = papers.settings("spfl", "mnist")._repr_html_()
    assert html.escape("'softmax'") in text and "'softmax'" not in text
    assert 'tabindex="0" role="region"' in text  # a wide table scrolls, by keyboard too


# --- tables: shape, printing, transcription ---------------------------------------------------

# The sum of all printed values: one changed digit changes it.
SUMS = {
    ("fedamp_v1", "1"): 2076.53,
    ("fedamp_v1", "2"): 1000308.6,
    ("fedamp_v1", "3"): 1000348.054,
    ("fedamp_v1", "4"): 1000307.0,
    ("fedamp_v1", "5"): 2083.72,
    ("fedamp_v1", "6"): 2385.6,
    ("fedamp", "1"): 2700.25,
    ("fedamp", "2"): 3027.0,
    ("fedamp", "3"): 2559.15,
    ("spfl", "1"): 4405.08,
    ("spfl", "2"): 2757.77,
    ("spfl", "5"): 69136.0,
    ("spfl", "6"): 11804.54,
    ("spfl", "7"): 7057.17,
    ("spfl", "8"): 3524.34,
    ("fedacs", "1"): 670.38,
    ("fedacs", "2"): 850.42,
    ("fedala", "1"): 589.016,
    ("fedala", "2"): 7433.61,
    ("fedala", "3"): 5673.27,
    ("fedala", "4"): 4267.5,
    ("fedala", "6"): 4857557.49,
    ("fedala", "7"): 1921.95,
}


@pytest.mark.parametrize(("paper", "number"), EVERY_TABLE)
def test_tables_are_rectangular_and_add_up(paper, number):
    table = papers.table(paper, number)
    assert len(table.rows) == len(set(table.rows)) == len(table.cells)
    assert len(table.columns) == len(set(table.columns))
    assert {len(row) for row in table.cells} == {len(table.columns)}
    assert table.title and table.measures
    values = [value for row in table.mean for value in row if value is not None]
    assert sum(values) == pytest.approx(SUMS[paper, number], abs=1e-6)


def test_tables_are_read_by_name():
    table = papers.table("spfl", 1)
    cell = table["SPFL", "CIFAR100, non-IID"]
    assert (cell.mean, cell.sd, cell.text) == (24.97, 1.0, "24.97±1.00")
    assert table.row("FedAvg")["MNIST, IID"] == table.column("MNIST, IID")["FedAvg"] == 98.46
    assert table.mean[0][0] == 98.46 and table.sd[0][0] == 0.21
    assert papers.table("fedala", 7)["FedAMP", "Cifar100, 100 clients, half join"].mean is None
    assert papers.table("fedala", 3)["FedALA", "total (min)"].mean == 123
    assert papers.table("fedamp_v1", 2)["sigma of FedAMP", "CIFAR100"].mean == 1e6


def test_tables_refuse_what_is_not_known():
    with pytest.raises(ValueError, match="'fedamp'"):
        papers.table("fedmp", 1)
    with pytest.raises(ValueError, match="number of a table of 'fedacs'"):
        papers.table("fedacs", 3)
    with pytest.raises(ValueError, match=r"row.*'FedAMP'"):
        papers.table("fedamp", 1)["FedAmp", "MNIST"]


def test_tables_print_and_escape(capsys):
    table = papers.table("fedala", 4)
    table.show()
    out = capsys.readouterr().out
    assert "24.19" in out and "Zhang et al." in out and "erratum-fedala-spread" in out
    hostile = papers.Table(
        *("spfl", "0", "<b>title</b>", "a & b", ("<i>",), ("<script>",)),
        cells=((papers.Cell.read("<td>"),),),
        note="x < y",
    )
    text = hostile._repr_html_()
    for word in ("<b>", "<i>", "<script>", "<td><td>", "x < y", "a & b"):
        assert word not in text
    assert "&lt;script&gt;" in text and text.count("<table") == 1


# --- tables: what they say about each other -----------------------------------------------------


def test_both_versions_of_fedamp_print_the_same_but_one_number():
    differ = []
    for first, second in ((5, 1), (6, 2), (1, 3)):  # IID, pathological, grouped
        old, new = papers.table("fedamp_v1", first), papers.table("fedamp", second)
        assert set(old.rows) < set(new.rows) and old.columns == new.columns
        differ += [
            (second, row, column, old[row, column].text, new[row, column].text)
            for row in old.rows
            for column in old.columns
            if old[row, column] != new[row, column]
        ]
    assert differ == [(1, "FedAMP", "CIFAR100", "45.58", "45.68")]


def test_spfl_table_six_means():
    table, wrong = papers.table("spfl", 6), {}
    for row in table.rows:
        *clients, printed = table.row(row).values()
        mean = sum(clients) / len(clients)
        if abs(mean - printed) > 6e-4:
            wrong[row] = (printed, round(mean, 3))
    assert wrong == {"3-1-2": (98.307, 98.407), "3-1-5": (85.095, 85.149)}


def test_spfl_table_seven_repeats_its_default_row():
    table = papers.table("spfl", 7)
    defaults = [table.row(row) for row in ("T = 10", "k2", "N = 10", "E = 1")]
    assert all(a == b for a, b in pairwise(defaults))


def test_fedala_gains_are_differences_to_table_two():
    gains, base = papers.table("fedala", 4), papers.table("fedala", 2)
    checked = 0
    for name, column in (("Tiny-ImageNet", "TINY"), ("Cifar100", "Cifar100")):
        for row in gains.rows:
            gain = gains[row, f"{name}, gain by ALA"].mean
            if gain is not None:
                before = base[row, f"{column}, Dirichlet 0.1"].mean
                assert gains[row, f"{name}, with ALA"].mean - before == pytest.approx(
                    gain, abs=6e-3
                )
                checked += 1
    assert checked == 17


def test_fedala_tables_agree_where_they_show_the_same_run():
    two, four, six = (papers.table("fedala", n) for n in (2, 4, 6))
    for name, column in (("Tiny-ImageNet", "TINY"), ("Cifar100", "Cifar100")):
        with_ala = four["FedAvg", f"{name}, with ALA"].mean
        assert with_ala == two["FedALA", f"{column}, Dirichlet 0.1"].mean
    assert six["accuracy", "CNN, p = 1"].mean == two["FedALA", "TINY, Dirichlet 0.1"].mean
    assert six["accuracy", "fastText, p = 1"].mean == two["FedALA", "AG News, Dirichlet 0.1"].mean
    one = papers.table("fedala", 1)
    both = one["accuracy", "s = 80 (p = 1)"], one["accuracy", "p = 1 (s = 80)"]
    assert both[0].mean == both[1].mean == two["FedALA", "TINY*, Dirichlet 0.1"].mean


# --- tables: every number against the paper's text ----------------------------------------------

TEXTS = {
    "fedamp_v1": "fedamp_arxiv_v1.txt",
    "fedamp": "fedamp_aaai2021.txt",
    "spfl": "spfl_plga.txt",
    "fedacs": "fedacs.txt",
    "fedala": "fedala_aaai2023.txt",
}
# Where a table begins and ends in the text (captions stand above or below).
PLACES = {
    ("fedamp_v1", "1"): ("Table 1: Best", "The performance of"),
    ("fedamp_v1", "2"): ("Table 2: Values", "Table 3: Values"),
    ("fedamp_v1", "3"): ("Table 3: Values", "Table 4: Values"),
    ("fedamp_v1", "4"): ("Table 4: Values", "C.2 Tolerance"),
    ("fedamp_v1", "5"): ("Table 5: Best", "C.5 Experiments"),
    ("fedamp_v1", "6"): ("Table 6: Best", None),
    ("fedamp", "1"): ("Table 1: BMTA", "Table 2: BMTA"),
    ("fedamp", "2"): ("Table 2: BMTA", "FedAvg and FedProx under"),
    ("fedamp", "3"): ("Table 3: BMTA", "clients introduces"),
    ("spfl", "1"): ("Table 1: Comparison", "Compared to FedAvg and independent"),
    ("spfl", "2"): ("Table 2: Comparison", "5 CONCLUSION"),
    ("spfl", "5"): ("Table 5: Federated", "The experimental results show that the results"),
    ("spfl", "6"): ("Table 6: Federal", "gradient similarity on the client differs"),
    ("spfl", "7"): ("Table 7: The influence", "Table. 8 shows"),
    ("spfl", "8"): ("Table 8: SPFL", None),
    ("fedacs", "1"): ("CIFAR10 dir", "Table 1: Test"),
    ("fedacs", "2"): ("elevate the overall model", "Table 2: Test"),
    ("fedala", "1"): ("Items\tp = 1", "Table 1: The test"),
    ("fedala", "2"): ("Settings\tPathological", "Table 2: The test"),
    ("fedala", "3"): ("Total time", "Table 3: The computation"),
    ("fedala", "4"): ("Methods\tDir(0.01)", "Table 4: The test"),
    ("fedala", "6"): ("s is set to 80%", "Table 7: The test"),
    ("fedala", "7"): ("\tMNIST\tCifar100\nClient", None),
}
# FedALA's text runs several rows together: there the columns of each block stand in one piece.
BLOCKS = {("fedala", n): (0, 2, 4, 13, 14) for n in ("2", "3", "4")} | {("fedala", "6"): (0, 2)}
PRINTED = re.compile(r"(?<![\w.])(?:\d+\^\d+|\d+\+\d+|\d+(?:\.\d+)?(?:±\d+\.\d+)?)(?![\w.]\d)")


def printed_numbers(text, start, end):
    text = text[text.index(start) + len(start) :]
    text = text[: text.index(end)] if end else text
    text = re.sub(r"\$|\{\\pm\}|\\pm", lambda hit: "" if hit[0] == "$" else "±", text)
    return PRINTED.findall(re.sub(r"\s*±\s*", "±", text))


def in_one_piece(piece, numbers):
    return any(numbers[i : i + len(piece)] == piece for i in range(len(numbers) - len(piece) + 1))


@pytest.mark.skipif("PFL_PAPERS" not in os.environ, reason="PFL_PAPERS: a folder of paper texts")
@pytest.mark.parametrize(("paper", "number"), EVERY_TABLE)
def test_tables_are_what_the_text_prints(paper, number):
    text = (Path(os.environ["PFL_PAPERS"]) / TEXTS[paper]).read_text(encoding="utf-8")
    numbers = printed_numbers(text, *PLACES[paper, number])
    table = papers.table(paper, number)
    pieces = [list(row) for row in table.cells]
    if blocks := BLOCKS.get((paper, number)):
        columns = list(zip(*table.cells))
        pieces = [list(column[a:b]) for a, b in pairwise(blocks) for column in columns]
    for piece in pieces:
        words = [cell.text for cell in piece if cell.mean is not None]
        if (paper, number) == ("fedala", "1") and words[0] == "0.005":
            words = words[6:]  # printed once for the seven columns it holds for
        assert in_one_piece(words, numbers), words


def test_the_printed_value_is_in_the_printed_search_grid():
    """FedALA's appendix: a value, and in brackets what it was chosen from."""
    for method in METHODS["fedala"]:
        tried, chosen = papers.search_grid(method), papers.settings(method, paper="fedala")
        for name, candidates in tried.items():
            value = chosen[name] / 2000 if (method, name) == ("apple", "horizon") else chosen[name]
            assert value in candidates, (method, name)
    assert papers.search_grid("fedala")["ala_lr"] == (0.1, 1.0, 10.0)
    assert papers.search_grid("fedavg") == {} == papers.search_grid("fedamp", paper="fedamp")


def test_fedala_s_settings_are_those_of_its_authors():
    """What the paper does not print, and its authors' read-me and code say."""
    ala = papers.settings("fedala", paper="fedala")
    assert ala["tol"] == 0.01 and ala["remix_before_test"] is True
    assert "read-me" in ala.source("tol")
    assert papers.settings("fedavg", "ag_news", paper="fedala")["length"] == 200
    made = fedala_fourteen(rounds=50, participation=0.5)
    assert made["FedPHP"].expected == 25 and made["APPLE"].p_gradient == "tensor mean"
    assert made["FedFomo"].if_nobody_helps == "trained" and not made["pFedMe"].restart
    assert made["FedAvg-C"].ft_epochs == made["FedProx-C"].ft_epochs == 15
