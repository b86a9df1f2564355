"""Does the library still compute what a stored result was measured with?  A canary tells.

A result file keeps, for each method with its hyper-parameters, what three tiny rounds on a fixed
federation gave when the result was measured.  When they come out differently today, the result is
stale.  Behavior decides: code may be renamed, moved and rewritten as long as its numbers stay.
"""

import functools
import hashlib
import json
import math
import os
import warnings
from pathlib import Path

import torch

from pfl_lib import data as datasets
from pfl_lib import models, partition
from pfl_lib.book.experiments.methods import EXTRA
from pfl_lib.checkpoints import atomic_write
from pfl_lib.local import LocalFederation
from pfl_lib.methods import algorithm, with_ala
from pfl_lib.random import keyed_generator
from pfl_lib.rounds import run

ROUNDS = 3  # so that a client who is two rounds late arrives
DECIDES = ("algorithm", "hyper", "optimizer", "participation")  # what a canary depends on
TOLERANCE = 1e-9  # relative: other machines add up in another order
AS_ROUNDING = 4  # times what models that were moved by less than a rounding change
SHARED = "PFL_CANARIES"  # names a folder in which processes with the same library share theirs


def build(name, hyper):
    """The method of a stored run, from its name and hyper-parameters as plain data.

    >>> build("fedprox", {"mu": 0.1})
    FedProx(mu=0.1)
    >>> build("ditto+ala", {"ala_layers": 1, "base": {"name": "ditto", "lam": 0.5}}).label
    'Ditto+ALA'
    """
    hyper = {key: tuple(v) if isinstance(v, list) else v for key, v in hyper.items()}
    if name.endswith("+ala"):
        base = dict(hyper.pop("base"))
        return with_ala(build(base.pop("name"), base), **hyper)
    return EXTRA[name](**hyper) if name in EXTRA else algorithm(name, **hyper)


def canary_setting(settings):
    """What a run's canary depends on, from the settings a result file stores.

    >>> stored = {"algorithm": "fedprox", "fedprox.mu": 0.1, "optimizer": "sgd"}
    >>> canary_setting(stored | {"participation": 1})
    {'algorithm': 'fedprox', 'hyper': {'mu': 0.1}, 'optimizer': 'sgd', 'participation': 1.0}
    """
    name = settings["algorithm"]
    return {
        "algorithm": name,
        "hyper": {
            key.removeprefix(f"{name}."): value
            for key, value in settings.items()
            if key.startswith(f"{name}.")
        },
        "optimizer": settings["optimizer"],
        "participation": 1.0 if settings["participation"] == 1 else 0.5,
    }


def canary(setting, method=None):
    """Three small rounds with this ``setting`` (see ``canary_setting``): accuracy by round and
    client, and the mean test loss by round.  Computed once per session, or once for all processes
    that have been given the same folder in ``PFL_CANARIES`` (the notebooks of one run).

    >>> stored = {"algorithm": "fedavg", "optimizer": "sgd", "participation": 1}
    >>> sorted(canary(canary_setting(stored)))
    ['accuracy', 'loss']
    """
    key = json.dumps(setting, sort_keys=True)
    if key not in _known:
        method = method or build(setting["algorithm"], setting["hyper"])
        file = _shared_file(key, method)
        if file and file.exists():
            _known[key] = json.loads(file.read_text())
        else:
            _known[key] = _numbers(setting, method)
            if file:
                atomic_write(file, lambda path: path.write_text(json.dumps(_known[key])))
    return _known[key]


_known: dict = {}


def _shared_file(key, method):
    """Where others find this canary; None where nobody shares, or a notebook made the method."""
    ours = type(method).__module__.startswith("pfl_lib.")
    if SHARED not in os.environ or not ours:
        return None
    return Path(os.environ[SHARED]) / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def forget():
    """Forget the session's canaries: for whoever changes a method in a running session.

    >>> forget()
    """
    _known.clear()


def is_current(entry):
    """Whether a stored canary still comes out.

    >>> setting = canary_setting({"algorithm": "fedavg", "optimizer": "sgd", "participation": 1})
    >>> is_current(setting | canary(setting)), is_current(setting | {"accuracy": [], "loss": [9.9]})
    (True, False)
    """
    setting = {key: entry[key] for key in DECIDES}
    try:
        now = canary(setting)
    except (ValueError, TypeError):  # the method, or one of its hyper-parameters, is gone
        return False
    if all(apart <= TOLERANCE for apart in _distances(entry, now)):
        return True
    # Adam turns a slope of 1e-17 into a step: then how a machine rounds decides, and how much it
    # decides is seen from models that were moved by less than a rounding
    nudged = _numbers(setting, build(setting["algorithm"], setting["hyper"]), nudged=True)
    pairs = zip(_distances(entry, now), _distances(nudged, now))
    return all(apart <= max(TOLERANCE, AS_ROUNDING * rounding) for apart, rounding in pairs)


def _distances(entry, now):
    """The largest relative difference by kind of number; infinite where they have other forms."""
    return [_apart(entry.get(what), now.get(what)) for what in ("stopped", "accuracy", "loss")]


def _apart(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return max(map(_apart, a, b), default=0.0) if len(a) == len(b) else math.inf
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) / max(1, abs(a), abs(b))
    return 0.0 if a == b else math.inf


def _numbers(setting, method, nudged=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on hyper-parameters was given by the run itself
        try:
            history = run(
                method,
                _federation(setting["optimizer"], nudged),
                ROUNDS,
                participation=setting["participation"],
                progress=False,
            )
        except FloatingPointError:  # a step too long for these clients
            return {"stopped": True}
    return {
        "accuracy": [[round(a, 6) for a in row] for row in history.accuracy],
        "loss": [float(f"{sum(row) / len(row):.12g}") for row in history.loss],
    }


@functools.cache
def _federation(optimizer, nudged=False):
    """Ten clients, as many as stored lists of delays have, with a few 8×8 digits of three classes
    each.  Their rows are written out here: how partitions are drawn has a checksum of its own."""
    data = datasets.load("digits")
    of_class = [torch.nonzero(data.y == c).flatten() for c in range(10)]
    train, test = [], []
    for i in range(10):
        mine = torch.cat([of_class[(i + k) % 10][30 * k : 30 * (k + 1)] for k in range(3)])
        test.append(mine[::9])
        train.append(mine[1::3][: 10 + i])
    kind = _Nudged if nudged else LocalFederation
    groups = torch.arange(10) // 4  # for the method that asks for them
    return kind(
        data, partition.Partition("canary", train, test, groups),
        models.build("mlp", data, seed=0, hidden=(24, 16, 16)), optimizer=optimizer,
        lr=0.3 if optimizer == "sgd" else 0.01, batch_size=8, engine="stacked", device="cpu",
        dtype=torch.float64,
    )  # fmt: skip


class _Nudged(LocalFederation):
    """Every client's initial model moved by less than a rounding, each in its own way."""

    def initial(self, who=None):
        w = super().initial()
        noise = torch.rand(w.shape, generator=keyed_generator(0, "nudge"), dtype=w.dtype)
        w = w * (1 + 1e-15 * (noise - 0.5))
        return w if who is None else w[who]
