"""Experiments: several methods on the same federations, measured, kept and shown.

``measure`` runs every method of every case with every seed, resumes what was interrupted, and
gives ``Results``: everything needed to judge the numbers, as one JSON file.  ``stored`` reads the
committed ones.
"""

from pfl_lib import _deprecated
from pfl_lib._show import Folded, table
from pfl_lib.book.experiments.measuring import Case, measure, part_of, pick
from pfl_lib.book.experiments.pages import largest, opening
from pfl_lib.book.experiments.quick_run import quick_run, round_work
from pfl_lib.book.experiments.results import Results, home, result_files, stored

__all__ = [
    "Case",
    "Folded",
    "Results",
    "home",
    "largest",
    "measure",
    "opening",
    "part_of",
    "pick",
    "quick_run",
    "result_files",
    "round_work",
    "stored",
    "table",
]

_deprecated.keep_former_names(__name__)
