"""Argument checks: errors name the argument, the value it got, and what would be right."""

import difflib
import functools
import importlib
import inspect
import operator

LARGEST = 3.4e38  # what is larger is infinite in float32


def positive(name, value):
    """A finite number above zero."""
    if not _is_number(value) or not 0 < value < LARGEST:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")
    return float(value)


def non_negative(name, value):
    """A finite number, zero allowed."""
    if not _is_number(value) or not 0 <= value < LARGEST:
        raise ValueError(f"{name} must be a non-negative finite number, got {value!r}")
    return float(value)


def between(name, value, low, high, ends="[]"):
    """A number in the interval from ``low`` to ``high``; "(" and ")" leave out an end."""
    inside = _is_number(value) and low <= value <= high
    if not inside or (value == low and ends[0] == "(") or (value == high and ends[1] == ")"):
        raise ValueError(f"{name} must lie in {ends[0]}{low}, {high}{ends[1]}, got {value!r}")
    return float(value)


MOST = 2**62  # fits a 64-bit integer


def whole(name, value, at_least=1, at_most=MOST):
    """An integer from ``at_least`` to ``at_most``."""
    try:
        number = None if _is_truth(value) else operator.index(value)
    except (TypeError, RuntimeError):  # torch cannot read a tensor without storage
        number = None
    if number is None or number < at_least:
        raise ValueError(f"{name} must be a whole number >= {at_least}, got {value!r}")
    if number > at_most:
        raise ValueError(f"{name} must be at most {at_most:,}, got {value!r}")
    return number


def one_of(name, value, allowed):
    """One of the allowed values; the error suggests a close match."""
    allowed = list(allowed)
    for known in allowed:
        # only values of the same type are compared (True is not 1, and comparing an array with a
        # string is no question of one bool), but JavaScript's 1 is Python's 1.0
        alike = type(value) is type(known) or {type(value), type(known)} == {int, float}
        if value is known or (alike and value == known):
            return known
    near = difflib.get_close_matches(str(value), [str(a) for a in allowed], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.{hint}")


def flag(name, value):
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def optional(module, what, package):
    """An optional module, or an ImportError that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {package}: pip install {package}") from error


def numbers(name, value):
    """A tensor, or a list or array of numbers, as a tensor."""
    import torch

    if type(value).__name__ == "MaskedArray":
        raise TypeError(f"{name} must have a number everywhere, got a masked array")
    try:
        found = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a tensor or a list of numbers, got {value!r}") from None
    if found.is_meta or found.is_complex() or found.layout != torch.strided:
        what = "no numbers" if found.is_meta else "complex numbers"
        if found.layout != torch.strided:
            what = f"them as {found.layout}: give {name}.to_dense()"
        raise TypeError(f"{name} must hold real numbers; this tensor holds {what}")
    return found


def on_device(name, tensor, device):
    """A tensor whose numbers lie there, all of them: no sparse one, and none without numbers."""
    import torch

    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got {tensor.layout}: use {name}.to_dense()")
    if tensor.device.type != device.type:
        raise ValueError(f"{name} must be on {device} as the federation is, got {tensor.device}")


MEANT = {"learning_rate": "lr", "eta": "lr", "local_epochs": "epochs", "network": "model"}


def keywords(function):
    """``function``, which says of an argument that it has not which one may be meant."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def checked(*args, **given):
        for name in given:
            if name not in known:
                near = [n for n in [MEANT.get(name)] if n in known]
                near = near or difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise TypeError(f"got an unexpected argument {name!r}; {hint}")
        return function(*args, **given)

    return checked


def several(name, value, what="values"):
    """A list, tuple or other iterable as a tuple; strings and single numbers are refused."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return tuple(value)
    except TypeError:
        raise TypeError(f"{name} must be a list of {what}, got {value!r}") from None


def path(name, value, what="a path"):
    """A path in the file system."""
    import os
    from pathlib import Path

    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise TypeError(f"{name} must be {what}, got {value!r}")
    if "\0" in str(value):
        raise ValueError(f"{name} must be {what}, got {value!r} with a null character")
    return Path(value)


def file(name, value, there=True):
    """The path of a file, there or not; is its folder ``there``, or to be made?"""
    found = path(name, value, "the path of a file")
    folder(name, str(found.parent))
    if found.is_dir():
        raise ValueError(f"{name} must be the path of a file, got the folder {value!r}")
    if there and not found.parent.is_dir():
        raise ValueError(f"{name} must be in a folder that exists, got {value!r}")
    return found


def folder(name, value):
    """The path of a folder, there or to be made; none that a file is in the way of."""
    found = path(name, value, "the path of a folder")
    try:
        there = next(one for one in (found.absolute(), *found.absolute().parents) if one.exists())
    except OSError as error:  # too long a name
        raise ValueError(f"{name} must be the path of a folder, got {value!r} ({error})") from None
    if not there.is_dir():
        below = "" if there == found.absolute() else f", which is below the file {str(there)!r}"
        what = "" if below else "the file "
        raise ValueError(f"{name} must be the path of a folder, got {what}{value!r}{below}")
    return found


def models(name, value):
    """A stack of models: a floating (m, d) tensor, one row per client."""
    import torch

    if not isinstance(value, torch.Tensor):
        kind = type(value).__name__
        raise TypeError(f"{name} must be a tensor with one row per client, got {kind}")
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got {value.layout}: give {name}.to_dense()")
    if value.ndim != 2 or value.shape[0] < 1 or not value.is_floating_point():
        raise ValueError(
            f"{name} must be a floating (m, d) matrix with m >= 1, "
            f"got shape {tuple(value.shape)} of {value.dtype}"
        )
    return value


def _is_number(value):
    """Whether this is a number, or an array or tensor that holds a single one; bools are not."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        known = not getattr(value, "is_meta", False)  # a tensor without storage has no number
        return known and any(kind in str(value.dtype) for kind in ("int", "float"))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_truth(value):
    """Whether this is True or False, of Python, NumPy or torch."""
    return isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))
