"""Run algorithms over Flower on this machine and write what was measured to results/flower.

    python -m devtools.flower PARTS [--isolate]

Parts: simulation, network, stock, size, many, worker, death, tls, stranger, or "all" of them.

`make flower` calls it in .venv-flower, an environment of its own: Flower asks for other versions of
some packages than the book's tools do. Every process listens on 127.0.0.1 only, with telemetry off.
`--isolate` (Linux; root, or where users may make namespaces) goes further and leaves this process
and its children no network but the loopback. It is not needed, it is for the careful.
"""

import argparse
import ctypes
import fcntl
import importlib.metadata
import json
import os
import platform
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

import pfl_lib
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


def plan(runs, **how):
    """Three clients in two hidden groups, 60 digits each."""
    return Plan(
        "digits",
        {
            "name": "grouped",
            "group_classes": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
            "group_clients": [2, CLIENTS - 2],
            "group_sizes": [60, 60],
            "test_size": 40,
        },
        "mlp",
        {"lr": 0.05, "batch_size": 20, "epochs": 2, "engine": "loop"},
        runs,
        **how,
    )


def many(clients):
    """As many clients with 60 digits each, in one round of two methods."""
    groups = [clients // 2, clients - clients // 2]
    fewer = [{**one, "rounds": 2} for one in RUNS[:2]]
    the_plan = plan(tuple(fewer), **PATIENT)
    return replace(the_plan, partition={**the_plan.partition, "group_clients": groups})


def isolate():
    """No network but the loopback, for this process and all it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_net, up = 0x10000000, 0x40000000, 0x41
    if libc.unshare(new_net) and libc.unshare(new_user | new_net):
        raise OSError(ctypes.get_errno(), "this machine does not let us make a network namespace")
    with socket.socket() as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", up))


def largest_difference(ours, theirs):
    """Between two states, over all their tensors."""
    if set(ours) != set(theirs):
        raise ValueError(f"states must hold the same tensors: {sorted(ours)}, {sorted(theirs)}")
    return max((ours[n].double() - theirs[n].double()).abs().max().item() for n in ours)


def measure(the_plan, clients=CLIENTS, **how):
    """The plan's methods, by Flower and by ``run``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as out, LocalNetwork(clients, **how) as network:
        number = network.submit(the_plan, out)
        record = network.wait(number, out, seconds=3000)
        told = None if how.get("simulation") else network.bytes_of(number)
        states = [load_file(Path(out) / one["state"]) for one in record["runs"]]
    fed, rows = the_plan.federation(), []
    for one, state in zip(record["runs"], states, strict=True):
        rows.append(row(the_plan, fed, one, state))
    return {
        "rows": rows,
        "superlink bytes": told,
        "meeting": record["meeting"],
        "seconds": round(time.monotonic() - began, 1),
        "ended by force": len(network.forced),
        "parameters": fed.d,
        "clients": fed.m,
        **machine(),
    }


def row(the_plan, fed, one, state):
    """One method: does it agree, what was sent, how long did it take."""
    method, rounds = the_plan.method(one["run"]), one["run"]["rounds"]
    for _ in range(2):  # the first time torch loads what it needs; the second is timed
        began = time.monotonic()
        here = pfl_lib.run(method, fed, rounds, evaluate_every=rounds, progress=False)
        alone = time.monotonic() - began
    work = [t for t in one["traffic"] if t["kind"] == "train"]
    return {
        "method": method.label,
        "rounds": rounds,
        "largest difference": largest_difference(here.state, state),
        "same accuracy": here.accuracy == one["history"]["accuracy"],
        "accuracy": here.last,
        "counted bytes": 4 * here.sent[-1],
        "down": sum(t["down"] for t in work),
        "up": sum(t["up"] for t in work),
        "exchanges": len(work),
        "seconds an exchange": [t["seconds"] for t in work],
        "seconds": one["seconds"],
        "seconds in one process": round(alone, 3),
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


def worker(victim=1, rounds=4):
    """Kill the worker of a SuperNode, not the node, in the middle of a round."""
    runs = ({"algorithm": "fedamp", "rounds": rounds, "self_weight": 0.2},)
    the_plan = plan(runs, timeout=20.0, wait=400.0)
    with tempfile.TemporaryDirectory() as out, LocalNetwork(CLIENTS) as network:
        number = network.submit(the_plan, out)
        wait_for(out, lambda e: e.get("asked") == "train" and e["round"] == 1)
        network.kill_worker(victim)
        record = network.wait(number, out, seconds=900)
        one = record["runs"][0]
        state = load_file(Path(out) / one["state"])
        left = network.workers()
    who = took_part(one, rounds)
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


def took_part(one, rounds):
    """Who answered in each round; a repeated round asks nobody twice, so the union is it."""
    answered = {}
    for t in one["traffic"]:
        if t["kind"] == "train":
            gone = {int(i) for i in t["lost"]}
            answered.setdefault(t["round"], set()).update(set(t["clients"]) - gone)
    return [sorted(answered[k]) for k in range(rounds)]


def death(victim=1, round_=1, rounds=4):
    """Kill a SuperNode in the middle of a round, start it again, and see what became of the run."""
    the_plan = plan(({"algorithm": "fedamp", "rounds": rounds, "self_weight": 0.2},), timeout=90.0)
    story = []

    with tempfile.TemporaryDirectory() as out, LocalNetwork(CLIENTS) as network:
        number = network.submit(the_plan, out)
        began = time.monotonic()
        wait_for(out, lambda e: e.get("asked") == "train" and e["round"] == round_)
        network.kill_node(victim)
        story.append(["killed", round(time.monotonic() - began, 1)])
        wait_for(out, lambda e: e.get("answered") == "train" and e["lost"])
        story.append(["missed", round(time.monotonic() - began, 1)])
        network.start_node(victim)
        story.append(["started again", round(time.monotonic() - began, 1)])
        record = network.wait(number, out, seconds=1500)
        story.append(["end", round(time.monotonic() - began, 1)])
        one = record["runs"][0]
        state = load_file(Path(out) / one["state"])
    who = took_part(one, rounds)
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


def wait_for(out, wanted, seconds=900):
    """Wait until the server notes something that is ``wanted``."""
    events, end = Path(out) / "events.jsonl", time.monotonic() + seconds
    while time.monotonic() < end:
        lines = events.read_text().splitlines() if events.exists() else []
        if any(wanted(json.loads(line)) for line in lines if line.endswith("}")):
            return
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
            plain = speaks_plainly(network.port)
        state = load_file(Path(out) / record["runs"][0]["state"])
        fed = the_plan.federation()
        return {
            "agreement": row(the_plan, fed, record["runs"][0], state),
            "seconds": round(time.monotonic() - began, 1),
            "answers without encryption": plain,
            **machine(),
        }


def make_keys(folder, nodes):
    """A certificate authority, a certificate for 127.0.0.1, and one key pair a node."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    (folder / "ext").write_text(
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n"
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
    """A node with a key that nobody registered knocks at an encrypted SuperLink."""
    with tempfile.TemporaryDirectory() as keys:
        make_keys(Path(keys), 1)
        with LocalNetwork(1, tls=keys) as network:  # whose node 0 is registered
            network.kill_node(0)
            make_node_key(Path(keys), 0)  # another key for node 0: now it is a stranger
            network.start_node(0)
            code = network.processes["node0"].wait(200)
            said = [line for line in network.log("node0").splitlines() if "code" in line.lower()]
    return {"exit code": code, "said": [line.strip() for line in said], **machine()}


def speaks_plainly(port):
    """Does the SuperLink answer a question that is not encrypted?"""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            return one.recv(100).startswith(b"HTTP/")
        except OSError:
            return False


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
    "stock": lambda: measure(plan(RUNS[:1], **PATIENT), resident=False),
    "size": size,
    "many": lambda: measure(many(20), clients=20),
    "worker": worker,
    "death": death,
    "tls": tls,
    "stranger": stranger,
}


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
        text = json.dumps(PARTS[name](), indent=1) + "\n"
        atomic_write(RESULTS / f"{name}.json", lambda side, text=text: side.write_text(text))
        print(text)


if __name__ == "__main__":
    main()
