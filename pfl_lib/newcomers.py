"""Clients that join after training: which model each method gives them, and how good it is.

Each method describes this (``newcomer``) and implements it (``newcomer_models``): see
``pfl_lib.methods.Algorithm``.  :func:`pfl_lib.partition.set_aside` makes newcomers of some clients.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pfl_lib import _check, _objectives, methods
from pfl_lib._show import Shown
from pfl_lib.federation import Federation, checked_federation
from pfl_lib.methods.base import Algorithm, State, as_method
from pfl_lib.rounds import run


@dataclass(frozen=True, eq=False)
class Served:
    """How a method served newcomers: their models (rows), and accuracy and loss on their tests.

    >>> import torch
    >>> served = Served("FedAvg", "the global model", *torch.tensor([[0.5, 0.75], [1.0, 2.0]]))
    >>> served
    Served(FedAvg: 2 newcomers, the global model, accuracy 0.6250, worst 0.5000)
    """

    label: str
    received: str
    accuracy: Tensor
    loss: Tensor
    models: Tensor | None = None
    metric: str = "accuracy"

    @property
    def mean(self) -> float:
        """Mean accuracy (or other metric) over the newcomers."""
        return self.accuracy.double().nanmean().item()

    @property
    def worst(self) -> float:
        """The lowest accuracy of a newcomer; of errors the highest."""
        measured = self.accuracy[~self.accuracy.isnan()]
        if len(measured) == 0:
            return math.nan
        return (measured.min() if _objectives.sign(self.metric) > 0 else measured.max()).item()

    def __repr__(self) -> str:
        return (
            f"Served({self.label}: {len(self.accuracy)} newcomers, {self.received}, "
            f"{self.metric} {self.mean:.4f}, worst {self.worst:.4f})"
        )


def serve_newcomers(
    method: Algorithm | str, state: State, fed: Federation, newcomers: Federation
) -> Served:
    """Serve ``newcomers``, who took no part in the run on ``fed`` that ended in ``state``.

    Both federations have the same model.  A newcomer trains at most as much as a client does in a
    round, by the settings of ``newcomers``; the members' models stay unchanged.  Where settings of
    a method change with the rounds, pass ``fed.at(k)``.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pfl_lib.partition.dirichlet(data, clients=8, a=0.5)
    >>> members, late = pfl_lib.partition.set_aside(clients, [6, 7])
    >>> fed, newcomers = (pfl_lib.Federation(data, p, "mlp", lr=0.1) for p in (members, late))
    >>> method = pfl_lib.algorithm("fedrep")
    >>> history = pfl_lib.run(method, fed, rounds=3, progress=False)
    >>> served = pfl_lib.serve_newcomers(method, history.state, fed, newcomers)
    >>> served.received, served.mean > 0.5
    ('the shared body with a head trained locally', True)
    """
    method = as_method("method", method)
    if not isinstance(state, State):
        raise TypeError(
            f"state must be the State that a run ended in, history.state, got {state!r}"
        )
    checked_federation("fed", fed)
    _check_newcomers(fed, checked_federation("newcomers", newcomers))
    fresh = method.start(fed)
    wrong = [n for n in fresh if getattr(state.get(n), "shape", None) != fresh[n].shape]
    if wrong:
        raise ValueError(
            f"state must be that of a run of {method.label} on fed with {wrong[0]} of shape "
            f"{tuple(fresh[wrong[0]].shape)}, got {state!r}"
        )
    models = method.newcomer_models(state, fed, newcomers)
    accuracy, loss = newcomers.evaluate(models)
    return Served(method.label, method.newcomer, accuracy, loss, models, newcomers.metric)


def compare_newcomers(
    fed: Federation,
    newcomers: Federation,
    rounds: int,
    algorithms: Mapping[str, Algorithm | str] | None = None,
    progress: bool = True,
) -> Shown:
    """Train every method on ``fed``, serve ``newcomers``, and return a table of the results.

    ``algorithms`` maps names of rows to methods; by default all methods of the library with default
    hyper-parameters, without those that need known groups where ``fed`` has none.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> members, late = pfl_lib.partition.set_aside(pfl_lib.partition.iid(data, 6), [4, 5])
    >>> fed, newcomers = (pfl_lib.Federation(data, p, "mlp", lr=0.1) for p in (members, late))
    >>> two = {name: pfl_lib.algorithm(name) for name in ("separate", "fedavg")}
    >>> table = compare_newcomers(fed, newcomers, rounds=2, algorithms=two, progress=False)
    >>> [row[0] for row in table.rows], table.rows[1][-1]
    (['separate', 'fedavg'], 'the global model')
    """
    checked_federation("fed", fed)
    if algorithms is None:
        fits = [m for m in methods.BY_NAME.values() if fed.groups is not None or not m.needs_groups]
        algorithms = {m.label: m(**m.needs) for m in fits}
    _check_newcomers(fed, checked_federation("newcomers", newcomers))
    if not isinstance(algorithms, Mapping) or not algorithms:
        raise TypeError(f"algorithms must be methods by name, got {algorithms!r}")
    rounds = _check.whole("rounds", rounds)
    rows = []
    for name, method in algorithms.items():
        history = run(method, fed, rounds, evaluate_every=rounds, progress=progress)
        served = serve_newcomers(method, history.state, fed.at(rounds - 1), newcomers)
        numbers = (history.last, served.mean, served.worst)
        rows.append((name, *(f"{number:.4f}" for number in numbers), served.received))
    head = ("method", "members", "newcomers", "worst newcomer", "a newcomer gets")
    return Shown(head, rows, wide=True)


def _check_newcomers(fed: Any, newcomers: Any) -> None:
    """The same model, and nobody who trained it already."""
    mine, theirs = ((f.model_name, f.d, f.dtype, f.layers) for f in (fed, newcomers))
    if mine != theirs:
        raise ValueError(
            f"newcomers must have the model of fed, {mine[0]!r} with {mine[1]:,} parameters of "
            f"{mine[2]}, got {theirs[0]!r} with {theirs[1]:,} of {theirs[2]}"
        )
    here, there = (getattr(f, "partition", None) for f in (fed, newcomers))
    if here and there and fed.data.identity() == newcomers.data.identity():
        known = torch.isin(torch.cat([*there.train, *there.test]), torch.cat([*here.train]))
        if known.any():
            raise ValueError(
                f"newcomers must hold no sample that fed trains on, got {int(known.sum()):,} such "
                "samples; pfl_lib.partition.set_aside makes members and newcomers of one partition"
            )
