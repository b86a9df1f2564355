"""Over a network: parcels, remote clients, dropped ones; and, where Flower is installed, Flower.

Everything but the last section runs without Flower: `InProcess` carries the same parcels.
"""

import importlib.util
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from safetensors.torch import load_file
from torch import nn

import pfl_lib
from pfl_lib import methods
from pfl_lib.faults import Masked
from pfl_lib.flower import (
    ClientsLost,
    InProcess,
    LocalNetwork,
    OneClient,
    Parcel,
    Plan,
    RemoteFederation,
    in_process,
)
from pfl_lib.flower.local import NODE
from pfl_lib.flower.messages import HEADER, decode, encode, pack_rows, pack_work, unpack_work
from pfl_lib.privacy import PrivateSamples, PrivateUploads
from pfl_lib.work import Work

HYPER = {
    "fedamp": {"self_weight": 0.2},
    "fedala": {"window": 2, "max_epochs": 4},
    "oracle-groups": {"groups": (0, 0, 1, 1)},
    "cfl": {"eps1": 9.0, "eps2": 0.01, "warmup": 0},
}
PLAN = Plan(
    "digits",
    {
        "name": "grouped",
        "group_classes": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
        "group_clients": 2,
        "group_sizes": 30,
        "test_size": 20,
    },
    "mlp",
    {"lr": 0.05, "batch_size": 10, "engine": "loop"},
)


@pytest.fixture(scope="module")
def parts():
    return PLAN.parts()


def client(parts, number, **training):
    data, dealt = parts
    own = (data, dealt.train[number], dealt.test[number])
    return OneClient(number, dealt.m, *own, model=PLAN.model, **(PLAN.training | training))


def remote(**options):
    options = PLAN.training | options
    return RemoteFederation(in_process(PLAN.federation()), PLAN.model, clients=4, **options)


def method(name):
    return pfl_lib.algorithm(name, **HYPER.get(name, {}))


# --------------------------------------------------------------------------------- the same numbers
@pytest.mark.parametrize("name", methods.names())
def test_every_algorithm_computes_the_same_bits_as_in_one_process(parts, name):
    share = {"participation": 0.75} if method(name).partial else {}
    options = {"rounds": 3, "evaluate_every": 3, "progress": False, **share}
    here = pfl_lib.run(method(name), PLAN.federation(), **options)
    far = pfl_lib.run(method(name), remote(), **options)
    assert set(here.state) == set(far.state)
    for tensor in here.state:
        assert torch.equal(here.state[tensor], far.state[tensor]), tensor
    assert (
        here.accuracy == far.accuracy
        and here.loss == far.loss
        and here.extra_models == far.extra_models
    )


def test_clients_that_load_their_own_samples_only_compute_the_same_bits():
    """As in a simulation, where some of the clients take part and some are tested."""
    run = {"algorithm": "ditto", "rounds": 3, "participation": 0.5, "test_clients": [0, 2]}
    plan = replace(PLAN, runs=(run,))
    clients = []
    for number in range(4):
        own = plan.part(number)
        assert len(own[0]) == 30 + 20 and own[-1] == 4
        clients.append(OneClient(number, 4, *own[:-1], plan.model, **plan.training))
    far = RemoteFederation(InProcess(clients), plan.model, clients=4, **plan.training)
    options = plan.options(run) | {"progress": False}
    here, there = (
        pfl_lib.run(plan.method(run), fed, **options) for fed in (plan.federation(), far)
    )
    for tensor in here.state:
        assert torch.equal(here.state[tensor], there.state[tensor]), tensor
    assert here.sent == there.sent and str(here.accuracy) == str(there.accuracy)
    tested = [not math.isnan(value) for value in here.accuracy[-1]]
    assert tested == [True, False, True, False]
    with pytest.raises(ValueError, match=r"partition-id must lie in 0\.\.3, the clients; got 4"):
        plan.part(4)


def test_the_server_knows_sizes_and_shapes_but_no_sample(parts):
    far, near = remote(), PLAN.federation()
    assert torch.equal(far.sizes, near.sizes) and torch.equal(far.initial(), near.initial())
    assert (far.m, far.d, far.layers) == (near.m, near.d, near.layers)
    assert not hasattr(far, "data") and not hasattr(far, "partition")


@pytest.mark.parametrize("name", ["fedavg", "fedamp", "heurfedamp", "fedacs"])
def test_the_wire_carries_what_the_table_counts(parts, name):
    """One model down and one up a client; besides, .npy headers and FedAMP's one number."""
    far = remote()
    history = pfl_lib.run(method(name), far, 2, evaluate_every=2, progress=False)
    sent = sum(t["down"] + t["up"] for t in far.traffic if t["kind"] == "train")
    arrays = 2 * 4 * (3 if "amp" in name else 2)  # rounds × clients × arrays
    numbers = 2 * 4 * 4 if "amp" in name else 0
    assert sent == 4 * history.sent[-1] + arrays * HEADER + numbers


# ------------------------------------------------------------------------------------ lost and back
def by_hand(algorithm, who):
    fed = PLAN.federation()
    state = algorithm.start(fed.at(0))
    for k, clients in enumerate(who):
        state = algorithm.round(state, fed.at(k), torch.tensor(clients))
    return state


