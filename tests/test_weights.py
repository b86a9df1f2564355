"""Samples that count more than others in training, and nowhere else."""

import numpy as np
import pandas
import pytest
import torch
from torch import nn

import pfl_lib
from pfl_lib import Federation, partition, train
from pfl_lib.data import from_arrays
from pfl_lib.privacy import PrivateSamples

ENGINES = ("loop", "threads", "stacked")
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(48, 4)), np.arange(48) % 3
WHOSE = np.repeat([0, 1, 2], [10, 22, 16])
WEIGHTS = RANDOM.uniform(0.2, 5.0, 48)


def weighed(weight=WEIGHTS, y=Y, **more):
    return from_arrays(X, y, WHOSE, weight=weight, **more)


def network(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, classes))


def federation(data, engine="auto", model=None, **options):
    options = {"lr": 0.1, "batch_size": 5, "epochs": 2, "dtype": torch.float64, **options}
    model = network() if model is None else model
    return Federation(data, partition.natural(data), model, engine=engine, device="cpu", **options)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["mlp", None], ids=["written out", "autograd"])
def test_it_is_torchs_weighted_loss(engine, model):
    """One batch per client and round: the gradient of Σ w ℓ / Σ w, by torch itself."""
    data = weighed()
    fed = federation(data, engine, model, batch_size=50, epochs=1)
    done = train(fed, fed.initial(), fed.everyone)
    for i, index in enumerate(fed.partition.train):
        module = fed.network.filled(fed.initial()[i])
        x, y = data.normalized(data.x[index], torch.float64), data.y[index]
        each = nn.functional.cross_entropy(module(x), y, reduction="none")
        w = data.weights[index].double()
        ((each * w).sum() / w.sum()).backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
        expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        torch.testing.assert_close(done[i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"optimizer": "adam", "lr": 0.01}, {"momentum": 0.9, "clip": 0.5}],
    ids=["sgd", "adam", "momentum"],
)
def test_engines_give_one_answer(options):
    rows = []
    for engine in ENGINES:
        fed = federation(weighed(), engine, **options)
        rows.append(train(fed, fed.initial(), fed.everyone))
    plain = federation(weighed(None), **options)
    assert not torch.allclose(train(plain, plain.initial(), plain.everyone), rows[0])
    for other in rows[1:]:
        torch.testing.assert_close(other, rows[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("loss, columns", [("mse", 2), ("bce", 3)])
def test_other_losses_are_weighed_too(loss, columns):
    y = (RANDOM.random((48, columns)) > 0.5).astype(float)
    rows = []
    for engine in ENGINES:
        fed = federation(weighed(y=y), engine, network(columns), loss=loss)
        rows.append(train(fed, fed.initial(), fed.everyone))
    torch.testing.assert_close(rows[1], rows[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(rows[2], rows[0], rtol=0, atol=1e-10)


METHODS = ("ditto", "apfl", "per-fedavg", "fedala", "fedproto", "fedpac", "fedrod", "fedas")


@pytest.mark.parametrize("name", METHODS)
def test_a_common_factor_changes_nothing_and_other_weights_do(name):
    """A method's own step takes a weighted mean, too; counts of samples stay counts."""
    states = []
    for weight in (None, np.full(48, 2.0), WEIGHTS):
        fed = federation(weighed(weight), "stacked", "mlp")
        states.append(pfl_lib.run(pfl_lib.algorithm(name), fed, 2, progress=False).state)
    plain, doubled, other = states
    for key in plain:
        torch.testing.assert_close(doubled[key], plain[key], rtol=0, atol=1e-9)
    assert not all(torch.allclose(other[key], plain[key]) for key in plain)


def test_tests_and_client_sizes_do_not_change():
    fed, plain = federation(weighed()), federation(weighed(None))
    w = fed.initial()
    assert fed.sizes.tolist() == plain.sizes.tolist()
    for split in ("train", "test"):
        for a, b in zip(fed.evaluate(w, split=split), plain.evaluate(w, split=split)):
            assert torch.equal(a, b)


def test_a_column_of_a_frame_is_no_feature():
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(y=Y, who=WHOSE, w=WEIGHTS)
    data = from_arrays(frame, "y", "who", weight="w")
    assert data.shape == (4,) and sorted(data.weights.tolist()) == pytest.approx(sorted(WEIGHTS))
    assert data.checksum() != from_arrays(frame.drop(columns="w"), "y", "who").checksum()


def test_weights_move_with_their_samples():
    """A weight that is a function of the sample still is, after the split has put them in order."""
    data = weighed(np.exp(X[:, 0]))
    torch.testing.assert_close(data.weights, data.x[:, 0].exp())


@pytest.mark.parametrize(
    "weight", [np.zeros(48), -WEIGHTS, np.full(48, np.nan), ["a"] * 48, WEIGHTS[:, None], True]
)
def test_weights_that_are_none_are_refused(weight):
    with pytest.raises((ValueError, TypeError), match="weight must"):
        weighed(weight)
    with pytest.raises(ValueError, match="weight must be one for each of 48"):
        weighed(WEIGHTS[:7])


def test_private_samples_refuse_them():
    with pytest.raises(ValueError, match="weights"):
        PrivateSamples(federation(weighed()))
