"""Clients for the tests of the methods."""

import pytest
import torch

from pfl_lib import partition
from tests.support.methods import ENGINES, small_federation
from tests.support.quadratics import C, H, Toy, X


@pytest.fixture(scope="session")
def unequal(data):
    """Five clients with 7 to 50 samples, classes in order, so that no two are alike."""
    order = torch.argsort(data.y_train, stable=True)
    train = tuple(order[100 * i : 100 * i + n] for i, n in enumerate((7, 50, 20, 33, 12)))
    test = tuple(data.n_train + torch.arange(9 * i, 9 * i + 9) for i in range(5))
    return partition.Partition("unequal", train, test)


@pytest.fixture(scope="session")
def uneven(data):
    """Five clients of other sizes, each with classes of its own."""
    return partition.grouped(data, group_clients=1, group_sizes=(17, 50, 31, 60, 20))


@pytest.fixture(scope="session")
def groups(data):
    """Ten clients of one size in five hidden groups."""
    return partition.grouped(data, group_clients=2, group_sizes=60)


@pytest.fixture(scope="session")
def twins(data):
    """Four clients with the same samples."""
    same = torch.arange(40)
    test = data.n_train + torch.arange(10)
    return partition.Partition("twins", (same,) * 4, (test,) * 4)


@pytest.fixture
def federation(data, unequal):
    """Makes small federations of the unequal clients."""
    return lambda clients=unequal, **options: small_federation(data, clients, **options)


@pytest.fixture(params=ENGINES)
def quadratics(request):
    """Makes federations of the two quadratic clients, n = (100, 300) as (1, 3)."""

    def make(**options):
        options = {"sizes": [1, 3], **options}
        return Toy(torch.cat([H, C], 1), X, engine=request.param, **options)

    return make
