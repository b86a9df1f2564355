"""What a local step may ask of its client: written down, kept by the engines and by the toy."""

import ast
import inspect

import pytest
import torch

from pfl_lib import algorithm, work
from pfl_lib.book.theory import DescentFederation
from pfl_lib.book.theory.federations import QuadraticClient
from pfl_lib.work import StepClient
from tests.support.methods import all_close
from tests.support.paths import ROOT
from tests.support.quadratics import Toy

INTERFACE = {*StepClient.__annotations__} | {n for n in vars(StepClient) if n[0] != "_"}


def asked_of_clients():
    """{attribute: files in which a step or a helper of one asks ``client`` for it}."""
    found = {}
    paths = [*(ROOT / "pfl_lib" / "methods").glob("*.py"), *(ROOT / "pfl_lib").glob("*.py")]
    for path in paths:
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            if "client" not in [argument.arg for argument in function.args.args]:
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "client":
                    found.setdefault(node.attr, set()).add(path.name)
    return found


def test_steps_ask_for_nothing_that_is_not_written_down():
    asked = asked_of_clients()
    assert {"grad", "move", "numbers", "losses"} <= set(asked)
    assert {name: files for name, files in asked.items() if name not in INTERFACE} == {}
    assert set(asked) >= INTERFACE, "the interface promises what no step needs"


def test_every_method_of_the_interface_says_what_it_gives():
    for name in INTERFACE & set(vars(StepClient)):
        assert inspect.getdoc(getattr(StepClient, name)), name


def test_the_toy_has_all_of_it():
    client = QuadraticClient(torch.ones(2), torch.zeros(2), work.Work({"w": torch.ones(1, 2)}), 0.1)
    assert {name for name in INTERFACE if not hasattr(client, name)} == set()


H = torch.tensor([[1.0, 2.0, 0.5], [0.5, 1.0, 1.0], [2.0, 1.5, 1.0]]).double()
C = torch.tensor([[1.0, -1.0, 0.0], [0.0, 2.0, 1.0], [-1.0, 0.0, 3.0]]).double()
ON_BOTH = {
    "fedprox": {"mu": 0.5},
    "scaffold": {},
    "per-fedavg": {"inner_lr": 0.2},
    "per-fedavg exact": {"inner_lr": 0.2, "variant": "exact"},
    "per-fedavg, other rate": {"lr": 0.03},
    "pfedme": {"inner_steps": 2},
    "apfl": {},
    "ditto": {"lam": 0.5},
    "fedala": {"max_epochs": 3},
    "partialfed": {"model_batches": 2, "strategy_batches": 1},
    "apple": {"lr_p": 0.1},
    "pfedgraph": {},
}


@pytest.mark.parametrize("name", ON_BOTH)
def test_the_toys_steps_are_those_of_the_engines(name):
    """DescentFederation beside the loop engine with the same loss."""
    start = torch.tensor([0.3, 0.1, -0.2]).double()
    method = algorithm(name.split(",")[0].split(" ")[0], **ON_BOTH[name])
    toy = DescentFederation(H, C, start.expand(3, -1), lr=0.1, steps=4)
    real = Toy(torch.cat([H, C], 1)[:, None], start, lr=0.1, epochs=4)
    states = []
    for fed in (toy, real):
        state = method.start(fed)
        for k in range(2):
            state = method.round(state, fed.at(k), fed.everyone)
        states.append(state)
    all_close(*states)
    assert not torch.equal(method.personal(states[0], toy), toy.start)


def test_the_toy_refuses_by_name_what_it_cannot_do():
    fed = DescentFederation(H, C)
    method = algorithm("fedphp")
    state = method.start(fed)
    with pytest.raises(ValueError, match="step 'fedphp' looks at what a model puts out"):
        for k in range(2):
            state = method.round(state, fed.at(k), fed.everyone)
    with pytest.raises(ValueError, match="descends by SGD, not by 'adam'"):
        fed.perform(work.Work({"w": fed.initial()}, optimizer="adam"), fed.everyone)
