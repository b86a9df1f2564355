"""Runs that get killed: a process imports torch once, forks the runs, and kills them with SIGKILL.

    python -m tests.support.killing FOLDER KILLS [NAMES]

For each algorithm: one run in peace; then KILLS runs killed at random moments and one killed inside
the writing of a checkpoint, each going on from where the one before was killed; then one to the
end.  Prints what happened as JSON.  `tests/test_kill.py` reads it, and so does `make soak`.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import pfl_lib
from pfl_lib import Federation, checkpoints, methods, partition, run
from tests.support.runs import quick_method

ROUNDS = 5
MOMENTS = 12  # a checkpoint's writing can be interrupted in so many places, see ``doomed``


def forked(work, *arguments):
    """Start ``work`` in a child process that shares all that is imported; its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work(*arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(pid):
    """Wait; how the child ended: 0, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def doomed(moment, work, *arguments):
    """Do ``work``, and die by SIGKILL at that moment of writing checkpoints."""
    left = moment

    def tick():
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(function):
        return lambda *a, **k: (tick(), function(*a, **k))[1]

    def in_the_middle(write, content):
        """Die before a byte is written, or half-way."""

        def writing(*a, **k):
            tick()
            done = write(*a, **k)
            path = content(*a)
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            tick()
            path.write_bytes(whole)
            return done

        return writing

    checkpoints.save_file = in_the_middle(checkpoints.save_file, lambda tensors, side: side)
    Path.write_text = in_the_middle(Path.write_text, lambda side, text: side)
    Path.unlink = before(Path.unlink)
    os.fsync, os.replace = before(os.fsync), before(os.replace)
    work(*arguments)


def finish(name, fed, folder, result):
    """Run to the end, from the checkpoint if there is one, and write what came out."""
    method = quick_method(name)
    history = run(
        method,
        fed,
        ROUNDS,
        participation=0.5 if method.partial else 1,
        checkpoint=folder,
        progress=False,
    )
    tensors = {key: t.clone().contiguous() for key, t in history.state.items()}
    save_file(tensors, f"{result}.safetensors")
    history.save(f"{result}.json")


def difference(one, other):
    """What differs between two written results, in words; time may."""
    a, b = (json.loads(Path(f"{r}.json").read_text()) for r in (one, other))
    found = [key for key in a if key != "seconds" and a[key] != b[key]]
    a, b = (load_file(f"{r}.safetensors") for r in (one, other))
    return found + [key for key in {*a, *b} if not torch.equal(a[key], b[key])]


def trial(name, fed, room, kills, chance, number):
    """One algorithm's story."""
    folder = room / "checkpoints"
    began = time.perf_counter()
    if ended(forked(finish, name, fed, None, room / "peace")) != 0:
        return {"name": name, "wrong": ["does not run in peace"], "kills": 0}
    lasts = time.perf_counter() - began
    killed = 0
    for _ in range(kills):
        pid = forked(finish, name, fed, folder, room / "early")
        time.sleep(chance.uniform(0, lasts))
        os.kill(pid, signal.SIGKILL)  # not yet waited for, so the number is still this child's
        killed += ended(pid) == -signal.SIGKILL
    if (folder / f"round-{ROUNDS:06d}.json").exists():  # the last kill left nothing to write
        shutil.rmtree(folder)  # with the half-written part that a kill may leave beside the record
        folder.mkdir()
    moment = 2 * MOMENTS + number % MOMENTS if not folder.exists() else number % MOMENTS
    in_writing = ended(forked(doomed, moment, finish, name, fed, folder, room / "early"))
    if ended(forked(finish, name, fed, folder, room / "killed")) != 0:
        return {"name": name, "wrong": ["does not resume"], "kills": killed}
    left = sorted(path.name for path in folder.iterdir())
    kept = [f"round-{k:06d}.{end}" for k in (ROUNDS - 1, ROUNDS) for end in ("json", "safetensors")]
    wrong = difference(room / "peace", room / "killed")
    wrong += [] if left == kept else [f"left behind: {left}"]
    died = in_writing == -signal.SIGKILL
    return {"name": name, "wrong": wrong, "kills": killed + died, "in writing": int(died)}


def main(folder, kills, names=None):
    torch.set_num_threads(1)
    data = pfl_lib.data.load("digits")
    clients = partition.scarce(partition.iid(data, clients=4), samples=12)
    fed = Federation(data, clients, "mlp", lr=0.05, batch_size=6, device="cpu")
    for name in (
        "fedavg",
        "fedala",
    ):  # so that what torch imports late is not imported again and again
        run(quick_method(name), fed, 2, progress=False)
    chance, records = random.Random(0), []
    for number, name in enumerate(names.split(",") if names else methods.names()):
        room = Path(folder) / name
        room.mkdir(parents=True)
        records.append(trial(name, fed, room, int(kills), chance, number))
    print(json.dumps(records))


if __name__ == "__main__":
    main(*sys.argv[1:])
