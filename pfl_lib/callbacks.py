"""Callbacks of a run: log files, experiment trackers, early stopping, your own.

``pfl_lib.run(..., callbacks=[...])`` calls each of them in turn with a ``Moment``.  An exception in
a callback ends the run like any other; the checkpoints written so far stay valid.
"""

import csv
import os
from dataclasses import dataclass
from typing import Any

from pfl_lib import _check, _objectives
from pfl_lib.checkpoints import atomic_write
from pfl_lib.federation import Federation, checked_federation
from pfl_lib.history import History
from pfl_lib.methods.base import Algorithm, State


@dataclass
class Moment:
    """The state of a run, as callbacks get it.  ``round`` counts the finished rounds.

    >>> import pfl_lib
    >>> class Impatient(Callback):
    ...     def on_round_end(self, now):
    ...         if now.round == 2:
    ...             now.stop("two rounds are enough for me")
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(
    ...     method, pfl_lib.example(), rounds=9, callbacks=[Impatient()], progress=False
    ... )
    >>> history.rounds, history.stopped
    ([1, 2], 'two rounds are enough for me')
    """

    algorithm: Algorithm
    fed: Federation
    rounds: int  # how many in all
    history: History
    state: State
    round: int = 0
    seconds: float = 0.0  # of training, since the start
    sent: int = 0  # parameters, since the start
    checkpoint: str | os.PathLike | None = None

    def stop(self, why: str) -> None:
        """End the run after this round, which is still measured; ``history.stopped`` says why."""
        self.history.stopped = str(why)

    @property
    def newest(self) -> dict[str, float]:
        """The newest measurement: means over the clients, by name."""
        return self.history.measurements()[-1]


class Callback:
    """A base class whose methods do nothing: override those you need.

    >>> import pfl_lib
    >>> class Shout(Callback):
    ...     def on_evaluate(self, now):
    ...         print(f"round {now.round}: {sorted(now.newest)[:2]}")
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(
    ...     method, pfl_lib.example(), rounds=2, callbacks=[Shout()], progress=False
    ... )
    round 1: ['accuracy', 'loss']
    round 2: ['accuracy', 'loss']
    """

    def on_start(self, now: Moment) -> None:
        """Before the first round, or the first after a resume, with earlier measurements."""

    def on_round_end(self, now: Moment) -> None:
        """After every round."""

    def on_evaluate(self, now: Moment) -> None:
        """After the models were tested; ``now.newest`` has the results."""

    def on_checkpoint(self, now: Moment) -> None:
        """After a checkpoint was written and synced to disk."""

    def on_end(self, now: Moment) -> None:
        """At the end, also of a run that an error has ended."""

    def state(self) -> dict[str, Any]:
        """The state of this callback to be restored when the run is resumed, as plain data."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the :meth:`state` of the checkpoint; called before ``on_start``."""


