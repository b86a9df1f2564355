"""Notebook hygiene, and every experiment once at its smallest scale.

The chapters run under nbval: see `make notebooks`.
"""

import os
import shutil
import subprocess
import sys

import executed
import nbformat
import notebooks as tool
import pytest
from conftest import ROOT
from jupyter_cache import get_cache
from nbclient import NotebookClient

EXPERIMENTS = sorted(tool.EXPERIMENTS.glob("*.ipynb"))


@pytest.mark.parametrize("path", tool.all_notebooks(), ids=lambda path: path.stem)
def test_notebook_is_as_it_should_be(path):
    assert tool.problems(path) == []


@pytest.mark.notebooks
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiment_runs_at_smoke_scale(path):
    tool.run(path, {"SCALE": "smoke"})


# ------------------------------------------------------------------------ the tool itself
@pytest.fixture
def experiment(tmp_path):
    return tool.new(tmp_path / "experiments" / "trial.ipynb", "A trial")


def test_new_notebooks_are_as_they_should_be(tmp_path, experiment):
    chapter = tool.new(tmp_path / "01_trial.ipynb", "A trial")
    assert tool.problems(chapter) == [] and tool.problems(experiment) == []


def test_new_never_overwrites(experiment):
    with pytest.raises(ValueError, match="exists already"):
        tool.new(experiment, "Again")


def test_unknown_parameter_is_refused(experiment):
    with pytest.raises(ValueError, match="no parameter SCALES; it has SCALE"):
        tool.run(experiment, {"SCALES": "smoke"})


def test_unknown_experiment_is_refused():
    with pytest.raises(ValueError, match="no experiment 'nothing_of_the_kind'"):
        tool.find_experiment("nothing_of_the_kind")


def edited(path, change):
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)
    return tool.problems(path)


def test_check_sees_a_changed_setup_cell(experiment):
    def change(notebook):
        tool.code_cells(notebook)[0].source += "\n%pip install torch"

    assert any("set-up cell" in problem for problem in edited(experiment, change))


def test_check_sees_left_over_outputs(experiment):
    def change(notebook):
        cell = tool.code_cells(notebook)[-1]
        cell.outputs = [nbformat.v4.new_output("stream", text="old")]

    assert any("not clean" in problem for problem in edited(experiment, change))


def test_check_sees_a_large_default_scale(experiment):
    def change(notebook):
        tool.code_cells(notebook)[1].source = 'SCALE = "full"'

    assert any("begin small" in problem for problem in edited(experiment, change))


def test_clean_keeps_what_nbval_compares(experiment):
    notebook = nbformat.read(experiment, as_version=4)
    first, second = tool.code_cells(notebook)[-2:]
    for cell in (first, second):
        cell.outputs = [nbformat.v4.new_output("stream", text="42\n")]
        cell.execution_count = 7
    second.metadata["tags"] = [tool.CHECKED]
    tool.clean(notebook)
    assert first.outputs == [] and first.execution_count is None
    # nbval leaves a cell without a number alone, so the number must stay
    assert second.outputs[0].text == "42\n" and second.execution_count == 1


@pytest.mark.notebooks
@pytest.mark.parametrize(("stored", "verdict"), [("2", 0), ("3", 1)])
def test_nbval_compares_what_is_stored(tmp_path, stored, verdict):
    """A green run must mean something: a wrong stored output fails, the right one passes."""
    path = tool.new(tmp_path / "01_trial.ipynb", "A trial")
    notebook = nbformat.read(path, as_version=4)
    cell = nbformat.v4.new_code_cell("1 + 1", metadata={"tags": [tool.CHECKED]})
    data = {"text/plain": stored}
    cell.outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]
    notebook.cells.append(cell)
    path.write_text(tool.text_of(tool.clean(notebook)), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax"]
    ran = subprocess.run([*command, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == verdict, ran.stdout
    assert ("Cell outputs differ" in ran.stdout) == bool(verdict)


# ------------------------------------------------------------------ run once, use twice
CELLS = [
    "print('said')",
    "1 + 1",
    "1 + 1;",
    "import matplotlib.pyplot as plt\n\nplt.plot([1, 2]);",
    "plt.plot([2, 1])\nplt.show()",
]


def kinds(notebook):
    """What came out of each cell, without the pictures' bytes."""
    return [
        [(out.output_type, out.get("text"), sorted(out.get("data", {}))) for out in cell.outputs]
        for cell in tool.code_cells(notebook)
    ]


@pytest.mark.notebooks
def test_nbval_sees_what_the_book_shows(tmp_path):
    """What nbval's run leaves for the book is what the book's own run would have been."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    path = tool.new(tmp_path / "notebooks" / "01_trial.ipynb", "A trial")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in CELLS]
    nbformat.write(notebook, path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "nbval_keep", "--nbval-lax", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "tools")}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    kept = nbformat.read(tmp_path / "_build/executed/notebooks/01_trial.ipynb", as_version=4)
    NotebookClient(notebook, kernel_name="python3").execute()
    assert kinds(kept) == kinds(notebook)


@pytest.fixture
def kept(tmp_path):
    """A project of one notebook that a test has run, with what it printed kept for the book."""
    (tmp_path / "pfl_lib").mkdir()
    (tmp_path / "pfl_lib" / "formula.py").write_text("A = 1")
    path = tool.new(tmp_path / "notebooks" / "01_trial.ipynb", "A trial")
    cells = tool.code_cells(nbformat.read(path, as_version=4))
    said = [nbformat.v4.new_output("stream", text="said once\n")]
    executed.keep(path, [said for _ in cells], root=tmp_path, seconds=2.5)
    return tmp_path


def in_the_cache(root):
    """What the book would find in its cache for the notebook as it is now."""
    notebook = nbformat.read(root / "notebooks" / "01_trial.ipynb", as_version=4)
    cache = get_cache(root / "_build" / ".jupyter_cache")
    try:
        _, merged = cache.merge_match_into_notebook(notebook)
    except KeyError:
        return None
    return tool.code_cells(merged)[0].outputs[0].text


def test_book_uses_what_a_test_ran(kept):
    assert executed.hand_to_the_book(kept) == 1
    assert in_the_cache(kept) == "said once\n"


def test_book_knows_how_long_a_test_ran_it(kept):
    """What the status page shows."""
    executed.hand_to_the_book(kept)
    record = get_cache(kept / "_build" / ".jupyter_cache").list_cache_records()[0]
    assert record.data["execution_seconds"] == 2.5


def test_changed_library_empties_the_cache(kept):
    executed.hand_to_the_book(kept)
    (kept / "pfl_lib" / "formula.py").write_text("A = 2")
    assert executed.hand_to_the_book(kept) == 0
    assert in_the_cache(kept) is None


def test_changed_results_empty_the_cache(kept):
    executed.hand_to_the_book(kept)
    (kept / "results").mkdir()
    (kept / "results" / "table.json").write_text("{}")
    assert executed.hand_to_the_book(kept) == 0
    assert in_the_cache(kept) is None


def test_changed_notebook_is_run_again(kept):
    path = kept / "notebooks" / "01_trial.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("__version__", "__name__"))
    assert executed.hand_to_the_book(kept) == 0
    assert in_the_cache(kept) is None
