"""Cables that fail, where this machine lets us make network namespaces; and the lying app."""

import os
import subprocess
import sys

import pytest
import torch

import pfl_lib
from devtools import cables
from pfl_lib.flower import RemoteFederation, in_process
from pfl_lib.flower.messages import Parcel, encode
from tests.support.paths import ROOT

TALK = """
import socket, sys, threading, time
from devtools.cables import CENTRE, Cables

def send(size):
    with socket.create_connection((CENTRE, 9000), timeout=20) as one:
        one.sendall(bytes(size))
        one.shutdown(socket.SHUT_WR)
        return one.recv(20)

def answer(door):
    while True:
        one, _ = door.accept()
        size = 0
        while part := one.recv(65536):
            size += len(part)
        one.sendall(str(size).encode())
        one.close()

with Cables(2) as (near, far):
    door = socket.create_server((CENTRE, 9000))
    threading.Thread(target=answer, args=(door,), daemon=True).start()
    assert near.do(send, 300_000) == b"300000" and far.do(send, 10) == b"10"
    near.cable.set(loss=0.1, delay=0.005, twice=0.1)
    assert near.do(send, 300_000) == b"300000"
    assert near.cable.lost > 0 < near.cable.repeated and far.cable.lost == 0
    near.pull_the_plug()
    try:
        near.do(send, 10)
        raise AssertionError("a message over a pulled cable")
    except OSError:
        pass
    assert far.do(send, 10) == b"10"
    near.plug_in()
    near.cable.set()
    assert near.do(send, 10) == b"10"
print("done")
"""


def may_make_namespaces():
    try_it = "from devtools import cables; cables.Cables(1)"
    done = subprocess.run([sys.executable, "-c", try_it], cwd=ROOT, capture_output=True)
    return done.returncode == 0


def test_packets_are_lost_and_repeated_and_a_pulled_cable_carries_nothing():
    if not may_make_namespaces():
        pytest.skip("this machine does not let us make network namespaces and TUN devices")
    done = subprocess.run([sys.executable, "-c", TALK], cwd=ROOT, capture_output=True, text=True,
                          timeout=60)  # fmt: skip
    assert done.stdout == "done\n", done.stderr


def test_a_cable_loses_as_often_as_it_says_and_the_same_packets_again():
    cable = cables.Cable(loss=0.3, twice=0.1, delay=0.02)
    fates = [cable.fate() for _ in range(2000)]
    assert 500 < cable.lost < 700 and cable.lost == fates.count([])
    assert 100 < cable.repeated < 180 and cable.repeated == sum(len(f) == 2 for f in fates)
    assert all(0.02 <= fate[0] <= 0.03 for fate in fates if fate)
    again = cables.Cable(loss=0.3, twice=0.1, delay=0.02)
    assert [again.fate() for _ in range(2000)] == fates


def test_every_lie_of_the_lying_app_is_another_one(monkeypatch):
    pytest.importorskip("flwr")
    monkeypatch.syspath_prepend(os.fspath(ROOT / "devtools" / "lying_app"))
    import lying_app

    from devtools.flower import LIES

    assert len(lying_app.LIES) == LIES
    lying_app.before["reply"] = Parcel({"rows.w": encode(torch.ones(3))})
    honest = Parcel({"rows.w": encode(torch.zeros(3))}, {"answers": "this"})
    lies = [lying_app.spoil(lie, Parcel(), honest) for lie in lying_app.LIES]
    assert all(lie != honest for lie in lies[:-1])  # the last one is spoiled on its way
    assert len({str(lie) for lie in lies}) == LIES


@pytest.mark.parametrize("number", [0, 1])
def test_the_lying_app_lies_on_its_tests_and_is_not_believed(monkeypatch, number):
    pytest.importorskip("flwr")
    monkeypatch.syspath_prepend(os.fspath(ROOT / "devtools" / "lying_app"))
    import lying_app

    fed = pfl_lib.example()
    far = RemoteFederation(in_process(fed), clients=fed.m, lr=0.1)
    ask = far.transport.ask

    def lying(kind, parcels):
        replies = ask(kind, parcels)
        return {**replies, 1: lying_app.spoil_test(lying_app.OF_TESTS[number], replies[1])}

    far.transport.ask = lying
    accuracy, loss = far.evaluate(far.initial())
    assert accuracy.isnan().tolist() == loss.isnan().tolist() == [i == 1 for i in range(fed.m)]
    assert "no test gives accuracy" in far.traffic[-1]["lost"]["1"]
