"""FedBN: normalization stays local; and the variant that only keeps its statistics there."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pfl_lib import Federation, algorithm, partition, run, train
from tests.support.methods import close, go, refused, small_federation


def normalized(data, clients, engine="auto", **options):
    """A model with batch and layer normalization, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(),
            nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 10),
        )  # fmt: skip
    options = {"lr": 0.1, "batch_size": 8, "dtype": torch.float64, "device": "cpu", **options}
    return Federation(data, clients, module, engine=engine, **options)


def columns(fed, *prefixes):
    mask = torch.zeros(fed.d, dtype=torch.bool)
    for name, where in fed.network.slices():
        mask[where] = name.startswith(prefixes)
    return mask


KEPT = {"fedbn": ("2.", "5."), "fedavg-local-stats": ("2.running",)}


@pytest.mark.parametrize("name", KEPT)
def test_keeps_what_it_says_and_averages_the_rest(data, unequal, name):
    fed, method = normalized(data, unequal), algorithm(name)
    at_home = columns(fed, *KEPT[name])
    assert int(at_home.sum()) == {"fedbn": 4 * 6 + 2 * 5, "fedavg-local-stats": 12}[name]
    state = method.round(method.start(fed), fed, fed.everyone)
    trained = train(fed, fed.initial(), fed.everyone)  # the first round begins like FedAvg's
    w = method.personal(state, fed)
    assert torch.equal(w[:, at_home], trained[:, at_home])
    shares = np.array([7, 50, 20, 33, 12]) / 122
    average = shares @ trained[:, ~at_home].numpy()
    np.testing.assert_allclose(w[:, ~at_home].numpy(), np.tile(average, (5, 1)), atol=1e-12)
    assert method.sent(fed, fed.everyone, 0) == 2 * 5 * int((~at_home).sum())


@pytest.mark.parametrize("name", KEPT)
def test_a_client_goes_on_from_its_own(data, unequal, name):
    fed, method = normalized(data, unequal), algorithm(name)
    state = go(method, fed, 1)
    second = method.round(state, fed.at(1), torch.tensor([1, 3]))
    started = method.personal(state, fed)[[1, 3]]
    trained = train(fed.at(1), started, torch.tensor([1, 3]))
    at_home = columns(fed, *KEPT[name])
    assert torch.equal(method.personal(second, fed)[[1, 3]][:, at_home], trained[:, at_home])
    away = [0, 2, 4]
    assert torch.equal(second.w[away], state.w[away])


@pytest.mark.parametrize("name", [*KEPT, "fedavg"])
def test_engines_agree_with_batch_normalization(data, unequal, name):
    states = [
        go(algorithm(name), normalized(data, unequal, engine), 2) for engine in ("loop", "threads")
    ]
    for part in states[0]:
        close(states[0][part], states[1][part])


def test_the_three_differ_and_fedavg_mixes_statistics(data, unequal):
    fed = normalized(data, unequal)
    models = {name: algorithm(name) for name in ("fedavg", *KEPT)}
    tested = {name: m.personal(go(m, fed, 2), fed) for name, m in models.items()}
    assert (tested["fedavg"] == tested["fedavg"][0]).all()
    for name in KEPT:
        assert (tested[name] - tested["fedavg"]).norm(dim=1).min() > 1e-3
    assert (tested["fedbn"] - tested["fedavg-local-stats"]).norm(dim=1).min() > 1e-3


@pytest.mark.parametrize("name", KEPT)
def test_without_normalization_it_is_fedavg(data, unequal, name):
    fed = small_federation(data, unequal)
    mine, plain = algorithm(name), algorithm("fedavg")
    close(mine.personal(go(mine, fed, 2), fed), plain.personal(go(plain, fed, 2), fed), 1e-12)


def test_feature_shift_is_what_it_is_for(data):
    """Clients whose pixels are scaled and shifted: own normalization helps."""
    clients = partition.scarce(partition.iid(data, clients=4, seed=1), samples=60)
    x = data.x.clone().float()
    for i, (scale, shift) in enumerate([(1.0, 0), (0.1, 120), (-1.0, 255), (0.3, 200)]):
        for part in (clients.train[i], clients.test[i]):
            x[part] = x[part] * scale + shift
    shifted = replace(data, x=x.clamp(0, 255).byte())
    fed = normalized(shifted, clients, epochs=5)
    own, one = (
        run(algorithm(name), fed, 8, evaluate_every=8, progress=False).last
        for name in ("fedbn", "fedavg")
    )
    assert own > one + 0.05


BAD = [("fedbn", {"keeps": "all"}, "keeps must be one of")]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
