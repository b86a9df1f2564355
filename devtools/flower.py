"""Run algorithms over Flower on this machine and write what was measured to results/flower.

    python -m devtools.flower PARTS [--isolate]

Parts: simulation, network, stock, size, many, crowd, worker, death, tls, stranger, cables, secagg,
or "all" of them.

`make flower` calls it in .venv-flower, an environment of its own: Flower asks for other versions of
some packages than the book's tools do. Every process listens on 127.0.0.1 only, with telemetry off.
`--isolate` (Linux; root, or where users may make namespaces) goes further and leaves this process
and its children no network but the loopback. It is not needed, it is for the careful; the part
`cables` does it anyway, as its machines have addresses of their own (`devtools/cables.py`).
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import pfl_lib
from devtools.cables import CENTRE, Cables, isolate
from pfl_lib.checkpoints import atomic_write
from pfl_lib.flower import LocalNetwork, Plan
from pfl_lib.flower.local import is_alive

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "flower"
CLIENTS = 3
PATIENT = {"timeout": 300.0, "wait": 400.0}
RUNS = (
    {"algorithm": "fedavg", "rounds": 2},
    {"algorithm": "fedamp", "rounds": 2, "self_weight": 0.2},
    {"algorithm": "heurfedamp", "rounds": 2, "self_weight": 0.2},
    {"algorithm": "fedacs", "rounds": 2},
    {"algorithm": "fedala", "rounds": 2, "window": 2, "max_epochs": 3},
)


def plan(runs, clients=CLIENTS, **options):
    """Clients in two hidden groups, 60 digits each."""
    first = (clients + 1) // 2
    return Plan(
        "digits",
        {
            "name": "grouped",
            "group_classes": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
            "group_clients": [first, clients - first],
            "group_sizes": [60, 60],
            "test_size": 40,
        },
        "mlp",
        {"lr": 0.05, "batch_size": 20, "epochs": 2, "engine": "loop"},
        runs,
        **options,
    )


def many(clients):
    """As many clients with 60 digits each, in two rounds of two methods."""
    return plan(RUNS[:2], clients, **PATIENT)


def crowd(taking=20):
    """Simulated clients by the thousand, five digits each, of whom a few take part in a round; the
    same in one process ends in the same numbers.

    Stored after each size: the largest may take longer than one waits for.
    """
    os.environ.setdefault("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", str(500 * 10**6))
    found = {}
    for clients in (100, 1_000, 10_000):
        dealt = {"name": "grouped", "group_clients": clients // 5, "group_sizes": 5, "test_size": 1}
        run = {"algorithm": "fedavg", "rounds": 3, "participation": taking / clients}
        the_plan = Plan(
            "mnist", dealt, "logistic_regression", {"lr": 0.05, "batch_size": 5, "engine": "loop"},
            ({**run, "test_clients": list(range(taking))},), timeout=3000.0, wait=3000.0,
        )  # fmt: skip
        found[clients] = measure(the_plan, clients, simulation=True)
        store("crowd", {"taking part": taking, "by clients": found})
    return {"taking part": taking, "by clients": found}


def largest_difference(ours, theirs):
    """Between two states, over all their tensors."""
    if set(ours) != set(theirs):
        raise ValueError(f"states must hold the same tensors: {sorted(ours)}, {sorted(theirs)}")
    return max((ours[n].double() - theirs[n].double()).abs().max().item() for n in ours)


def measure(the_plan, clients=CLIENTS, **options):
    """The plan's methods, by Flower and by ``run``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as out, LocalNetwork(clients, **options) as network:
        number = network.submit(the_plan, out)
        wait_for(network, out, lambda e: e.get("asked") == "train", the_plan.wait + 900)
        load = os.getloadavg()[0]
        meter = Meter(network, out, the_plan)
        record = network.wait(number, out, seconds=3000)
        each, memory = meter.end(), network.memory()
        superlink_bytes = None if options.get("simulation") else network.bytes_of(number)
        exchanges = [len(one["traffic"]) for one in record["runs"]]  # tests are exchanges too
        states = [load_file(Path(out) / one["state"]) for one in record["runs"]]
    fed, rows = the_plan.federation(), []
    for one, state, used, count in zip(record["runs"], states, each, exchanges, strict=True):
        rows.append(row(the_plan, fed, one, state))
        rows[-1]["processor seconds an exchange"] = round(used / count, 3)
        alone = rows[-1]["processor seconds in one process"]
        rows[-1]["processor seconds an exchange in one process"] = round(alone / count, 5)
    return {
        "rows": rows,
        "superlink bytes": superlink_bytes,
        "processor seconds an exchange": round(sum(each) / sum(exchanges), 3),
        "load at the first round": round(load, 1),
        "memory MB": round(memory / 1e6),
        "meeting": record["meeting"],
        "seconds": round(time.monotonic() - began, 1),
        "ended by force": len(network.forced),
        "parameters": fed.d,
        "clients": fed.m,
        **machine(),
    }


