"""FedAvg (Async): stale models, averaged as they are."""

import torch

from pfl_lib import algorithm
from pfl_lib.book.theory import iterate
from tests.support.methods import (
    refused,
)
from tests.support.quadratics import (
    LateToy,
)


def test_fedavg_async_averages_stale_models_as_they_are():
    fed = LateToy(2)
    states = iterate(algorithm("fedavg-async", stragglers=(0, 2)), fed, 3)
    fresh = states[2].x - 0.1 * (states[2].x - fed.c[0])
    stale = states[0].x - 0.1 * (states[0].x - fed.c[1])
    torch.testing.assert_close(states[3].x, (fresh + stale) / 2)


BAD = [
    ("fedavg-async", {"local_steps": 0}, "local_steps must be a whole number >= 1, got 0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
