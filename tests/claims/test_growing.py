"""Pages and claims hold while long runs come in: rows are added to copies of the result files."""

import json
import os
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest

from pfl_lib.book import experiments
from pfl_lib.book.experiments import Results, stored
from tests.support.growing import a_book, grown, jobs, reading_cells
from tests.support.paths import ROOT

WAITING = sorted({job.experiment for job in jobs()})
ALWAYS = ("test_results.py", "test_pages.py::test_every_result_file_has_its_claims")


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Nothing here is current or stale; nothing needs to be drawn, or counted by running it."""
    monkeypatch.setattr(Results, "stale", lambda self: [])
    monkeypatch.setattr(experiments, "round_work", lambda *given, **more: 1.0)
    yield
    plt.close("all")


def show(thing):
    """What a notebook does with a table."""
    assert thing._repr_html_()


def read(path):
    names = {"display": show}
    for code in reading_cells(path):
        exec(compile(code, str(path), "exec"), names)  # as the page does
        plt.close("all")


@pytest.mark.parametrize("experiment", WAITING)
def test_a_page_holds_with_any_job_more_with_all_and_when_all_diverge(
    experiment, tmp_path, monkeypatch
):
    todo = jobs(experiment)
    records = [grown(experiment, done) for done in [*([job] for job in todo), todo]]
    records.append(grown(experiment, todo, broken=True))
    for record in records:
        monkeypatch.chdir(a_book(tmp_path, [record]))
        read(f"notebooks/experiments/{experiment}.ipynb")


PATHS = sorted((ROOT / "notebooks" / "experiments").glob("*.ipynb"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_page_that_can_run_a_part_of_its_table_asks_which_histories_there_are(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    if any("METHODS = " in source for source in code):
        assert all("in histories" in source for source in code if "histories[" in source)


def firsts():
    return [jobs(experiment)[:1] for experiment in WAITING]


def whole():
    return [jobs(experiment) for experiment in WAITING]


@pytest.mark.parametrize(("some", "broken"), [(firsts, True), (whole, False)])
def test_the_page_of_results_holds(some, broken, tmp_path, monkeypatch):
    a_book(tmp_path, [grown(done[0].experiment, done, broken=broken) for done in some()])
    monkeypatch.chdir(tmp_path)
    read("notebooks/results.ipynb")


def test_claims_hold_with_all_rows_added(tmp_path):
    """A claim about a row that is not there yet has nothing to stand on: this would fail it."""
    a_book(tmp_path, [grown(done[0].experiment, done) for done in whole()])
    names = [*ALWAYS, *(f"test_{experiment}.py" for experiment in WAITING)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(ROOT), *(str(ROOT / "tests" / "claims" / n) for n in names)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_made_up_rows_reach_those_who_read(tmp_path, monkeypatch):
    first, *_ = jobs() or pytest.skip("the queue is done")
    a_book(tmp_path, [grown(first.experiment, [first])])
    monkeypatch.chdir(tmp_path)
    kept = stored(first.experiment)[first.scale]
    (run,) = kept.of(first.methods[0], first.cases[0])
    assert run["rounds"] == [1, first.rounds]