class Meter(threading.Thread):
    """The processor seconds of all of a network's processes, by the plan's runs."""

    def __init__(self, network, out, the_plan):
        super().__init__(daemon=True)
        self.network, self.stopped = network, threading.Event()
        names = (f"{k}-{run['algorithm']}.safetensors" for k, run in enumerate(the_plan.runs))
        self.ends = [Path(out) / name for name in names]  # written when a run is over
        self.seen = [network.processor_seconds()]
        self.start()

    def run(self):
        while len(self.seen) < len(self.ends) and not self.stopped.wait(0.05):
            if self.ends[len(self.seen) - 1].exists():
                self.seen.append(self.network.processor_seconds())

    def end(self):
        """What each run has used; runs that ended between two looks share what they used."""
        self.stopped.set()
        self.join()
        last = self.network.processor_seconds()
        seen = [*self.seen, *[last] * (len(self.ends) + 1 - len(self.seen))]
        return [after - before for before, after in itertools.pairwise(seen)]


def row(the_plan, fed, one, state):
    """One method: does it agree, what was sent, how long did it take."""
    method, rounds = the_plan.method(one["run"]), one["run"]["rounds"]
    for _ in range(2):  # the first time torch loads what it needs; the second is timed
        began, used = time.monotonic(), time.process_time()
        here = pfl_lib.run(method, fed, **the_plan.options(one["run"]), progress=False)
        alone, used = time.monotonic() - began, time.process_time() - used
    work = [t for t in one["traffic"] if t["kind"] == "train"]
    return {
        "method": method.label,
        "rounds": rounds,
        "largest difference": largest_difference(here.state, state),
        # as text: whoever was not asked for a test has NaN, which differs from itself
        "same accuracy": json.dumps(here.accuracy) == json.dumps(one["history"]["accuracy"]),
        "accuracy": here.last,
        "counted bytes": 4 * here.sent[-1],
        "down": sum(t["down"] for t in work),
        "up": sum(t["up"] for t in work),
        "exchanges": len(work),
        "seconds an exchange": [t["seconds"] for t in work],
        "seconds": one["seconds"],
        "seconds in one process": round(alone, 3),
        "processor seconds in one process": round(used, 4),
        "lost": [t["lost"] for t in work if t["lost"]],
    }


def size():
    """The same exchange with a small model and with one of eleven million numbers."""
    runs, found = ({"algorithm": "fedavg", "rounds": 3},), {}
    for model in ("mlp", "resnet18"):
        # one step on one batch: what is measured is the way there and back
        the_plan = replace(plan(runs, **PATIENT), model=model)
        the_plan.training.update(batch_size=60, epochs=1)
        found[model] = measure(the_plan)
    small, large = found["mlp"], found["resnet18"]
    over = {}
    for model, one in found.items():
        row = one["rows"][0]
        training = row["seconds in one process"] / row["rounds"]
        over[model] = statistics.median(row["seconds an exchange"]) - training
    millions = (large["parameters"] - small["parameters"]) / 1e6
    per_million = (over["resnet18"] - over["mlp"]) / millions
    return {"models": found, "over": over, "seconds per million": round(per_million, 3)}


def stock():
    """Flower's own nodes, and ours beside them: whatever the machine does, it does it to both."""
    the_plan = plan(({"algorithm": "fedavg", "rounds": 3},), **PATIENT)
    found, beside = measure(the_plan, resident=False), measure(the_plan)
    times = [statistics.median(one["rows"][0]["seconds an exchange"]) for one in (found, beside)]
    return {**found, "beside": beside, "times as long": round(times[0] / times[1], 1)}


