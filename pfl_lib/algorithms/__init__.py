"""One file a method.  ``algorithm("fedamp", sigma=1.0, self_weight=0.2)`` builds one by name."""

from pfl_lib import _check
from pfl_lib.algorithms.apfl import APFL
from pfl_lib.algorithms.apple import APPLE
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.algorithms.ditto import Ditto
from pfl_lib.algorithms.fedacs import FedACS
from pfl_lib.algorithms.fedala import FedALA
from pfl_lib.algorithms.fedamp import FedAMP
from pfl_lib.algorithms.fedasync import FedAsync
from pfl_lib.algorithms.fedavg import FedAvg
from pfl_lib.algorithms.fedavg_2step import FedAvg2Step
from pfl_lib.algorithms.fedavg_async import FedAvgAsync
from pfl_lib.algorithms.fedavg_c import FedAvgC
from pfl_lib.algorithms.fedavg_ft import FedAvgFT
from pfl_lib.algorithms.fedavg_sync import FedAvgSync
from pfl_lib.algorithms.fedfomo import FedFomo
from pfl_lib.algorithms.fedphp import FedPHP
from pfl_lib.algorithms.fedprox import FedProx
from pfl_lib.algorithms.fedprox_c import FedProxC
from pfl_lib.algorithms.fedprox_ft import FedProxFT
from pfl_lib.algorithms.fedrep import FedRep
from pfl_lib.algorithms.fedupdate import FedUpdate
from pfl_lib.algorithms.heurfedamp import HeurFedAMP
from pfl_lib.algorithms.lga import LGA
from pfl_lib.algorithms.partialfed import PartialFed
from pfl_lib.algorithms.per_fedavg import PerFedAvg
from pfl_lib.algorithms.pfedme import PFedMe
from pfl_lib.algorithms.plga import PLGA
from pfl_lib.algorithms.scaffold import Scaffold
from pfl_lib.algorithms.separate import Separate
from pfl_lib.algorithms.spfl import SPFL, SPFL1Step
from pfl_lib.algorithms.spfl_w import SPFLw, SPFLw1Step
from pfl_lib.algorithms.with_ala import WithALA, with_ala

ALL = (
    Separate,
    FedAvg,
    FedAvg2Step,
    FedProx,
    Scaffold,
    FedAvgFT,
    FedProxFT,
    FedAvgC,
    FedProxC,
    FedUpdate,
    PerFedAvg,
    PFedMe,
    Ditto,
    APFL,
    FedRep,
    FedAMP,
    HeurFedAMP,
    FedACS,
    FedALA,
    FedPHP,
    FedFomo,
    APPLE,
    PartialFed,
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
    """The names ``algorithm`` knows.

    >>> names()[:4]
    ['separate', 'fedavg', 'fedavg-2step', 'fedprox']
    >>> len(names()) == len(ALL)
    True
    """
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


__all__ = [
    "Algorithm",
    "State",
    "WithALA",
    "algorithm",
    "names",
    "with_ala",
    *(method.__name__ for method in ALL),
]
