"""What the chapter on networks says of the runs over Flower, from their result files."""

import json

import pytest

from tests.support.paths import ROOT

MEASURED = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (ROOT / "results" / "flower").glob("*.json")
}


@pytest.mark.parametrize("where", ["simulation", "network", "many"])
def test_every_method_ends_in_the_bits_of_one_process(where):
    for row in MEASURED[where]["rows"]:
        assert row["largest difference"] == 0 and row["same accuracy"], row["method"]


def test_a_larger_model_costs_what_its_bytes_cost():
    """Processor time, which other work on the machine changes less than the clock."""
    size = MEASURED["size"]["models"]
    small, large = size["mlp"], size["resnet18"]
    for found in (small, large):
        assert all(row["largest difference"] == 0 for row in found["rows"])
    used = "processor seconds an exchange"
    millions = (large["parameters"] - small["parameters"]) / 1e6
    assert millions > 10 and (large[used] - small[used]) / millions < 0.5
    assert 0.15 < MEASURED["size"]["seconds per million"] < 0.25 and large["load"] < 5


def test_nodes_that_stay_awake_spend_less_than_a_tenth_of_what_flowers_own_do():
    stock = MEASURED["stock"]
    used = "processor seconds an exchange"
    assert stock[used] > 10 * stock["beside"][used]
    for found in (stock, stock["beside"]):
        assert all(row["largest difference"] == 0 for row in found["rows"])


@pytest.mark.parametrize("where", ["simulation", "network"])
def test_four_methods_move_what_is_counted_on_paper_and_fedala_more(where):
    rows = MEASURED[where]["rows"]
    ratio = {row["method"]: (row["down"] + row["up"]) / row["counted bytes"] for row in rows}
    assert len(ratio) == 5 and ratio.pop("FedALA") > 1.5
    assert all(1 <= value < 1.01 for value in ratio.values())


def test_a_network_costs_time_and_one_process_little():
    """The chapter's figure: fractions of a second in one process, more elsewhere."""
    for row in MEASURED["network"]["rows"]:
        assert row["seconds in one process"] / row["rounds"] < 1
        assert sum(row["seconds an exchange"]) > 5 * row["seconds in one process"]


def test_a_client_that_dies_is_missed_comes_back_and_changes_no_number():
    death, worker = MEASURED["death"], MEASURED["worker"]
    assert death["victim"] not in death["who"][death["killed in round"]]
    for found in (death, worker):
        assert found["victim"] in found["who"][-1] and found["largest difference"] == 0
        assert len(found["who"]) == 4  # the table has a column for each
    assert worker["alive after the nodes"] == 0


def test_encryption_changes_no_number_and_strangers_stay_outside():
    tls, stranger = MEASURED["tls"], MEASURED["stranger"]
    assert tls["agreement"]["largest difference"] == 0 and tls["agreement"]["same accuracy"]
    assert not tls["answers without encryption"]
    assert stranger["exit code"] != 0
    assert any("Failed to activate" in line for line in stranger["said"])
    knocked = MEASURED["cables"]["stranger"]
    assert knocked["exit code"] != 0 and not knocked["answers without encryption"]


def test_ten_thousand_simulated_clients_end_in_the_bits_of_one_process_at_a_stated_price():
    crowd, used = MEASURED["crowd"], "processor seconds an exchange"
    found = crowd["by clients"]
    assert list(found) == ["100", "1000", "10000"] and crowd["taking part"] == 20
    more = {}
    for clients, one in found.items():
        (row,) = one["rows"]
        assert one["clients"] == int(clients) and row["rounds"] == 3 == row["exchanges"]
        assert row["largest difference"] == 0 and row["same accuracy"] and not row["lost"]
        alone = row[f"{used} in one process"]
        more[clients] = (row[used] - alone) / crowd["taking part"]
        assert 10 < row[used] / alone < 30 and 0.010 < more[clients] < 0.030
    assert 1.5 < more["10000"] / more["100"] < 2.5
    assert found["10000"]["meeting"] > 100 * sum(found["10000"]["rows"][0]["seconds an exchange"])
    assert found["10000"]["meeting"] > 5 * found["1000"]["meeting"] > 10 * found["100"]["meeting"]