def worker(victim=1, rounds=4):
    """Kill the worker of a SuperNode, not the node, in the middle of a round."""
    runs = ({"algorithm": "fedamp", "rounds": rounds, "self_weight": 0.2},)
    the_plan = plan(runs, timeout=20.0, wait=400.0)
    with tempfile.TemporaryDirectory() as out, LocalNetwork(CLIENTS) as network:
        number = network.submit(the_plan, out)
        wait_for(network, out, lambda e: e.get("asked") == "train" and e["round"] == 1)
        network.kill_worker(victim)
        record = network.wait(number, out, seconds=900)
        one = record["runs"][0]
        state = load_file(Path(out) / one["state"])
        left, who = network.workers(), took_part(out, rounds, one)
    assert victim in who[3], f"the worker did not come back within two rounds: {who}"
    return {
        "victim": victim,
        "who": who,
        "lost": [t["lost"] for t in one["traffic"] if t["lost"]],
        "seconds a round": [t["seconds"] for t in one["traffic"] if t["kind"] == "train"],
        "largest difference": largest_difference(by_hand(the_plan, who), state),
        "workers at the end": len(left),
        "alive after the nodes": sum(map(is_alive, left)),
        **machine(),
    }


def took_part(out, rounds, one):
    """Who took part in each round: answered, and not with a model that was thrown away.

    A repeated round asks nobody twice, so whoever answered at some time did.
    """
    answered = {}
    for line in (Path(out) / "events.jsonl").read_text().splitlines():
        t = json.loads(line)
        if t.get("answered") == "train":
            gone = {int(i) for i in t["lost"]}
            answered.setdefault(t["round"], set()).update(set(t["clients"]) - gone)
    for entry in one["history"]["broken"]:
        if entry["then"] != "not measured":  # a test that failed after a round that did not
            answered[entry["round"] - 1].discard(entry["client"])
    return [sorted(answered[k]) for k in range(rounds)]


def death(victim=1, round_=1, rounds=4):
    """Kill a SuperNode in the middle of a round, start it again, and see what became of the run."""
    the_plan = plan(({"algorithm": "fedamp", "rounds": rounds, "self_weight": 0.2},), timeout=90.0)
    story = []

    with tempfile.TemporaryDirectory() as out, LocalNetwork(CLIENTS) as network:
        number = network.submit(the_plan, out)
        began = time.monotonic()
        wait_for(network, out, lambda e: e.get("asked") == "train" and e["round"] == round_)
        network.kill_node(victim)
        story.append(["killed", round(time.monotonic() - began, 1)])
        wait_for(network, out, lambda e: e.get("answered") == "train" and e["lost"])
        story.append(["missed", round(time.monotonic() - began, 1)])
        network.start_node(victim)
        story.append(["started again", round(time.monotonic() - began, 1)])
        record = network.wait(number, out, seconds=1500)
        story.append(["end", round(time.monotonic() - began, 1)])
        one = record["runs"][0]
        state = load_file(Path(out) / one["state"])
        who = took_part(out, rounds, one)
    return {
        "victim": victim,
        "killed in round": round_,
        "who": who,
        "lost": [t["lost"] for t in one["traffic"] if t["lost"]],
        "seconds a round": [t["seconds"] for t in one["traffic"] if t["kind"] == "train"],
        "broken": one["history"]["broken"],
        "largest difference": largest_difference(by_hand(the_plan, who), state),
        "story": story,
        **machine(),
    }


def by_hand(the_plan, who):
    """The same method in one process, with these clients in each round."""
    fed, method = the_plan.federation(), the_plan.method(the_plan.runs[0])
    state = method.start(fed.at(0))
    for k, clients in enumerate(who):
        state = method.round(state, fed.at(k), torch.tensor(clients))
    return state


def wait_for(network, out, wanted, seconds=900):
    """Wait until the server of the newest run notes something that is ``wanted``."""
    events, end = Path(out) / "events.jsonl", time.monotonic() + seconds
    while time.monotonic() < end:
        over = (Path(out) / "record.json").exists()  # looked for first: nothing is noted after it
        lines = events.read_text().splitlines() if events.exists() else []
        if any(wanted(json.loads(line)) for line in lines if line.endswith("}")):
            return
        if over:
            error = json.loads((Path(out) / "record.json").read_text()).get("error", "")
            raise RuntimeError(f"the run ended before what was waited for. {error}".rstrip())
        network.check(network.newest, out)
        time.sleep(0.05)
    raise TimeoutError("the run never came to the point that was waited for")


