"""One file a method.  ``algorithm("fedamp", sigma=1.0, self_weight=0.2)`` builds one by name."""

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.algorithms.fedacs import FedACS
from pfl_lib.algorithms.fedamp import FedAMP
from pfl_lib.algorithms.fedasync import FedAsync
from pfl_lib.algorithms.fedavg import FedAvg
from pfl_lib.algorithms.fedavg_async import FedAvgAsync
from pfl_lib.algorithms.fedavg_ft import FedAvgFT
from pfl_lib.algorithms.fedavg_sync import FedAvgSync
from pfl_lib.algorithms.heurfedamp import HeurFedAMP
from pfl_lib.algorithms.lga import LGA
from pfl_lib.algorithms.plga import PLGA
from pfl_lib.algorithms.separate import Separate
from pfl_lib.algorithms.spfl import SPFL, SPFL1Step
from pfl_lib.algorithms.spfl_w import SPFLw, SPFLw1Step

ALL = (
    Separate,
    FedAvg,
    FedAvgFT,
    FedAMP,
    HeurFedAMP,
    FedACS,
    SPFL,
    SPFL1Step,
    SPFLw,
    SPFLw1Step,
    FedAvgSync,
    FedAvgAsync,
    FedAsync,
    LGA,
    PLGA,
)
BY_NAME = {method.name: method for method in ALL}


def names():
    """The names ``algorithm`` knows."""
    return list(BY_NAME)


def algorithm(name, **hyper) -> Algorithm:
    """The method called ``name`` with the given hyper-parameters.

    >>> algorithm("fedamp", sigma=1.0, self_weight=0.2).label
    'FedAMP'
    """
    method = BY_NAME[_check.one_of("name", name, BY_NAME)]
    known = list(method.__dataclass_fields__)
    for key in hyper:
        _check.one_of(f"hyper-parameter of {name}", key, known)
    return method(**hyper)


__all__ = ["Algorithm", "State", "algorithm", "names", *(method.__name__ for method in ALL)]
