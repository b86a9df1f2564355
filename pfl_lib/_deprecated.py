"""Former names: they work for one version more, with a warning that says the new one."""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import warnings

#: Modules that moved, without the leading ``pfl_lib.``: {former: present}.  What lies below a
#: former package is found at the same place below the present one, unless it has its own line.
MODULES = {
    "algorithms": "methods",
    "algorithms.ala": "methods.fedala",
    "algorithms.asynchronous": "methods._asynchronous",
    "algorithms.fedavg_2step": "methods.fedavg",
    "algorithms.fedprox_c": "methods.fedavg_c",
    "algorithms.fedprox_ft": "methods.fedavg_ft",
    "algorithms.fedupdate": "methods.fedavg_ft",
    "algorithms.message_passing": "methods._attention_mixing",
    "algorithms.sgd": "methods._sgd",
    "algorithms.stages": "methods._stages",
    "algorithms.subclass_personalised": "methods._similar_updates",
    "experiments": "book.experiments",
    "explore": "book.explore",
    "leakage": "book.leakage",
    "papers": "book.papers",
    "plots": "book.plots",
    "theory": "book.theory",
}
#: The equations once stood in several files; now all are in ``pfl_lib.formulas``.
PARTS_OF_FORMULAS = "averaging fedacs fedala fedamp lga neighbours personal private similarity spfl"
MODULES |= {f"formulas.{part}": "formulas" for part in PARTS_OF_FORMULAS.split()}
#: Modules whose names are in several places now, or that have the name of a function.
SPLIT = {
    "algorithms.with_ala": ["methods"],
    "experiments.taste": ["book.experiments.quick_run"],
    "run": ["rounds"],
    "training": ["work", "local.network", "local.batches", "local.optimizers"],
}
#: Single names: {former: present}, after their modules have been found.
NAMES = {
    "book.experiments.quick_run.taste": "book.experiments.quick_run.quick_run",
    "book.experiments.taste": "book.experiments.quick_run.quick_run",
    "book.plots.colour_of": "book.plots.color_of",
    "book.plots.inside_share": "metrics.inside_share",
    "book.theory.bistable_centres": "book.theory.bistable_centers",
    "checkpoints.write_aside": "checkpoints.atomic_write",
    "faults.Around": "faults.FederationWrapper",
    "federation.CACHE": "local.federation.CACHE",
    "federation.ENGINES": "local.federation.ENGINES",
    "federation.NORMALISE_ONCE": "local.federation.NORMALIZE_ONCE",
    "flower.apps.GridPost": "flower.apps.GridTransport",
    "metrics.text_table": "book.experiments.table",
    "methods._similar_updates.SubclassPersonalised": "methods._similar_updates.SimilarUpdates",
}
#: Modules that nothing has replaced one to one, and what to do instead.
GONE = {
    "engines": "choose one with Federation(engine=...)",
    "experiments.code": "pfl_lib.book.experiments.Results.stale compares canaries",
    "explore.attention_functions": "its functions are in pfl_lib.attention",
}

#: Fields of saved histories, and methods of algorithms, that have another name now.
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


def moved(former, present):
    """A former method that is now the function ``pfl_lib.present``."""

    def forwarding(self, *args, **kwargs):
        warn(former, f"pfl_lib.{present}")
        return found(present)(self, *args, **kwargs)

    forwarding.__doc__ = f"Deprecated: use ``pfl_lib.{present}``."
    return forwarding


def present_methods(cls):
    """Have a class's own methods found under their present names; else nobody would call them."""
    for former, present in FIELDS.items():
        if former in vars(cls):
            warn(f"{cls.__name__}.{former}", present, stacklevel=4)
            setattr(cls, present, vars(cls)[former])


def found(path):
    """The object that ``pfl_lib.path`` names, which is ``pfl_lib.module.name``."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"pfl_lib.{module}"), name)


def module(name):
    """The module that ``pfl_lib.name`` was, or None where there never was one."""
    if name in MODULES:
        warn(f"pfl_lib.{name}", f"pfl_lib.{MODULES[name]}", stacklevel=4)
        return importlib.import_module(f"pfl_lib.{MODULES[name]}")
    return importlib.import_module(f"pfl_lib.{name}") if name in SPLIT else None


def keep_former_names(module):
    """Called at the end of a module some of whose names have moved: there they warn, and work."""
    inside = module.removeprefix("pfl_lib.")

    def look_up(name):
        present = NAMES.get(f"{inside}.{name}")
        if present is None:
            raise AttributeError(f"{module} has no {name!r}")
        warn(f"{module}.{name}", f"pfl_lib.{present}")
        return found(present)

    # a ``def __getattr__`` in the module would hide misspelled names from mypy
    vars(sys.modules[module])["__getattr__"] = look_up


class SplitModule(types.ModuleType):
    """A former module whose names are looked up, with a warning, where they are now."""

    def __getattr__(self, name):
        former = self.__name__.removeprefix("pfl_lib.")
        for home in SPLIT[former] if not name.startswith("__") else ():
            present = importlib.import_module(f"pfl_lib.{home}")
            if hasattr(present, name):
                warn(f"{self.__name__}.{name}", f"{present.__name__}.{name}")
                return getattr(present, name)
        raise AttributeError(f"{self.__name__} has no {name!r}")


class FormerModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets ``import pfl_lib.algorithms.fedamp`` find ``pfl_lib.methods.fedamp``."""

    def find_spec(self, fullname, path=None, target=None):
        package, _, inside = fullname.partition(".")
        above, _, last = inside.rpartition(".")
        if package != "pfl_lib":
            return None
        if inside in GONE or inside in SPLIT:
            return importlib.machinery.ModuleSpec(fullname, self)
        if inside in MODULES:
            present = f"pfl_lib.{MODULES[inside]}"
        elif above in MODULES:
            present = f"pfl_lib.{MODULES[above]}.{last}"
        else:
            return None
        warn(fullname, present)
        return importlib.machinery.ModuleSpec(fullname, self, loader_state=present)

    def create_module(self, spec):
        inside = spec.name.removeprefix("pfl_lib.")
        if inside in GONE:
            raise ModuleNotFoundError(f"{spec.name} is gone: {GONE[inside]}", name=spec.name)
        return SplitModule(spec.name) if inside in SPLIT else None

    def exec_module(self, module):
        """Put the present module in the place of the former."""
        if not isinstance(module, SplitModule):
            spec = module.__spec__
            sys.modules[spec.name] = importlib.import_module(spec.loader_state)


def install():
    """Make former modules importable.

    First in line: Python would else find ``fedamp.py`` in the folder of ``pfl_lib.methods`` and
    run it a second time as ``pfl_lib.algorithms.fedamp``.  Three former modules have the name of
    a function, which the import system would overwrite; they are there from the start.
    """
    if any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        return
    finder = FormerModules()
    sys.meta_path.insert(0, finder)
    for inside in ("run", "algorithms.with_ala", "experiments.taste"):
        spec = importlib.machinery.ModuleSpec(f"pfl_lib.{inside}", finder)
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