@pytest.mark.parametrize("name", ["fedavg", "fedamp", "heurfedamp", "fedacs", "fedala"])
def test_a_client_that_dies_in_a_round_is_a_client_that_stayed_away(parts, name):
    far = remote()
    transport, ask, trips = far.transport, far.transport.ask, []

    def dies_in_round_1(kind, parcels):
        trips.append((kind, sorted(parcels)))
        k = next(iter(parcels.values())).words.get("round")
        if kind == "train":
            transport.silent = {2} if k == 1 else set()
        return ask(kind, parcels)

    transport.ask = dies_in_round_1
    history = pfl_lib.run(method(name), far, 4, evaluate_every=4, broken="drop", progress=False)
    expected = by_hand(method(name), [[0, 1, 2, 3], [0, 1, 3], [0, 1, 3], [0, 1, 2, 3]])
    # in round 2 it is back, but the look at the beginning of the round still found it silent
    for tensor in expected:
        assert torch.equal(expected[tensor], history.state[tensor]), tensor
    lost = [(e["round"], e["client"], e["what"], e["then"]) for e in history.broken]
    assert lost == [(2, 2, "no answer", "dropped"), (3, 2, "no answer", "dropped")]


def test_a_repeated_round_asks_again_only_for_other_work(parts):
    """FedAMP's messages stay as they are; FedACS mixes among those present, so its change."""
    asked = {}
    for name in ("fedamp", "fedacs"):
        far = remote()
        state = pfl_lib.run(method(name), far, 2, evaluate_every=2, progress=False).state
        here = far.at(2)
        far.transport.silent = {3}
        far.traffic.clear()
        with pytest.raises(ClientsLost):
            method(name).round(state, here, far.everyone)
        method(name).round(state, here, torch.tensor([0, 1, 2]))
        asked[name] = [t["clients"] for t in far.traffic]
    assert asked == {"fedamp": [[0, 1, 2, 3]], "fedacs": [[0, 1, 2, 3], [0, 1, 2]]}


def test_absent_clients_are_not_measured(parts):
    far = remote()
    far.transport.silent = {1}
    far.at(0)
    accuracy, loss = far.evaluate(far.initial())
    assert accuracy.isnan().tolist() == loss.isnan().tolist() == [False, True, False, False]


def test_a_lost_client_stops_a_run_that_was_not_told_to_go_on(parts):
    far = remote()
    far.transport.silent = {1}
    with pytest.raises(FloatingPointError, match=r"client 1: not connected.*broken=\"drop\""):
        pfl_lib.run(method("fedavg"), far, 1, progress=False)


TESTED_AFTER_TRAINING = ["fedavg-ft", "fedprox-ft", "fedupdate", "per-fedavg"]


@pytest.mark.parametrize("broken", ["drop", "restore"])
@pytest.mark.parametrize("name", TESTED_AFTER_TRAINING)
def test_a_lost_client_does_not_end_a_test_that_trains(parts, name, broken):
    far, near = remote(), PLAN.federation()
    far.transport.silent = {3}
    history = pfl_lib.run(method(name), far, 1, broken=broken, progress=False)
    expected = by_hand(method(name), [[0, 1, 2]])
    accuracy, _ = near.evaluate(method(name).personal(expected, near))
    assert history.accuracy[0][:3] == accuracy[:3].tolist() and math.isnan(history.accuracy[0][3])
    assert math.isnan(history.extra_models["global"][0][3])
    assert history.last == pytest.approx(accuracy[:3].mean().item())
    noted = [(e["client"], e["what"], e["then"]) for e in history.broken]
    assert noted == [(3, "no answer", "dropped"), (3, "no answer", "not measured")]


def test_a_client_lost_while_it_trains_for_the_test_is_not_measured(parts):
    """It would answer the test itself, but of a model that it never made personal."""
    far = remote()
    ask = far.transport.ask

    def spoils(kind, parcels):
        tag = next(iter(parcels.values())).words.get("tag")
        wrong = {1: Parcel({"rows.w": b""})} if tag == "fine-tune" else {}
        return ask(kind, parcels) | wrong

    far.transport.ask = spoils
    history = pfl_lib.run(method("fedavg-ft"), far, 1, broken="drop", progress=False)
    assert [math.isnan(a) for a in history.accuracy[0]] == [False, True, False, False]
    trips = [t["clients"] for t in far.traffic if t["kind"] == "train"]
    assert trips == [[0, 1, 2, 3]] * 2  # what the others came back with was kept


def test_nobody_left_to_test(parts):
    far = remote()
    ask = far.transport.ask

    def gone_after_training(kind, parcels):
        if next(iter(parcels.values())).words.get("tag") == "fine-tune":
            far.transport.silent = {0, 1, 2, 3}
        return ask(kind, parcels)

    far.transport.ask = gone_after_training
    history = pfl_lib.run(method("fedavg-ft"), far, 1, broken="drop", progress=False)
    assert all(map(math.isnan, history.accuracy[0])) and "nan" in repr(history)


