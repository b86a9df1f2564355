"""One file in the folder of methods is enough: the method is then found everywhere."""

import importlib
import inspect
import os
import subprocess
import sys
from dataclasses import fields

import pytest
import torch

import pfl_lib
from devtools import readme, reference
from pfl_lib import comparison, formulas, methods
from pfl_lib.book.draw import field
from pfl_lib.flower.plan import Plan
from pfl_lib.methods.base import preset
from pfl_lib.work import STEPS
from tests.support import canary
from tests.support.paths import ROOT

FILE = '''
"""Half-way: every client starts between its own model and the mean of all."""

from dataclasses import dataclass

from pfl_lib.methods._hyper import between
from pfl_lib.methods.base import Algorithm, State, preset
from pfl_lib.work import Work, local_step


def towards_mean(W, share):
    """w_i + share·(mean − w_i).

    Equation label: eq-towards-mean

    >>> import torch
    >>> towards_mean(torch.tensor([[0.0], [4.0]]), 0.5).flatten()
    tensor([1., 3.])
    """
    return W + share * (W.mean(0) - W)


@local_step("toy-half-way")
def step(s, batch, client):
    """An ordinary step."""
    return client.move(s, client.grad(s["w"], batch))


@dataclass(frozen=True)
class HalfWay(Algorithm):
    """Every client starts between its own model and the mean of all.

    >>> HalfWay(share=0.25).share
    0.25
    """

    share: float = between(0.5, 0, 1)
    name, label = "half-way", "Half-way"
    family = "pair by pair"
    place = (3, 4, 1)
    idea = "Everyone goes half of the way to the mean."
    equations = ("eq-towards-mean",)
    chapter, paper = "04_fedamp", "nobody's; an example"
    shared, private, weights_by = "the mean of all models", "the whole model", "equal weights"

    def download(self, state, fed, who):
        return State(w=towards_mean(state.w, self.share)[who])

    def local(self, state, received, fed, who):
        return received.set(w=fed.perform(Work({"w": received.w}, "toy-half-way"), who)["w"])


ThirdOfTheWay = preset(HalfWay, "ThirdOfTheWay", share=1 / 3, name="third-way", label="Third")
'''


@pytest.fixture
def half_way(tmp_path):
    """That file, for as long as a test lasts."""
    (tmp_path / "half_way.py").write_text(FILE)
    methods.__path__.append(str(tmp_path))
    importlib.invalidate_caches()
    methods.discover()
    yield methods.BY_NAME["half-way"]
    methods.__path__.remove(str(tmp_path))
    del sys.modules["pfl_lib.methods.half_way"], STEPS["toy-half-way"]
    del methods.EQUATIONS["towards_mean"]
    methods.discover()
    assert "half-way" not in methods.names()


def test_it_can_be_asked_for_and_run(half_way):
    assert isinstance(pfl_lib.algorithm("half-way", share=0.2), half_way)
    history = pfl_lib.run(pfl_lib.algorithm("third-way"), pfl_lib.example(), 2, progress=False)
    assert history.label == "Third" and 0 < history.last <= 1
    with pytest.raises(ValueError, match="Did you mean 'half-way'"):
        pfl_lib.algorithm("halfway")
    with pytest.raises(ValueError, match=r"must be one of 'share'; got 'shore'\. Did you mean"):
        pfl_lib.algorithm("half-way", shore=0.5)


def test_it_stands_in_its_family_and_in_every_list(half_way):
    names = methods.names()
    family = [name for name in names if methods.BY_NAME[name].family == "pair by pair"]
    assert {"half-way", "third-way"} <= set(family)
    assert names.index("apple") < names.index("half-way") < names.index("fedavg-sync")
    rows = {row[0]: row for row in pfl_lib.compare().rows}
    assert rows["Half-way"][1] == "the mean of all models"
    assert comparison.places()["half-way"] == (3, 4, 1)
    assert '`"half-way"`' in readme.table()


