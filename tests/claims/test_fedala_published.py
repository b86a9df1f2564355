"""What the page on FedALA's published clients says."""

from pfl_lib.book.experiments import overview, stored

KEPT = stored("fedala_published")["paper"]
CASE = "MNIST, FedALA's clients"
PRINTED = next(c["paper"] for c in KEPT.record["cases"] if c["case"] == CASE)


def test_alone_after_ten_rounds_is_near_all_printed_numbers():
    (run,) = KEPT.of("Separate", CASE)
    alone = 100 * run["extra"]["by sample, best"]
    assert run["rounds"][-1] == 10 and round(alone, 1) == 99.3
    below = {m for m, value in PRINTED.items() if value < alone}
    assert below == {"FedAvg", "FedProx", "Per-FedAvg"}
    assert all(abs(value - alone) < 0.5 for value in PRINTED.values())


def test_network_and_clients_are_the_papers():
    (run,) = KEPT.of("Separate", CASE)
    assert run["settings"]["parameters"] == 582_026 and len(run["clients"]) == 20
    assert run["settings"]["partition"].startswith("fedala-mnist-")
    told = overview.carries("fedala_published", "paper", KEPT)
    assert told == "the paper's network and clients"


def test_the_label_prior_and_fedala_cannot_be_told_apart_after_ten_rounds():
    reached = {}
    for method in ("Label prior", "FedALA", "FedAvg"):
        (run,) = KEPT.of(method, CASE)
        assert run["rounds"][-1] == 10
        reached[method] = 100 * run["extra"]["by sample, best"]
    assert round(reached["Label prior"], 1) == round(reached["FedALA"], 1) == 99.4
    assert reached["FedALA"] <= reached["Label prior"]
    assert reached["FedAvg"] < reached["Label prior"] - 1