@pytest.mark.parametrize(
    "arrays",
    [{}, {"accuracy": b"\x80\x04\x95"}, {"accuracy": encode(torch.tensor(0.5)), "loss": b""}],
    ids=["nothing", "a pickle", "half of it"],
)
def test_a_refused_test_counts_as_none(parts, arrays):
    far = remote()
    ask = far.transport.ask

    def spoiled(kind, parcels):
        replies = ask(kind, parcels)
        return {**replies, 1: Parcel(arrays, replies[1].words)}

    far.transport.ask = spoiled
    accuracy, loss = far.evaluate(far.initial())
    assert accuracy.isnan().tolist() == loss.isnan().tolist() == [False, True, False, False]
    assert "its reply was refused: array" in far.traffic[-1]["lost"]["1"]
    assert far.transport.notes[-1]["lost"] == far.traffic[-1]["lost"]


def test_a_client_lost_in_the_test_is_not_said_to_diverge(parts):
    far = remote()
    ask = far.transport.ask

    def gone_in_the_test(kind, parcels):
        if kind == "evaluate":
            far.transport.silent = {3}
        return ask(kind, parcels)

    far.transport.ask = gone_in_the_test
    with pytest.raises(FloatingPointError, match="round 1: client 3 was not measured") as caught:
        pfl_lib.run(method("fedavg"), far, 1, progress=False)
    assert "learning rate" not in str(caught.value)


@pytest.mark.parametrize("broken", ["stop", "restore"])
@pytest.mark.parametrize("name", ["spfl", "plga"])
def test_methods_that_need_everybody_say_so_when_one_is_lost(parts, name, broken):
    far = remote()
    far.transport.silent = {1}
    with pytest.raises(FloatingPointError, match=r"client 1: .*; \w+ needs every client") as caught:
        pfl_lib.run(method(name), far, 1, broken=broken, progress=False)
    assert "drop" not in str(caught.value)


# ----------------------------------------------------------------------------- your own models
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_of_ones_own_goes_to_the_clients(parts, dtype):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.Tanh(), nn.Linear(7, 10))
    options = {**PLAN.training, "dtype": dtype}
    near = pfl_lib.Federation(*parts, module, **options)
    far = RemoteFederation(in_process(near), module, clients=4, **options)
    here, there = (pfl_lib.run(method("fedavg"), fed, 2, progress=False) for fed in (near, far))
    assert torch.equal(here.state.x, there.state.x) and here.accuracy == there.accuracy


# ------------------------------------------------------------------------------ refused at the door
def test_numbers_that_cannot_travel(parts):
    options = {**PLAN.training, "dtype": torch.bfloat16}
    transport = in_process(pfl_lib.Federation(*parts, PLAN.model, **options))
    with pytest.raises(ValueError, match=r"dtype must be .*float64, got torch\.bfloat16"):
        RemoteFederation(transport, PLAN.model, clients=4, **options)


def test_too_few_clients(parts):
    transport = InProcess([client(parts, i) for i in (0, 3)])
    with pytest.raises(ConnectionError, match=r"2 of 4 clients said hello.*missing: 1, 2"):
        RemoteFederation(transport, PLAN.model, clients=4, wait=0.1, **PLAN.training)


def test_other_settings_than_the_servers(parts):
    transport = InProcess([client(parts, i, lr=0.05 + (i == 2)) for i in range(4)])
    with pytest.raises(ValueError, match="client 2 has another model or other training settings"):
        RemoteFederation(transport, PLAN.model, clients=4, **PLAN.training)


def test_data_of_another_form(parts):
    transport = InProcess([client(parts, i) for i in range(4)])
    transport.clients[3].hello = lambda: {**OneClient.hello(transport.clients[0]), "classes": 7}
    with pytest.raises(ValueError, match="client 3 says classes = 7 and client 0 10"):
        RemoteFederation(transport, PLAN.model, clients=4, **PLAN.training)


@pytest.mark.parametrize("claim", [None, 0, True, "60", 10**12])
def test_samples_that_nobody_has(claim):
    transport = in_process(PLAN.federation())
    profile = transport.clients[2].hello()
    transport.clients[2].hello = lambda: profile | {"samples": claim}
    with pytest.raises(ValueError, match="samples of client 2 must be a whole number"):
        RemoteFederation(transport, PLAN.model, clients=4, **PLAN.training)


def test_a_number_that_is_no_client(parts):
    data, dealt = parts
    with pytest.raises(ValueError, match=r"number must lie in 0\.\.3, the clients; got 4"):
        OneClient(4, 4, data, dealt.train[0], dealt.test[0], model=PLAN.model)


