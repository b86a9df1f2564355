"""FedAS: FedPer with an aligned body and clients that count by their information."""

import numpy as np
import pytest
import torch

from pfl_lib import algorithm, train
from pfl_lib import formulas as f
from tests.support.linear import CLASSES, WIDTH, flat, linear_federation, parts, samples, slopes
from tests.support.methods import ENGINES, close, go, refused, small_federation


def test_eq_fedas_align():
    phi, own = np.array([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]]), np.array([[1.0, 1.0], [4.0, 5.0]])
    hits = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = f.fedas_align(*(torch.tensor(t) for t in (phi, hits, own)))
    assert found.item() == pytest.approx(((0 + 1) / 2 + (4 + 1) / 2) / 2 + (1 + 0) / 2)


def test_eq_fedas_weights():
    np.testing.assert_allclose(f.fedas_weights(torch.tensor([2.0, 6.0])), [0.25, 0.75])
    np.testing.assert_allclose(f.fedas_weights(torch.zeros(4)), [0.25] * 4)


def sample_gradients(B, A, b, s, y):
    """∇ log p(y|s) of every single sample, one row each."""
    rows = []
    for k in range(len(y)):
        one = s[k : k + 1]
        rows.append(flat(*slopes(B, A, one, one @ B.T @ A.T + b, y[k : k + 1])))
    return np.array(rows)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fisher", ["samples", "batches"])
def test_known_answer_of_one_round(data, unequal, engine, fisher):
    """One whole batch in every phase: align, train, Fisher trace, average, all by hand."""
    fed = linear_federation(data, unequal, engine=engine)
    method = algorithm("fedas", align_lr=0.05, fisher=fisher)
    state = method.start(fed)
    rng = np.random.default_rng(5)
    last = fed.initial().numpy() + 0.1 * rng.normal(size=(fed.m, fed.d))  # their own last models
    new = method.round(state.set(w=torch.tensor(last)), fed, fed.everyone)
    B0 = parts(fed.initial()[0])[0]
    trained, traces = [], []
    for i in range(fed.m):
        s, y = samples(fed, i)
        own, A, b = parts(last[i])
        step = np.zeros_like(B0)
        for c in set(y.tolist()):
            here = s[y == c]
            apart = here @ B0.T - (here @ own.T).mean(0)
            step += 2 / WIDTH * apart.T @ here / len(here)
        B = B0 - 0.05 * step
        gB, gA, gb = slopes(B, A, s, s @ B.T @ A.T + b, y)
        B, A, b = B - 0.1 * gB, A - 0.1 * gA, b - 0.1 * gb
        trained.append(flat(B, A, b))
        each = sample_gradients(B, A, b, s, y)
        samplewise, batchwise = (each**2).sum(1).mean(), (each.mean(0) ** 2).sum()
        traces.append(samplewise if fisher == "samples" else batchwise)
    shares, body = np.array(traces) / sum(traces), WIDTH * 64
    np.testing.assert_allclose(new.w.numpy(), trained, atol=1e-12)
    np.testing.assert_allclose(
        new.x.numpy()[:body], shares @ np.array(trained)[:, :body], atol=1e-11
    )


def test_without_both_additions_it_is_fedper(data, unequal):
    fed = small_federation(data, unequal)
    plain = algorithm("fedas", align_epochs=0, fisher="none")
    per = algorithm("fedper")
    expected = per.personal(go(per, fed, 3), fed)
    close(plain.personal(go(plain, fed, 3), fed), expected, 1e-12)
    for hyper in ({"align_epochs": 0}, {"fisher": "none"}, {"fisher": "batches"}):
        one = algorithm("fedas", **hyper)
        assert (one.personal(go(one, fed, 3), fed) - expected).norm(dim=1).min() > 1e-4, hyper


def test_the_own_trained_model_is_tested_beside(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedas")
    state = go(method, fed, 2)
    name = "trained"
    aligned = method.aligned(
        state, method.download(state, fed, fed.everyone).w, fed.at(2), fed.everyone
    )
    new = method.round(state, fed.at(2), fed.everyone)
    trained = train(fed.at(2), aligned, fed.everyone)
    close(method.extra_models(new, fed)[name], trained, 1e-12)
    head = fed.head_mask
    close(method.personal(new, fed)[:, head], trained[:, head], 1e-12)
    assert (method.personal(new, fed) - trained).norm(dim=1).min() > 1e-4


def test_alignment_brings_the_features_nearer_to_the_own_ones(data, unequal):
    fed, method = linear_federation(data, unequal), algorithm("fedas", align_epochs=3)
    state = go(method, fed, 2)
    received = method.download(state, fed, fed.everyone).w
    aligned = method.aligned(state, received, fed.at(2), fed.everyone)
    for i in range(fed.m):
        s, y = samples(fed, i)
        far = []
        for w in (received[i], aligned[i]):
            now, own = s @ parts(w)[0].T, s @ parts(state.w[i])[0].T
            classes = [c for c in range(CLASSES) if (y == c).any()]
            far.append(sum(((now[y == c] - own[y == c].mean(0)) ** 2).mean() for c in classes))
        assert far[1] < far[0]


BAD = [
    ("fedas", {"align_lr": 0}, "align_lr must be a positive"),
    ("fedas", {"fisher": "all"}, "fisher must be one of 'samples', 'batches', 'none'; got 'all'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
