"""What only the book's pages need: experiments, the papers' tables, explorers, toys, figures.

The library never imports this package.
"""

import importlib

__all__ = ["experiments", "explore", "leakage", "papers", "plots", "story", "theory"]


def __getattr__(name):  # loaded when first asked for: some need matplotlib or a widget
    if name in __all__:
        return importlib.import_module(f"pfl_lib.book.{name}")
    raise AttributeError(f"pfl_lib.book has no {name!r}")