def tls():
    """Two registered nodes, everything encrypted."""
    two = {"name": "iid", "clients": 2}
    the_plan = Plan("digits", two, "mlp", plan(()).training, RUNS[:1], timeout=300.0, wait=400.0)
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as keys:
        make_keys(Path(keys), 2)
        began = time.monotonic()
        with LocalNetwork(2, tls=keys) as network:
            number = network.submit(the_plan, out)
            record = network.wait(number, out, seconds=1500)
            plain = answers_unencrypted(network.port)
        state = load_file(Path(out) / record["runs"][0]["state"])
        fed = the_plan.federation()
        return {
            "agreement": row(the_plan, fed, record["runs"][0], state),
            "seconds": round(time.monotonic() - began, 1),
            "answers without encryption": plain,
            **machine(),
        }


def make_keys(folder, nodes):
    """A certificate authority, a certificate for the SuperLink, and one key pair per node."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    (folder / "ext").write_text(
        f"subjectAltName=IP:127.0.0.1,IP:{CENTRE},DNS:localhost\nbasicConstraints=CA:FALSE\n"
        "extendedKeyUsage=serverAuth\n"
    )
    ca = ["openssl", "req", "-x509", *curve, "-days", "30", "-keyout", "ca.key", "-out", "ca.crt"]
    ca += ["-subj", "/CN=our own authority", "-addext", "basicConstraints=critical,CA:TRUE"]
    ca += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    ask = ["openssl", "req", "-new", *curve, "-keyout", "server.key", "-out", "server.csr"]
    sign = ["openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key"]
    sign += ["-CAcreateserial", "-days", "30", "-extfile", "ext", "-out", "server.crt"]
    for command in (ca, [*ask, "-subj", "/CN=localhost"], sign):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    for i in range(nodes):
        make_node_key(folder, i)


def make_node_key(folder, i):
    """A key pair for node ``i``, in place of the one it may have."""
    for name in (f"node{i}", f"node{i}.pub"):
        (folder / name).unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", ""]
    subprocess.run([*command, "-f", f"node{i}"], cwd=folder, check=True)


def stranger():
    """A node with a key that nobody registered tries to join an encrypted SuperLink."""
    with tempfile.TemporaryDirectory() as keys:
        make_keys(Path(keys), 1)
        with LocalNetwork(1, tls=keys) as network:  # whose node 0 is registered
            network.kill_node(0)
            make_node_key(Path(keys), 0)  # another key for node 0: now it is a stranger
            network.start_node(0)
            code = network.processes["node0"].wait(200)
            lines = [line for line in network.log("node0").splitlines() if "code" in line.lower()]
    return {"exit code": code, "said": [line.strip() for line in lines], **machine()}


# ---------------------------------------------------------------------------- secure aggregation
SECAGG = Path(__file__).parent / "secagg_app"


def secagg(clients=5, rounds=2):
    """FedAvg by Flower's SecAgg+, over real nodes; what it changes, and what the server saw."""
    the_plan = plan(({"algorithm": "fedavg", "rounds": rounds},), clients, **PATIENT)
    with tempfile.TemporaryDirectory() as out, LocalNetwork(clients) as network:
        began = time.monotonic()
        record = network.wait(network.submit(the_plan, out, app=SECAGG), out, seconds=1500)
        seconds = time.monotonic() - began
        seen = load_file(Path(out) / "seen.safetensors")
        model, masked = seen["model"], seen["masked"].double().numpy()
    if len(masked) != clients * rounds:
        raise AssertionError(f"{len(masked)} masked vectors came, not {clients * rounds}")
    fed = the_plan.federation()
    here = pfl_lib.run(the_plan.method(the_plan.runs[0]), fed, rounds, progress=False)
    there = fed.evaluate(model.float().expand(fed.m, -1))[0]
    single = pfl_lib.train(fed.at(0), fed.initial(), fed.everyone).numpy()
    like = [abs(np.corrcoef(one, sent)[0, 1]) for one in single for sent in masked[:clients]]
    return {
        "clients": clients,
        "rounds": rounds,
        "largest difference": largest_difference({"x": here.state.x}, {"x": model}),
        "largest number of the model": here.state.x.abs().max().item(),
        "accuracy": here.last,
        "accuracy under secure aggregation": there.mean().item(),
        "masked vectors": len(masked),
        "plain arrays that the server saw": record["plain arrays that came"],
        "largest correlation of a masked vector with a model": max(like),
        "chance": 4 / fed.d**0.5,  # of independent vectors, hardly ever more
        "parameters": fed.d,
        "seconds": round(seconds, 1),
        **machine(),
    }


