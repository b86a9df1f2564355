"""What the page on the ten people says."""

import pfl_lib
from tests.support.claims import laptop, percent

FOUND = laptop("own_people")
FEW, MANY = (percent(FOUND, case) for case in FOUND.cases)
METHODS = [m for m in FOUND.methods if ": its" not in m]


def test_with_few_windows_one_model_leads_and_whoever_keeps_layers_stands_beside_separate():
    assert max(METHODS, key=FEW.get) == "SCAFFOLD"
    assert sorted(METHODS, key=FEW.get)[-3:].count("FedAvg") == 1
    for method in ("FedPer", "FedRep", "FedAS", "PartialFed", "Ditto", "APFL", "FedFomo"):
        assert abs(FEW[method] - FEW["Separate"]) < 3
        assert FEW[method] < FEW["FedAvg"] - 15


def test_with_many_windows_training_alone_leads_and_one_model_is_among_the_last():
    assert max(METHODS, key=MANY.get) == "Separate"
    assert sum(MANY[m] < MANY["FedAvg"] for m in METHODS) <= len(METHODS) / 3


def test_fine_tuning_before_every_round_is_good_at_both():
    assert FEW["FedAvg-C"] > FEW["FedAvg"] - 2 and MANY["FedAvg-C"] > MANY["Separate"] - 2
    assert FEW["FedAvg-FT"] > FEW["FedAvg"] - 5 and MANY["FedAvg-FT"] > MANY["Separate"] - 3


def test_attention_lies_between():
    for method in ("FedAMP", "HeurFedAMP", "FedACS", "SPFL", "pFedGraph"):
        assert FEW[method] > FEW["Separate"] + 5 and MANY[method] > MANY["Separate"] - 3


def test_fedala_stays_near_fedavg():
    for column in (FEW, MANY):
        assert abs(column["FedALA"] - column["FedAvg"]) < 3


def test_seven_windows_are_too_few_to_count_labels():
    assert FEW["Label prior"] < FEW["FedAvg"] - 5


def test_cfl_may_not_split_within_ten_rounds_and_so_is_fedavg():
    rounds = {case["rounds"] for case in FOUND.record["cases"]}
    assert max(rounds) <= pfl_lib.algorithm("cfl").warmup
    assert FOUND.values("CFL") == FOUND.values("FedAvg")


def test_the_chapter_s_groups_of_methods_are_where_it_says():
    near = ("FedAvg", "SCAFFOLD", "FedALA", "CFL")
    assert all(FEW[m] > FEW["Separate"] + 15 and MANY[m] < MANY["Separate"] - 5 for m in near)
