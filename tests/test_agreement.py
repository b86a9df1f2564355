"""Book and library cannot part: labels, names and tables speak of each other."""

import inspect
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest

import pfl_lib
from devtools import formula_sheet
from pfl_lib import formulas, methods

ROOT = Path(__file__).resolve().parents[1]


def pages():
    """The text of every page: markdown files, and all cells of notebooks."""
    for path in sorted((ROOT / "book").rglob("*.md")):
        yield path, path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        yield path, "\n\n".join(cell.source for cell in cells)


TEXT = dict(pages())
LABELS = Counter(
    label
    for text in TEXT.values()
    for label in re.findall(r"^\$\$ \((eq-[a-z0-9-]+)\)|^:label: (eq-[a-z0-9-]+)", text, re.M)
    for label in label
    if label
)


# everything in the library whose docstring names an equation of the book, as (name, label)
LABELLED = sorted(
    (name, label) for label, found in formula_sheet.functions().items() for name, _ in found
)


@pytest.mark.parametrize("name, label", LABELLED, ids=lambda v: v)
def test_the_equation_of_a_formula_stands_in_the_book(name, label):
    assert LABELS[label] == 1, f"{name} names {label}, defined {LABELS[label]} times in the book"


def test_labels_are_defined_once():
    assert [label for label, count in LABELS.items() if count > 1] == []


def test_every_formula_names_its_equation():
    named = {name for name, _ in LABELLED}
    assert [name for name in formulas.__all__ if name not in named] == []


@pytest.mark.parametrize("name", sorted({*pfl_lib.__all__, *formulas.__all__} - {"__version__"}))
def test_every_public_name_is_spoken_of(name):
    assert any(re.search(rf"\b{name}\b", text) for text in TEXT.values()), name


@pytest.mark.parametrize("name", methods.names())
def test_every_algorithm_is_spoken_of(name):
    label = methods.BY_NAME[name].label
    assert any(label in text for text in TEXT.values()), label


def test_code_shown_in_the_book_comes_from_the_library():
    """Library code is shown by introspection: no page holds a copy of a whole library function."""
    for module in (formulas,):
        for name in module.__all__:
            source = inspect.getsource(getattr(module, name)).strip()
            assert not any(source in text for text in TEXT.values()), name
