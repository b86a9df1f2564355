"""A method in a minute: a small run for the reference pages, and the work of one round."""

import copy

from torch.utils.flop_counter import FlopCounterMode

from pfl_lib import _check, _deprecated, partition
from pfl_lib import data as datasets
from pfl_lib.book.experiments.measuring import Case, measure
from pfl_lib.local import LocalFederation
from pfl_lib.methods import algorithm


def quick_federation(seed=0):
    """Twelve clients in three hidden groups that name the classes differently, 8×8 digits."""
    data = datasets.load("digits")
    thirds = [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    sizes = {"group_clients": [4] * 3, "group_sizes": [40] * 3, "test_size": 20}
    clients = partition.grouped(data, group_classes=thirds, seed=seed, **sizes)
    data = partition.conflicting_labels(clients, data)
    return LocalFederation(data, clients, "mlp", lr=0.1, batch_size=10, epochs=2, seed=seed)


def quick_run(method, rounds=6):
    """``method`` beside Separate, FedAvg and the label prior, for the reference pages.

    Twelve clients in three hidden groups that name the classes differently, 8×8 digits.

    >>> quick_run(algorithm("fedprox", mu=0.01), rounds=1).rows[0][0]
    'Separate'
    """
    fed = quick_federation()
    rows = [algorithm(name) for name in ("separate", "fedavg", "label-prior")]
    methods = {row.label: row for row in rows}
    methods[method.label] = method
    case = Case(lambda seed: fed, methods, rounds)
    return measure("quick_run", "smoke", case, folder=None, progress=False)[0].table()


def round_work(algorithm, fed, after=2):
    """Floating-point operations of one round, clients and server, when ``after`` have gone before.

    Counted while the round runs in the plain loop, in the products of matrices, where nearly all
    the work is; so it is the same on a busy machine and on an idle one.  Testing the models is not
    counted.

    >>> import pfl_lib
    >>> alone = round_work(pfl_lib.algorithm("separate"), pfl_lib.example(), after=0)
    >>> both = round_work(pfl_lib.algorithm("ditto"), pfl_lib.example(), after=0)
    >>> both > 2 * alone  # a model for all, and one of its own
    True
    """
    state = algorithm.start(fed)
    for k in range(_check.whole("after", after, at_least=0)):
        state = algorithm.round(state, fed.at(k), fed.everyone)
    fed = copy.copy(fed)
    fed.engine = "loop"  # the counter sees neither other threads nor operations in place
    with FlopCounterMode(display=False) as counter:
        algorithm.round(state, fed.at(after), fed.everyone)
    return counter.get_total_flops()


_deprecated.keep_former_names(__name__)