class CSVLog(Callback):
    """A table of the measurements at ``path``, one line per measured round.

    The file is rewritten from the history each time, and renamed into place: it is never half a
    table, and a resumed run repeats no line.  An existing file is replaced.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import pfl_lib
    >>> path = Path(tempfile.mkdtemp()) / "log.csv"
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(
    ...     method, pfl_lib.example(), rounds=3, callbacks=[CSVLog(path)], progress=False
    ... )
    >>> lines = path.read_text().splitlines()
    >>> len(lines), lines[0]
    (4, 'round,accuracy,loss,worst 10 %,seconds,sent')
    """

    def __init__(self, path: str | os.PathLike):
        self.path = _check.file("path", path, there=False)

    def on_start(self, now: Moment) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if now.history.rounds:
            self.on_evaluate(now)

    def on_evaluate(self, now: Moment) -> None:
        atomic_write(self.path, lambda side: self._write(side, now.history))

    def _write(self, side, history):
        rows = [{"round": k, **row} for k, row in zip(history.rounds, history.measurements())]
        with open(side, "w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)


class TensorBoard(Callback):
    """Curves for TensorBoard in ``folder`` (needs ``pip install tensorboard``).

    >>> log = TensorBoard("logs/first")  # doctest: +SKIP
    >>> pfl_lib.run(method, fed, rounds=100, callbacks=[log])  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = _check.folder("folder", folder)
        self._module = _check.optional("torch.utils.tensorboard", "TensorBoard", "tensorboard")
        self._writer: Any = None

    def on_start(self, now: Moment) -> None:
        # drop what a killed run wrote after its last checkpoint
        self._writer = self._module.SummaryWriter(str(self.folder), purge_step=now.round + 1)
        self._writer.add_text("settings", str(now.history.settings), now.round)

    def on_evaluate(self, now: Moment) -> None:
        for name, value in now.newest.items():
            self._writer.add_scalar(name, value, now.round)

    def on_end(self, now: Moment) -> None:
        if self._writer is not None:
            self._writer.close()


class MLflow(Callback):
    """A run in MLflow (needs ``pip install mlflow``): settings as parameters, curves as metrics.

    ``options`` go to ``mlflow.start_run``.  A resumed run continues its MLflow run.

    >>> log = MLflow(run_name="first try")  # doctest: +SKIP
    >>> pfl_lib.run(method, fed, rounds=100, callbacks=[log])  # doctest: +SKIP
    """

    def __init__(self, **options: Any):
        self._module = _check.optional("mlflow", "MLflow", "mlflow")
        self.options, self.run_id, self._logged = options, None, 0

    def on_start(self, now: Moment) -> None:
        again: dict[str, Any] = {"run_id": self.run_id} if self.run_id else {}
        self.run_id = self._module.start_run(**{**self.options, **again}).info.run_id
        if not now.round:
            settings = now.history.settings
            self._module.log_params({_plain(k): str(v) for k, v in settings.items()})
        client = self._module.MlflowClient()
        known = client.get_metric_history(self.run_id, now.history.metric) if now.round else []
        self._logged = max((one.step for one in known), default=0)

    def on_evaluate(self, now: Moment) -> None:
        if now.round > self._logged:  # a killed run may have been ahead of its last checkpoint
            metrics = {_plain(name): value for name, value in now.newest.items()}
            self._module.log_metrics(metrics, step=now.round)

    def on_end(self, now: Moment) -> None:
        if self.run_id:
            self._module.end_run()

    def state(self) -> dict[str, Any]:
        return {"run_id": self.run_id}

    def restore(self, state: dict[str, Any]) -> None:
        self.run_id = state["run_id"]


class WandB(Callback):
    """A run in Weights & Biases (needs ``pip install wandb``).

    ``options`` go to ``wandb.init``: project, name, mode ….  A resumed run continues its
    W&B run.

    >>> log = WandB(project="federations", mode="offline")  # doctest: +SKIP
    >>> pfl_lib.run(method, fed, rounds=100, callbacks=[log])  # doctest: +SKIP
    """

    def __init__(self, **options: Any):
        self._module = _check.optional("wandb", "WandB", "wandb")
        self.options, self.run_id = options, None
        self._run: Any = None

    def on_start(self, now: Moment) -> None:
        again: dict[str, Any] = {"id": self.run_id, "resume": "allow"} if self.run_id else {}
        self._run = self._module.init(config=now.history.settings, **{**self.options, **again})
        self.run_id = self._run.id

    def on_evaluate(self, now: Moment) -> None:
        self._run.log(now.newest, step=now.round)

    def on_end(self, now: Moment) -> None:
        if self._run is not None:
            self._run.summary["stopped"] = now.history.stopped
            self._run.finish()

    def state(self) -> dict[str, Any]:
        return {"run_id": self.run_id}

    def restore(self, state: dict[str, Any]) -> None:
        self.run_id = state["run_id"]


class EarlyStopping(Callback):
    """Stop when the clients' models no longer improve on held-out samples.

    ``validation`` is the second federation of ``fed.hold_out()``: the same clients with the same
    training samples, tested on a part of their training data.  The test samples of the run play no
    role.  After ``patience`` measurements in which the mean over the clients has not improved by
    more than ``min_delta``, the run stops and ``history.stopped`` says why.  ``metric`` is "loss",
    or None for the federation's own; of errors less is better.  ``validation_curve`` holds (round,
    value) of every measurement.

    The run ends with its last models, not with those of ``best_round``.  As every draw is keyed,
    the same run with so many ``rounds`` ends with these; a checkpoint of the round saves the time.

    >>> import pfl_lib
    >>> fed, validation = pfl_lib.example().hold_out(share=0.2)
    >>> stopping = EarlyStopping(validation, patience=2)
    >>> method = pfl_lib.algorithm("fedavg")
    >>> history = pfl_lib.run(method, fed, rounds=60, callbacks=[stopping], progress=False)
    >>> history.rounds[-1] < 60 and history.stopped.startswith("validation accuracy did not")
    True
    >>> best = pfl_lib.run(method, fed, rounds=stopping.best_round, progress=False)
    >>> best.last == history.mean[stopping.best_round - 1]
    True
    """

    def __init__(
        self,
        validation: Federation,
        patience: int = 5,
        metric: str | None = None,
        min_delta: float = 0.0,
    ):
        self.validation = checked_federation("validation", validation)
        self.patience = _check.whole("patience", patience)
        own = validation.metric
        self.metric = own if metric is None else _check.one_of("metric", metric, (own, "loss"))
        self.min_delta = _check.non_negative("min_delta", min_delta)
        self.validation_curve: list[tuple[int, float]] = []

    @property
    def best_round(self) -> int | None:
        """The round that no later one has beaten by more than ``min_delta``."""
        best: tuple[int, float] | None = None
        sign = _objectives.sign(self.metric)
        for k, value in self.validation_curve:
            if best is None or sign * (value - best[1]) > self.min_delta:
                best = k, value
        return best[0] if best else None

    def on_start(self, now: Moment) -> None:
        fed, held_out = now.fed, self.validation
        if held_out is fed or (held_out.m, held_out.d) != (fed.m, fed.d):
            raise ValueError(
                "validation must be the second federation of fed.hold_out(), with the same clients "
                f"and the same model as fed, got {held_out!r}"
            )
        if list(held_out.sample_counts) != list(fed.sample_counts):
            raise ValueError(
                "validation must train on the samples that fed trains on: run on the first "
                "federation of fed.hold_out(), validate on the second"
            )
        known = now.history.rounds  # drop what an earlier run with this object left
        self.validation_curve = [(k, value) for k, value in self.validation_curve if k in known]
        self._judge(now)

    def on_evaluate(self, now: Moment) -> None:
        here = self.validation.at(now.round - 1)
        accuracy, loss = here.evaluate(now.algorithm.personal(now.state, here))
        value = loss if self.metric == "loss" else accuracy
        self.validation_curve.append((now.round, value.double().nanmean().item()))
        self._judge(now)

    def _judge(self, now):
        rounds = [k for k, _ in self.validation_curve]
        if self.best_round is None or rounds[-1] != now.round:
            return
        waited = len(rounds) - 1 - rounds.index(self.best_round)
        if waited >= self.patience:
            upwards = _objectives.sign(self.metric) > 0
            verb, best = ("rise", "highest") if upwards else ("fall", "lowest")
            value = dict(self.validation_curve)[self.best_round]
            now.stop(
                f"validation {self.metric} did not {verb} in {waited} measurements: {best} "
                f"{value:.4f} in round {self.best_round}"
            )

    def state(self) -> dict[str, Any]:
        return {"validation_curve": self.validation_curve}

    def restore(self, state: dict[str, Any]) -> None:
        self.validation_curve = [(k, value) for k, value in state["validation_curve"]]


def _plain(name):
    """A metric's name for MLflow, which accepts letters, digits and some marks only."""
    return "".join(c if c.isalnum() or c in "_-./ " else "pct" for c in name)
