"""What do more clients, more parameters, more participants cost?  `make scale` calls this.

Each point is measured in a process of its own: seconds to build the federation, seconds of a round,
and the most memory that was its own at a time (beyond what the library and its data take).  Mapped
files are not counted: the system can take their pages back whenever it needs them.  Results go to
results/benchmarks/scale.json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import pfl_lib
from pfl_lib.book.experiments.measuring import processor
from pfl_lib.formulas import attention_weights, mix

ROUNDS, SAMPLES, TESTED = 3, 20, 100


def points(quick=False):
    """What is measured: by clients, by parameters, by participation, and FedAMP's server step."""
    by_ten = [100, 1_000] if quick else [100, 1_000, 10_000, 100_000]
    for m in by_ten:
        yield {"by": "clients", "method": "fedavg", "clients": m, "participants": 100}
        yield {
            "by": "clients", "method": "ditto", "clients": m, "participants": 100, "disk": True
        }  # fmt: skip
        if m <= 10_000:  # beyond, personal models in memory would be gigabytes
            yield {"by": "clients", "method": "ditto", "clients": m, "participants": 100}
    for hidden in [10, 100] if quick else [10, 100, 1_000, 5_000]:
        for method in ("fedavg", "fedamp"):
            yield {"by": "parameters", "method": method, "clients": 20, "hidden": hidden}
    for taking in [10, 100] if quick else [10, 30, 100, 300, 1_000]:
        for method in ("fedavg", "ditto"):
            yield {
                "by": "participants", "method": method, "clients": 1_000, "participants": taking
            }  # fmt: skip
    for m in [100, 500] if quick else [100, 300, 1_000, 2_000, 5_000]:
        yield {"by": "server step", "method": "fedamp", "clients": m}


# ---- in the child --------------------------------------------------------------------------------


class Watch:
    """The most memory of its own that this process holds inside a ``with``, in MB."""

    def __enter__(self):
        self.before = self.peak = own_memory()
        self.going, self.thread = True, threading.Thread(target=self.sample, daemon=True)
        self.thread.start()
        return self

    def sample(self):
        while self.going:
            self.peak = max(self.peak, own_memory())
            time.sleep(0.002)

    def __exit__(self, *_):
        self.going = False
        self.thread.join()

    @property
    def more(self):
        return round(self.peak - self.before, 1)


def own_memory():
    """Memory that no file stands behind, in MB (Linux); elsewhere the most it ever had."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


def measured(point):
    """One point."""
    if point["by"] == "server step":
        return server_step(point)
    data, clients = pfl_lib.data.load("mnist5k"), point["clients"]
    draw = torch.Generator().manual_seed(0)
    # neighbours in a drawn order: no client holds a sample twice
    first = torch.randint(data.n_train, (clients, 1), generator=draw)
    order = torch.randperm(data.n_train, generator=draw)
    train = order[(first + torch.arange(SAMPLES)) % data.n_train]
    test = torch.arange(data.n_train, data.n_train + 10)
    taking = point.get("participants", clients)
    model = "logistic_regression"
    if "hidden" in point:
        model = pfl_lib.models.mlp(784, 10, hidden=(point["hidden"],))
    warm_up(data, model)
    with Watch() as watch, tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        parts = pfl_lib.partition.Partition("drawn", tuple(train), (test,) * clients)
        fed = pfl_lib.Federation(data, parts, model, batch_size=10, device="cpu")
        built = time.perf_counter() - began
        hyper = {"self_weight": 0.2} if point["method"] == "fedamp" else {}
        method = pfl_lib.algorithm(point["method"], **hyper)
        history = pfl_lib.run(
            method, fed, ROUNDS, participation=taking / clients, evaluate_every=ROUNDS,
            test_clients=range(min(TESTED, clients)), progress=False,
            state_folder=folder if point.get("disk") else None,
        )  # fmt: skip
        whole = time.perf_counter() - began
    found = {"parameters": fed.d, "build": built, "round": history.seconds[-1] / ROUNDS}
    found |= {"start, test and rest": whole - built - history.seconds[-1], "memory MB": watch.more}
    return point | {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}


def warm_up(data, model):
    """What torch and the library take once and for all is not the point's."""
    few = pfl_lib.partition.iid(data, clients=2)
    fed = pfl_lib.Federation(data, few, model, device="cpu")
    pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 1, progress=False)


def server_step(point):
    m, d = point["clients"], 7850
    w = 0.01 * torch.randn(m, d, generator=torch.Generator().manual_seed(0))
    attention = pfl_lib.attention.negative_exponential(sigma=1.0)
    mix(attention_weights(w[:10], attention, 0.2), w[:10])
    with Watch() as watch:
        began = time.perf_counter()
        mix(attention_weights(w, attention, 0.2), w)
        took = time.perf_counter() - began
    models = round(w.numel() * 4 / 2**20, 1)
    found = {"parameters": d, "round": round(took, 4), "memory MB": watch.more}
    return point | found | {"models MB": models}


# ---- all of them ---------------------------------------------------------------------------------


def in_a_child(point):
    done = subprocess.run(
        [sys.executable, __file__, "--point", json.dumps(point)], capture_output=True, text=True
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        return point | {"failed": why[-300:]}
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="few and small points")
    parser.add_argument("--only", default="", help="points whose words hold this text")
    parser.add_argument("--point", help="measure this one, here")
    parser.add_argument("--save", default="")
    args = parser.parse_args()
    if args.point:
        print(json.dumps(measured(json.loads(args.point))))
        return
    rows = []
    for point in points(args.quick):
        if args.only in json.dumps(point):
            rows.append(in_a_child(point) | {"load": round(os.getloadavg()[0], 1)})
            print(json.dumps(rows[-1]), flush=True)
    record = {
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "command": "make scale" if not args.quick else "scale.py --quick",
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "library": pfl_lib.__version__,
        "rounds": ROUNDS,
        "samples per client": SAMPLES,
        "rows": rows,
    }
    if args.save:
        path = Path(args.save)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
