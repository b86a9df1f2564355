"""Hyper-parameter tuning: a grid search, judged on held-out training samples."""

import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pfl_lib import _check, _objectives
from pfl_lib._show import Shown, progress_bar
from pfl_lib._version import __version__
from pfl_lib.checkpoints import atomic_write
from pfl_lib.local import LocalFederation
from pfl_lib.methods import BY_NAME, Algorithm, algorithm
from pfl_lib.rounds import run
from pfl_lib.work import Settings

#: Settings of local training that a grid may name.
LOCAL = tuple(one.name for one in fields(Settings) if one.name != "seed")


@dataclass(frozen=True)
class Trial:
    """One combination: its settings, and for each seed the validation accuracy (or other metric of
    the federation), or why the run diverged.

    >>> Trial({"lr": 0.1}, [0.5, 0.75]).mean
    0.625
    """

    settings: dict[str, Any]
    accuracy: list[float] = field(default_factory=list)
    diverged: str = ""

    @property
    def mean(self) -> float:
        """Mean over the seeds; NaN where a run diverged."""
        return math.nan if self.diverged else sum(self.accuracy) / len(self.accuracy)


@dataclass(frozen=True, eq=False)
class Tuning:
    """What :func:`pfl_lib.tune` found: ``best`` is the method, ``fed`` the federation to run it on.

    ``settings`` are the best combination, ``trials`` all of them in the order of the grid.  Where
    every combination diverged, ``best``, ``fed`` and ``settings`` are None.

    >>> import pfl_lib
    >>> found = tune("fedavg", {"lr": [0.1, 0.01]}, pfl_lib.example(), rounds=2, progress=False)
    >>> found.settings, found.fed.settings.lr, len(found.table().rows)
    ({'lr': 0.1}, 0.1, 2)
    """

    label: str
    trials: list[Trial]
    best: Algorithm | None
    settings: dict[str, Any] | None
    fed: LocalFederation | None
    metric: str = "accuracy"

    def table(self) -> Shown:
        """Every combination, the best first, those that diverged last."""
        order = sorted(self.trials, key=lambda trial: -_merit(trial, self.metric))
        names = list(order[0].settings)
        rows = []
        for number, trial in enumerate(order, 1):
            words = [str(value) for value in trial.settings.values()]
            rows.append((str(number), *words, trial.diverged or f"{trial.mean:.4f}"))
        note = f"{self.label}; {self.metric} on samples held out of the clients' training data"
        bold = "1" if self.best is not None else None
        return Shown(("", *names, "validation"), rows, bold=bold, note=note)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def __repr__(self) -> str:
        return repr(self.table())


def tune(
    method: str | Algorithm,
    grid: Mapping[str, Sequence[Any]],
    fed: LocalFederation,
    rounds: int,
    *,
    share: float = 0.2,
    seeds: Sequence[int] | None = None,
    participation: float = 1.0,
    folder: str | os.PathLike | None = None,
    progress: bool = True,
) -> Tuning:
    """Try every combination of ``grid`` and judge it on held-out parts of the training data.

    ``grid`` names hyper-parameters of the method, and settings of local training such as ``lr``,
    ``epochs``, ``batch_size`` or ``optimizer``, each with the values to try; a hyper-parameter
    of the method takes precedence.  ``method`` is a name, or a method whose other hyper-parameters
    stay as they are.

    Each client keeps ``share`` of its training samples aside, trains on the others for ``rounds``
    rounds, and its model of the last round is judged on what was kept.  Test samples play no role.
    ``seeds`` are the same for all combinations and decide batches, initial model and what is held
    out; None is the federation's own.  A run that diverges is kept and reported.  With a
    ``folder``, finished runs are read from there, and interrupted ones resumed.

    >>> import pfl_lib
    >>> found = pfl_lib.tune(
    ...     "fedprox", {"mu": [0.0, 1.0], "lr": [0.01, 0.1]}, pfl_lib.example(), rounds=3,
    ...     progress=False,
    ... )
    >>> found.settings["lr"], found.best.label
    (0.1, 'FedProx')
    >>> history = pfl_lib.run(found.best, found.fed, rounds=3, progress=False)
    """
    if not isinstance(fed, LocalFederation):
        raise TypeError(f"fed must be a pfl_lib.Federation, got {fed!r}")
    rounds = _check.whole("rounds", rounds)
    participation = _check.between("participation", participation, 0, 1, "(]")
    _check.flag("progress", progress)
    _check.between("share", share, 0, 1, "()")
    seeds = _checked_seeds(seeds)
    folder = _checked_folder(folder)
    combinations = _combinations(method, grid)
    tried = [_built(method, fed, values) for values in combinations]  # bad values stop here
    trials = []
    with progress_bar(progress, total=len(tried) * len(seeds), desc="tune") as bar:
        for values, (one, where) in zip(combinations, tried):
            trial = Trial(values)
            for seed in seeds:
                if not trial.diverged:
                    trial = _with_run(trial, one, where, seed, rounds, participation, share, folder)
                bar.update()
            trials.append(trial)
    sound = [number for number, trial in enumerate(trials) if not trial.diverged]
    label = tried[0][0].label
    if not sound:
        return Tuning(label, trials, None, None, None, fed.metric)
    best = max(sound, key=lambda number: _merit(trials[number], fed.metric))  # the first of equals
    return Tuning(label, trials, tried[best][0], combinations[best], tried[best][1], fed.metric)


