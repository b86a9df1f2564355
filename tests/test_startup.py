"""How little is loaded before the first round: what every kernel and every script waits for."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import pfl_lib
from pfl_lib.local.network import Network, activation_bytes

HEAVY = ("sympy", "torch._dynamo")  # seconds to import, and nothing of it is needed
CODE = """\
import sys
import torch

def look(when):
    loaded = [name for name in {heavy} if name in sys.modules]
    assert not loaded, f"{{when}} loaded {{loaded}}"

look("import torch")
import pfl_lib
look("import pfl_lib")
assert "scipy" not in sys.modules, "a method's file imports scipy before anybody calls the method"
from pfl_lib import models
data = pfl_lib.data.load({data!r})
clients = pfl_lib.partition.iid(data, clients=3)
for name in models.names():
    if name not in ("fasttext", "cnn1d"):  # for texts and time series; these are images
        fed = pfl_lib.Federation(data, clients, name)
        look(f"Federation with {{name}}")
# ordinary training; a step that asks for torch.func.grad has to load them, for torch's own reasons
for name, engine in (("mlp", "auto"), ("mlp", "loop"), ("spfl_cnn", "auto")):
    fed = pfl_lib.Federation(data, clients, name, engine=engine)
    pfl_lib.run(pfl_lib.algorithm("fedamp", self_weight=0.3), fed, rounds=1, progress=False)
    look(f"a round with {{name}}, engine {{engine}}")
# the five methods of the chapter on networks: a client that imports for seconds does not answer
fed = pfl_lib.Federation(data, clients, "mlp", engine="loop")
for name, knobs in (("fedavg", {{}}), ("heurfedamp", {{"self_weight": 0.3}}), ("fedacs", {{}}),
                    ("fedala", {{"max_epochs": 3}})):
    pfl_lib.run(pfl_lib.algorithm(name, **knobs), fed, rounds=2, progress=False)
    look(f"two rounds of {{name}}, client by client")
print("nothing heavy")
"""


@pytest.mark.parametrize("data", ["digits", "mnist5k"])
def test_building_a_federation_loads_neither_sympy_nor_dynamo(data):
    code = CODE.format(heavy=HEAVY, data=data)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "nothing heavy\n", done.stderr


def test_a_network_keeps_no_second_copy_of_the_model():
    module = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10))
    network = Network(module)
    for kept in (network.module, network.copy().module):
        assert [p.shape for p in kept.parameters()] == [p.shape for p in module.parameters()]
        assert all(p.untyped_storage().nbytes() == p.itemsize for p in kept.parameters())
    own = network.empty("cpu", torch.float64)
    theirs = {id(p) for p in [*module.parameters(), *network.module.parameters()]}
    assert all(p.is_contiguous() and p.dtype == torch.float64 for p in own.parameters())
    assert not theirs & {id(p) for p in own.parameters()}


def test_three_samples_tell_what_a_batch_keeps():
    data = pfl_lib.data.load("mnist5k")
    x = data.normalized(data.x[:50])
    module = pfl_lib.models.build("fedala_cnn", data)
    whole = activation_bytes(module, x, 50)
    assert activation_bytes(module, x[:3], 50) == whole
    inputs, outputs = 50 * 28 * 28 * 4, 50 * 32 * 28 * 28 * 4  # of the first layer alone
    assert whole > inputs + outputs
    assert 0 < activation_bytes(module, x[:3], 1) == activation_bytes(module, x[:2], 1) < whole
