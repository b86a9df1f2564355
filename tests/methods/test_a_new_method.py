"""One file in the folder of methods is enough: the method is then found everywhere."""

import importlib
import inspect
import sys
from dataclasses import fields

import pytest
import torch

import pfl_lib
from devtools import readme, reference
from pfl_lib import comparison, formulas, methods
from pfl_lib.flower.plan import Plan
from pfl_lib.work import STEPS
from tests.support import canary

FILE = '''
"""Half-way: every client starts between its own model and the mean of all."""

from dataclasses import dataclass

from pfl_lib.methods._hyper import between
from pfl_lib.methods.base import Algorithm, State, preset
from pfl_lib.work import Work, local_step


def towards_mean(W, share):
    """w_i + share·(mean − w_i).

    Equation label: eq-towards-mean
    """
    return W + share * (W.mean(0) - W)


@local_step("toy-half-way")
def step(s, batch, client):
    """An ordinary step."""
    return client.move(s, client.grad(s["w"], batch))


@dataclass(frozen=True)
class HalfWay(Algorithm):
    """Every client starts between its own model and the mean of all."""

    share: float = between(0.5, 0, 1)
    name, label = "half-way", "Half-way"
    family = "pair by pair"
    place = (3, 4, 1)
    idea = "Everyone goes half of the way to the mean."
    equations = ("eq-towards-mean",)
    chapter = "04_fedamp"
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


def test_two_methods_of_one_name_are_refused(half_way, tmp_path):
    other = tmp_path / "other_way.py"
    other.write_text(FILE.replace("toy-half-way", "toy-other-way").replace("third", "fourth"))
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match="both called 'half-way'"):
        methods.discover()
    other.unlink()
    del sys.modules["pfl_lib.methods.other_way"], STEPS["toy-other-way"]
    importlib.invalidate_caches()
