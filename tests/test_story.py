"""The ten people that the chapters share: what their data say, and what the chapters build on."""

import pytest
import torch

from pfl_lib import metrics
from pfl_lib.book import story


def test_everybody_does_every_exercise():
    counts = story.people().counts(story.exercises())
    assert counts.shape == (10, 7) and (counts > 0).all()
    assert metrics.total_variation(counts).max() < 0.1  # by their labels the people are alike


def test_few_windows_are_part_of_all():
    everything, few = story.people(), story.people(windows=7, seed=3)
    for own, kept in zip(everything.train, few.train):
        assert len(kept) == 7 and set(kept.tolist()) <= set(own.tolist())
    assert all(torch.equal(a, b) for a, b in zip(everything.test, few.test))


def test_another_seed_draws_other_windows():
    first, second = (torch.cat(story.people(7, seed).train) for seed in (0, 1))
    assert not torch.equal(first, second)


def test_windows_are_asked_for_in_whole_numbers():
    with pytest.raises((TypeError, ValueError), match="windows"):
        story.people(windows=0)


def test_who_should_join_depends_on_the_windows():
    """What opens chapter 2: one model helps those with few windows and holds back the others."""
    few, all_ = (
        {m: story.accuracies(m, n, seeds=range(3)).mean() for m in ("separate", "fedavg")}
        for n in (7, None)
    )
    assert few["fedavg"] > few["separate"] + 0.15
    assert all_["separate"] > all_["fedavg"] + 0.08
