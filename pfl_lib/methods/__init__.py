"""One file per method.  ``algorithm("fedamp", sigma=1.0, self_weight=0.2)`` builds one by name.

A file in this folder that defines a subclass of ``Algorithm`` with a name is discovered: the method
then appears in ``names()``, in tables, on the pages of the book, and in the tests.
"""

import importlib
import inspect
import pkgutil
import re
from dataclasses import fields

from pfl_lib import _check, _deprecated
from pfl_lib.methods._with_ala import WithALA, with_ala
from pfl_lib.methods.base import FAMILIES, Algorithm, State, preset

#: The methods by name, family by family; ``discover`` fills it.
BY_NAME: dict[str, type[Algorithm]] = {}
#: The equations of all methods by name.
EQUATIONS: dict = {}


def discover() -> None:
    """Find all methods in the files of this folder, and of any other folder on ``__path__``."""
    found: dict[str, type[Algorithm]] = {}
    for file in pkgutil.iter_modules(__path__, f"{__name__}."):
        module = importlib.import_module(file.name)
        for thing in vars(module).values():
            if getattr(thing, "__module__", "") != file.name:
                continue
            if inspect.isclass(thing) and issubclass(thing, Algorithm) and "name" in vars(thing):
                if isinstance(thing.name, str):
                    taken = found.setdefault(thing.name, thing)
                    if taken is not thing:
                        raise ValueError(f"{taken} and {thing} are both called {thing.name!r}")
            elif inspect.isfunction(thing) and "Equation label:" in (thing.__doc__ or ""):
                EQUATIONS[thing.__name__] = thing
    BY_NAME.clear()
    BY_NAME.update((method.name, method) for method in sorted(found.values(), key=_position))


def _position(method):
    known = {family: number for number, family in enumerate(FAMILIES)}
    return known.get(method.family, len(known)), method.order, method.name


def names() -> list[str]:
    """The names ``algorithm`` knows.

    >>> names()[:4]
    ['separate', 'fedavg', 'fedavg-2step', 'fedprox']
    """
    return list(BY_NAME)


def algorithm(name: str, **hyper) -> Algorithm:
    """The method called ``name`` with the given hyper-parameters.

    >>> algorithm("fedamp", sigma=1.0, self_weight=0.2).label
    'FedAMP'
    """
    method = BY_NAME[_check.one_of("name", name, BY_NAME)]
    known = [one.name for one in fields(method)]
    hyper = _deprecated.present_hyper(name, hyper)
    for key in hyper:
        if not known:
            raise ValueError(f"{name} has no hyper-parameters; got {key!r}")
        _check.one_of(f"hyper-parameter of {name}", key, known)
    return method(**hyper)


def labels(equation) -> list[str]:
    """The labels under which the book prints an equation.

    >>> labels(EQUATIONS["fedamp_weights"])
    ['eq-fedamp-weights']
    """
    return re.findall(r"^ *Equation label: (\S+)$", equation.__doc__ or "", re.MULTILINE)


discover()
globals().update({method.__name__: method for method in BY_NAME.values()})


def __getattr__(name: str):
    if name == "ALL":
        return tuple(BY_NAME.values())
    raise AttributeError(f"pfl_lib.methods has no {name!r}")


__all__ = [
    "Algorithm",
    "State",
    "WithALA",
    "algorithm",
    "names",
    "preset",
    "with_ala",
    *(method.__name__ for method in BY_NAME.values()),
]
