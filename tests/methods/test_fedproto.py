"""FedProto: only class means travel."""

import numpy as np
import pytest
import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from tests.support.linear import CLASSES, WIDTH, flat, linear_federation, parts, samples, slopes
from tests.support.methods import ENGINES, close, go, refused, small_federation


def test_eq_class_means_are_means_over_all_samples():
    rng = np.random.default_rng(0)
    phi, y, owner = rng.normal(size=(30, 2)), rng.integers(0, 3, 30), rng.integers(0, 4, 30)
    hits = (y[:, None] == np.arange(3))[None] & (owner == np.arange(4)[:, None])[..., None]
    sums, counts = np.einsum("iac,ad->icd", hits, phi), hits.sum(1).astype(float)
    found = f.class_means(torch.tensor(sums), torch.tensor(counts)).numpy()
    np.testing.assert_allclose(found, [phi[y == c].mean(0) for c in range(3)], atol=1e-12)


def test_eq_fedproto_pull_counts_known_classes_alone():
    own = torch.tensor([[3.0, 4.0], [1.0, 1.0], [9.0, 9.0]], requires_grad=True)
    common = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    pull = f.fedproto_pull(own, common, 2.0, torch.tensor([True, True, False]))
    assert pull.item() == pytest.approx(2 * 25 / 2)  # the second is there, the third unknown
    pull.backward()
    np.testing.assert_allclose(own.grad, [[6.0, 8.0], [0, 0], [0, 0]], atol=1e-6)


def test_eq_nearest_mean_chooses_the_nearest():
    rng = np.random.default_rng(3)
    means, phi = rng.normal(size=(5, 3)), rng.normal(size=(50, 3))
    known = np.array([True, True, False, True, True])
    A, b = (t.numpy() for t in f.nearest_mean(torch.tensor(means), torch.tensor(known)))
    apart = np.linalg.norm(phi[:, None] - means, axis=2)
    apart[:, ~known] = np.inf
    np.testing.assert_array_equal((phi @ A.T + b).argmax(1), apart.argmin(1))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pull", ["means", "samples"])
def test_known_answer_of_one_round(data, unequal, engine, pull):
    """One whole batch at each client, from given common means; class 4 has none yet."""
    fed = linear_federation(data, unequal, engine=engine)
    method = algorithm("fedproto", lam=0.7, pull=pull)
    common = np.random.default_rng(4).normal(size=(CLASSES, WIDTH))
    known = np.ones(CLASSES)
    known[4] = 0
    state = method.start(fed).set(common=torch.tensor(common), known=torch.tensor(known))
    new = method.round(state, fed, fed.everyone)
    B, A, b = parts(fed.initial()[0])
    features, labels = [], []
    for i in range(fed.m):
        s, y = samples(fed, i)
        phi, extra = s @ B.T, np.zeros((len(y), WIDTH))
        for c in set(y.tolist()) - {4}:
            here = y == c
            if pull == "means":
                apart = phi[here].mean(0) - common[c]
                extra[here] = 0.7 * 2 * apart / WIDTH / here.sum()
            else:
                extra[here] = 0.7 * 2 * (phi[here] - common[c]) / WIDTH / len(y)
        gB, gA, gb = slopes(B, A, s, phi @ A.T + b, y, to_features=extra)
        w = flat(B - 0.1 * gB, A - 0.1 * gA, b - 0.1 * gb)
        np.testing.assert_allclose(new.w[i].numpy(), w, atol=1e-12)
        features.append(s @ (B - 0.1 * gB).T)
        labels.append(y)
    features, labels = np.concatenate(features), np.concatenate(labels)
    for c in range(CLASSES):
        mean = features[labels == c].mean(0) if (labels == c).any() else common[c]
        np.testing.assert_allclose(new.common[c].numpy(), mean, atol=1e-12)


def test_without_the_pull_bodies_are_separate_and_only_means_decide(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedproto", lam=0.0)
    state = go(method, fed, 3)
    close(state.w, go(algorithm("separate"), fed, 3).w, 1e-12)
    close(method.extra_models(state, fed)["own head"], state.w)
    assert (go(algorithm("fedproto"), fed, 3).w - state.w).norm(dim=1).min() > 1e-3


def test_before_the_first_round_the_own_head_is_used(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedproto")
    assert torch.equal(method.personal(method.start(fed), fed), fed.initial())


def test_who_stays_away_learns_of_the_others_by_the_means_alone(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedproto")
    state = go(method, fed, 1)
    new = method.round(state, fed.at(1), torch.tensor([1, 2]))
    assert torch.equal(new.w[0], state.w[0]) and not torch.equal(new.common, state.common)
    assert method.sent(fed, torch.tensor([1, 2]), 1) == 2 * 2 * 10 * 8  # 10 classes, 8 features


BAD = [
    ("fedproto", {"lam": -1.0}, "lam must be a non-negative"),
    ("fedproto", {"pull": "heads"}, "pull must be one of 'means', 'samples'; got 'heads'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
