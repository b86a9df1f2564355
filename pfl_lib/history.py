"""What a run measured: accuracy of every client in every round, time, parameters sent."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from pfl_lib import _check, _deprecated, _objectives
from pfl_lib.checkpoints import atomic_write


@dataclass
class History:
    """The record of a run; ``accuracy[r][i]`` is client i's test accuracy at ``rounds[r]``.

    Where the federation was judged by another ``metric`` (``"auc"``, ``"f1"``, ``"mae"``),
    ``accuracy`` holds that, tables are headed by its name, and the best of an error is the least.

    ``extra_models[name][r][i]`` are the same for other models that a method tests beside the
    personal one.
    A client that could not be measured has NaN; means and the worst leave it out.
    ``ids`` are the clients' names, where the partition knows them (writers, hospitals).

    >>> import pfl_lib
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), pfl_lib.example(), 2, progress=False)
    >>> history.rounds, len(history.accuracy[-1])
    ([1, 2], 8)
    >>> history.last == history.mean[-1] and history.worst() <= history.last
    True
    """

    label: str
    tested: str
    settings: dict
    rounds: list[int] = field(default_factory=list)
    accuracy: list[list[float]] = field(default_factory=list)
    loss: list[list[float]] = field(default_factory=list)
    extra_models: dict[str, list[list[float]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # of training, since the start
    sent: list[int] = field(default_factory=list)  # parameters, since the start
    broken: list[dict] = field(default_factory=list)  # clients that were not finite, and when
    state: Any = None  # the last state of the method
    stopped: str = ""  # why a callback ended the run before its last round
    ids: list[str] = field(default_factory=list)  # the clients' names; [] if they have none

    @property
    def metric(self) -> str:
        """What ``accuracy`` holds: "accuracy", or another metric of the federation."""
        return self.settings.get("metric", "accuracy")

    @property
    def mean(self) -> list[float]:
        """Mean accuracy over clients, one number per recorded round."""
        return [_mean(row) for row in self.accuracy]

    @property
    def last(self) -> float:
        """Mean accuracy in the last recorded round; NaN before the first."""
        return self.mean[-1] if self.accuracy else math.nan

    @property
    def best(self) -> float:
        """Best mean accuracy over the rounds: the papers' number.  It is chosen on the test data,
        so it is biased upwards."""
        way = _objectives.sign(self.metric)
        return max(_measured(self.mean), key=lambda value: way * value, default=math.nan)

    @property
    def best_round(self) -> int | None:
        """The round of ``best``; None if nothing was ever measured."""
        best = self.best
        return self.rounds[self.mean.index(best)] if best == best else None

    def clients(self, round_: int | None = None) -> torch.Tensor:
        """Accuracy of every client, in the last or in a given recorded round: an (m,) tensor."""
        if round_ is not None and _check.whole("round_", round_, at_least=0) not in self.rounds:
            some = ", ".join(map(str, self.rounds[:10])) + ", …" * (len(self.rounds) > 10)
            raise ValueError(f"round_ must be one that was recorded ({some}), got {round_!r}")
        if not self.rounds:
            raise ValueError("the History has no clients yet: nothing was measured")
        at = -1 if round_ is None else self.rounds.index(round_)
        return torch.tensor(self.accuracy[at])

    def worst(self, share: float = 0.1) -> float:
        """Mean accuracy of the worst ``share`` of the clients in the last recorded round."""
        share = _check.between("share", share, 0, 1, "(]")
        return _worst(self.accuracy[-1] if self.accuracy else [], share, self.metric)

    def measurements(self) -> list[dict[str, float]]:
        """What was measured in each recorded round: means over the clients, by name."""
        return [
            {
                self.metric: _mean(self.accuracy[r]),
                **({"loss": _mean(self.loss[r])} if self.loss else {}),
                "worst 10 %": _worst(self.accuracy[r], 0.1, self.metric),
                **{f"{self.metric} ({name})": _mean(v[r]) for name, v in self.extra_models.items()},
                **({"seconds": self.seconds[r], "sent": self.sent[r]} if self.sent else {}),
            }
            for r in range(len(self.rounds))
        ]

    def to_pandas(self) -> Any:
        """A tidy table for pandas (``pip install pandas``): one row per recorded round and client.

        Columns: method, round, client, accuracy, loss, one for each of ``extra_models``, and
        seconds and sent, which count all clients since the start.  A client is given by its name
        where the partition knows it (``ids``), and else by its number.

        >>> import pfl_lib
        >>> method = pfl_lib.algorithm("fedavg")
        >>> history = pfl_lib.run(method, pfl_lib.example(), rounds=2, progress=False)
        >>> table = history.to_pandas()
        >>> table.shape, list(table.columns[:4])
        ((16, 7), ['method', 'round', 'client', 'accuracy'])
        >>> best = table.groupby("round")["accuracy"].mean().max()  # as history.best
        """
        pandas = _check.optional("pandas", "History.to_pandas", "pandas")
        kinds: dict[str, list[list[float]]] = {self.metric: self.accuracy, "loss": self.loss}
        kinds |= {f"{self.metric} ({name})": rows for name, rows in self.extra_models.items()}
        counts: dict[str, Any] = {"seconds": self.seconds, "sent": self.sent}
        names = ["method", "round", "client", *kinds, *counts]
        rows = [
            (self.label, k, c, *(v[r][i] for v in kinds.values()), *(v[r] for v in counts.values()))
            for r, k in enumerate(self.rounds)
            for i, c in enumerate(self.ids or range(len(self.accuracy[r])))
        ]
        return pandas.DataFrame(rows, columns=names)

    def forget_last(self) -> None:
        """Leave out the last measurement."""
        for kept in (self.rounds, self.accuracy, self.loss, self.seconds, self.sent):
            del kept[-1:]
        for kept in self.extra_models.values():
            del kept[-1:]

    def summary(self) -> dict[str, Any]:
        """One row of a results table."""
        return {
            "method": self.label,
            "last": self.last,
            "best": self.best,
            "best round": self.best_round,
            "worst 10 %": self.worst(),
            "seconds": sum(self.seconds[-1:]),
            "sent": sum(self.sent[-1:]),
            "tested": self.tested,
            **{f"last ({name})": _mean(rows[-1]) for name, rows in self.extra_models.items()},
        }

    @property
    def also(self) -> dict[str, list[list[float]]]:
        """Deprecated: use ``extra_models``."""
        _deprecated.warn("History.also", "History.extra_models")
        return self.extra_models

    def record(self) -> dict[str, Any]:
        """Everything but the state, as plain data."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "state"}

    def save(self, path: str | Path) -> None:
        """Write the record as JSON, atomically."""
        text = json.dumps(self.record())
        atomic_write(_check.file("path", path), lambda side: side.write_text(text))

    @classmethod
    def load(cls, path: str | Path) -> "History":
        """Read what ``save`` wrote."""
        file = _check.path("path", path)
        try:
            found = json.loads(file.read_text())
            return cls(**{_deprecated.FIELDS.get(name, name): v for name, v in found.items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a saved History ({error})") from error

    def __repr__(self) -> str:
        if not self.rounds:
            return f"History({self.label}: nothing measured yet)"
        return (
            f"History({self.label}: round {self.rounds[-1]}, {self.metric} {self.last:.4f}, "
            f"best {self.best:.4f} in round {self.best_round}, worst 10 % {self.worst():.4f}"
            + (f"; stopped: {self.stopped})" if self.stopped else ")")
        )


def _measured(values: Sequence[float]) -> list[float]:
    """The values that were measured, that is, are not NaN."""
    return [a for a in values if a == a]


def _worst(values: Sequence[float], share: float, metric: str) -> float:
    """Mean of the worst ``share`` of the measured values: the lowest, or of errors the highest."""
    ordered = sorted(_measured(values), reverse=_objectives.sign(metric) < 0)
    return _mean(ordered[: max(1, math.ceil(share * len(ordered)))])


def _mean(values: Sequence[float]) -> float:
    """The mean of the measured values; NaN if there is none."""
    values = _measured(values)
    return sum(values) / len(values) if values else math.nan