def careful(**average):
    return {"runs": [{"algorithm": "fedavg", "rounds": 1, **average}]}


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"partition": {"clients": 3}}, "partition must be"),
        ({"partition": {"name": "grupped"}}, "Did you mean 'grouped'"),
        ({"runs": [{"algorithm": "fedamb", "rounds": 1}]}, "Did you mean 'fedamp'"),
        ({"runs": [{"algorithm": "fedavg", "rounds": 0}]}, "rounds must be a whole number"),
        ({"runs": [{"rounds": 1}]}, r"each of runs must be .*got \{'rounds': 1\}"),
        ({"runs": ["fedavg"]}, "each of runs must be .*got 'fedavg'"),
        ({"timeout": -1}, "timeout must be a positive"),
        ({"poll": 2.0, "timeout": 1.0}, r"poll must be at most timeout = 1\.0, got 2\.0"),
        ({"data": "digitz"}, "data must be one of .*Did you mean 'digits'"),
        ({"partition": {"name": "iid", "clientz": 3}}, "partition 'iid' cannot be made: .*client"),
        ({"partition": {"name": "iid", "clients": 0}}, "clients must be a whole number"),
        ({"training": {"lr": math.nan}}, "lr must be"),
        ({"training": {"momentum": 2}}, "momentum must"),
        ({"training": {"metric": "mae"}}, "metric .* must be one of"),
        ({"training": {"engine": "nonsense"}}, "engine must be one of"),
        ({"training": {"chunk": -1}}, "chunk must be a whole number"),
        ({"training": {"keep_memory": 1}}, "keep_memory must be"),
        (
            {"runs": [{"algorithm": "fedavg", "rounds": 1, "participation": 5}]},
            "participation must",
        ),
        (
            {"runs": [{"algorithm": "fedavg", "rounds": 1, "test_clients": [99]}]},
            "test_clients must",
        ),
        (careful(robust="median"), "robust must be a dictionary"),
        (careful(robust={"rule": "medium"}), "rule must be one of .*Did you mean 'median'"),
        (careful(robust={"rules": "median"}), "robust cannot be .*rules"),
        (careful(private={"clip": 1.0}), "private cannot be .*noise"),
        (careful(private={"clip": 1.0, "noise": 1.0, "seed": 3}), "private must .* without a seed"),
        (careful(private={"clip": -1.0, "noise": 1.0}), "clip must be"),
        (careful(private={"clip": 1, "noise": 1}, robust={}), "already has another one .median"),
    ],
)
def test_a_plan_that_cannot_work(wrong, words):
    given = {"data": "digits", "partition": {"name": "iid", "clients": 3}, "model": "mlp"}
    with pytest.raises(ValueError, match=words):
        Plan(**(given | wrong))


@pytest.mark.parametrize("text", [b"\xff", "[" * 100_000, "[1]", "{", '{"data": "digits"}'])
def test_what_is_no_plan(text):
    with pytest.raises(ValueError, match="not a plan"):
        Plan.from_json(text)


def test_options_for_clients_and_parts_are_checked_by_the_server_too():
    with pytest.raises(ValueError, match="engine must be one of"):
        remote(engine="nonsense")
    with pytest.raises(ValueError, match="one tensor for each of 4 clients, got 1"):
        remote().with_part([torch.arange(3)])


NO_TESTS = [(5.0, 0.1), (-3.0, 0.1), (1e30, 0.1), (math.inf, 0.1), (0.5, -7.0), (0.5, -math.inf),
            (math.nan, 0.1), (math.nan, math.inf)]  # fmt: skip


@pytest.mark.parametrize("measured, loss", NO_TESTS)
def test_a_test_that_cannot_be_is_refused(measured, loss):
    """A node that says it is right five times out of one would lift everybody's mean."""
    far = remote()
    honest = far.evaluate(far.initial())
    lie = Parcel({"accuracy": encode(torch.tensor(measured)), "loss": encode(torch.tensor(loss))})
    ask = far.transport.ask

    def lying(kind, parcels):
        replies = ask(kind, parcels)
        if kind != "evaluate":
            return replies
        return {**replies, 1: replace(lie, words=replies[1].words)}

    far.transport.ask = lying
    for told, true in zip(far.evaluate(far.initial()), honest):
        assert torch.isnan(told[1]) and torch.equal(told[[0, 2, 3]], true[[0, 2, 3]])
    assert "no test gives accuracy" in far.traffic[-1]["lost"]["1"]
    history = pfl_lib.run("fedavg", far, 1, broken="drop", progress=False)
    assert {e["client"] for e in history.broken} == {1} and history.last <= 1


@pytest.mark.parametrize(
    "metric, measured, loss, fine",
    [("auc", math.nan, 0.5, True), ("f1", math.nan, 0.5, True), ("accuracy", math.nan, 0.5, False),
     ("accuracy", math.nan, math.nan, True), ("accuracy", 0.1, math.inf, True),
     ("accuracy", 0.1, math.nan, True), ("mae", 7.0, 50.0, True), ("mae", -0.1, 1.0, False),
     ("mae", math.inf, 1.0, False), ("auc", 1.01, 0.0, False), ("accuracy", 1.0, 0.0, True)],
)  # fmt: skip
def test_which_tests_can_be(metric, measured, loss, fine):
    from pfl_lib.flower.federation import _check_measured

    if fine:
        return _check_measured(metric, measured, loss)
    with pytest.raises(ValueError, match=f"no test gives {metric}"):
        _check_measured(metric, measured, loss)


