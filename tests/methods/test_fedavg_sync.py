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


def test_somebody_must_be_on_time():
    with pytest.raises(ValueError, match="needs a client that is on time, but all 2 are late"):
        algorithm("fedavg-sync", stragglers=(1, (2, 3))).start(LateToy(2))
