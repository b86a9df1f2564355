"""What the chapter on privacy and trust says of its two stored tables."""

import json

import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "results" / "trust"


def stored(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"]


@pytest.fixture(scope="module")
def honest():
    return {(row["method"], row["attack"]): row for row in stored("liars")}


@pytest.mark.parametrize("attack", ["sign turned", "ten times as long"])
def test_the_mean_falls_and_robust_averages_hardly_notice(honest, attack):
    for rule in ("median", "trimmed mean", "multi-krum"):
        careful = honest[f"FedAvg, {rule}", attack]
        assert careful["low"] > honest["FedAvg", attack]["high"]
        assert careful["mean"] > honest["FedAvg", "nobody lies"]["mean"] - 0.05


@pytest.mark.parametrize("attack", ["climbs its loss", "wrong labels"])
def test_liars_who_stay_near_cost_the_mean_a_little_and_multi_krum_nothing(honest, attack):
    clean = honest["FedAvg", "nobody lies"]["mean"]
    assert clean - 0.05 < honest["FedAvg", attack]["mean"] < clean
    assert honest["FedAvg, multi-krum", attack]["mean"] >= clean


def test_angles_hear_long_models_and_distances_do_not(honest):
    long = {m: honest[m, "ten times as long"]["mean"] for m in ("FedAMP", "HeurFedAMP", "FedACS")}
    assert max(long["HeurFedAMP"], long["FedACS"]) < long["FedAMP"] - 0.1


def test_krum_pays_for_its_safety(honest):
    assert honest["FedAvg, krum", "nobody lies"]["high"] < honest["FedAvg", "nobody lies"]["low"]


def test_less_shared_is_less_lost():
    accuracy = {(r["method"], r["epsilon"]): r["accuracy"]["mean"] for r in stored("private")}
    lost = {m: accuracy[m, None] - accuracy[m, 1] for m in ("FedAvg", "FedALA", "FedRep", "FedAMP")}
    assert lost["FedRep"] < lost["FedALA"] < lost["FedAvg"]
    for epsilon in (1, 4, 8):
        assert accuracy["FedAvg", epsilon] < accuracy["FedRep", epsilon]
    for method in ("FedAvg", "FedALA", "FedRep"):
        assert accuracy[method, 8] > accuracy[method, None] - 0.03


def test_attention_is_the_best_without_noise_and_the_worst_with_it():
    accuracy = {(r["method"], r["epsilon"]): r["accuracy"]["mean"] for r in stored("private")}
    methods = ("FedAvg", "FedALA", "FedRep", "FedAMP")
    assert max(methods, key=lambda m: accuracy[m, None]) == "FedAMP"
    assert min(methods, key=lambda m: accuracy[m, 8]) == "FedAMP"


def test_membership_inference_is_weak_here():
    attack = {(r["method"], r["epsilon"]): r["membership"]["high"] for r in stored("private")}
    assert max(value for (_, epsilon), value in attack.items() if epsilon is None) < 0.7
