"""Notebook hygiene, and the tools that run notebooks and keep what they print.

`make notebooks` runs the notebooks themselves.
"""

import io
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from jupyter_cache import get_cache
from nbclient import NotebookClient

from devtools import book, executed, reference, runner, stages
from devtools import notebooks as tool
from tests.support.paths import ROOT


@pytest.mark.parametrize("path", tool.all_notebooks(), ids=lambda path: path.stem)
def test_notebook_is_as_it_should_be(path):
    assert tool.problems(path) == []


def test_the_reference_is_what_the_methods_make_of_it():
    """A page a method, as devtools/reference.py writes it."""
    made = reference.pages()
    assert sorted(reference.FOLDER.glob("*.ipynb")) == sorted(made)
    other = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert other == [], "run `make format`"


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


def test_an_experiment_is_run_with_its_parameter(experiment, tmp_path):
    def change(notebook):
        notebook.cells.append(nbformat.v4.new_code_cell("print(SCALE, at)"))

    edited(experiment, change)
    out = tool.run(experiment, {"SCALE": "laptop"}, out=tmp_path / "out.ipynb")
    output = tool.code_cells(nbformat.read(out, as_version=4))[-1].outputs[0].text
    assert output == "laptop {'rounds': 20}\n"


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


@pytest.fixture
def project(tmp_path):
    """A small project of its own, with our tools and one notebook in it."""
    shutil.copytree(ROOT / "devtools", tmp_path / "devtools")
    return tool.new(tmp_path / "notebooks" / "01_trial.ipynb", "A trial")


def with_cells(path, *cells):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += cells
    path.write_text(tool.text_of(tool.clean(notebook)), encoding="utf-8")
    return notebook


def python(project, *arguments):
    """Run Python in the small project; returns (exit code, what it printed)."""
    command = [sys.executable, *arguments, str(project)]
    ran = subprocess.run(command, cwd=project.parents[1], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


COMPARE = (
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "devtools.nbval_ran",
    "--nbval-lax",
)


def test_what_is_kept_is_what_the_book_would_have_shown(project):
    notebook = with_cells(project, *(nbformat.v4.new_code_cell(source) for source in CELLS))
    assert python(project, "-m", "devtools.runner")[0] == 0
    kept = project.parents[1] / "_build" / "executed" / "notebooks" / project.name
    NotebookClient(notebook, kernel_name="python3").execute()
    assert kinds(nbformat.read(kept, as_version=4)) == kinds(notebook)
    code, output = python(project, "-m", "devtools.runner")
    assert (code, output) == (0, "all notebooks are up to date\n")
    assert python(project, *COMPARE)[0] == 0


@pytest.mark.parametrize(("stored", "verdict"), [("2", 0), ("3", 1)])
def test_nbval_compares_what_is_stored(project, stored, verdict):
    """A green run must mean something: a wrong stored output fails, the right one passes."""
    cell = nbformat.v4.new_code_cell("1 + 1", metadata={"tags": [tool.CHECKED]})
    data = {"text/plain": stored}
    cell.outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=1)]
    with_cells(project, cell)
    code, output = python(project, *COMPARE)
    assert code == 1 and "was not run as it is now" in output
    assert python(project, "-m", "devtools.runner")[0] == 0
    code, output = python(project, *COMPARE)
    assert code == verdict, output
    assert ("Cell outputs differ" in output) == bool(verdict)


def test_fill_stores_what_is_to_be_compared(project):
    cell = nbformat.v4.new_code_cell("1 + 1", metadata={"tags": [tool.CHECKED]})
    with_cells(project, cell, nbformat.v4.new_code_cell("print('not compared')"))
    code, output = python(project, "-m", "devtools.notebooks", "fill")
    assert code == 0 and "TCP" not in output, output
    *_, compared, other = tool.code_cells(nbformat.read(project, as_version=4))
    assert compared.outputs[0].data["text/plain"] == "2" and other.outputs == []
    assert python(project, *COMPARE)[0] == 0
    with_cells(project, nbformat.v4.new_code_cell("1 / 0"))
    code, output = python(project, "-m", "devtools.notebooks", "fill")
    assert code == 1 and "notebooks.py: notebooks/01_trial.ipynb, cell" in output


def test_a_failing_notebook_is_named_with_its_cell_and_the_end_of_the_traceback(project):
    with_cells(project, nbformat.v4.new_code_cell("def f():\n    return 1 / 0\n\nf()"))
    notebook = nbformat.read(project, as_version=4)
    number, run = len(notebook.cells), len(tool.code_cells(notebook))
    code, output = python(project, "-m", "devtools.runner")
    assert code == 1
    assert f"notebooks/01_trial.ipynb, cell {number} (In [{run}]): ZeroDivisionError" in output
    assert "return 1 / 0" in output and "\x1b" not in output
    assert "TCP" not in output and "1 failed" in output


