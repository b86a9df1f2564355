"""Hostile values for every argument of every public callable, whatever the argument is for.

    python -m tests.support.api_fuzz [part of a name] …

A value may be taken where it makes sense (0.5 for a share).  What may not happen: an exception that
does not name the argument, one of another kind than a TypeError or ValueError, a call that does not
end, a file left behind, or a stranger (bytes, a function, a type, 1j, any object) that is taken.
Formulas do not look into tensors, which would make a GPU wait: there any exception will do.
"""

import contextlib
import inspect
import io
import json
import math
import os
import re
import signal
import sys
import tempfile
import time
import warnings

import numpy as np
import torch

from tests.support import calls

PATIENCE = 20  # seconds of processor time that one call may take, and ten times that by the clock


class Stranger:
    """An object that nobody expects."""

    def __repr__(self):
        return "Stranger()"


#: Hostile values by their kind: how each is called, and how it is made anew.
KINDS = {
    "None": {"None": lambda: None},
    "text": {
        "empty text": lambda: "",
        "text": lambda: "a",
        "bytes": lambda: b"x",
    },
    "numbers": {
        "True": lambda: True,
        "False": lambda: False,
        "-1": lambda: -1,
        "0": lambda: 0,
        "0.5": lambda: 0.5,
        "10^30": lambda: 10**30,
        "1e308": lambda: 1e308,
        "-infinity": lambda: -math.inf,
        "NaN": lambda: math.nan,
        "1j": lambda: 1j,
        "NumPy's NaN": lambda: np.float64("nan"),
        "NumPy's True": lambda: np.bool_(True),
        "NumPy's 1j": lambda: np.complex64(1j),
        "torch's True": lambda: torch.tensor(True),
        "number without storage": lambda: torch.tensor(1.0, device="meta"),
        "a date": lambda: np.datetime64("2026-01-01"),
    },
    "collections": {
        "empty list": list,
        "list of text": lambda: ["a"],
        "list of None": lambda: [None],
        "empty dictionary": dict,
        "dictionary of None": lambda: {"a": None},
        "set": lambda: {1},
        "range": lambda: range(3),
        "generator": lambda: (i for i in ()),
    },
    "objects": {
        "object": Stranger,
        "function": lambda: lambda *_, **__: None,
        "type": lambda: int,
    },
    "tensors": {
        "tensor of NaN": lambda: torch.full((3, 5), math.nan),
        "tensor of nothing": lambda: torch.empty(0),
        "tensor of one number": lambda: torch.tensor(1.0),
        "tensor of four axes": lambda: torch.ones(1, 1, 1, 1),
        "tensor, complex": lambda: torch.ones(3, 5, dtype=torch.complex64),
        "tensor, another device": lambda: torch.ones(3, 5, device="meta"),
        "tensor of bool": lambda: torch.ones(3, 5, dtype=torch.bool),
        "tensor of int64": lambda: torch.ones(3, 5, dtype=torch.int64),
        "tensor, sparse": lambda: torch.ones(3, 5).to_sparse(),
        "array of objects": lambda: np.array([None, 1]),
        "masked array": lambda: np.ma.array([1.0, 2.0], mask=[False, True]),
    },
}
VALUES = {label: make for values in KINDS.values() for label, make in values.items()}
KIND_OF = {label: kind for kind, values in KINDS.items() for label in values}
#: How rows of the table are grouped, by the beginning of their names.
GROUPS = {
    "federations, runs, tuning, newcomers": (
        "pfl_lib.", "Federation.", "History.", "callbacks.", "newcomers.", "devices."),
    "methods and their hyper-parameters": ("algorithm ",),
    "formulas, attention": ("formulas.", "attention."),
    "data, partitions": ("data.", "partition."),
    "models": ("models.",),
    "metrics": ("metrics.",),
    "faults, privacy, robust averages": (
        "faults.", "stragglers.", "privacy.", "robust.", "random."),
    "networks": ("flower.",),
    "papers, experiments, explorers": ("papers.", "experiments.", "explore."),
}  # fmt: skip
STRANGERS = ("bytes", "1j", "NumPy's 1j", "a date", "object", "function", "type")
LEFT_OUT = {  # rows of the table whose arguments are not those of a call, or that take seconds
    "data.Dataset": "its fields are changed one by one",
    "data.from_huggingface": "its table is a stand-in; the chosen values of the table have to do",
    "pfl_lib.History": "its argument is what a file holds; readers have a fuzz of their own",
    **{f"experiments.{n}": "a tool of the notebooks" for n in ("measure", "opening", "part_of",
                                                               "pick", "quick_run")},
}  # fmt: skip


