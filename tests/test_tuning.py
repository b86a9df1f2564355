"""Tuning: every combination, judged on held-out training samples, and never on a test sample."""

import json
import math
from dataclasses import replace

import pytest
import torch

import pfl_lib
from pfl_lib import algorithm, rounds, run, tune, tuning
from tests.support.runs import linear_federation as federation

GRID = {"mu": [0.0, 0.5], "lr": [0.01, 0.2]}


def test_every_combination_is_judged_on_the_held_out_part(data):
    fed = federation(data)
    found = tune("fedprox", GRID, fed, rounds=2, progress=False)
    assert [t.settings for t in found.trials] == [
        {"mu": mu, "lr": lr} for mu in GRID["mu"] for lr in GRID["lr"]
    ]
    for trial in found.trials:  # as one would do it by hand
        _, chosen = fed.replace(lr=trial.settings["lr"]).hold_out(share=0.2)
        by_hand = run(algorithm("fedprox", mu=trial.settings["mu"]), chosen, 2, progress=False)
        assert trial.accuracy == [by_hand.last]
    best = max(found.trials, key=lambda trial: trial.mean)
    assert found.settings == best.settings
    assert found.best == algorithm("fedprox", mu=best.settings["mu"])
    assert found.fed.settings.lr == best.settings["lr"]
    assert found.fed.partition is fed.partition  # all training samples, and the test part again


def test_the_test_part_is_never_touched(data, monkeypatch):
    """Neither do other test samples change anything, nor is one ever used."""
    fed = federation(data)
    test = torch.cat(list(fed.partition.test))
    seen = []
    evaluate = pfl_lib.Federation.evaluate

    def watched(self, w, who=None, split="test"):
        samples = self._test_samples if split == "test" else self._train_samples
        seen.append(torch.cat(list(samples.index)))
        return evaluate(self, w, who, split)

    monkeypatch.setattr(pfl_lib.Federation, "evaluate", watched)
    found = tune("fedavg", {"lr": [0.01, 0.2]}, fed, rounds=2, progress=False)
    assert len(seen) == 2 and not torch.isin(torch.cat(seen), test).any()
    other = fed.replace(
        partition=replace(fed.partition, test=[t.flip(0)[:2] for t in fed.partition.test])
    )
    again = tune("fedavg", {"lr": [0.01, 0.2]}, other, rounds=2, progress=False)
    assert [t.accuracy for t in again.trials] == [t.accuracy for t in found.trials]


def test_a_method_keeps_its_other_hyper_parameters(data):
    method = algorithm("fedamp", self_weight=0.4, prox_beta=3.0)
    found = tune(method, {"multiple": [0.1, 1.0]}, federation(data), rounds=1, progress=False)
    assert (found.best.self_weight, found.best.prox_beta) == (0.4, 3.0)
    assert found.fed.settings.lr == 0.1


def test_a_hyper_parameter_of_the_method_comes_first(data):
    found = tune("scaffold", {"lr": [0.05]}, federation(data), rounds=1, progress=False)
    assert found.best.lr == 0.05 and found.fed.settings.lr == 0.1


def test_a_seed_counts_once(data):
    with pytest.raises(ValueError, match="seeds must differ"):
        tune("fedavg", {"lr": [0.1]}, federation(data), rounds=1, seeds=[3, 3])


def test_the_same_seeds_for_all(data, monkeypatch):
    seen = []
    monkeypatch.setattr(
        tuning, "run", lambda m, fed, *a, **k: (seen.append(fed), rounds.run(m, fed, *a, **k))[1]
    )
    found = tune(
        "fedavg", {"lr": [0.01, 0.2]}, federation(data), rounds=1, seeds=[3, 5], progress=False
    )
    assert [fed.settings.seed for fed in seen] == [3, 5, 3, 5]
    parts = [[index.tolist() for index in fed.partition.test] for fed in seen]
    assert parts[:2] == parts[2:] and parts[0] != parts[1]
    assert torch.equal(seen[0].initial(), seen[2].initial())
    assert all(len(t.accuracy) == 2 and t.mean == sum(t.accuracy) / 2 for t in found.trials)


