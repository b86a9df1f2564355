"""pfl_lib: personalised federated learning, as the book explains it.

A federation is a matrix: row i of ``W`` is client i's model.  Every server step is a small matrix
times ``W``; every client step is "minimise my own objective, starting there".

>>> import pfl_lib
>>> data = pfl_lib.data.load("digits")
>>> clients = pfl_lib.partition.iid(data, clients=4)
>>> fed = pfl_lib.Federation(data, clients, "logistic_regression", lr=0.1)
>>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, rounds=2, progress=False)
>>> len(history.rounds)
2
"""

import importlib

from pfl_lib import _deprecated, attention, callbacks, data, formulas, methods, models, partition
from pfl_lib._example import example
from pfl_lib._version import __version__
from pfl_lib.comparison import compare
from pfl_lib.history import History
from pfl_lib.local import LocalFederation as Federation
from pfl_lib.methods import algorithm
from pfl_lib.newcomers import serve_newcomers
from pfl_lib.rounds import participants, run
from pfl_lib.tuning import tune
from pfl_lib.work import Prox, Work, local_step, train

__all__ = [
    "Federation",
    "History",
    "Prox",
    "Work",
    "__version__",
    "algorithm",
    "attention",
    "book",
    "callbacks",
    "compare",
    "data",
    "example",
    "formulas",
    "local_step",
    "methods",
    "metrics",
    "models",
    "participants",
    "partition",
    "run",
    "serve_newcomers",
    "train",
    "tune",
]

LATER = ("book", "metrics")  # loaded when first asked for
_deprecated.install()


def __getattr__(name):
    if name in LATER:
        return importlib.import_module(f"pfl_lib.{name}")
    if (moved := _deprecated.module(name)) is not None:
        return moved
    raise AttributeError(f"pfl_lib has no {name!r}")