def test_it_has_a_page_and_a_place_in_the_contents(half_way):
    page = reference.pages()[reference.FOLDER / "half-way.ipynb"]
    assert "Everyone goes half of the way" in page and "{eq}`eq-towards-mean`" in page
    assert "- file: notebooks/reference/half-way\n" in reference.with_entries(
        reference.TOC.read_text(encoding="utf-8")
    )
    source = inspect.getsource(inspect.getmodule(methods.BY_NAME["third-way"]))
    assert source.strip() == FILE.strip()


def test_its_equation_is_a_formula(half_way):
    W = torch.tensor([[0.0], [4.0]])
    assert formulas.towards_mean(W, 0.5).flatten().tolist() == [1.0, 3.0]
    assert methods.labels(methods.EQUATIONS["towards_mean"]) == ["eq-towards-mean"]


def test_bad_input_is_tried_on_it(half_way):
    (share,) = fields(half_way)
    assert len(share.metadata["bad"]) > 4
    for value in share.metadata["bad"]:
        with pytest.raises((ValueError, TypeError), match="share"):
            half_way(share=value)


def test_flower_and_the_canary_know_it(half_way):
    plan = Plan(
        "digits",
        {"name": "iid", "clients": 3},
        "logistic_regression",
        runs=({"algorithm": "half-way", "share": 0.3, "rounds": 1},),
    )
    assert plan.method(plan.runs[0]) == half_way(share=0.3)
    assert "half-way" in dict(canary.methods())


PLUGIN = """
import importlib
from pfl_lib import formulas, methods
methods.__path__.append({folder!r})
methods.discover()
importlib.reload(formulas)
"""
BY_THEMSELVES = {  # test files that need no line about a new method, and what of them concerns it
    "tests/methods/test_equations.py": "towards_mean or labels_are_used_once",
    "tests/methods/test_every_method.py": "half-way or third-way",
    "tests/test_bad_input.py": "towards_mean or half-way or every_public_name",
    "tests/test_drawn.py": "family_map_has",
}


def test_the_usual_tests_find_it_and_pass(tmp_path):
    """In a process of its own, with the method's file and nothing else."""
    (tmp_path / "half_way.py").write_text(FILE)
    (tmp_path / "with_half_way.py").write_text(PLUGIN.format(folder=str(tmp_path)))
    plugins = ["-p", "with_half_way", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-vv", *plugins]
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    chosen = " or ".join(BY_THEMSELVES.values())
    done = subprocess.run(
        [*command, "-k", chosen, *BY_THEMSELVES],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    for test in (
        "test_precision_is_kept[dtype0-towards_mean]",
        "test_nothing_visits_the_cpu[towards_mean]",
        "test_wrong_input_is_refused_by_name[formulas.towards_mean]",
        "test_wrong_input_is_refused_by_name[algorithm half-way]",
        "test_engines_agree[half-way]",
        "test_stopped_and_resumed_to_the_last_bit[third-way]",
        "test_family_map_has_every_method_of_the_comparison_once",
    ):
        assert f"{test} PASSED" in done.stdout, test


def test_the_map_draws_it_where_its_place_says(half_way):
    one, many = field.families()
    assert ("half-way", "Half-way", "rule") in many["a mixture for each client"]
    assert not any("half-way" in row for rows in one.values() for row in rows)


def test_two_methods_of_one_name_are_refused(half_way, tmp_path):
    other = tmp_path / "other_way.py"
    other.write_text(FILE.replace("toy-half-way", "toy-other-way").replace("third", "fourth"))
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match="both called 'half-way'"):
        methods.discover()
    other.unlink()
    del sys.modules["pfl_lib.methods.other_way"], STEPS["toy-other-way"]
    importlib.invalidate_caches()


def test_a_preset_says_which_of_its_words_it_does_not_know():
    with pytest.raises(TypeError, match="shares is neither a hyper-parameter nor a fact of"):
        preset(methods.FedProx, "Misspelled", shares=0.3, name="misspelled", label="Misspelled")
