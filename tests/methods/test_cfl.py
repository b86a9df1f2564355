"""CFL: when a cluster is split, and into which two."""

from itertools import combinations

import numpy as np
import pytest
import torch

from pfl_lib import Federation, algorithm, partition, run, train
from pfl_lib import formulas as f
from tests.support.methods import close, go, refused

READY = {"eps1": 9.0, "eps2": 0.01, "warmup": 0}  # splits whenever it may


def cosines(seed, m=7, d=4):
    updates = np.random.default_rng(seed).normal(size=(m, d))
    length = np.linalg.norm(updates, axis=1)
    return updates @ updates.T / length[:, None] / length


def every_split(m):
    """All ways to part m clients in two, the first client's part first."""
    for size in range(m - 1):
        for others in combinations(range(1, m), size):
            part = np.array([i == 0 or i in others for i in range(m)])
            if not part.all():
                yield part


def test_eq_cfl_norms_by_hand():
    updates, sizes = np.array([[3.0, 4.0], [0.0, -1.0], [2.0, 0.0]]), np.array([1.0, 2.0, 5.0])
    together, alone = f.cfl_norms(torch.from_numpy(updates), torch.from_numpy(sizes))
    mean = (sizes[:, None] * updates).sum(0) / 8
    assert together.item() == pytest.approx(np.hypot(*mean)) and alone.item() == 5
    together, _ = f.cfl_norms(torch.from_numpy(updates))
    assert together.item() == pytest.approx(np.hypot(5 / 3, 1))


@pytest.mark.parametrize("seed", range(8))
def test_eq_cfl_split_is_the_best_of_all_ways_to_part(seed):
    """Tried out, all 63 of them: the largest cosine between the parts is least."""
    S = cosines(seed)
    crossing = {tuple(part): S[part][:, ~part].max() for part in every_split(7)}
    best = min(crossing, key=crossing.get)
    found = f.cfl_split(torch.from_numpy(S))
    assert found.tolist() == [0 if here else 1 for here in best]


def test_complete_linkage_is_another_rule():
    S = [torch.from_numpy(cosines(seed)) for seed in range(8)]
    assert any(f.cfl_split(s).tolist() != f.cfl_split(s, "complete").tolist() for s in S)
    chain = torch.tensor([[1.0, 0.9, 0.1, -0.9], [0.9, 1.0, 0.8, 0.0], [0.1, 0.8, 1.0, 0.7],
                          [-0.9, 0.0, 0.7, 1.0]])  # fmt: skip
    assert f.cfl_split(chain).tolist() == [0, 0, 0, 1]  # 0.7 is the weakest link of the chain
    assert f.cfl_split(chain, "complete").tolist() == [0, 0, 1, 1]  # the two that differ most


def test_before_any_split_it_is_fedavg(federation):
    fed = federation()
    state = go(algorithm("cfl", weighting="sizes"), fed, 3)
    assert state.cluster.tolist() == [0] * 5
    close(state.x[0], go(algorithm("fedavg"), fed, 3).x)


@pytest.mark.parametrize(
    "hyper", [{"eps1": 1e-9}, {"eps2": 1e9}, {"warmup": 2}, {"min_size": 5}], ids=str
)
def test_each_condition_alone_prevents_a_split(federation, hyper):
    fed = federation()
    assert go(algorithm("cfl", **READY), fed, 2).cluster.max() > 0
    assert go(algorithm("cfl", **{**READY, **hyper}), fed, 2).cluster.max() == 0


def test_after_the_split_each_part_goes_its_own_way(federation):
    """The parts' models are the means of what their own clients trained, from the split on."""
    fed, method = federation(), algorithm("cfl", **READY, min_size=4)
    state = method.start(fed)
    trained = train(fed, fed.initial(), fed.everyone)
    state = method.round(state, fed, fed.everyone)
    parts = f.cfl_split(f.cosine_similarities(trained - fed.initial()))
    assert torch.equal(state.cluster, parts)
    for c in (0, 1):
        close(state.x[c], trained[parts == c].mean(0))
    again = train(fed.at(1), state.x[parts], fed.everyone)
    state = method.round(state, fed.at(1), fed.everyone)
    close(state.x[1], again[parts == 1].mean(0))


def test_a_cluster_waits_for_all_of_its_clients(federation):
    fed, method = federation(), algorithm("cfl", **READY)
    some = method.round(method.start(fed), fed, torch.tensor([0, 1, 2, 4]))
    assert some.cluster.max() == 0
    assert method.round(some, fed.at(1), fed.everyone).cluster.max() > 0


def test_newcomers_take_the_model_of_a_cluster_that_there_is(federation, twins):
    """Rows of clusters that never came to be are not on offer."""
    fed, late, method = federation(), federation(twins), algorithm("cfl", **READY, min_size=4)
    state = go(method, fed, 2)
    assert state.cluster.max() == 1
    losses = [late.evaluate(state.x[c].expand(4, -1), None, "train")[1] for c in (0, 1)]
    best = torch.stack(losses, 1).argmin(1)
    state = state.set(x=torch.cat([state.x[:2], state.x[best[:1]] * 1.0, state.x[3:]]))
    found = method.newcomer_models(state, fed, late)
    assert torch.equal(found, state.x[:2][best])


def test_it_finds_groups_that_disagree(data):
    thirds = [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    clients = partition.grouped(data, None, thirds, [4] * 3, [40] * 3, test_size=20)
    world = partition.conflicting_labels(clients, data)
    fed = Federation(world, clients, "mlp", lr=0.1, batch_size=10, epochs=2)
    method = algorithm("cfl", eps1=0.4, eps2=0.5, warmup=1)
    history = run(method, fed, 6, evaluate_every=6, progress=False)
    found = history.state.cluster
    together = found[:, None] == found
    assert torch.equal(together, clients.groups[:, None] == clients.groups)
    plain = run(algorithm("fedavg"), fed, 6, evaluate_every=6, progress=False)
    assert history.last > plain.last + 0.05


BAD = [
    ("cfl", {"eps1": 0}, "eps1 must be a positive finite number, got 0"),
    ("cfl", {"rule": "ward"}, "rule must be one of 'single', 'complete'; got 'ward'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
