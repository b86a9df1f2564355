"""The long tests, each in a process of its own; what they measured goes to results/soak.

    python -m tests.soak.soak [kills] [fuzz] [api] [disk] [cnn] [logistic]
                                [resnet_threads] [resnet_stacked] [endure_fedavg]
                                [endure_fedamp] [endure_fedala]  (all by default)

They take two hours on two cores.  Each stops with an error if what it is for does not hold.
"""

import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import pfl_lib
from pfl_lib import Federation, algorithm, partition, run
from pfl_lib.data.dataset import Dataset
from pfl_lib.local import federation
from tests.support.paths import ROOT

RESULTS = ROOT / "results" / "soak"
MEGABYTE = 2**20


# ------------------------------------------------------------------------------- killed, fuzzed
def kills():
    """Four random kills and one inside a checkpoint's writing for every algorithm."""
    with tempfile.TemporaryDirectory() as room:
        found = script("tests.support.killing", room, "4")
    wrong = {t["name"]: t["wrong"] for t in found if t["wrong"]}
    assert not wrong, wrong
    return {
        "algorithms": len(found),
        "kills": sum(t["kills"] for t in found),
        "inside a checkpoint's writing": sum(t["in writing"] for t in found),
        "results that differed": len(wrong),
    }


def fuzz():
    """3,400 files for each of six readers."""
    return script("tests.support.fuzzing", "3400", "11")


def api():
    """Hostile values for every argument of every public callable."""
    found = script("tests.support.api_fuzz")
    assert not found["wrong"], found["wrong"]
    return found


def endure(name):
    found = script("tests.support.enduring", name)
    assert not found["differs from the run in peace"], found
    assert found["kills"] > 0 and found["growth"] <= 0.02, found
    return found


def endure_fedavg():
    """500 clients in each of 500 rounds of FedAvg, in peace and killed again and again."""
    return endure("fedavg")


def endure_fedamp():
    """500 clients in each of 500 rounds of FedAMP, in peace and killed again and again."""
    return endure("fedamp")


def endure_fedala():
    """500 clients in each of 500 rounds of FedALA, in peace and killed again and again."""
    return endure("fedala")


def script(*command):
    command = [sys.executable, "-m", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def disk():
    """A disk that is really full: a file system of one megabyte (root only)."""
    with tempfile.TemporaryDirectory() as room:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", room]
        if subprocess.run(mount, capture_output=True).returncode:
            return {"left out": "mounting a file system needs root"}
        try:
            data = pfl_lib.data.load("digits")
            fed = Federation(data, partition.iid(data, 10), "logistic_regression", device="cpu")
            options = {"checkpoint": room, "progress": False}
            method = algorithm("fedamp", self_weight=0.3)
            run(method, fed, 3, **options)
            filler = Path(room) / "filler"
            with contextlib.suppress(OSError):  # full now
                filler.write_bytes(bytes(MEGABYTE))
            try:
                run(method, fed, 6, **options)
            except OSError as error:
                message = str(error).replace(room, "FOLDER")
            assert "No space left" in message and "round-000003" in message, message
            filler.unlink()
            resumed = run(method, fed, 6, **options)
            whole = run(method, fed, 6, progress=False)
            assert torch.equal(resumed.state.w, whole.state.w) and resumed.loss == whole.loss
            left = sorted(path.name for path in Path(room).iterdir())
            assert len(left) == 4, left
        finally:
            subprocess.run(["umount", room], check=True)
    return {"said": message, "afterwards": "bit-identical to the run on a disk with room"}


# ------------------------------------------------------------------------------------------ load
class Watched(Federation):
    """A federation that writes down how much memory is in use when a round begins."""

    def at(self, round_):
        self.seen.append(round(in_use() / MEGABYTE))
        return super().at(round_)


def in_use():
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def load(method, fed, rounds, flat_after, **options):
    """Run, and see that memory does not grow after the first ``flat_after`` rounds."""
    fed.seen = []
    began = time.perf_counter()
    history = run(method, fed, rounds, progress=False, **options)
    seconds = time.perf_counter() - began
    seen = fed.seen[1:]  # the first is for the start
    early, late = max(seen[: flat_after + 1]), max(seen[flat_after:])
    found = {
        "method": method.label,
        "clients": fed.m,
        "parameters": fed.d,
        "rounds": rounds,
        "engine": fed.plan().split(" on ")[0],
        "accuracy": round(history.last, 4),
        "seconds": round(seconds, 1),
        "MiB at the start of rounds": seen[:: max(1, rounds // 20)],
        "MiB at most, first rounds": early,
        "MiB at most, all others": late,
        "MiB at most, ever": round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
        ),
    }
    assert late <= 1.1 * early + 50, found
    return found


def cnn():
    """500 clients, a tenth of them in each of 200 rounds, FedALA's CNN (`fedala_cnn`)."""
    data = pfl_lib.data.load("mnist5k")
    fed = Watched(data, partition.iid(data, 500), "fedala_cnn", lr=0.05, batch_size=8)
    return load(algorithm("fedavg"), fed, 200, 10, participation=0.1, evaluate_every=50)


def logistic():
    """1,000 clients of a logistic regression, all of them in every round, with attention."""
    data = pfl_lib.data.load("mnist5k")
    fed = Watched(data, partition.iid(data, 1000), "logistic_regression", lr=0.05)
    return load(algorithm("fedamp", self_weight=0.3), fed, 50, 5, evaluate_every=10)


def resnet_threads():
    """ResNet-18 with 20 clients on a machine of 8 GiB, one client at a time on each core."""
    return resnet("threads")


def resnet_stacked():
    """ResNet-18 with 20 clients on a machine of 8 GiB, in stacks of as many as fit."""
    return resnet("stacked")


def resnet(engine, machine=8 * 1024 * MEGABYTE):
    n, side = 20 * 40, 32
    x = torch.randint(0, 256, (n, 3, side, side), generator=torch.Generator().manual_seed(0))
    names = tuple("0123456789")
    data = Dataset("noise", x.byte(), torch.arange(n) % 10, 600, names, "image", (0.5,) * 3,
                   (0.25,) * 3)  # fmt: skip
    # what such a machine would tell the engine that asks how much is free
    federation.free_memory = lambda device: machine - in_use()
    fed = Watched(data, partition.iid(data, 20), "resnet18", batch_size=16, engine=engine)
    found = load(algorithm("fedamp", self_weight=0.3), fed, 3, 1)
    assert found["MiB at most, ever"] * MEGABYTE < machine, found
    return found


PARTS = (kills, fuzz, api, disk, cnn, logistic, resnet_threads, resnet_stacked, endure_fedavg,
         endure_fedamp, endure_fedala)  # fmt: skip
ALL = {f.__name__: f for f in PARTS}


def main(names):
    wrong = [name for name in names if name not in ALL]
    if wrong:
        sys.exit(f"soak.py: no {', '.join(wrong)}; there are {', '.join(ALL)}")
    if len(names) == 1:
        found = ALL[names[0]]()
        about = {"what": ALL[names[0]].__doc__, "version": pfl_lib.__version__}
        about |= {"torch": torch.__version__, "python": platform.python_version()}
        about |= {"processors": os.cpu_count(), "threads": torch.get_num_threads()}
        RESULTS.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**about, "measured": found}, indent=1, ensure_ascii=False)
        (RESULTS / f"{names[0]}.json").write_text(text + "\n")
        print(f"{names[0]}: {json.dumps(found, ensure_ascii=False)}", flush=True)
        return
    for name in names or ALL:
        subprocess.run([sys.executable, "-m", "tests.soak.soak", name], cwd=ROOT, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