def answers_unencrypted(port, address="127.0.0.1"):
    """Does the SuperLink answer a question that is not encrypted?"""
    with socket.create_connection((address, port), timeout=5) as one:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            return one.recv(100).startswith(b"HTTP/")
        except OSError:
            return False


# ------------------------------------------------------------------------------ cables that fail
FIVE = 5
LYING = Path(__file__).parent / "lying_app"
HALF_DONE = ROOT / "_build" / "cables.jsonl"
LIES = 8  # that its client tells, one a round; two more are about its tests


class Apart(LocalNetwork):
    """A network whose nodes are on machines of their own, each at the end of a cable."""

    address = CENTRE

    def __init__(self, machines, **options):
        super().__init__(FIVE, **options)
        self.machines = machines

    def _spawn(self, name, command):
        if not name.startswith("node"):
            return super()._spawn(name, command)
        return self.machines[int(name[4:])].do(super()._spawn, name, command)


def cables():
    """Five machines and a stranger; everything encrypted, keys registered; what can fail, fails.

    Each row is stored as soon as it is there; one that an interrupted attempt left is kept.
    """
    before = rows_so_far()
    with Cables(FIVE + 1) as machines, tempfile.TemporaryDirectory() as keys:
        make_keys(Path(keys), FIVE + 1)
        with Apart(machines, tls=keys, database=True) as network:
            rows = [before.get(one[0]) or tried(network, *one) for one in SCENARIOS]
            knocked = knock(network, machines[FIVE])
    HALF_DONE.unlink(missing_ok=True)
    return {"rows": rows, "stranger": knocked, "ended by force": len(network.forced),
            "clients": FIVE, "addresses": [CENTRE, *(m.address for m in machines[:FIVE])],
            "how packets are lost": "by devtools/cables.py, between two TUN devices per cable",
            **machine()}  # fmt: skip


def rows_so_far():
    lines = HALF_DONE.read_text().splitlines() if HALF_DONE.exists() else []
    return {row["what"]: row for row in map(json.loads, lines)}


