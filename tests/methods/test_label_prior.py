"""Label prior: Bayes' rule on FedAvg's model, exact where clients differ in their labels only."""

import numpy as np
import pytest
import torch
from torch import nn

from pfl_lib import Federation, algorithm, partition, run
from pfl_lib import formulas as f
from tests.support.methods import close, go, refused, small_federation

COUNTS = torch.tensor([[6.0, 0.0, 2.0], [0.0, 3.0, 1.0]], dtype=torch.float64)


def test_eq_label_prior_by_hand():
    """Everybody: 6, 3 and 3 of 12; client 0 sees 6, 0 and 2 of 8, and 2 of everybody's besides."""
    n, everybody = COUNTS.numpy(), np.array([6, 3, 3]) / 12
    own = (n + 2 * everybody) / (n.sum(1, keepdims=True) + 2)
    np.testing.assert_allclose(own.sum(1), 1)
    shift = f.label_prior_shift(COUNTS, smoothing=2.0).numpy()
    np.testing.assert_allclose(shift, np.log(own) - np.log(everybody), rtol=1e-12)


def test_it_turns_everybodys_posterior_into_the_clients_own():
    """One world p(x|y), two clients with other p(y): the shift gives each its exact posterior."""
    world = np.array(
        [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
    )  # p(x|y), one row per class
    frequencies = COUNTS.numpy() / COUNTS.numpy().sum()
    joint = frequencies.sum(0)[:, None] * world  # p(y, x) of everybody
    logits = np.log(joint / joint.sum(0))
    shift = f.label_prior_shift(1e9 * COUNTS, smoothing=1e-6).numpy()
    for i, own in enumerate(COUNTS.numpy() / COUNTS.numpy().sum(1, keepdims=True)):
        theirs = own[:, None] * world
        shifted = np.exp(logits + shift[i][:, None])
        np.testing.assert_allclose(shifted / shifted.sum(0), theirs / theirs.sum(0), atol=1e-9)


def test_who_knows_nothing_of_its_own_is_not_shifted():
    none = torch.zeros(1, 3, dtype=torch.float64)
    assert f.label_prior_shift(torch.cat([COUNTS, none]))[-1].abs().max() < 1e-12
    assert f.label_prior_shift(COUNTS, smoothing=1e9).abs().max() < 1e-6
    assert torch.isfinite(f.label_prior_shift(torch.cat([COUNTS, none.T[:2]], 1))).all()


def test_clients_count_their_own_labels_wrong_ones_included(data):
    clients = partition.dirichlet(data, 5, a=0.3, seed=1)
    fed = small_federation(data, partition.label_noise(clients, data, 1.0, 0.5))
    counted = algorithm("label-prior").start(fed).counts
    for i, labels in enumerate(fed.partition.labels):
        assert counted[i].tolist() == np.bincount(labels.numpy(), minlength=10).tolist()
    part = fed.with_part([torch.arange(3)] * fed.m)
    assert algorithm("label-prior").start(part).counts.sum(1).tolist() == [3.0] * fed.m


def test_logits_move_by_the_shift_and_by_nothing_else(federation):
    fed, method = federation(), algorithm("label-prior", smoothing=0.5)
    state = go(method, fed, 2)
    x = torch.randn(4, *fed.data.shape, dtype=torch.float64)
    shift = f.label_prior_shift(state.counts, 0.5)
    for i, w in enumerate(method.personal(state, fed)):
        close(fed.network.logits(w, x), fed.network.logits(state.x, x) + shift[i])


def test_it_helps_where_labels_differ_and_is_no_use_where_they_do_not(data):
    def both(clients):
        fed = Federation(data, clients, "logistic_regression", lr=0.1)
        return [run(algorithm(n), fed, 5, progress=False).last for n in ("fedavg", "label-prior")]

    plain, shifted = both(partition.pathological(data, 10, 2))
    assert shifted > plain + 0.05
    plain, shifted = both(partition.iid(data, 10))
    assert abs(shifted - plain) < 0.03


class NoBias(nn.Module):
    head = ("output.",)

    def __init__(self, bias=False, scale=1.0):
        super().__init__()
        self.output = nn.Linear(64, 10, bias=bias)
        self.scale = scale

    def forward(self, x):
        return self.scale * self.output(x.flatten(1))


class Headless(NoBias):
    head = ()


@pytest.mark.parametrize(
    "model", [NoBias(), NoBias(bias=True, scale=2.0), Headless(bias=True)], ids=str
)
def test_a_model_without_a_last_bias_is_refused(data, unequal, model):
    fed = Federation(data, unequal, model)
    with pytest.raises(ValueError, match="has no bias that is added to its logits"):
        run(algorithm("label-prior"), fed, 1, progress=False)


def test_the_bias_is_found_where_it_is(data, unequal):
    fed = Federation(data, unequal, NoBias(bias=True))
    assert fed.head_bias.tolist() == list(range(640, 650))


BAD = [("label-prior", {"smoothing": 0}, "smoothing must be a positive finite number, got 0")]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
