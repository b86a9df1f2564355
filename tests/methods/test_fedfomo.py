"""FedFomo: scores, shares, and data that is held back for good."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given

from pfl_lib import Federation, algorithm, partition
from pfl_lib import formulas as f
from pfl_lib.methods.fedfomo import split
from tests.support.known_answers import assert_known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
)
from tests.support.quadratics import (
    LOCAL,
    C,
    H,
    X,
    loss,
)
from tests.support.strategies import models, quick


def test_eq_fedfomo():
    losses = loss(0, LOCAL)
    scores = f.fedfomo_scores(X, loss(0, X), LOCAL, losses)
    assert_known(
        scores, "baselines", "FedFomo client 0: raw scores for models loc0, loc1, theta_i=x"
    )
    weights = f.fedfomo_weights(scores)
    assert_known(weights, "baselines", "FedFomo: normalised weights")
    assert_known(f.fedfomo_update(X, LOCAL, weights), "baselines", "FedFomo: new model")


@quick
@given(models(parameters=(2, 2)))
def test_fedfomo_weights_are_shares_or_nothing(W):
    weights = f.fedfomo_weights(f.fedfomo_scores(X, loss(0, X), W, loss(0, W)))
    assert weights.min() >= 0
    total = float(weights.sum())
    assert total == 0 or total == pytest.approx(1)
    if total == 0:
        assert torch.equal(f.fedfomo_update(X, W, weights), X)


def test_fedfomo_own_model_on_offer_scores_zero():
    scores = f.fedfomo_scores(X, loss(0, X), torch.stack([X, LOCAL[0]]), loss(0, LOCAL))
    assert scores[0] == 0 and bool(scores.isfinite().all())


def test_known_answers_of_fedfomo(quadratics):
    fed, method = quadratics(), algorithm("fedfomo")
    state = method.round(method.start(fed).set(w=LOCAL), fed, FIRST)
    assert_known(state.weights[0], "baselines", "FedFomo: normalised weights")
    assert_known(state.begin[0], "baselines", "FedFomo: new model")
    close(state.w[0], state.begin[0] - 0.1 * H[0] * (state.begin[0] - C[0]))


def test_fedfomo_holds_a_part_back_for_good(federation):
    fed = federation()
    (learn, held), (again, _) = split(fed, 0.2), split(fed.at(7), 0.2)
    for i, index in enumerate(fed.partition.train):
        mine, apart = learn._train_samples.index[i], held._train_samples.index[i]
        assert len(apart) == max(1, round(0.2 * len(index)))
        assert sorted(torch.cat([mine, apart]).tolist()) == sorted(index.tolist())
        assert torch.equal(mine, again._train_samples.index[i])
        assert torch.equal(learn._train_samples.labels[i], fed.data.y[mine])


def test_fedfomo_never_trains_on_what_it_holds_back(federation):
    fed, method = federation(), algorithm("fedfomo")
    labels = [y.clone() for y in fed._train_samples.labels]
    for i, index in enumerate(split(fed, 0.2)[1]._train_samples.index):
        apart = torch.isin(fed.partition.train[i], index)
        labels[i][apart] = 9 - labels[i][apart]
    other = federation()
    other._train_samples = replace(fed._train_samples, labels=tuple(labels))
    assert torch.equal(go(method, fed, 1).w, go(method, other, 1).w)
    assert not torch.equal(go(method, fed, 2).weights, go(method, other, 2).weights)


def test_fedfomo_listens_to_its_own_group(data):
    clients = partition.grouped(data, group_clients=3, share=0.95, test_size=20)
    fed = Federation(data, clients, "logistic_regression", lr=0.1, dtype=torch.float64)
    weights = go(algorithm("fedfomo"), fed, 4).weights
    same = clients.groups[:, None] == clients.groups[None, :]
    others = ~torch.eye(fed.m, dtype=torch.bool)
    assert weights[same & others].mean() > 3 * weights[~same].mean()
    assert weights.min() >= 0 and weights.sum(1).max() <= 1 + 1e-12


BAD = [
    ("fedfomo", {"validation": 1.0}, r"validation must lie in \(0, 1\), got 1.0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()


def test_if_nobody_helps_it_begins_again_or_goes_on_trained(federation):
    """A client whose model of the last round is best of all that are offered."""
    fed = federation()
    good = go(algorithm("fedavg"), fed, 6).x
    bad = torch.full_like(good, 0.5) * torch.linspace(-1, 1, len(good))
    state = algorithm("fedfomo").start(fed)
    state = state.set(w=bad.expand(fed.m, -1), begin=good.expand(fed.m, -1))
    for word, start in (("begin", good), ("trained", bad)):
        method = algorithm("fedfomo", if_nobody_helps=word)
        done = method.round(state, fed, fed.everyone)
        assert done.weights.abs().sum() == 0
        assert torch.equal(done.begin, start.expand(fed.m, -1))
