"""FedAvg (Sync): whoever is late is dropped."""

import pytest
import torch

from pfl_lib import algorithm
from tests.support.methods import (
    LATE,
    last,
    plain_federation,
)
from tests.support.quadratics import (
    LateToy,
)


def test_fedavg_sync_is_fedavg_of_those_on_time(data, uneven):
    fed = plain_federation(data, uneven)
    state = last(algorithm("fedavg-sync", stragglers=LATE), fed, 4)
    plain, on_time = algorithm("fedavg"), fed.everyone[:2]
    expected = plain.start(fed)
    for k in range(4):
        expected = plain.round(expected, fed.at(k), on_time)
    torch.testing.assert_close(state.x, expected.x, rtol=0, atol=1e-12)


def test_a_round_in_which_nobody_is_on_time_leaves_the_model_as_it_is(data, uneven):
    fed = plain_federation(data, uneven)
    method = algorithm("fedavg-sync", stragglers=((1, 0),) * fed.m)
    assert not method.timetable(fed).on_time(0) and method.timetable(fed).on_time(2)
    before = method.start(fed)
    after = method.round(before, fed.at(0), fed.everyone)
    assert torch.equal(after.x, before.x)


def test_somebody_must_be_on_time():
    with pytest.raises(ValueError, match="needs a client that is on time, but all 2 are late"):
        algorithm("fedavg-sync", stragglers=(1, (2, 3))).start(LateToy(2))
