"""Oracle groups: FedAvg inside the true groups, the line that looking for groups can reach."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pfl_lib import _check
from pfl_lib.methods._clusters import ClusterModels
from pfl_lib.methods._hyper import choice, hyper
from pfl_lib.methods.base import State


def _check_groups(name, value):
    """The word "true", a whole number of groups, or one group number for each client."""
    if isinstance(value, str):
        _check.one_of(name, value, ("true",))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for group in value:
            _check.whole(f"each entry of {name}", group, at_least=0)
    else:
        _check.whole(name, value)


@dataclass(frozen=True)
class OracleGroups(ClusterModels):
    """FedAvg among the clients of each group, for clients whose groups are known.

    ``groups``: "true" takes those of the partition, which only a simulation can know; or one
    number for each client; or a whole number g that deals clients to g groups in turn, a control
    whose groups mean nothing.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pfl_lib.partition.grouped(data, group_clients=2, test_size=20)
    >>> fed = pfl_lib.Federation(data, clients, "logistic_regression", lr=0.1)
    >>> history = pfl_lib.run(pfl_lib.algorithm("oracle-groups"), fed, 2, progress=False)
    >>> history.state.cluster.tolist() == clients.groups.tolist()
    True
    """

    weighting: str = choice("sizes", ("sizes", "equal"))
    groups: str | int | tuple = hyper(
        "true", _check_groups, ("unknown", None, 0, -1, 1.5, True, (0, -1), (0, "a"))
    )
    name, label = "oracle-groups", "Oracle groups"
    order = 1
    place = (1, 0, 1)
    idea = (
        "FedAvg among the clients of each true group, which must be known. A yardstick: "
        "methods that look for groups can hardly beat it, and where it does not beat FedAvg, "
        "there is nothing to look for."
    )
    note = (
        "Only for clients that were made with groups, or whose groups are given; with a single "
        "group it is FedAvg. It is no upper bound for methods that also fit each client."
    )
    needs_groups = True
    equations = ["eq-cluster-average"]
    paper = "McMahan et al. 2017, Algorithm 1, once for each group"
    weights_by = "the true groups, then sample counts"

    def start(self, fed):
        group = self.numbers(fed).to(fed.device)
        found, cluster = torch.unique(group, return_inverse=True)
        return State(x=fed.initial(fed.everyone[:1]).repeat(len(found), 1), cluster=cluster)

    def numbers(self, fed):
        """The group of each client."""
        groups: Any = self.groups
        if groups == "true":
            if fed.groups is None:
                raise ValueError(
                    f"groups='true' needs clients whose groups are known, as those of "
                    f"pfl_lib.partition.grouped; {self.label} knows none for this federation: "
                    "give groups=(...), one number for each client"
                )
            return fed.groups
        if not isinstance(groups, Sequence):
            return torch.arange(fed.m) % _check.whole("groups", groups, at_most=fed.m)
        if len(groups) != fed.m:
            raise ValueError(
                f"groups must hold one number for each of the {fed.m} clients, got {len(groups)}"
            )
        return torch.tensor(groups)