def test_a_kernel_that_is_killed_is_named_with_its_cell(project):
    """As when memory runs out: there is no traceback, and one still wants to know where."""
    die = "import os, signal\n\nos.kill(os.getpid(), signal.SIGKILL)"
    last = nbformat.v4.new_code_cell("print('never reached')")
    with_cells(project, nbformat.v4.new_code_cell(die), last)
    number = len(nbformat.read(project, as_version=4).cells) - 1
    code, output = python(project, "-m", "devtools.runner")
    assert code == 1 and f"01_trial.ipynb, cell {number} (In [" in output
    assert "DeadKernelError" in output and "    import os, signal" in output
    assert "JOBS=1" in output


def test_a_library_that_cannot_be_imported_stops_the_run(project):
    for number in range(2, 7):
        tool.new(project.with_name(f"0{number}_trial.ipynb"), "A trial")
    library = project.parents[1] / "pfl_lib"
    library.mkdir()
    (library / "__init__.py").write_text("import nothing_of_the_kind")
    output = python(project, "-c", "from devtools import runner; runner.main()")[1]
    assert output.count("No module named 'nothing_of_the_kind'") == 1
    assert "its error is above" in output and "of 6" in output
    assert output.count("FAILED") < 6  # those that were waiting did not try


def test_a_run_leaves_no_folder_of_its_own_in_the_environment(project):
    """What builds pages in the same process would look for canaries in a folder that is gone."""
    run = "from devtools import runner; assert runner.run() == (1, [])"
    code, output = python(project, "-c", f"import os; {run}; print(os.getenv('PFL_CANARIES'))")
    assert code == 0 and output.splitlines()[-1] == "None", output


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_one_line_on_a_terminal_and_plain_lines_elsewhere():
    paths = [executed.ROOT / "notebooks" / f"{name}.ipynb" for name in ("01_a", "02_b", "03_c")]
    shown = Terminal()
    progress = runner.Progress(3, dict.fromkeys(paths, 60.0), jobs=2, stream=shown)
    progress.finished(paths[0], 58.0, 40.0, None)
    progress.show([paths[1]], [paths[2]])
    assert "1 of 3 notebooks | 02_b | 0:00, about 0:45 left" in shown.getvalue()
    progress.finished(paths[1], 5.0, 0.0, "an error")
    progress.show([paths[2]], [])
    assert "2 of 3 notebooks, 1 failed | 03_c | 0:00" in shown.getvalue()
    assert "\n" not in shown.getvalue()
    plain = io.StringIO()
    progress = runner.Progress(3, {}, jobs=2, stream=plain)
    progress.show(paths[:2], paths[2:])
    progress.finished(paths[0], 58.0, 40.0, None)
    progress.finished(paths[1], 5.0, 0.0, "an error")
    assert plain.getvalue().splitlines() == [
        "1 of 3: notebooks/01_a.ipynb ran in 58 s (40 of processor time)",
        "2 of 3: notebooks/02_b.ipynb FAILED in 5 s",
    ]


def test_stages_say_how_long_each_took(monkeypatch, capfd, tmp_path):
    (tmp_path / "Makefile").write_text("good:\n\t@echo fine\nbad:\n\t@false\n")
    monkeypatch.chdir(tmp_path)
    assert stages.main(["good", "bad", "good"]) != 0
    output = capfd.readouterr().out
    assert re.search(r"good +passed +0:00 min", output) and re.search(r"bad +FAILED", output)
    assert output.endswith("not run: good\n")
    assert stages.main(["good"]) == 0


@pytest.fixture
def kept(tmp_path):
    """A project of one notebook that a test has run, with what it printed kept for the book."""
    (tmp_path / "pfl_lib").mkdir()
    (tmp_path / "pfl_lib" / "formula.py").write_text("A = 1")
    path = tool.new(tmp_path / "notebooks" / "01_trial.ipynb", "A trial")
    cells = tool.code_cells(nbformat.read(path, as_version=4))
    output = [nbformat.v4.new_output("stream", text="said once\n")]
    executed.keep(path, [output for _ in cells], root=tmp_path, seconds=2.5)
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


def test_a_preview_asks_for_the_book_first(tmp_path, monkeypatch):
    monkeypatch.setattr(book, "HTML", tmp_path)
    with pytest.raises(SystemExit, match="run `make book` once"):
        book.main([str(ROOT / "book" / "about.md")])
    with pytest.raises(SystemExit, match="no such page"):
        book.main(["book/nothing_of_the_kind.md"])


def test_book_uses_what_was_run(kept):
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
