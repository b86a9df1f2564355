"""FedAvg-FT, FedProx-FT and FedUpdate: copies that are tuned, tested and thrown away."""

import torch

from pfl_lib import algorithm, run, train
from tests.support.methods import (
    close,
    go,
    refused,
    small_federation,
    whole_batches,
)


def test_fine_tuning_leaves_the_global_model_alone(data, unequal):
    fed = small_federation(data, unequal)
    plain = run(algorithm("fedavg"), fed, 2, progress=False)
    tuned = run(algorithm("fedavg-ft"), fed, 2, progress=False)
    assert torch.equal(plain.state.x, tuned.state.x)
    assert tuned.extra_models["global"] == plain.accuracy and tuned.accuracy != plain.accuracy


def test_without_the_penalty_fedprox_ft_is_fedavg_ft(data, unequal):
    fed = small_federation(data, unequal)
    with_mu = algorithm("fedprox-ft", mu=0.0, ft_epochs=2)
    without = algorithm("fedavg-ft", ft_epochs=2)
    a, b = go(with_mu, fed, 2), go(without, fed, 2)
    close(with_mu.personal(a, fed), without.personal(b, fed), 1e-12)


def test_fedupdate_is_one_step_from_the_global_model(data, unequal):
    fed, method = whole_batches(data, unequal), algorithm("fedupdate")
    state = go(method, fed, 2)
    close(method.personal(state, fed), train(fed, state.x.expand(fed.m, -1), fed.everyone))
    none = algorithm("fedupdate", ft_steps=0)
    assert torch.equal(none.personal(state, fed), state.x.expand(fed.m, -1))


BAD = [
    ("fedavg-ft", {"ft_steps": -1}, "ft_steps must be a whole number >= 0, got -1"),
    ("fedprox-ft", {"mu": -1.0}, "mu must be a non-negative"),
    ("fedprox-ft", {"ft_epochs": 1.5}, "ft_epochs must be a whole number >= 0, got 1.5"),
    ("fedupdate", {"ft_steps": 0.5}, "ft_steps must be a whole number"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
