"""Separate: the method that every other one falls back to."""

import torch

from pfl_lib import algorithm, run, train
from tests.support.methods import (
    go,
    small_federation,
)


def test_separate_is_local_training_and_sends_nothing(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("separate")
    state = go(method, fed, 2)
    w = fed.initial()
    for k in range(2):
        w = train(fed.at(k), w, fed.everyone)
    assert torch.equal(state.w, w)
    assert run(method, fed, 2, progress=False).sent == [0, 0]


def test_separate_trains_only_those_who_take_part(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("separate")
    state = method.round(method.start(fed), fed, torch.tensor([1, 3]))
    away = torch.tensor([0, 2, 4])
    assert torch.equal(state.w[away], fed.initial()[away])
    assert not torch.equal(state.w[1], fed.initial()[1])