def test_flower_is_missed_in_plain_words(monkeypatch):
    for name in ("flwr", "flwr.app"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "pfl_lib.flower.apps", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'pfl_lib\[flower\]'"):
        importlib.import_module("pfl_lib.flower.apps")


def test_no_network_without_flower(monkeypatch, tmp_path):
    monkeypatch.setattr("pfl_lib.flower.local.BIN", tmp_path)
    with pytest.raises(ImportError, match=r"pip install 'pfl_lib\[flower\]'"):
        LocalNetwork(2).__enter__()


# ------------------------------------------------------------------------------------------ parcels
PLAIN = st.sampled_from([np.float32, np.float64, np.int64, np.bool_])


@given(st_numpy.arrays(PLAIN, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_arrays_come_back_bit_for_bit(array):
    back = decode("a", encode(torch.from_numpy(array)), most=array.size).numpy()
    assert back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == array.tobytes()  # NaN, −0 and infinity included


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


FINE = np.arange(6, dtype=np.float32)
BAD = {
    "a pickle": npy(np.array([{"a": 1}], dtype=object), allow_pickle=True),
    "big-endian": npy(FINE.astype(">f4")),
    "half precision": npy(FINE.astype(np.float16)),
    "text": npy(np.array(["a"])),
    "records": npy(np.zeros(2, dtype=[("a", "f4")])),
    "Fortran order": npy(np.asfortranarray(FINE.reshape(2, 3))),
    "cut short": npy(FINE)[:-1],
    "something behind": npy(FINE) + b"\0",
    "too many": npy(np.zeros(7, dtype=np.float32)),
    "a lie about its size": npy(FINE).replace(b"(6,)", b"(5,)"),
    "a negative size": npy(FINE).replace(b"(6,)", b"(-6,)"),
    "code in the header": npy(FINE).replace(b"(6,)", b"f()"),
    "no array": b"\x80\x04\x95",
    "nothing": b"",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_plain_array_is_refused(data):
    with pytest.raises(ValueError, match="array 'w'"):
        decode("w", data, most=6)


def test_an_array_of_another_shape_or_type_is_refused():
    with pytest.raises(ValueError, match=r"must have shape \(3,\), got \(6,\)"):
        decode("w", npy(FINE), most=6, shape=(3,))
    with pytest.raises(ValueError, match=r"must be torch\.float64, got torch\.float32"):
        decode("w", npy(FINE), most=6, dtype=torch.float64)


def some_work(**options):
    rows = {"w": torch.arange(6.0).view(2, 3), "center": torch.arange(6.0).view(2, 3)}
    rows["strength"] = torch.tensor([0.5, 0.5])
    return Work(
        rows,
        "private descend",
        shared={"mask": torch.ones(3)},
        numbers={"a": 0.1},
        epochs=2,
        tag="x",
        **options,
    )


def test_work_comes_back_as_it_was_and_equal_arrays_travel_once():
    parcel = pack_work(some_work(), 1, k=7)
    assert set(parcel.arrays) == {"rows.w", "rows.strength", "shared.mask"}
    work, round_, part = unpack_work(parcel, 3, torch.float32, most=10, samples=5)
    assert (round_, part) == (7, None)
    assert torch.equal(work.rows["center"], torch.tensor([[3.0, 4.0, 5.0]]))
    assert torch.equal(work.rows["strength"], torch.tensor([0.5]))
    assert torch.equal(work.shared["mask"], torch.ones(3)) and work.numbers == {"a": 0.1}
    assert (work.step, work.epochs, work.steps, work.tag) == ("private descend", 2, None, "x")
    assert work.moves == ("w",)


def test_only_rows_that_changed_come_back():
    parcel = pack_work(some_work(), 0, k=0)
    work, *_ = unpack_work(parcel, 3, torch.float32, most=10, samples=5)
    reply = pack_rows(parcel, {**work.rows, "w": work.rows["w"] + 1})
    assert set(reply.arrays) == {"rows.w"}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"words": {"round": -1}}, "round must be"),
        ({"words": {"round": 0, "evil": 1}}, "a work has no 'evil'"),
        ({"words": {"round": 0, "step": "os.system"}}, "step must be one of"),
        ({"words": {"round": 0, "same.rows.center": "rows.z"}}, "must be the same as an array"),
        ({"words": {"round": 0, "number.a": "1"}}, "number.a must be a number"),
        ({"arrays": {"rows.w": npy(FINE[:4])}}, "the model must be 6 numbers"),
        ({"arrays": {"rows.w": npy(FINE.astype(np.float64))}}, "the model must be 6 numbers"),
        ({"arrays": {}}, "the model must be 6 numbers"),
        ({"arrays": {"w": npy(FINE)}}, "arrays must be called"),
        ({"arrays": {"rows.w": npy(FINE), "part": npy(np.array([5]))}}, "part must hold positions"),
    ],
)
def test_work_that_a_client_refuses(change, words):
    fine = {"arrays": {"rows.w": npy(FINE)}, "words": {"round": 0}}
    with pytest.raises(ValueError, match=words):
        unpack_work(Parcel(**(fine | change)), 6, torch.float32, most=6, samples=5)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"rows.w": npy(FINE)}, "array 'rows.w' must have shape"),
        ({"rows.other": npy(FINE)}, "unexpected array 'rows.other'"),
        ({"w": b"\x80\x04\x95"}, "unexpected array 'w'"),
        ({"rows.w": b"\x80\x04\x95"}, "is not a plain .npy array"),
    ],
    ids=["another size", "another name", "a pickle", "a pickle under the right name"],
)
def test_a_reply_that_the_server_refuses_counts_as_none(parts, arrays, words):
    far = remote()
    ask = far.transport.ask

    def spoiled(kind, parcels):
        replies = ask(kind, parcels)
        return {**replies, 1: Parcel(arrays, replies[1].words)}

    far.transport.ask = spoiled
    with pytest.raises(ClientsLost, match=f"client 1: its reply was refused: .*{words}"):
        pfl_lib.train(far, far.initial(), far.everyone)