FUZZED = [name for name in calls.TABLE if name not in LEFT_OUT]


def arguments(name):
    """The arguments of a row: those it lists, and those of the signature."""
    row = calls.TABLE[name]
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    found = {p.name for p in inspect.signature(row.call).parameters.values() if p.kind not in kinds}
    return sorted((found | set(row.good) | set(row.bad)) - {"unknown_hyper", "unknown_setting"})


@contextlib.contextmanager
def bounded(seconds):
    """A TimeoutError where something takes longer than ``seconds``."""

    def over(*_):
        raise TimeoutError(f"took longer than {seconds} s")

    clocks = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {each: signal.signal(each, over) for each in clocks}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)  # other work may hold the machine
    try:
        yield
    finally:
        for each, clock in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(each, before[each])


def outcome(name, argument, label):
    """("taken" or "refused", what is wrong with that or "")."""
    row, value = calls.TABLE[name], VALUES[label]()
    expected, formula = row.says.get(argument, argument), name.startswith("formulas.")
    quiet = io.StringIO()
    try:
        with (
            bounded(PATIENCE),
            contextlib.redirect_stderr(quiet),
            contextlib.redirect_stdout(quiet),
        ):
            calls.call(name, {argument: calls.Ready(value)})
    except (TypeError, ValueError, FileNotFoundError) as error:
        named = formula or re.search(f"{expected}|{argument}|no such file", str(error))
        return "refused", "" if named else f"does not name it: {error}"
    except Exception as error:
        in_time = formula and not isinstance(error, TimeoutError)
        return "refused", "" if in_time else f"{type(error).__name__}: {error}"
    return "taken", "was taken" if label in STRANGERS and not formula else ""


def attack(name, labels=tuple(VALUES)):
    """Every argument of ``name`` against the values: counts, and what is wrong."""
    found = {"arguments": 0, "kinds": {}, "wrong": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for argument in arguments(name):
            found["arguments"] += 1
            for label in labels:
                before = set(os.listdir())
                what, wrong = outcome(name, argument, label)
                left = sorted(set(os.listdir()) - before) if what == "refused" else []
                if left and name not in calls.WRITES:
                    wrong = f"{wrong} left behind: {left}"
                counts = found["kinds"].setdefault(KIND_OF[label], {"refused": 0, "taken": 0})
                counts[what] += 1
                if wrong:
                    found["wrong"][f"{argument} = {label}"] = wrong[:200]
    return found


def grouped(found):
    """What ``attack`` found, by name, as counts of each group by kind of value."""
    groups = {}
    for title, prefixes in GROUPS.items():
        rows = [one for name, one in found.items() if name.startswith(prefixes)]
        kinds = {
            kind: {
                what: sum(row["kinds"].get(kind, {}).get(what, 0) for row in rows)
                for what in ("refused", "taken")
            }
            for kind in KINDS
        }
        if rows:
            arguments = sum(row["arguments"] for row in rows)
            groups[title] = {"callables": len(rows), "arguments": arguments, "kinds": kinds}
    return groups


def main(parts):
    """All rows whose name has one of ``parts`` in it."""
    names = [n for n in FUZZED if not parts or any(part in n for part in parts)]
    found, began = {}, time.monotonic()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            try:
                found[name] = attack(name)
            finally:
                os.chdir(here)
    groups = grouped(found)
    counts = {
        what: sum(kind[what] for group in groups.values() for kind in group["kinds"].values())
        for what in ("taken", "refused")
    }
    record = {
        "arguments": sum(group["arguments"] for group in groups.values()),
        "tried": sum(counts.values()),
        **counts,
        "callables": len(found),
        "seconds": round(time.monotonic() - began),
        "values": {kind: list(values) for kind, values in KINDS.items()},
        "groups": groups,
        "wrong": {name: one["wrong"] for name, one in found.items() if one["wrong"]},
    }
    print(json.dumps(record, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1:])
