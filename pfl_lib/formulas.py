"""Every equation of the papers as one pure function on plain tensors, one row per client.

Each lives in the file of its method in ``pfl_lib.methods``; here they are all in one place.
"""

from typing import Any

from pfl_lib import methods

globals().update(methods.EQUATIONS)
__all__ = sorted(methods.EQUATIONS)
__path__: list[str] = []  # so that former parts of it can be found, see ``_deprecated``


def __getattr__(name: str) -> Any:
    try:
        return methods.EQUATIONS[name]
    except KeyError:
        raise AttributeError(f"pfl_lib.formulas has no {name!r}") from None