def the_reply_before(kept, replies):
    """Client 1 sends again what it sent when it was asked first."""
    kept.setdefault("first", replies[1])
    return {**replies, 1: kept["first"]}


def one_for_another(kept, replies):
    """Client 1 sends what client 0 was asked for."""
    return {**replies, 1: replies[0]}


def without_a_name(kept, replies):
    return {**replies, 1: Parcel(replies[1].arrays)}


@pytest.mark.parametrize("lie", [the_reply_before, one_for_another, without_a_name])
def test_an_answer_to_another_question_is_refused(parts, lie):
    """A reply sent twice, or for somebody else, is as good as none: never a wrong number."""
    far, kept = remote(), {}
    ask = far.transport.ask

    def lying(kind, parcels):
        replies = ask(kind, parcels)
        return lie(kept, replies) if kind == "train" and 1 in replies else replies

    far.transport.ask = lying
    history = pfl_lib.run(method("fedamp"), far, 3, broken="drop", progress=False)
    refused = [e["round"] for e in history.broken if e["client"] == 1]
    assert refused == ([2, 3] if lie is the_reply_before else [1, 2, 3])
    fed = PLAN.federation()
    state = method("fedamp").start(fed.at(0))
    for k in range(3):
        here = [i for i in range(4) if i != 1 or k + 1 not in refused]
        state = method("fedamp").round(state, fed.at(k), torch.tensor(here))
    assert torch.equal(state.w, history.state.w)
    lost = [t["lost"]["1"] for t in far.traffic if t["lost"]]
    assert all("it answers another question" in why for why in lost)


# ---------------------------------------------------------------------------------- a node's worker
def test_a_worker_that_dies_is_replaced_and_those_who_wait_are_told(tmp_path):
    """Five young deaths in a row are the end of the node, which must not try for ever."""
    restarts = tmp_path / "restarts"
    dies = [sys.executable, "-c", "raise SystemExit(7)"]
    code = (
        "import runpy, time\n"
        f"node = runpy.run_path({str(NODE)!r})\n"
        f"node['keep_a_worker']({dies!r}, lost=lambda: open({str(restarts)!r}, 'a').write('x'))\n"
        "time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 1 and restarts.read_text() == "x" * 5
    assert "the worker ended with code 7; starting another" in done.stdout


# -------------------------------------------------------------------------------------- with Flower
flower = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None, reason="Flower lives in .venv-flower: `make flower`"
)


@flower
def test_parcels_become_records_and_back():
    from pfl_lib.flower.apps import from_records, to_records

    parcel = pack_work(some_work(), 0, k=3)
    assert from_records(to_records(parcel)) == parcel


@flower
def test_records_in_another_form_are_refused():
    from flwr.app import Array, ArrayRecord, RecordDict

    from pfl_lib.flower.apps import from_records

    other = Array("float32", (1,), "pickle", b"\x80\x04\x95")
    with pytest.raises(ValueError, match="must be a plain NumPy array, got 'pickle'"):
        from_records(RecordDict({"arrays": ArrayRecord({"w": other})}))


def node_with_work():
    """A node's state with one message that a worker is at, and that message."""
    from flwr.app import Message, RecordDict
    from flwr.supercore.constant import TaskType
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supernode.nodestate import NodeStateFactory
    from flwr.supernode.start_client_internal import _insert_message

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 5, 1
    store = ObjectStoreFactory()
    state = NodeStateFactory(store).state()
    state.set_node_id(5)
    message = Message(RecordDict(), 5, "train")
    _insert_message(message, state, store.store())
    task = state.create_task(task_type=TaskType.CLIENT_APP, run_id=1, fab_hash="")
    state.record_message_processing_start(message.metadata.message_id)
    assert state.claim_task(task) and state.activate_task(task)
    assert len(state.get_messages_legacy(is_reply=False)) == 1
    return state, message


@flower
def test_a_dead_worker_is_an_answer_at_once():
    from pfl_lib.flower.node import give_up_work

    state, message = node_with_work()
    assert not state.get_messages_legacy(is_reply=True)  # Flower would wait for a minute
    give_up_work(state)
    (reply,) = state.get_messages_legacy(is_reply=True)
    assert reply.has_error()
    assert reply.metadata.reply_to_message_id == message.metadata.message_id


@flower
def test_half_a_reply_of_a_dead_worker_is_not_waited_for():
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.supercore.inflatable.inflatable_object import get_object_tree

    from pfl_lib.flower.node import give_up_work

    state, message = node_with_work()
    content = RecordDict({"arrays": ArrayRecord({"w": Array(np.ones(3))})})
    reply = Message(content, reply_to=message)
    reply.metadata.__dict__["_message_id"] = name = reply.object_id
    state.store_message(reply)
    state.object_store.preregister(1, get_object_tree(reply))
    assert state.object_store.get(name) == b""  # the node would wait for what is missing
    give_up_work(state)
    assert state.object_store.get(name) is None


