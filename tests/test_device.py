"""Every algorithm stays on its device: a round on a stand-in accelerator gives the same numbers."""

import warnings

import pytest
import torch

import pfl_lib
from pfl_lib import Federation, algorithm, methods, partition
from pfl_lib.devices import OnDevices
from pfl_lib.faults import Faulty
from pfl_lib.flower import OneClient, Parcel
from pfl_lib.flower.messages import encode, pack_work
from pfl_lib.work import Work
from tests.support.standin_device import DEVICE, Away, accelerator, counted

HYPER = {"fedamp": {"self_weight": 0.3}, "fedphp": {"transfer": "predictions"}}
HYPER["oracle-groups"] = {"groups": 2}
# Closures over a client's own tensors inside a gradient inside vmap: more than the stand-in's
# wrapper can follow, so these two are tried client by client.
ENGINE = {"fedphp": "loop", "apple": "loop"}

WAITS = 2  # how often Python waits for the device in a round, at most
# ALA's first time, once a client has a model of its own: a pass ends when its weights are learned.
LEARNS = {"fedala": (1, 3)}  # method: (round, waits)

# What a round of four clients launches, three steps a client: more than that are those that learn
# for several epochs, or whose objective is run through autograd.
LAUNCHES, MANY = 600, {"fedavg-c": 1000, "fedprox-c": 1000, "fedphp": 800, "fedala": 1500}


def test_the_stand_in_refuses_what_a_gpu_refuses():
    with accelerator():
        x = torch.ones(3, device=DEVICE)
        assert x.device == DEVICE and torch.equal((x + x).cpu(), torch.full((3,), 2.0))
        with pytest.raises(RuntimeError, match=r"tensors \[\(3,\)\] are on the CPU"):
            x + torch.ones(3)
        with pytest.raises(RuntimeError, match="are on the CPU"):
            x[torch.randperm(3)]


@pytest.fixture(scope="module")
def clients():
    data = pfl_lib.data.load("digits")
    halves = [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    parts = partition.grouped(
        data, group_classes=halves, group_clients=[2, 2], group_sizes=[20, 13], test_size=10
    )
    return data, parts


def two_rounds(method, clients, device, engine, model):
    fed = Federation(*clients, model, device=device, engine=engine, batch_size=8)
    state = method.start(fed.at(0))
    learns, most = LEARNS.get(method.name, (-1, WAITS))
    for k in range(learns + 2 if learns >= 0 else 2):
        counted.update(waits=0, launches=0)
        state = method.round(state, fed.at(k), fed.everyone)
        assert counted["waits"] <= (most if k == learns else WAITS)
        if engine == ENGINE.get(method.name, "stacked"):
            assert counted["launches"] <= MANY.get(method.name, LAUNCHES)
    w = method.personal(state, fed.at(1))
    return w, fed.evaluate(w)[0]


def same_on_the_accelerator(method, clients, engine, model="mlp"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w, accuracy = two_rounds(method, clients, "cpu", engine, model)
        with accelerator():
            away, accuracy_away = two_rounds(method, clients, DEVICE, engine, model)
    assert isinstance(away, Away) and isinstance(accuracy_away, Away)
    torch.testing.assert_close(away.here, w)
    torch.testing.assert_close(accuracy_away.here, accuracy)


@pytest.mark.parametrize("name", methods.names())
def test_no_round_leaves_its_device(name, clients):
    method = algorithm(name, **HYPER.get(name, {}))
    same_on_the_accelerator(method, clients, ENGINE.get(name, "stacked"))


@pytest.mark.parametrize("name", ["fedavg", "fedamp", "fedala"])
def test_the_plain_loop_stays_too(name, clients):
    same_on_the_accelerator(algorithm(name, **HYPER.get(name, {})), clients, "loop")


def test_a_convolutional_network_stays_too(clients):
    same_on_the_accelerator(algorithm("separate"), clients, "stacked", "fedala_cnn")


@pytest.mark.parametrize(
    ("model", "most"), [("logistic_regression", 0.5), ("mlp", 0.9), ("fedala_cnn", 3.0)]
)
def test_few_launches_for_a_step_of_a_client(model, most):
    """Of 20 clients: what two more epochs launch, divided by their steps and by the clients."""
    data = pfl_lib.data.load("digits")
    parts = partition.scarce(partition.iid(data, 20), 16)
    launches = []
    with accelerator():
        for epochs in (1, 3):
            options = {"engine": "stacked", "batch_size": 8, "epochs": epochs}
            fed = Federation(data, parts, model, device=DEVICE, **options)
            w = fed.initial()
            counted.update(launches=0, waits=0)
            pfl_lib.train(fed, w, fed.everyone)
            launches.append(counted["launches"])
            assert counted["waits"] <= 1
    steps = 2 * 16 // 8
    assert 0 < (launches[1] - launches[0]) / steps / fed.m <= most


# torch's own backward pass knows one stand-in only: methods whose gradient is written out
@pytest.mark.parametrize("name", ["fedavg", "fedamp", "scaffold"])
def test_two_devices_give_the_numbers_of_one(clients, name):
    method = algorithm(name, **HYPER.get(name, {}))
    options = {"engine": "stacked", "batch_size": 8}
    with accelerator():
        one = Federation(*clients, "mlp", device=DEVICE, **options)
        two = OnDevices(one, [DEVICE, "gpu:1"])
        assert [fed.device.index for fed in two._copies] == [0, 1]
        assert "dealt out to gpu:0, gpu:1; on the first engine 'stacked'" in two.plan()
        found = []
        for fed in (one, two):
            state = method.start(fed.at(0))
            for k in range(2):
                state = method.round(state, fed.at(k), fed.everyone)
            w = method.personal(state, fed.at(1))
            found.append([w.cpu(), *(t.cpu() for t in fed.evaluate(w))])
        assert two.describe() == one.describe()
    for a, b in zip(*found):
        assert torch.allclose(a, b, atol=1e-6)


def test_devices_are_named(clients):
    fed = Federation(*clients, "mlp")
    with pytest.raises(ValueError, match="devices must name one device or more"):
        OnDevices(fed, [])
    with pytest.raises(ValueError, match="device must be one that this machine has"):
        OnDevices(fed, ["cpu", "cuda:7"])
    with pytest.raises(TypeError, match=r"fed must be a pfl_lib\.Federation"):
        OnDevices(Faulty(fed, clients=[0]), ["cpu"])  # whose copies would have no fault


def test_a_client_over_the_network_answers_from_its_device(clients):
    """Parcels arrive in the computer's own memory, whatever device the client trains on."""
    data, parts = clients
    own = (data, parts.train[1], parts.test[1])

    def answers(device):
        options = {"device": device, "engine": "loop", "batch_size": 8, "model": "mlp"}
        me = OneClient(1, parts.m, *own, **options)
        w = torch.full((1, me.d), 0.01)
        rows = {"w": w, "center": w + 1, "strength": torch.tensor([0.5])}
        work = Work(rows, shared={"mask": torch.ones(me.d)})
        ask = [("train", pack_work(work, 0, 0)), ("train", pack_work(work, 0, 0, torch.arange(5)))]
        ask.append(("evaluate", Parcel({"w": encode(w[0])})))
        return [me.answer(kind, parcel) for kind, parcel in ask]

    here = answers("cpu")
    with accelerator():
        assert answers(DEVICE) == here
