"""Notebook hygiene, and every experiment once at its smallest scale.

The chapters run under nbval: see `make notebooks`.
"""

import nbformat
import pytest

import notebooks as tool

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
    with pytest.raises(ValueError, match="no parameter SCALES; it has SCALE, SEED"):
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
