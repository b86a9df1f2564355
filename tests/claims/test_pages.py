"""Pages of experiments say what was measured; tests, not pages, check that it is so."""

import ast

import nbformat
import pytest

from devtools import notebooks as tool
from pfl_lib.book.experiments import stored
from pfl_lib.book.experiments.pages import durations
from tests.support.paths import ROOT

PAGES = pytest.mark.parametrize(
    "path", sorted(tool.EXPERIMENTS.glob("*.ipynb")), ids=lambda path: path.stem
)


def code(path):
    cells = tool.code_cells(nbformat.read(path, as_version=4))
    return [cell for cell in cells if "setup" not in tool.tags(cell)]


@PAGES
def test_a_public_page_asserts_nothing(path):
    nodes = [node for cell in code(path) for node in ast.walk(ast.parse(cell.source))]
    assert not any(isinstance(node, ast.Assert) for node in nodes)


@PAGES
def test_the_page_opens_with_what_is_stored_and_ends_with_a_run_of_ones_own(path):
    cells = code(path)
    shows = next(n for n, cell in enumerate(cells) if "opening(" in cell.source)
    start = next(n for n, cell in enumerate(cells) if "parameters" in tool.tags(cell))
    assert shows < start
    runs = [n for n, cell in enumerate(cells) if "run-it-yourself" in tool.tags(cell)]
    assert runs == list(range(start + 1, len(cells)))
    assert any("measure(" in cells[n].source for n in runs)
    assert not any("results" in cell.source.split() for cell in cells[:start])


def test_every_result_file_has_its_claims():
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests/claims").glob("test_*.py")}
    assert {name for name, _ in stored()} <= tested


@pytest.mark.parametrize("name", sorted({name for name, _ in stored()}))
def test_every_page_says_how_long_its_stored_runs_took(name):
    """`book/run.md` promises it."""
    found = stored(name)
    shown = {row[0]: row[1] for row in durations(found).rows}
    assert set(shown) >= set(found) and all(shown[scale].split()[0][0].isdigit() for scale in found)
