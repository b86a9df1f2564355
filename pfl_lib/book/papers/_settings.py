"""What a paper says about running a method: every value with the place it comes from.

A value is *given* (the source names the table or section), *ours* (the paper is silent; the source
starts with "not given: our choice" and says why) or *changed* (the paper prints another value that
cannot be meant; the source says both).
"""

import html
import inspect
from collections.abc import Mapping
from typing import NamedTuple

from pfl_lib._check import one_of
from pfl_lib._show import Shown
from pfl_lib.book.papers._given import (
    DATA,
    GRIDS,
    HOME,
    METHODS,
    PARTITIONS,
    RULES,
    RUNS,
    Value,
)

SILENT = "not given: our choice"


class Settings(Mapping):
    """Hyper-parameters by name; ``source(name)`` says where each value comes from.

    >>> printed = settings("fedamp", "mnist", "grouped")
    >>> printed["sigma"], printed.source("sigma")
    (100.0, 'Huang et al. v1, Table 2')
    """

    method: str
    paper: str
    data: str | None
    partition: str | None
    missing: tuple[str, ...]
    _values: dict[str, Value]

    def __init__(self, method, paper, data, partition, values, missing):
        about = {"method": method, "paper": paper, "data": data, "partition": partition}
        self.__dict__.update(about, _values=dict(values), missing=tuple(missing))

    def __setattr__(self, name, value):
        raise AttributeError(f"settings are frozen: {name!r} cannot be set")

    def __delattr__(self, name):
        raise AttributeError(f"settings are frozen: {name!r} cannot be deleted")

    def __getitem__(self, name):
        if name not in self._values:
            raise KeyError(f"no {name!r} here; there are {', '.join(self._values)}")
        return self._values[name].value

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)

    def source(self, name):
        """Where the value of ``name`` comes from, in words."""
        return self._values[one_of("name", name, self._values)].source

    def chosen(self):
        """The names whose values are ours, because the paper gives none."""
        return tuple(n for n, entry in self._values.items() if entry.source.startswith(SILENT))

    def fit(self, thing):
        """The entries ``thing`` takes as arguments: ``FedAMP(**settings(...).fit(FedAMP))``."""
        known = inspect.signature(thing).parameters
        return {name: self[name] for name in self if name in known}

    def show(self):
        """Print every value with its source."""
        print(self)

    def _title(self):
        where = " on ".join(part for part in (self.method, self.data) if part)
        return f"{where}, {self.partition}" if self.partition else where

    def _open(self):
        if not self.missing:
            return ""
        asked = [n for n in ("data", "partition") if getattr(self, n) is None]
        return f"Say {' and '.join(asked)} for: {', '.join(self.missing)}."

    def __str__(self):
        rows = [(name, repr(entry.value), entry.source) for name, entry in self._values.items()]
        wide = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
        lines = [f"{self._title()}, after the paper {self.paper!r}"]
        lines += [f"  {a.ljust(wide[0])}  {b.ljust(wide[1])}  {c}" for a, b, c in rows]
        return "\n".join([*lines, self._open()] if self.missing else lines)

    def __repr__(self):
        return f"<Settings {self._title()}: {', '.join(f'{n}={self[n]!r}' for n in self)}>"

    def _repr_html_(self):
        rows = [(name, repr(entry.value), entry.source) for name, entry in self._values.items()]
        shown = Shown(("name", "value", "source"), rows, note=self._open())
        return f"<p>{html.escape(self._title())}</p>{shown._repr_html_()}"


def settings(method, data=None, partition=None, paper=None):
    """The hyper-parameters a paper gives for a method, each with its source.

    ``data`` and ``partition`` narrow it down: ``settings("fedamp", "mnist", "grouped")``.  Several
    papers run the same baselines; the one that ran this method on this data is taken, the method's
    own paper first, or the one that ``paper`` names.

    >>> settings("fedamp", "mnist", "grouped")["sigma"]
    100.0
    >>> settings("fedavg", "mnist", paper="fedala").paper
    'fedala'
    """
    one_of("method", method, HOME)
    if data is not None:
        one_of("data", data, DATA)
    if partition is not None:
        one_of("partition", partition, PARTITIONS)
    if paper is not None:
        one_of("paper", paper, METHODS)
    paper = _paper(method, data, partition, paper)
    values: dict[str, Value] = {}
    unclear: dict[str, None] = {}
    for rule in RULES:
        if rule.paper != paper or (rule.methods and method not in rule.methods):
            continue
        if _not_given(rule.data, data) or _not_given(rule.partitions, partition):
            unclear |= dict.fromkeys(rule.values)
        elif (not rule.data or data in rule.data) and (
            not rule.partitions or partition in rule.partitions
        ):
            values |= rule.values
    missing = [name for name in unclear if name not in values]
    return Settings(method, paper, data, partition, values, missing)


def _not_given(wanted, given):
    return bool(wanted) and given is None


def search_grid(method, paper="fedala"):
    """What a paper tried for each hyper-parameter of a method, by name; {} where it does not say.

    Only FedALA's appendix prints its search, in the default setting, Dirichlet(0.1).

    >>> search_grid("fedala")["ala_lr"]
    (0.1, 1.0, 10.0)
    """
    one_of("paper", paper, METHODS)
    one_of("method", method, METHODS[paper])
    return dict(GRIDS.get(paper, {}).get(method, {}))


class _Run(NamedTuple):
    paper: str
    data: str
    partition: str


def _runs(method):
    """Every (paper, data, partition) in which a paper ran the method, its own paper first."""
    papers = sorted(METHODS, key=lambda paper: paper != HOME[method])
    return [
        _Run(paper, data, partition)
        for paper in papers
        if method in METHODS[paper]
        for partition, names in RUNS[paper].items()
        for data in names
    ]


def _paper(method, data, partition, paper):
    runs = _runs(method)
    fits = [
        run
        for run in runs
        if paper in (None, run.paper)
        and data in (None, run.data)
        and partition in (None, run.partition)
    ]
    if fits:
        return fits[0].paper
    known = "; ".join(f"{run.data}, {run.partition} ({run.paper})" for run in runs)
    asked = ", ".join(f"{n}={v!r}" for n, v in _asked(data, partition, paper))
    raise ValueError(f"no paper here ran {method!r} with {asked}; there are: {known}")


def _asked(data, partition, paper):
    asked = (("data", data), ("partition", partition), ("paper", paper))
    return [(name, value) for name, value in asked if value is not None]