@flower
@pytest.mark.parametrize("ended", [True, False], ids=["run ended", "run goes on"])
def test_half_a_message_of_a_run_that_ended_is_forgotten(ended):
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.supercore.inflatable.inflatable_object import get_object_tree

    from pfl_lib.flower.node import forget_half_messages

    state, earlier = node_with_work()
    content = RecordDict({"arrays": ArrayRecord({"w": Array(np.ones(3))})})
    late = Message(content, 5, "train")
    late.metadata.__dict__["_message_id"] = name = late.object_id

    class Loop:
        """Flower's, when the run ends between a message's announcement and its arrays."""

        @staticmethod
        def _pull_and_store_message(state, object_store, trusted_entities):
            object_store.preregister(1, get_object_tree(late))
            state.store_message(late)
            return None if ended else 1

    forget_half_messages(Loop)
    options = {"state": state, "object_store": state.object_store, "trusted_entities": None}
    assert Loop._pull_and_store_message(**options) == (None if ended else 1)
    assert (name in state.msg_store) is not ended
    assert state.object_store.get(name) == (None if ended else b"")
    assert earlier.metadata.message_id in state.msg_store


@flower
def test_the_rest_of_a_reply_is_waited_for_no_longer_than_the_plan_says():
    from flwr.supercore.inflatable.inflatable_utils import (
        ObjectPullError,
        ObjectUnavailableError,
        pull_objects,
    )

    from pfl_lib.flower.node import shorten_waits

    def never(number):
        raise ObjectUnavailableError(number)

    shorten_waits(at_most=0.3)
    began = time.monotonic()
    with pytest.raises(ObjectPullError):
        pull_objects(["a"], never)
    assert time.monotonic() - began < 3


class Box(dict):
    """A stand-in for Flower's context, and for its app: ``main`` keeps what it is given."""

    run_config = property(dict)

    def main(self):
        return lambda function: self.setdefault("main", function)


def served(runs, out, monkeypatch, silent=()):
    """Run a plan as the ServerApp does, with the clients in this process; what it wrote."""
    from pfl_lib.flower import apps

    plan = Plan(PLAN.data, PLAN.partition, PLAN.model, PLAN.training, runs)
    transport, app = in_process(PLAN.federation()), Box()
    ask = transport.ask

    def falls_silent(kind, parcels):
        transport.silent = set(silent) if kind == "evaluate" else set()
        return ask(kind, parcels)

    transport.ask = falls_silent
    monkeypatch.setattr(apps, "GridTransport", lambda *_, **__: transport)
    monkeypatch.setattr(apps, "ServerApp", lambda: app)
    apps.server_app()
    try:
        app["main"](None, Box(plan=plan.to_json(), out=str(out)))
    finally:
        written = json.loads((out / "record.json").read_text())
    return written


@flower
@pytest.mark.parametrize("name", ["spfl", "fedavg-sync", "fedasync", "lga", "plga"])
def test_a_plan_may_name_methods_that_need_everybody(name, tmp_path, monkeypatch):
    runs = ({"algorithm": name, "rounds": 1}, {"algorithm": "fedavg", "rounds": 1})
    record = served(runs, tmp_path, monkeypatch)
    assert [one["run"]["algorithm"] for one in record["runs"]] == [name, "fedavg"]
    assert "error" not in record


@flower
def test_a_run_that_fails_does_not_take_the_others_along(tmp_path, monkeypatch):
    runs = ({"algorithm": "fedavg", "rounds": 1}, {"algorithm": "spfl", "rounds": 1})
    with pytest.raises(FloatingPointError, match="client 2"):
        served(runs, tmp_path, monkeypatch, silent={2})
    record = json.loads((tmp_path / "record.json").read_text())
    assert [one["run"]["algorithm"] for one in record["runs"]] == ["fedavg"]
    assert "client 2" in record["error"]


@flower
def test_a_plan_may_ask_for_a_careful_average(tmp_path, monkeypatch):
    """The median is that of ``robust``; the noise is another one each time."""
    runs = tuple(
        {"algorithm": "fedrep", "rounds": 2, "head_epochs": 1, **average}
        for average in (
            {},
            {"robust": {"rule": "median"}},
            {"private": {"clip": 1.0, "noise": 1.0}},
        )
    )
    record = served(runs, tmp_path / "one", monkeypatch)
    assert [one["history"]["label"] for one in record["runs"]] == [
        "FedRep", "FedRep, median", "FedRep, private"]  # fmt: skip
    median = pfl_lib.run(PLAN.method(runs[1]), PLAN.federation(), 2, progress=False).state.x
    served(runs, tmp_path / "two", monkeypatch)
    files = [tmp_path / out / one["state"] for out in ("one", "two") for one in record["runs"]]
    x = [load_file(file)["x"] for file in files]
    assert torch.equal(x[1], median)
    assert torch.equal(x[0], x[3]) and torch.equal(x[1], x[4]) and not torch.equal(x[2], x[5])


@pytest.mark.parametrize("kind", [PrivateUploads, PrivateSamples])
def test_noise_that_the_server_could_take_off_again_is_refused(kind):
    with pytest.raises(ValueError, match="fed must be in this process: of remote clients"):
        kind(Masked(remote()))


class Cut(BaseException):
    """What ends the server's program in the middle of a round."""


