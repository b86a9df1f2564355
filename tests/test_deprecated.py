"""Former names work for one version more, and say what to use instead."""

import importlib
import json
import subprocess
import sys
import warnings

import pytest

import pfl_lib
from pfl_lib import _deprecated
from pfl_lib.flower import RemoteFederation, in_process


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
