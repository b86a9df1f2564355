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

from pfl_lib import algorithms, attention, data, formulas, models, partition
from pfl_lib._example import example
from pfl_lib._version import __version__
from pfl_lib.algorithms import algorithm
from pfl_lib.comparison import compare
from pfl_lib.federation import Federation
from pfl_lib.run import History, run
from pfl_lib.training import Prox, Work, local_step

__all__ = [
    "Federation",
    "History",
    "Prox",
    "Work",
    "__version__",
    "algorithm",
    "algorithms",
    "attention",
    "compare",
    "data",
    "example",
    "explore",
    "formulas",
    "local_step",
    "metrics",
    "models",
    "papers",
    "partition",
    "plots",
    "run",
    "theory",
]


def __getattr__(name):  # figures, explorers and papers are loaded when first asked for
    if name in ("explore", "metrics", "papers", "plots", "theory"):
        import importlib

        return importlib.import_module(f"pfl_lib.{name}")
    raise AttributeError(f"pfl_lib has no {name!r}")
