"""500 clients for 500 rounds, once in peace and once killed again and again.

    python -m tests.support.enduring METHOD             the whole story, told as JSON at the end
    python -m tests.support.enduring METHOD FOLDER RESULT [MEMORY]    one run, resumed from FOLDER

Every run is a process of its own.  The kills are SIGKILLs at random moments, and each process goes
on from the checkpoint that the one before left.  Memory is looked at in the run in peace.
"""

import dataclasses
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

import pfl_lib
from pfl_lib import Federation, algorithm, partition, run
from tests.support.killing import difference

CLIENTS, ROUNDS, TESTS = 500, 500, 50
SETTLED = 2 * TESTS  # until then everything that a run does has happened twice, tests included
BETWEEN_KILLS = (0.2, 0.4)  # of the time that the run in peace took
MOST_KILLS = 12
METHODS = {
    "fedavg": {},
    "fedamp": {"self_weight": 0.3},
    "fedala": {"max_epochs": 3, "window": 2},
}
SMALL = {"fedamp", "fedala"}  # they cost 5 and 10 times as much as FedAvg: pictures of 7 × 7 pixels


class Watched(Federation):
    """A federation that writes down how much memory is in use when a round begins."""

    def at(self, k):
        self.seen.append(int(Path("/proc/self/statm").read_text().split()[1]))
        return super().at(k)


def federation(name):
    """500 clients with eight training pictures each."""
    data = pfl_lib.data.load("mnist5k")
    if name in SMALL:
        x = torch.nn.functional.avg_pool2d(data.x.float(), 4).round().to(data.x.dtype)
        data = dataclasses.replace(data, x=x)
    clients = partition.iid(data, CLIENTS)
    fed = Watched(data, clients, "logistic_regression", lr=0.05, batch_size=8, device="cpu")
    fed.seen = []
    return fed


def one_run(name, folder, result, memory=None):
    """Run to the end, from the checkpoint if there is one, and write what came out."""
    fed = federation(name)
    history = run(
        algorithm(name, **METHODS[name]),
        fed,
        ROUNDS,
        evaluate_every=TESTS,
        checkpoint=folder,
        checkpoint_every=5,
        progress=False,
    )
    save_file(
        {k: t.clone().contiguous() for k, t in history.state.items()}, f"{result}.safetensors"
    )
    history.save(f"{result}.json")
    if memory:
        page = resource.getpagesize()
        Path(memory).write_text(json.dumps([pages * page for pages in fed.seen[1:]]))


def started(*arguments):
    command = [sys.executable, "-m", "tests.support.enduring", *map(str, arguments)]
    return subprocess.Popen(command)


def story(name):
    """In peace, then killed; what was seen."""
    chance = random.Random(name)
    with tempfile.TemporaryDirectory() as room:
        room = Path(room)
        began = time.monotonic()
        peace = started(name, room / "calm", room / "peace", room / "memory")
        assert peace.wait() == 0, f"{name} does not run in peace"
        calm, kills = time.monotonic() - began, []
        while True:
            child = started(name, room / "checkpoints", room / "killed")
            patience = calm * chance.uniform(*BETWEEN_KILLS) if len(kills) < MOST_KILLS else None
            try:
                code = child.wait(patience)
                assert code == 0, f"{name} did not go on after a kill: {code}"
                break
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)  # not yet waited for: the number is this child's
                child.wait()
                kills.append(patience)
        memory = json.loads((room / "memory").read_text())
        record = json.loads((room / "peace.json").read_text())
        early, late = max(memory[:SETTLED]), max(memory[SETTLED:])
        return {
            "method": name,
            "clients": CLIENTS,
            "rounds": ROUNDS,
            "parameters": federation(name).d,
            "seconds in peace": round(calm),
            "kills": len(kills),
            "seconds to each kill": [round(seconds) for seconds in kills],
            "differs from the run in peace": difference(room / "peace", room / "killed"),
            f"MiB at most, rounds 1 to {SETTLED}": round(early / 2**20, 1),
            f"MiB at most, rounds {SETTLED + 1} to {ROUNDS}": round(late / 2**20, 1),
            "MiB every 25 rounds": [round(m / 2**20, 1) for m in memory[::25]],
            "growth": round(late / early - 1, 4),
            "accuracy": round(sum(record["accuracy"][-1]) / CLIENTS, 4),
        }


def main(name, *rest):
    if rest:
        one_run(name, *rest)
    else:
        print(json.dumps(story(name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
