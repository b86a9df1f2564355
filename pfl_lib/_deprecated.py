"""Former names: they work for one version more, with a warning that says the new one."""

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings

#: Modules that moved, without the leading ``pfl_lib.``: {former: present}.
MODULES = {
    "algorithms": "methods",
    "experiments": "book.experiments",
    "explore": "book.explore",
    "leakage": "book.leakage",
    "papers": "book.papers",
    "plots": "book.plots",
    "theory": "book.theory",
}

#: Fields of saved histories that have another name now.
FIELDS = {"also": "extra_models"}
#: Hyper-parameters that have another name now, by method.
HYPER = {"per-fedavg": {"lr_inner": "inner_lr"}}


def present_hyper(method, hyper):
    """Hyper-parameters under their present names."""
    former = HYPER.get(method, {})
    for name in former.keys() & hyper.keys():
        warn(f"{method}'s {name}", former[name], stacklevel=4)
    return {former.get(name, name): value for name, value in hyper.items()}


def warn(former, present, stacklevel=3):
    """Say once per place of use that a name has changed."""
    warnings.warn(
        f"{former} is deprecated and goes with the next version; use {present}",
        DeprecationWarning,
        stacklevel=stacklevel,
    )


def renamed(former, function):
    """The function under its former name."""

    @functools.wraps(function)
    def forwarding(*args, **kwargs):
        warn(f"{function.__module__}.{former}", function.__name__)
        return function(*args, **kwargs)

    forwarding.__name__ = forwarding.__qualname__ = former
    forwarding.__doc__ = f"Deprecated: use ``{function.__name__}``."
    return forwarding


def module(name):
    """The module that ``pfl_lib.name`` was, or None where there never was one."""
    if name not in MODULES:
        return None
    warn(f"pfl_lib.{name}", f"pfl_lib.{MODULES[name]}", stacklevel=4)
    return importlib.import_module(f"pfl_lib.{MODULES[name]}")


class FormerModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets ``import pfl_lib.algorithms.fedamp`` find ``pfl_lib.methods.fedamp``."""

    def find_spec(self, fullname, path=None, target=None):
        package, _, rest = fullname.partition(".")
        first, dot, rest = rest.partition(".")
        if package != "pfl_lib" or first not in MODULES:
            return None
        present = f"pfl_lib.{MODULES[first]}{dot}{rest}"
        warn(fullname, present, stacklevel=2)
        return importlib.machinery.ModuleSpec(fullname, self, loader_state=present)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        """Put the present module in the place of the former."""
        name = module.__spec__.name
        sys.modules[name] = importlib.import_module(module.__spec__.loader_state)


def install():
    """Make former modules importable; consulted last, so nothing that exists is hidden."""
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.append(FormerModules())