def test_a_divergence_is_kept_and_reported(data, tmp_path):
    fed = federation(data)
    grid = {"lr": [0.1, 3e38]}
    found = tune("separate", grid, fed, rounds=8, folder=tmp_path, seeds=[0, 1], progress=False)
    sound, wild = found.trials
    assert wild.diverged.startswith("diverged: Separate, round") and math.isnan(wild.mean)
    assert wild.accuracy == [] and found.settings == {"lr": 0.1} and sound.mean > 0
    table = found.table()
    assert table.rows[-1][-1] == wild.diverged and "diverged" in repr(found)
    again = tune("separate", grid, fed, rounds=8, folder=tmp_path, seeds=[0, 1], progress=False)
    assert [t for t in again.trials] == found.trials


def test_where_all_diverge_there_is_no_best(data):
    found = tune("separate", {"lr": [3e38]}, federation(data), rounds=8, progress=False)
    assert found.best is found.settings is found.fed is None
    assert "diverged" in repr(found) and "<strong>" not in found._repr_html_()


def test_it_resumes_from_a_folder(data, tmp_path, monkeypatch):
    """Broken off in the second run's third round: the first is read, the second goes on there."""
    fed, grid = federation(data), {"lr": [0.01, 0.1, 0.2]}
    straight = tune("fedavg", grid, fed, rounds=4, progress=False)
    asked = []

    def counting(algorithm_, state, fed_, *more):
        asked.append((fed_.settings.lr, fed_.k))
        if len(asked) == 7:
            raise KeyboardInterrupt
        return guarded(algorithm_, state, fed_, *more)

    guarded = rounds._guarded_round
    monkeypatch.setattr(rounds, "_guarded_round", counting)
    with pytest.raises(KeyboardInterrupt):
        tune("fedavg", grid, fed, rounds=4, folder=tmp_path, progress=False)
    assert asked[-1] == (0.1, 2)
    again = tune("fedavg", grid, fed, rounds=4, folder=tmp_path, progress=False)
    assert asked[7:] == [(0.1, 2), (0.1, 3), *((0.2, k) for k in range(4))]
    assert [t.accuracy for t in again.trials] == [t.accuracy for t in straight.trials]
    assert again.settings == straight.settings
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) == 3 and all(name.endswith(".json") for name in files)  # checkpoints served
    one = json.loads((tmp_path / files[0]).read_text())
    assert set(one) == {"trial", "seed", "accuracy", "diverged"}


def test_another_setting_is_another_run(data, tmp_path):
    options = {"folder": tmp_path, "progress": False}
    tune("fedavg", {"lr": [0.1]}, federation(data), rounds=1, **options)
    tune("fedavg", {"lr": [0.1]}, federation(data), rounds=2, **options)
    tune("fedavg", {"lr": [0.1]}, federation(data, batch_size=8), rounds=1, **options)
    tune("fedavg", {"lr": [0.1]}, federation(data), rounds=1, share=0.3, **options)
    assert len(list(tmp_path.glob("*.json"))) == 4


def test_bad_values_stop_it_before_any_training(data, monkeypatch):
    monkeypatch.setattr(tuning, "run", None)  # would raise
    with pytest.raises(ValueError, match="mu must be a non-negative finite number, got -1"):
        tune("fedprox", {"mu": [0.1, -1]}, federation(data), rounds=1, progress=False)
    with pytest.raises(ValueError, match="lr must be a positive finite number, got 0"):
        tune("fedprox", {"lr": [0.1, 0]}, federation(data), rounds=1, progress=False)
    with pytest.raises(ValueError, match=r"name in grid must be one of 'mu', 'lr', .*got 'mo'"):
        tune("fedprox", {"mo": [0.1]}, federation(data), rounds=1, progress=False)


def test_the_table_shows_the_best_first(data):
    found = tune("fedavg", {"lr": [0.001, 0.2]}, federation(data), rounds=2, progress=False)
    table = found.table()
    assert table.head == ("", "lr", "validation") and table.rows[0][1] == "0.2"
    assert float(table.rows[0][2]) >= float(table.rows[1][2])
    assert found._repr_html_().count("<strong>1</strong>") == 1
    assert "held out of the clients' training data" in repr(found)


def test_a_folder_keeps_a_methods_own_learning_rates_apart(data, tmp_path):
    """SCAFFOLD has a learning rate of its own: the federation's must not stand in for it."""
    grid = {"lr": [0.01, 0.3]}
    options = {"rounds": 2, "progress": False}
    kept = tune("scaffold", grid, federation(data), folder=tmp_path, **options)
    fresh = tune("scaffold", grid, federation(data), **options)
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert [t.accuracy for t in kept.trials] == [t.accuracy for t in fresh.trials]
    assert kept.trials[0].accuracy != kept.trials[1].accuracy