@flower
def test_a_plan_that_is_sent_again_goes_on_where_it_was_cut(tmp_path, monkeypatch):
    runs = ({"algorithm": "fedamp", "rounds": 4, "self_weight": 0.2},)
    whole = served(runs, tmp_path / "whole", monkeypatch)
    asked, perform = [], RemoteFederation.perform

    def cut(self, work, who):
        asked.append(self.k)
        if len(asked) == 3:
            raise Cut
        return perform(self, work, who)

    monkeypatch.setattr(RemoteFederation, "perform", cut)
    with pytest.raises(Cut):
        served(runs, tmp_path / "cut", monkeypatch)
    again = served(runs, tmp_path / "cut", monkeypatch)
    assert asked == [0, 1, 2, 2, 3]  # two rounds were not done again
    assert again["runs"][0]["history"]["accuracy"] == whole["runs"][0]["history"]["accuracy"]
    name = whole["runs"][0]["state"]
    ours, theirs = load_file(tmp_path / "cut" / name), load_file(tmp_path / "whole" / name)
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)


@flower
def test_a_reply_of_another_node_is_refused():
    """Whoever answers for somebody else is not heard, and neither is a hello by proxy."""
    from flwr.app import Error, Message
    from flwr.supercore.task_identity import TaskIdentity

    from pfl_lib.flower.apps import GridTransport, to_records

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    class Grid:
        """Node 7 answers as ``source``."""

        source, error = 7, None

        def get_node_ids(self):
            return [7]

        def push_messages(self, messages):
            self.pushed = []
            for number, m in enumerate(messages):
                m.metadata.__dict__["_message_id"] = f"question {number}"
                content = self.error or to_records(Parcel(words={"client": 0}))
                reply = Message(content, reply_to=m)
                reply.metadata.__dict__["_src_node_id"] = self.source
                self.pushed.append(reply)

        def pull_messages(self, numbers):
            here, self.pushed = self.pushed, []
            return here

    grid = Grid()
    transport = GridTransport(grid, timeout=5, poll=0.01)
    assert transport.connect(1, seconds=5) == {0: {"client": 0}}
    assert isinstance(transport.ask("train", {0: Parcel()})[0], Parcel)
    grid.source = 8
    assert transport.ask("train", {0: Parcel()}) == {
        0: "its reply was refused: it came from node 8"
    }
    grid.error = Error(5, "gone")  # made up by the SuperLink, in its own name
    assert transport.ask("train", {0: Parcel()}) == {0: "error 5: gone"}
    grid.error = None
    assert GridTransport(grid, timeout=1, poll=0.01).connect(1, seconds=0.1) == {}


@flower
def test_two_real_processes_agree_with_run(tmp_path):
    two = {"name": "iid", "clients": 2}
    runs = ({"algorithm": "fedamp", "rounds": 1, "self_weight": 0.2},)
    plan = Plan("digits", two, "logistic_regression", PLAN.training, runs, timeout=300.0, wait=400)
    with LocalNetwork(2, database=True) as network:
        record = network.wait(network.submit(plan, tmp_path), tmp_path)
        assert network.processor_seconds() > 1  # three imports of torch
        assert (network.home / "superlink.db").exists()
    here = pfl_lib.run(plan.method(runs[0]), plan.federation(), 1, progress=False)
    assert here.accuracy == record["runs"][0]["history"]["accuracy"]
    assert network.forced == []


@pytest.mark.parametrize(
    "status, dead",
    [("pending", False), ("starting", False), ("running", True), ("finished:failed", True)],
)
def test_a_server_that_is_dead_is_not_waited_for(tmp_path, monkeypatch, status, dead):
    said = {"list": json.dumps({"runs": [{"status": status}]}), "log": "out of memory"}
    network = LocalNetwork(2, simulation=True)
    monkeypatch.setattr(network, "flwr", lambda what, *_: said[what])
    monkeypatch.setattr(network, "log", lambda name: "nothing")
    network.processes["link"] = subprocess.Popen(["sleep", "60"])  # without children
    try:
        if dead:
            with pytest.raises(RuntimeError, match=r"ended without a result.*out of memory"):
                network.wait("7", tmp_path, seconds=60)
        else:  # it may still begin
            with pytest.raises(RuntimeError, match="run 7 did not end"):
                network.wait("7", tmp_path, seconds=0.1)
    finally:
        network.processes["link"].kill()
        network.processes["link"].wait()
    with pytest.raises(RuntimeError, match="the SuperLink has ended"):
        network.wait("7", tmp_path, seconds=60)


def test_a_server_that_lives_is_waited_for(tmp_path, monkeypatch):
    network = LocalNetwork(2, simulation=True)
    monkeypatch.setattr(network, "flwr", lambda *_: pytest.fail("nobody need be asked"))
    monkeypatch.setattr(network, "log", lambda name: "nothing")
    command = ["bash", "-c", "(exec -a flwr-simulation sleep 60) & wait"]
    with subprocess.Popen(command, start_new_session=True) as link:
        network.processes["link"] = link
        try:
            while not network._serving():
                time.sleep(0.01)
            with pytest.raises(RuntimeError, match="run 7 did not end"):
                network.wait("7", tmp_path, seconds=0.1)
        finally:
            os.killpg(link.pid, signal.SIGKILL)


@pytest.mark.parametrize("text", ["{", "[1]", '{"nothing": 1}'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(ValueError, match="not a plan"):
        Plan.from_json(text)
