"""FedAvg (Async): stale models, averaged as they are."""

import torch

from pfl_lib import algorithm
from pfl_lib.book.theory import iterate
from tests.support.methods import (
    last,
    plain_federation,
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


def test_cached_models_of_everybody_are_averaged():
    fed = LateToy(2)
    states = iterate(algorithm("fedavg-async", stragglers=(0, 2), cached=True), fed, 3)
    for k in (1, 2):  # client 1 has not come yet: its first model stands for it
        fresh = states[k - 1].x - 0.1 * (states[k - 1].x - fed.c[0])
        torch.testing.assert_close(states[k].x, (fresh + states[0].w[1]) / 2)
    fresh = states[2].x - 0.1 * (states[2].x - fed.c[0])
    late = states[0].x - 0.1 * (states[0].x - fed.c[1])
    torch.testing.assert_close(states[3].x, (fresh + late) / 2)


def test_two_steps_on_each_batch_with_nobody_late_are_fedavg_2step(data, uneven):
    fed = plain_federation(data, uneven)
    method = algorithm("fedavg-async", stragglers=0, cached=True, repeats=2)
    two_step = last(algorithm("fedavg-2step"), fed, 2)
    torch.testing.assert_close(last(method, fed, 2).x, two_step.x, rtol=0, atol=1e-12)


BAD = [
    ("fedavg-async", {"local_steps": 0}, "local_steps must be a whole number >= 1, got 0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
