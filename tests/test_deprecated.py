"""Former names work for one version more, and say what to use instead."""

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import pfl_lib
from pfl_lib import _deprecated
from pfl_lib.flower import RemoteFederation, in_process

FORMER_NAMES = Path(__file__).parent / "support" / "former_names.json"


def fresh(code):
    """What that prints in a process of its own, warnings shown."""
    command = [sys.executable, "-W", "always::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


FORMER = {
    "import pfl_lib.algorithms as a": "pfl_lib.methods",
    "from pfl_lib.algorithms import fedamp as a": "pfl_lib.methods.fedamp",
    "from pfl_lib import theory as a": "pfl_lib.book.theory",
    "import pfl_lib.experiments as a": "pfl_lib.book.experiments",
    "import pfl_lib; a = pfl_lib.plots": "pfl_lib.book.plots",
}


def test_a_former_module_is_the_present_one():
    """Each way to import one, in a process that has not imported any."""
    printed, warned = fresh("\n".join(f"{way}; print(a.__name__)" for way in FORMER))
    assert printed.split() == list(FORMER.values())
    for name in ("algorithms", "theory", "experiments", "plots"):
        words = f"pfl_lib.{name} is deprecated and goes with the next version; use pfl_lib."
        assert words in warned, name


@pytest.mark.parametrize("former, present", _deprecated.MODULES.items())
def test_every_former_module_leads_somewhere(former, present):
    with pytest.warns(DeprecationWarning, match=f"pfl_lib.{former} is deprecated"):
        assert _deprecated.module(former).__name__ == f"pfl_lib.{present}"


LOOK_UP = """
import importlib, importlib.util, json, sys, warnings
import pfl_lib
warnings.simplefilter("always")
found = {}
for module, names in json.load(open(sys.argv[1]))["names"].items():
    if module == "pfl_lib.flower.apps" and not importlib.util.find_spec("flwr"):
        continue
    here = found[module] = {"warned": [], "names": {}, "is": None}
    with warnings.catch_warnings(record=True) as caught:
        try:
            there = importlib.import_module(module)
        except ModuleNotFoundError as error:
            here["gone"] = str(error)
            continue
        for name in names:
            thing = getattr(there, name, None)
            here["names"][name] = None if thing is None else getattr(thing, "__name__", "constant")
    here["is"] = there.__name__
    here["warned"] = [str(one.message) for one in caught]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def looked_up():
    """What every module and name of the former tree leads to, in a process of its own."""
    command = [sys.executable, "-c", LOOK_UP, str(FORMER_NAMES)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_every_former_name_works_or_is_listed_as_gone(looked_up):
    """577 names; one that is gone says in the list what one uses now."""
    gone = json.loads(FORMER_NAMES.read_text())["gone"]
    missing = {
        f"{module}.{name}"
        for module, found in looked_up.items()
        for name, thing in found["names"].items()
        if thing is None
    }
    assert missing == gone.keys() and all(gone.values())
    modules = {
        module.removeprefix("pfl_lib.") for module, found in looked_up.items() if "gone" in found
    }
    assert modules == _deprecated.GONE.keys()
    for name in modules:
        told = looked_up[f"pfl_lib.{name}"]["gone"]
        assert told == f"pfl_lib.{name} is gone: {_deprecated.GONE[name]}"


def test_a_former_name_is_the_thing_it_was_and_every_move_warns(looked_up):
    others = []
    for module, found in looked_up.items():
        inside = module.removeprefix("pfl_lib.")
        for name, thing in found["names"].items():  # what it calls itself
            present = f"{found['is']}.{name}".removeprefix("pfl_lib.")
            moved = _deprecated.NAMES.get(present, "").rpartition(".")[2]
            # constants have no name of their own to compare, modules a longer one
            if module == "pfl_lib.attention" or (thing or "").startswith("pfl_lib."):
                continue
            if thing not in (None, "constant", name, moved):
                others.append((name, thing))
            if moved:
                assert any(
                    f"use pfl_lib.{_deprecated.NAMES[present]}" in w for w in found["warned"]
                )
        former = inside in {**_deprecated.MODULES, **_deprecated.SPLIT} or found["is"] != module
        if former and "gone" not in found:
            assert any(f"{module}" in w and "use pfl_lib." in w for w in found["warned"]), module
    assert set(others) == {("Federation", "LocalFederation"), ("taste", "quick_run")}


WITH_A_FUNCTION = """
import pfl_lib
import pfl_lib.run
from pfl_lib.run import participants
from pfl_lib.algorithms.with_ala import with_ala
from pfl_lib.experiments import taste
from pfl_lib.experiments.taste import taste as again
from pfl_lib.algorithms.fedavg_2step import FedAvg2Step
from pfl_lib.algorithms.apfl import APFL
from pfl_lib import methods, rounds
assert pfl_lib.run is rounds.run and participants is pfl_lib.participants
assert with_ala is methods.with_ala and taste is again is pfl_lib.book.experiments.quick_run
assert FedAvg2Step is methods.FedAvg2Step and APFL is methods.APFL
history = pfl_lib.run(FedAvg2Step(), pfl_lib.example(), 1, progress=False)
print(type(with_ala(pfl_lib.algorithm("ditto"))).__name__, history.rounds)
"""


def test_a_module_with_the_name_of_a_function_does_not_take_its_place():
    printed, warned = fresh(WITH_A_FUNCTION)
    assert printed == "WithALA [1]"
    for line, name in (
        (4, "pfl_lib.run.participants"),
        (5, "pfl_lib.algorithms.with_ala.with_ala"),
        (8, "pfl_lib.algorithms.fedavg_2step"),
    ):  # what warns is the reader's own line, so that Python shows it
        assert f"<string>:{line}: DeprecationWarning: {name} is deprecated" in warned


def test_a_name_that_never_was_is_an_error():
    with pytest.raises(AttributeError, match="'algorithmus'"):
        _ = pfl_lib.algorithmus
    with pytest.raises(ImportError):
        importlib.import_module("pfl_lib.algorithmus")


def test_present_names_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module("pfl_lib.methods")
        assert pfl_lib.book.__name__ == "pfl_lib.book"


def test_former_hyper_parameters_fields_and_methods_warn_and_work(tmp_path):
    with pytest.warns(DeprecationWarning, match="use inner_lr"):
        assert pfl_lib.algorithm("per-fedavg", lr_inner=0.2).inner_lr == 0.2
    history = pfl_lib.History("A", "w", {}, extra_models={"u": [[0.5]]})
    with pytest.warns(DeprecationWarning, match="use History.extra_models"):
        assert history.also == {"u": [[0.5]]}
    text = json.dumps(
        {"also" if k == "extra_models" else k: v for k, v in history.record().items()}
    )
    (tmp_path / "old.json").write_text(text)
    assert pfl_lib.History.load(tmp_path / "old.json").extra_models == {"u": [[0.5]]}
    data = pfl_lib.data.load("digits")
    with pytest.warns(DeprecationWarning, match="use normalized"):
        assert data.normalised(data.x[:1]).equal(data.normalized(data.x[:1]))


def test_a_partition_still_draws_itself():
    data = pfl_lib.data.load("digits")
    clients = pfl_lib.partition.iid(data, clients=3)
    with pytest.warns(DeprecationWarning, match="use pfl_lib.book.plots.partition_bubbles"):
        ax = clients.draw(data, part="test")
    assert ax.get_xlabel() == "client"


def test_a_method_of_yours_with_a_former_step_is_not_passed_over():
    """Nobody would call ``also`` any more, and the run would not say so."""
    with pytest.warns(DeprecationWarning, match=r"Mine.also is deprecated .* use extra_models"):

        class Mine(pfl_lib.methods.FedAvg):
            name, label = "mine", "Mine"

            def also(self, state, fed):
                return {"twice": 2 * self.personal(state, fed)}

    history = pfl_lib.run(Mine(), pfl_lib.example(), 1, progress=False)
    assert list(history.extra_models) == ["twice"]


def test_a_renamed_function_warns_and_works():
    def doubled(x):
        return 2 * x

    twice = _deprecated.renamed("twice", doubled)
    with pytest.warns(DeprecationWarning, match="twice is deprecated .* use doubled"):
        assert twice(3) == 6


def test_the_former_name_of_a_transport_warns_and_works():
    transport = in_process(pfl_lib.example())
    far = RemoteFederation(transport, clients=8, lr=0.1)
    with pytest.warns(DeprecationWarning, match="use RemoteFederation.transport"):
        assert far.post is transport
