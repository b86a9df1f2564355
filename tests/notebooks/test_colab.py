"""Notebooks run alone, as on Colab, and the wheel installs on a bare machine.

All notebooks: `make colab`. Here a few, for time.
"""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

import pfl_lib
from devtools import colab
from devtools import notebooks as tool

# a page, one that shows what was measured, one of the reference, an experiment
FEW = ("explorers", "results", "fedacs", "own_leap")


def test_setup_cell_lets_pip_resolve_nothing_that_needs_torch_or_numpy():
    lines = [line.strip() for line in tool.SETUP.splitlines() if "%pip" in line]
    resolved = " ".join(line for line in lines if "--no-deps" not in line)
    assert set(resolved.split()) & {"torch", "torchvision", "numpy", "pfl_lib", "mlxtend"} == set()
    assert "http" not in tool.SETUP


def test_no_notebook_asks_for_a_device():
    """So that a GPU is used where there is one."""
    for path in tool.all_notebooks():
        text = "\n".join(cell.source for cell in tool.code_cells(nbformat.read(path, 4)))
        assert "device=" not in text and '"cpu"' not in text, path.name


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The bare environment and the folder of wheels."""
    return colab.environment(), colab.wheels(tmp_path_factory.mktemp("wheels"))


def test_a_few_notebooks_run_alone(bare):
    paths = [path for path in tool.all_notebooks() if path.stem in FEW]
    with ThreadPoolExecutor(2) as pool:
        run = partial(colab.run_alone, bare=bare[0], wheelhouse=bare[1])
        assert len(list(pool.map(run, paths))) == len(FEW)


def test_a_notebook_and_the_wheel_are_enough(bare, tmp_path):
    """As "Run it yourself" says: both are uploaded, and no index knows our library."""
    for file in bare[1].glob("*.whl"):
        if not file.name.startswith("pfl_lib"):
            shutil.copy(file, tmp_path)
    ours = next(bare[1].glob("pfl_lib-*.whl"))
    path = next(path for path in tool.all_notebooks() if path.stem == "fedacs")
    colab.run_alone(path, bare[0], tmp_path, uploaded=[ours])
    with pytest.raises(CellExecutionError, match="pfl_lib"):
        colab.run_alone(path, bare[0], tmp_path)


def test_a_setup_cell_that_touches_numpy_is_caught(bare, tmp_path):
    bad = nbformat.v4.new_notebook(cells=[tool.setup_cell()])
    bad.cells[0].source += "\n    %pip install -q --upgrade numpy"
    nbformat.write(bad, tmp_path / "bad.ipynb")
    with pytest.raises(CellExecutionError):
        colab.run_alone(tmp_path / "bad.ipynb", *bare)


TRY = """
import pathlib, pfl_lib
from pfl_lib.book import explore, papers
from pfl_lib.book.experiments import stored
history = pfl_lib.run(pfl_lib.algorithm("separate"), pfl_lib.example(), 2, progress=False)
assert history.last > 0.2
assert "<script" in explore.FedAMPPlane()._repr_html_()
assert papers.table("fedamp", 3).rows
assert "laptop" in stored("fedamp_grouped")
print(pfl_lib.__version__, pathlib.Path(pfl_lib.__file__).parents[1])
"""


def test_the_wheel_installs_and_works_on_a_bare_machine(bare, tmp_path):
    """Its requirements are met by the small packages beside it, and nothing else is touched."""
    python = colab.machine(bare[0], tmp_path / "machine")
    pip = [str(python), "-m", "pip", "install", "-q", "--no-index", "-f", str(bare[1])]
    subprocess.run([*pip, "pfl_lib"], check=True)
    done = subprocess.run(
        [str(python), "-c", TRY], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    version, where = done.stdout.split()
    assert version == pfl_lib.__version__
    assert str(tmp_path) in where