def tried(network, what, everybody, rounds, timeout, act, app=None):
    """One run of FedAMP while something fails; it must end, and in the right numbers."""
    runs = ({"algorithm": "fedamp", "rounds": rounds, "self_weight": 0.2},)
    the_plan, before = plan(runs, FIVE, timeout=timeout, wait=300.0), counts(network)
    bound = the_plan.wait + 2 * rounds * timeout  # work and tests, each at most as long as it may
    with tempfile.TemporaryDirectory() as out:
        began = time.monotonic()
        number = network.submit(the_plan, out, **({"app": app} if app else {}))
        number = act(network, the_plan, out) or number
        record = network.wait(number, out, seconds=bound)
        seconds = time.monotonic() - began
        for one in network.machines:
            one.cable.set()
        one = record["runs"][0]
        state = load_file(Path(out) / one["state"])
        who = took_part(out, rounds, one)
    row = {
        "what": what,
        "rounds": rounds,
        "who": who,
        "absences": sum(FIVE - len(clients) for clients in who),
        "reasons": sorted({why for t in one["traffic"] for why in t["lost"].values()}
                          | {in_full(b["what"]) for b in one["history"]["broken"]}),
        "largest difference": largest_difference(by_hand(the_plan, who), state),
        "timeout": timeout,
        "seconds": round(seconds, 1),
        "seconds at most": bound,
        "packets": {k: v - before[k] for k, v in counts(network).items()},
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    if row["largest difference"] != 0:
        raise AssertionError(f"a wrong number: {row}")
    if everybody is not None and everybody != (row["absences"] == 0):
        raise AssertionError(f"other clients took part than should have: {row}")
    HALF_DONE.parent.mkdir(exist_ok=True)
    with open(HALF_DONE, "a") as file:
        print(json.dumps(row), file=file)
    return row


def in_full(what):
    """What was wrong; of rows that were not finite a history keeps only the name."""
    return what if " " in what else f"not finite: {what}"


def counts(network):
    """Packets so far, over all cables."""
    names = ("carried", "lost", "repeated")
    return {n: sum(getattr(m.cable, n) for m in network.machines) for n in names}


def is_training(round_):
    return lambda e: e.get("asked") == "train" and e["round"] == round_


def calm(network, the_plan, out):
    """Nothing fails."""


def bad_line(network, the_plan, out):
    for one in network.machines:
        one.cable.set(loss=0.05, delay=0.03, twice=0.05)


def short_cut(network, the_plan, out):
    """One cable carries nothing for eight seconds, in the middle of a round."""
    wait_for(network, out, is_training(1))
    network.machines[1].cable.set(loss=1.0)
    time.sleep(8)
    network.machines[1].cable.set()


def cut(network, the_plan, out):
    """One cable is pulled in the middle of a round, and put back when its client was missed."""
    wait_for(network, out, is_training(1))
    network.machines[1].pull_the_plug()
    try:
        wait_for(network, out, lambda e: e.get("answered") == "train" and "1" in e["lost"])
    finally:
        network.machines[1].plug_in()


def slow(network, the_plan, out):
    """One client takes eight seconds longer than the others."""
    wait_for(network, out, is_training(1))
    network.kill_worker(2, signal.SIGSTOP)
    time.sleep(8)
    network.kill_worker(2, signal.SIGCONT)


def too_slow(network, the_plan, out):
    """One client is so slow that its reply comes when nobody waits for it any more."""
    wait_for(network, out, is_training(1))
    network.kill_worker(2, signal.SIGSTOP)
    try:
        wait_for(network, out, lambda e: e.get("answered") == "train" and "2" in e["lost"])
    finally:
        network.kill_worker(2, signal.SIGCONT)


def link_dies(network, the_plan, out):
    """The SuperLink is killed, with the server's program; it comes back, the plan is sent again."""
    wait_for(network, out, is_training(2))
    network.kill_link()
    time.sleep(5)
    network.start_link()
    return network.submit(the_plan, out)


SCENARIOS = (
    ("nothing fails", True, 3, 120.0, calm),
    ("5 % of packets lost, 5 % repeated, 30 to 45 ms each way", True, 3, 120.0, bad_line),
    ("a cable silent for 8 s in the middle of a round", True, 4, 120.0, short_cut),
    ("a cable pulled in the middle of a round, put back later", False, 8, 30.0, cut),
    ("a node 8 s slower than the others", True, 3, 120.0, slow),
    ("a node slower than the server's patience", False, 6, 30.0, too_slow),
    (f"a node that tells {LIES + 2} different lies", False, LIES + 2, 60.0, calm, LYING),
    ("the SuperLink killed in the middle of a round, and started again", True, 5, 120.0, link_dies),
)


def knock(network, place):
    """A machine whose key nobody registered; and a question without encryption."""
    network.node_ports.append(network.node_ports[0])
    network.start_node(FIVE)
    code = network.processes.pop(f"node{FIVE}").wait(200)
    lines = [line.strip() for line in network.log(f"node{FIVE}").splitlines() if "[code" in line]
    plain = place.do(answers_unencrypted, network.port, CENTRE)
    if code == 0 or plain:
        raise AssertionError(f"a stranger was let in: {code}, {plain}")
    return {"exit code": code, "said": lines, "answers without encryption": plain}


def machine():
    """What it was run with."""
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "flwr": importlib.metadata.version("flwr"),
        "pfl_lib": pfl_lib.__version__,
    }


PARTS = {
    "simulation": lambda: measure(plan(RUNS, **PATIENT), simulation=True),
    "network": lambda: measure(plan(RUNS, **PATIENT)),
    "stock": stock,
    "size": size,
    "many": lambda: measure(many(20), clients=20),
    "crowd": crowd,
    "worker": worker,
    "death": death,
    "tls": tls,
    "stranger": stranger,
    "cables": cables,
    "secagg": secagg,
}


def store(name, found):
    """Write what a part found beside the command that measures it; the text."""
    found = {"command": f"make flower PARTS={name}", **found}
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    atomic_write(RESULTS / f"{name}.json", lambda side: side.write_text(text))
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "all"])
    parser.add_argument("--isolate", action="store_true", help="no network but the loopback")
    given = parser.parse_args()
    if given.isolate:
        isolate()
    torch.set_num_threads(1)  # as in the processes that are compared with
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in PARTS if "all" in given.parts else given.parts:
        print(f"== {name}", flush=True)
        try:
            print(store(name, PARTS[name]()))
        except PermissionError as error:
            if "all" not in given.parts:
                raise
            print(f"{name} is left out: {error}")


if __name__ == "__main__":
    main()
