"""FedAvg-C and FedProx-C: training goes on from the fine-tuned model."""

from pfl_lib import Prox, algorithm, train
from tests.support.methods import (
    close,
    go,
    refused,
    small_federation,
    whole_batches,
)


def test_customised_training_goes_on_from_the_fine_tuned_model(data, unequal):
    """FedAvg-C is FedAvg with more epochs; FedProx-C adds a penalty about the global model."""
    fed = whole_batches(data, unequal)
    state = go(algorithm("fedavg-c", ft_epochs=2), fed, 2)
    longer = whole_batches(data, unequal, epochs=3)
    close(state.x, go(algorithm("fedavg"), longer, 2).x)
    method = algorithm("fedprox-c", ft_epochs=2, mu=0.5)
    state = go(method, fed, 1)
    x, who = fed.initial(), fed.everyone
    tuned = train(fed, x, who, epochs=2)
    close(method.personal(state, fed), tuned)
    trained = train(fed, tuned, who, prox=Prox(x, 0.5))
    close(state.x, (fed.sizes @ trained) / fed.sizes.sum())


def test_without_the_penalty_fedprox_c_is_fedavg_c(data, unequal):
    fed = small_federation(data, unequal)
    with_mu = algorithm("fedprox-c", mu=0.0, ft_epochs=2)
    without = algorithm("fedavg-c", ft_epochs=2)
    a, b = go(with_mu, fed, 2), go(without, fed, 2)
    close(with_mu.personal(a, fed), without.personal(b, fed), 1e-12)


BAD = [
    ("fedprox-c", {"mu": float("nan")}, "mu must be a non-negative"),
    ("fedprox-c", {"ft_epochs": None}, "ft_epochs must be a whole number"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
