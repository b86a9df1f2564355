"""Hyper-parameters with checks: ``mu: float = non_negative(0.001)``.

The check runs when a method is built.  ``bad`` holds values that it must refuse, from which the
tests of bad input are generated.  A default that is not a number (None, "median") always passes.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from pfl_lib import _check

NAN, INF = float("nan"), float("inf")


def hyper(default: Any, check: Callable[[str, Any], Any], bad: Iterable, words: Iterable = ()):
    """A field of a method whose value is checked by ``check(name, value)``.

    ``words`` are further allowed values.
    """
    allowed = (*words, *(() if _is_number(default) else (default,)))

    def check_value(name, value):
        as_word = isinstance(value, str)
        if not any(value is word or (as_word and value == word) for word in allowed):
            check(name, value)

    bad = tuple(b for b in bad if not any(b is word for word in allowed))
    return dataclasses.field(default=default, metadata={"check": check_value, "bad": bad})


def positive(default: Any, words: Iterable = ()) -> Any:
    """A finite number above zero."""
    return hyper(default, _check.positive, ("a", None, [1], 0, -1.0, NAN, INF, True), words)


def non_negative(default: Any, words: Iterable = ()) -> Any:
    """A finite number, zero allowed."""
    return hyper(default, _check.non_negative, ("a", None, [1], -1.0, NAN, INF, True), words)


def between(default: Any, low: float, high: float, ends: str = "[]", words: Iterable = ()) -> Any:
    """A number from ``low`` to ``high``; ``ends`` says which bounds count: "[]", "(]", "()"."""
    bad = ["a", None, [1], low - 0.1, high + 0.1, NAN, True]
    bad += [low] * (ends[0] == "(") + [high] * (ends[1] == ")")
    return hyper(default, lambda n, v: _check.between(n, v, low, high, ends), bad, words)


def whole(default: Any, at_least: int = 1) -> Any:
    """An integer, at least ``at_least``."""
    bad = ("a", None, [1], at_least - 1, at_least + 0.5, NAN, INF, True)
    return hyper(default, lambda n, v: _check.whole(n, v, at_least), bad)


def choice(default: Any, options: Iterable) -> Any:
    """One of the options."""
    options = tuple(options)
    wrong = [v for v in ("unknown", None, -1, True) if not any(v is one for one in options)]
    return hyper(default, lambda n, v: _check.one_of(n, v, options), tuple(wrong))


def flag(default: bool) -> Any:
    """True or False; no other truthy or falsy value."""
    return hyper(default, _check.flag, ("a", None, 2, 0))


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
