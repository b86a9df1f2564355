"""Oracle groups: FedAvg inside groups that are given."""

import numpy as np
import pytest
import torch

from pfl_lib import algorithm, partition, run
from pfl_lib import formulas as f
from pfl_lib.book.theory import QuadraticFederation
from tests.support.methods import close, go, refused, small_federation


def test_eq_cluster_average_by_hand():
    X, W = np.arange(6.0).reshape(3, 2), np.array([[1.0, 2], [3, 5], [7, 11], [13, 17]])
    cluster, sizes = np.array([2, 0, 2, 0]), np.array([1.0, 2, 3, 4])
    wanted = np.stack([(2 * W[1] + 4 * W[3]) / 6, X[1], (W[0] + 3 * W[2]) / 4])
    found = f.cluster_average(*map(torch.from_numpy, (X, W, cluster, sizes)))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-14)
    alike = f.cluster_average(*map(torch.from_numpy, (X, W, cluster)))
    np.testing.assert_allclose(alike[0].numpy(), (W[1] + W[3]) / 2)


def test_each_group_is_a_federation_of_its_own(data, unequal):
    """FedAvg among clients 0 and 2 alone gives the model of their group."""
    fed, groups = small_federation(data, unequal), (0, 1, 0, 1, 1)
    state = go(algorithm("oracle-groups", groups=groups), fed, 3)
    for group in (0, 1):
        members = torch.tensor([i for i in range(5) if groups[i] == group])
        alone = go(algorithm("fedavg"), fed, 3, who=members)
        close(state.x[group], alone.x, 1e-12)


def test_one_group_is_fedavg_and_one_for_each_is_separate(data, unequal):
    fed = small_federation(data, unequal)
    close(go(algorithm("oracle-groups", groups=1), fed, 3).x[0], go(algorithm("fedavg"), fed, 3).x)
    alone = go(algorithm("oracle-groups", groups=5), fed, 3)
    close(alone.x, go(algorithm("separate"), fed, 3).w)


def test_true_groups_come_from_the_partition_whatever_their_numbers(data):
    clients = partition.grouped(data, group_clients=2, group_sizes=40, test_size=10)
    fed = small_federation(data, clients)
    method = algorithm("oracle-groups")
    assert torch.equal(method.start(fed).cluster, clients.groups)
    assert method.start(fed).x.shape == (5, fed.d)
    odd = algorithm("oracle-groups", groups=tuple(7 - g for g in clients.groups.tolist()))
    assert odd.start(fed).x.shape == (5, fed.d)
    who = torch.tensor([0, 3])
    after = method.round(method.start(fed), fed, who)
    moved = (after.x - fed.initial()[:1]).norm(dim=1) > 0
    assert moved.tolist() == [True, True, False, False, False]  # the others' groups wait


def test_the_true_groups_help_where_they_disagree_and_false_ones_do_not(data):
    thirds = [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    clients = partition.grouped(data, None, thirds, [4] * 3, [40] * 3, test_size=20)
    fed = small_federation(partition.conflicting_labels(clients, data), clients, epochs=4)
    options = {"progress": False, "evaluate_every": 8}
    fedavg, true, false = (
        run(method, fed, 8, **options).last
        for method in (
            algorithm("fedavg"),
            algorithm("oracle-groups"),
            algorithm("oracle-groups", groups=4),
        )
    )
    assert true > fedavg + 0.1 and true > false + 0.05


@pytest.mark.parametrize(
    "groups, message",
    [("true", "needs clients whose groups are known"), ((0, 1), "each of the 5 clients, got 2")],
)
def test_unknown_groups_are_refused(data, unequal, groups, message):
    with pytest.raises(ValueError, match=message):
        algorithm("oracle-groups", groups=groups).start(small_federation(data, unequal))


def test_a_federation_without_a_partition_has_no_groups():
    fed = QuadraticFederation(torch.ones(2, 1), torch.ones(2, 1))
    with pytest.raises(ValueError, match="knows none for this federation"):
        algorithm("oracle-groups").start(fed)
    assert algorithm("oracle-groups", groups=(0, 1)).start(fed).cluster.tolist() == [0, 1]


BAD = [
    ("oracle-groups", {"groups": "ture"}, "groups must be one of 'true'; .* Did you mean 'true'"),
    ("oracle-groups", {"groups": (0, 0.5)}, "each entry of groups must be a whole number >= 0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