def _merit(trial, metric):
    """A score, higher is better; lowest where a run diverged or nothing could be measured."""
    value = _objectives.sign(metric) * trial.mean
    return value if value == value else -math.inf


def _with_run(trial, method, fed, seed, rounds, participation, share, folder):
    """The trial with one more run: read from the folder, or run and written there."""
    if seed is not None:
        fed = fed.replace(seed=seed, init_seed=seed)
    _, validation = fed.hold_out(share, seed=seed or 0)
    # apart from each other: a method may have a learning rate of its own beside the federation's
    key = {"method": [method.name, method.settings()], "federation": validation.describe()}
    key |= {"rounds": rounds, "participation": participation, "version": __version__}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    file = None if folder is None else folder / f"{name}.json"
    if file is not None and file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
    else:
        found = _run(method, validation, rounds, participation, folder and folder / name)
        if file is not None:
            text = json.dumps({"trial": trial.settings, "seed": seed, **found})
            atomic_write(file, lambda side: side.write_text(text, encoding="utf-8"))
            shutil.rmtree(folder / name, ignore_errors=True)  # checkpoints are no longer needed
    if found["diverged"]:
        return replace(trial, diverged=found["diverged"])
    return replace(trial, accuracy=[*trial.accuracy, found["accuracy"]])


def _run(method, validation, rounds, participation, checkpoint):
    options = {"participation": participation, "evaluate_every": rounds, "checkpoint": checkpoint}
    options["checkpoint_every"] = max(1, rounds // 5)
    try:
        history = run(method, validation, rounds, progress=False, **options)
    except FloatingPointError as error:
        return {"accuracy": None, "diverged": f"diverged: {error}"}
    return {"accuracy": history.last, "diverged": ""}


def _hyper_parameters(method):
    if isinstance(method, Algorithm):
        return [one.name for one in fields(method)]
    return [one.name for one in fields(BY_NAME[_check.one_of("method", method, BY_NAME)])]


def _built(method, fed, values):
    """The method and the federation of one combination."""
    own = _hyper_parameters(method)
    hyper = {name: value for name, value in values.items() if name in own}
    local = {name: value for name, value in values.items() if name not in own}
    made = replace(method, **hyper) if isinstance(method, Algorithm) else algorithm(method, **hyper)
    return made, fed.replace(**local) if local else fed


def _combinations(method, grid):
    """Every combination of the grid, the last name turning fastest."""
    if not isinstance(grid, Mapping) or not grid:
        raise TypeError(f"grid must hold lists of values by name, got {grid!r}")
    known = list(dict.fromkeys([*_hyper_parameters(method), *LOCAL]))
    for name, values in grid.items():
        _check.one_of("name in grid", name, known)
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or not values:
            raise TypeError(f"grid[{name!r}] must be a list of values to try, got {values!r}")
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def _checked_seeds(seeds):
    if seeds is None:
        return [None]
    if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Sequence) or not seeds:
        raise TypeError(f"seeds must be a list of whole numbers, got {seeds!r}")
    seeds = [_check.whole("seeds", seed, at_least=0) for seed in seeds]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must differ, or a run counts twice; got {seeds!r}")
    return seeds


def _checked_folder(folder):
    if folder is None:
        return None
    folder = _check.folder("folder", folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
