"""IFCA: clients choose among k models by their training loss."""

import numpy as np
import pytest
import torch
from torch import nn

from pfl_lib import Federation, algorithm, metrics, partition, run, train
from pfl_lib import formulas as f
from pfl_lib.methods import State
from pfl_lib.methods.ifca import shuffled
from tests.support.methods import close, go, refused, small_federation
from tests.support.quadratics import OneStep


def test_eq_ifca_choice():
    losses = torch.tensor([[3.0, 1.0, 2.0], [0.5, 0.5, 9.0], [torch.nan, 4.0, 5.0]])
    assert f.ifca_choice(losses).tolist() == [1, 0, 1]


def test_a_round_by_hand():
    """½(w − c)² with c = 0, 1, 10 and models at 2 and 8; one step of 0.1; equal weights."""
    fed = OneStep(h=torch.ones(3, 1).double(), c=torch.tensor([[0.0], [1.0], [10.0]]).double())
    method = algorithm("ifca", clusters=2)
    x = torch.tensor([[2.0], [8.0]]).double()
    state = State(x=x, cluster=torch.zeros(3, dtype=torch.int64))
    after = method.round(state, fed, fed.everyone)
    trained = np.array([2 - 0.1 * (2 - 0), 2 - 0.1 * (2 - 1), 8 - 0.1 * (8 - 10)])
    wanted = [[(trained[0] + trained[1]) / 2], [trained[2]]]
    np.testing.assert_allclose(after.x.numpy(), wanted, rtol=1e-14)
    assert after.cluster.tolist() == [0, 0, 1]
    assert method.personal(after, fed).flatten().tolist() == [wanted[0][0]] * 2 + [wanted[1][0]]


def test_models_begin_apart_with_the_same_numbers_tensor_by_tensor(federation):
    fed = federation()
    x = algorithm("ifca", clusters=3).start(fed).x
    assert torch.equal(x[0], fed.initial()[0])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert (x[a] != x[b]).double().mean() > 0.9
    for _, where in fed.tensors:
        close(x[:, where].sort(1).values, x[:1, where].sort(1).values.expand(3, -1), 0)
    assert torch.equal(shuffled(x[0], fed, 0, "a"), shuffled(x[0], fed, 0, "a"))


def test_a_model_that_nobody_takes_waits(federation):
    fed, method = federation(), algorithm("ifca", clusters=2)
    state = method.start(fed)
    far = state.set(x=torch.stack([state.x[0], 100 * state.x[1]]))
    after = method.round(far, fed, fed.everyone)
    assert after.cluster.tolist() == [0] * 5 and torch.equal(after.x[1], far.x[1])


def test_one_cluster_is_fedavg_among_equals(federation):
    fed = federation()
    close(go(algorithm("ifca", clusters=1), fed, 3).x[0], equal_fedavg(fed, 3))
    sized = algorithm("ifca", clusters=1, weighting="sizes")
    close(go(sized, fed, 3).x[0], go(algorithm("fedavg"), fed, 3).x)


def equal_fedavg(fed, rounds):
    x = fed.initial()[0]
    for k in range(rounds):
        x = train(fed.at(k), x.expand(fed.m, -1), fed.everyone).mean(0)
    return x


def test_who_has_not_taken_part_chooses_for_the_test_all_the_same(federation):
    fed, method = federation(), algorithm("ifca", clusters=2)
    state = go(method, fed, 3, who=torch.tensor([0, 1]))
    losses = torch.stack([fed.evaluate(x.expand(5, -1), None, "train")[1] for x in state.x], 1)
    assert torch.equal(method.personal(state, fed), state.x[losses.argmin(1)])


def test_it_finds_groups_that_disagree(data):
    thirds = [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    clients = partition.grouped(data, None, thirds, [4] * 3, [40] * 3, test_size=20)
    world = partition.conflicting_labels(clients, data)
    fed = Federation(world, clients, "mlp", lr=0.1, batch_size=10, epochs=2)
    history = run(algorithm("ifca", clusters=3), fed, 6, evaluate_every=6, progress=False)
    same = (history.state.cluster[:, None] == history.state.cluster).double()
    assert metrics.inside_share(same / same.sum(1, keepdim=True), clients.groups) == 1.0
    plain = run(algorithm("fedavg"), fed, 6, evaluate_every=6, progress=False)
    assert history.last > plain.last + 0.05


def test_newcomers_take_the_model_that_fits_them_best(federation, data, twins):
    fed, late, method = federation(), federation(twins), algorithm("ifca", clusters=3)
    state = go(method, fed, 2)
    losses = torch.stack([late.evaluate(x.expand(4, -1), None, "train")[1] for x in state.x], 1)
    assert torch.equal(method.newcomer_models(state, fed, late), state.x[losses.argmin(1)])


class Alike(nn.Linear):
    head = ("weight", "bias")

    def __init__(self):
        super().__init__(64, 10)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x):
        return super().forward(x.flatten(1))


def test_models_that_cannot_begin_apart_are_refused(data, unequal):
    with pytest.raises(ValueError, match="needs models that begin apart"):
        algorithm("ifca").start(Federation(data, unequal, Alike()))


BAD = [("ifca", {"clusters": 0}, "clusters must be a whole number >= 1, got 0")]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()


def test_sent_counts_all_models_down(data, unequal):
    fed = small_federation(data, unequal)
    assert algorithm("ifca", clusters=4).sent(fed, torch.tensor([1, 2]), 0) == 2 * 5 * fed.d
