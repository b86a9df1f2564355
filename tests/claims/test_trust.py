"""What the chapter on privacy and trust says of its stored tables.

A difference counts where the seeds' ranges do not meet, and is not there to be seen where they do.
"""

import json

import pytest

from tests.support.paths import ROOT

FOLDER = ROOT / "results" / "trust"


def stored(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"]


@pytest.fixture(scope="module")
def honest():
    return {(row["method"], row["attack"]): row for row in stored("liars")}


def above(more, less):
    """The worst seed of one is better than the best of the other."""
    return more["low"] > less["high"]


def meet(one, other):
    return not above(one, other) and not above(other, one)


@pytest.mark.parametrize("attack", ["sign turned", "ten times as long"])
def test_the_mean_falls_and_robust_averages_hardly_notice(honest, attack):
    for rule in ("median", "trimmed mean", "multi-krum"):
        careful = honest[f"FedAvg, {rule}", attack]
        assert above(careful, honest["FedAvg", attack])
        assert meet(careful, honest["FedAvg", "nobody lies"])


@pytest.mark.parametrize("attack", ["climbs its loss", "wrong labels"])
def test_liars_who_stay_near_cost_the_mean_a_little_and_multi_krum_nothing(honest, attack):
    clean = honest["FedAvg", "nobody lies"]
    assert above(clean, honest["FedAvg", attack])
    assert meet(clean, honest["FedAvg, multi-krum", attack])


def test_angles_hear_long_models_and_distances_do_not(honest):
    """Where attention fails, it is worse than no cooperation at all."""
    long = "ten times as long"
    assert meet(honest["FedAMP", long], honest["FedAMP", "nobody lies"])
    for method in ("HeurFedAMP", "FedACS"):
        assert above(honest["FedAMP", long], honest[method, long])
        assert above(honest["Separate", long], honest[method, long])


@pytest.mark.parametrize("attack", ["sign turned", "ten times as long"])
def test_clusters_fall_as_the_mean_does_and_own_tests_notice_liars(honest, attack):
    for method in ("CFL", "IFCA"):
        assert above(honest[method, "nobody lies"], honest[method, attack])
        assert above(honest["Separate", attack], honest[method, attack])
    assert meet(honest["FedFomo", "nobody lies"], honest["FedFomo", attack])
    assert meet(honest["FedFomo", attack], honest["Separate", attack])


def test_cfl_is_fedavg_here_for_it_splits_no_cluster_so_early(honest):
    rows = {a: row for (method, a), row in honest.items() if method == "CFL"}
    assert len(rows) > 4
    for attack, row in rows.items():
        assert {**row, "method": "FedAvg"} == honest["FedAvg", attack]


def test_of_all_methods_apple_falls_deepest_to_long_models_and_ifca_far(honest):
    long = "ten times as long"
    for method, attack in honest:
        if attack == long and method != "APPLE":
            assert above(honest[method, long], honest["APPLE", long]), method
    assert above(honest["FedAvg", long], honest["IFCA", long])


def test_known_groups_do_not_help_where_a_liar_sits_in_each(honest):
    for attack in ("sign turned", "ten times as long"):
        assert above(honest["Separate", attack], honest["Oracle groups", attack])


def test_pfedgraph_and_fedamp_do_not_notice_these_liars(honest):
    for method in ("pFedGraph", "FedAMP"):
        rows = [row for (name, attack), row in honest.items() if name == method]
        assert len(rows) == 6
        for row in rows:
            assert meet(row, honest[method, "nobody lies"])
            assert abs(row["mean"] - honest[method, "nobody lies"]["mean"]) < 0.01


def test_who_takes_in_each_model_as_it_comes_falls_to_turned_signs(honest):
    for method in ("FedAsync", "FedBuff", "PLGA"):
        assert above(honest["Separate", "sign turned"], honest[method, "sign turned"])
        assert (
            honest["Separate", "sign turned"]["mean"] > 0.2 + honest[method, "sign turned"]["mean"]
        )
    assert above(honest["Separate", "wrong labels"], honest["FedAsync", "wrong labels"])


def test_krum_pays_for_its_safety(honest):
    assert above(honest["FedAvg", "nobody lies"], honest["FedAvg, krum", "nobody lies"])


@pytest.fixture(scope="module")
def accuracy():
    return {(r["method"], r["epsilon"]): r["accuracy"] for r in stored("private")}


def test_less_shared_is_less_lost(accuracy):
    assert above(accuracy["FedRep", 1], accuracy["FedALA", 1])
    assert above(accuracy["FedALA", 1], accuracy["FedAvg", 1])
    for epsilon in (1, 4, 8):
        assert above(accuracy["FedRep", epsilon], accuracy["FedAvg", epsilon])
    for method in ("FedAvg", "FedRep"):
        assert meet(accuracy[method, 8], accuracy[method, None])


def test_attention_is_good_without_noise_and_pays_most_for_it(accuracy):
    assert above(accuracy["FedAMP", None], accuracy["FedALA", None])
    assert meet(accuracy["FedAMP", None], accuracy["FedRep", None])
    for method in ("FedALA", "FedRep"):
        assert above(accuracy[method, 8], accuracy["FedAMP", 8])
    assert meet(accuracy["FedAvg", 8], accuracy["FedAMP", 8])


def test_membership_inference_is_weak_here():
    """Nearer to guessing (0.5) than to certainty (1), whatever the seed."""
    attack = {(r["method"], r["epsilon"]): r["membership"]["high"] for r in stored("private")}
    assert max(value for (_, epsilon), value in attack.items() if epsilon is None) < 0.75


# ------------------------------------------------------------------------- one sample, ten people
@pytest.fixture(scope="module")
def people():
    return {(row["method"], row["epsilon"]): row for row in stored("samples")}


def test_a_window_is_read_exactly_without_noise_and_not_at_all_with_it():
    rows = {row["epsilon"]: row for row in stored("leaks")}
    assert rows[None]["window"]["low"] > 0.99 and above(rows[None]["window"], rows[None]["another"])
    for epsilon in (1, 4, 8):
        assert rows[epsilon]["window"]["mean"] < 0.2
        assert meet(rows[epsilon]["window"], rows[epsilon]["another"])


def test_a_guarantee_for_each_sample_costs_more_here_than_cooperation_is_worth(people):
    whole = json.loads((FOLDER / "samples.json").read_text(encoding="utf-8"))
    alone = whole["separate"]
    for method in ("FedAvg", "FedALA", "FedRep", "FedAMP"):
        free = people[method, None]["accuracy"]
        assert free["mean"] < alone["mean"]
        for epsilon in (1, 4, 8):
            hidden = people[method, epsilon]["accuracy"]
            assert above(alone, hidden)
            assert hidden["mean"] < free["mean"] - 0.1


def test_the_stronger_of_two_attacks_hardly_beats_guessing_here(people):
    for row in people.values():
        for place in ("server", "other"):
            assert 0.5 < max(row[place][one]["mean"] for one in ("loss", "lira")) < 0.6


def test_the_plain_loss_is_the_stronger_attack_in_all_rows_but_one(people):
    """Five shadows are too few for LiRA."""
    weaker = [(key, place) for key, row in people.items() for place in ("server", "other")
              if row[place]["loss"]["mean"] <= row[place]["lira"]["mean"]]  # fmt: skip
    assert len(people) == 16 and weaker == [(("FedRep", 1), "other")]


def test_more_noise_does_not_always_weaken_the_attack(people):
    for method in ("FedAvg", "FedALA", "FedRep", "FedAMP"):
        none, some = (people[method, level]["server"]["loss"]["mean"] for level in (None, 8))
        assert some > none


def test_more_noise_raises_the_row_of_attention_a_little(accuracy):
    found = [accuracy["FedAMP", level]["mean"] for level in (8, 4, 1)]
    assert found == sorted(found) and found[-1] - found[0] < 0.05


def test_liars_take_the_mean_below_training_alone(honest):
    for attack in ("sign turned", "ten times as long"):
        assert honest["FedAvg", attack]["mean"] < honest["Separate", attack]["mean"]


def test_secure_aggregation_hides_models_and_keeps_the_sum():
    path = FOLDER.parent / "flower" / "secagg.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["masked vectors"] == found["clients"] * found["rounds"]
    assert found["plain arrays that the server saw"] == 0
    assert found["largest correlation of a masked vector with a model"] < found["chance"]
    assert 0 < found["largest difference"] < 1e-3 * found["largest number of the model"]
    apart = abs(found["accuracy"] - found["accuracy under secure aggregation"])
    assert apart < 0.02
