"""What the chapter on choosing a method recommends keeps what the chapter on trust measured."""

import json
import re

import nbformat
import pytest
import torch

import pfl_lib
from pfl_lib.book.experiments.matrix import matrix
from pfl_lib.faults import Faulty, Masked
from tests.support.claims import laptop
from tests.support.paths import ROOT

HONEST = [1, 2, 4, 5]


@pytest.fixture(scope="module")
def fed():
    data = pfl_lib.data.load("digits")
    clients = pfl_lib.partition.grouped(
        data,
        group_classes=[(0, 1, 2), (3, 4, 5)],
        group_clients=3,
        group_sizes=40,
        test_size=10,
    )
    return pfl_lib.Federation(data, clients, "logistic_regression", lr=0.1, dtype=torch.float64)


def advice(found):
    """The methods that the decision table says to start with, in the row that begins so."""
    cells = nbformat.read(ROOT / "notebooks" / "13_which.ipynb", as_version=4).cells
    (row,) = re.findall(rf"^\| {found}[^|]*\|([^|]*)\|", "\n".join(c.source for c in cells), re.M)
    known = {method.label: method.name for method in pfl_lib.methods.ALL}
    words = re.split(r"[,:] *", row.strip())
    return [known[word] for word in words if word in known]


def personal(name, fed, **settings):
    method = pfl_lib.algorithm(name, **settings)
    history = pfl_lib.run(method, fed, 3, evaluate_every=3, progress=False)
    return method.personal(history.state, fed)[HONEST]


@pytest.mark.parametrize(
    ("kind", "of"), [("sign_flip", "update"), ("scale", "model"), ("noise", "model")]
)
def test_what_is_recommended_where_clients_may_be_faulty_is_not_changed_by_them(fed, kind, of):
    for name in advice("some clients may be faulty"):
        troubled = personal(name, Faulty(fed, [0, 3], kind, of=of))
        torch.testing.assert_close(troubled, personal(name, fed))


def test_robust_averages_withstand_what_the_decision_table_says():
    found = json.loads((ROOT / "results" / "trust" / "liars.json").read_text(encoding="utf-8"))
    rows = {(row["method"], row["attack"]): row for row in found["rows"]}
    clean = rows["FedAvg", "nobody lies"]
    for attack in ("sign turned", "ten times as long"):
        assert rows["FedAvg", attack]["high"] < clean["low"]
        for rule in ("median", "trimmed mean", "multi-krum"):
            careful = rows[f"FedAvg, {rule}", attack]
            assert careful["high"] >= clean["low"]  # within the range of the undisturbed mean
            assert careful["low"] > rows["FedAvg", attack]["high"]
            assert careful["mean"] > rows["Separate", attack]["mean"]


def test_attention_would_not_pass(fed):
    troubled = Faulty(fed, [0, 3], "sign_flip", of="update")
    models = [personal("fedamp", each, self_weight=0.3) for each in (fed, troubled)]
    assert (models[0] - models[1]).abs().max() > 1e-3


def test_what_is_recommended_where_the_server_may_see_sums_only_runs_on_sums(fed):
    found = advice("the server must not see single models")
    assert len(found) >= 3
    for name in found:  # one round: later, some clients would go on from what they sent
        shared = [
            pfl_lib.run(pfl_lib.algorithm(name), each, 1, progress=False).state.x
            for each in (fed, Masked(fed))
        ]
        torch.testing.assert_close(*shared)


def test_every_row_that_is_read_names_a_method():
    assert advice("some clients may be faulty") == ["separate"]


def test_the_label_prior_is_ahead_most_often():
    """The text alternative of the figure."""
    cells: dict[str, list] = {}
    for _, rows in matrix().blocks.values():
        for method, cell in (pair for row in rows if row.both for pair in row.cells.items()):
            cells.setdefault(method, []).append(0 if cell.noise else 1 if cell.points > 0 else -1)
    del cells["Oracle groups"]  # told what methods have to find out, so not in the figure
    cells = {method: found for method, found in cells.items() if len(found) >= 8}
    ahead = {method: found.count(1) / len(found) for method, found in cells.items()}
    first, *others = sorted(ahead, key=ahead.__getitem__, reverse=True)
    assert first == "Label prior" and 0.33 < ahead[first] < 0.47
    assert max(ahead[method] for method in others) < 0.23
    # no method is ahead everywhere, and most are behind more often than ahead
    assert max(ahead.values()) < 0.9
    assert sum(c.count(-1) > c.count(1) for c in cells.values()) > 0.5 * len(cells)


def test_where_attention_pays():
    """The paragraphs below the map of one knob at a time."""
    edge, tried = laptop("own_edge"), ("FedAMP", "HeurFedAMP", "FedACS")

    def over(method, rival, case):
        return 100 * (edge.chosen(method, case) - edge.chosen(rival, case))

    def gain(method, case):
        return min(over(method, rival, case) for rival in ("FedAvg-FT", "Separate"))

    assert all(over("FedAMP", "Separate", case) > 0 for case in edge.cases)
    disagree = [case for case in edge.cases if "conflict" in case]
    agree = [case for case in edge.cases if case not in disagree]
    assert len(disagree) >= 2 and len(agree) >= 2
    assert all(abs(gain("FedAMP", case)) < 3 for case in agree)
    for case in disagree:
        assert over("Separate", "FedAvg-FT", case) > 0
        gained = [gain(method, case) for method in tried]
        low, high = (0, 0.25) if "1 epochs" in case else (1, 4.5)
        assert low < min(gained) and max(gained) < high


def test_fedamp_is_behind_training_alone_where_clients_hold_a_few_classes_only():
    leads = []
    for found in map(laptop, ("fedamp_pathological", "fedala_main")):
        for case in found.cases:
            attention = found.mean("FedAMP, median σ", "last", case)
            leads.append(attention - found.mean("Separate", "last", case))
    assert len(leads) == 9 and max(leads) < 0


@pytest.mark.parametrize("case", ["people", "writers", "watch"])
def test_four_baselines_on_natural_clients(case):
    """The table at the end of "Your own clients": members, and who has just arrived."""
    found = laptop("natural")

    def mean(label, what="last"):
        return found.mean(label, what, case)

    assert mean("Separate") > mean("FedAvg") + 0.03
    assert abs(mean("Label prior") - mean("FedAvg")) < 0.02
    best = max(mean("FedAvg", "newcomers"), mean("FedAvg-FT", "newcomers"))
    assert best > mean("Separate", "newcomers") + 0.3


@pytest.mark.parametrize("case", ["people", "writers", "watch"])
def test_newcomers_are_served_better_by_a_tuned_common_model_than_by_a_shared_body(case):
    """The plan for thirty hospitals."""
    tuned, body = (laptop("natural").mean(m, "newcomers", case) for m in ("FedAvg-FT", "FedRep"))
    assert tuned > body + 0.1


def test_people_with_dozens_of_samples_are_best_off_with_a_tuned_common_model_and_several_passes():
    mean = laptop("natural").mean
    several = mean("FedAvg-FT", "last", "people, six passes")
    assert several > mean("Separate", "last", "people, six passes") + 0.02
    for method in ("FedAvg-C", "SPFL"):
        assert mean(method, "last", "people") > mean("Separate", "last", "people")
