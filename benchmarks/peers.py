"""What the library is measured against, each in a process of its own.

* ``UsualWay``: for each client a DataLoader, a module, an optimiser, a loop, one client after the
  other, as federated libraries in PyTorch do it, written plainly;
* ``PFLlib``: that library's own client, from a checkout that the variable PFLLIB names;
* ``Tried``: the library itself with something changed, to show what pays and what does not.

A process of its own, since ``pfl_lib`` tells the C library to keep freed memory, which would help
the others too.  ``python peers.py WAY WORKLOAD`` does the work for a turn for every line it
reads, and answers with the seconds and the seconds of processor time it took.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

import pfl_lib
from pfl_lib import models
from pfl_lib.local import network, stacked

SIGMA, SELF_WEIGHT = 100.0, 0.2  # of the server step
TURN = 0.5  # seconds that a turn lasts at least: one call of a fast way would measure the clock


def federation(model, clients, samples, batch_size, optimizer, device="cpu", start=None, **options):
    """Clients with ``samples`` training samples each, drawn from the whole training part."""
    data = pfl_lib.data.load("watch" if model == "cnn1d" else "mnist5k")
    if model == "resnet18, BatchNorm":
        model = with_batch_norm(data)
    draw = torch.Generator().manual_seed(0)
    train = [torch.randperm(data.n_train, generator=draw)[:samples] for _ in range(clients)]
    test = torch.arange(data.n_train, data.n_train + 10)
    parts = pfl_lib.partition.Partition("drawn", tuple(train), (test,) * clients)
    return pfl_lib.Federation(
        data, parts, model, lr=0.01, optimizer=optimizer, batch_size=batch_size, device=device,
        **options,
    )  # fmt: skip


def with_batch_norm(data):
    """ResNet-18 with batch normalization in place of group normalization."""
    torch.manual_seed(0)
    module = models.build("resnet18", data)
    for name, part in list(module.named_modules()):
        if isinstance(part, nn.GroupNorm):
            holder, _, last = name.rpartition(".")
            setattr(module.get_submodule(holder), last, nn.BatchNorm2d(part.num_channels))
    return module


def models_at_start(fed, workload):
    """Fresh models, or those of the file that the workload names."""
    start = workload[6] if len(workload) > 6 else None
    return load_file(start)["w"].to(fed.device) if start else fed.initial()


def tensors(fed):
    """Inputs and labels of each client."""
    for index in fed.partition.train:
        yield fed.data.normalized(fed.data.x[index], fed.dtype), fed.data.y[index]


def module_as_usual(fed):
    """The federation's network as one finds it in textbooks and other libraries.

    A convolutional network has ReLU before each pool there.  Ours has it behind, which gives the
    same numbers with a quarter of the ReLUs: that is a way to be faster, and not the usual one.
    """
    if fed.model_name == "ResNet18":
        return with_batch_norm(fed.data)
    ours = models.build(fed.model_name, fed.data)
    if fed.model_name not in ("fedala_cnn", "mcmahan_cnn"):
        return ours
    parts = [ours.conv1, nn.ReLU(), nn.MaxPool2d(2), ours.conv2, nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.Flatten(), ours.wide, nn.ReLU(), ours.output)


class UsualWay:
    """The same clients, model and optimiser as a federation, trained the usual way."""

    def __init__(self, *workload):
        self.fed = federation(*workload)
        self.module = module_as_usual(self.fed).to(self.fed.device)
        self.count = sum(p.numel() for p in self.module.parameters())
        self.sets = [TensorDataset(x, y) for x, y in tensors(self.fed)]
        self.start = models_at_start(self.fed, workload)

    def __call__(self):
        settings, device = self.fed.settings, self.fed.device
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[settings.optimizer]
        trained = []
        for row, samples in zip(self.start, self.sets):
            # running statistics, if there are any, go on from the client before: it costs the same
            vector_to_parameters(row[: self.count].clone(), self.module.parameters())
            loader = DataLoader(samples, batch_size=settings.batch_size, shuffle=True)
            optimizer = kind(self.module.parameters(), lr=settings.lr)
            for _ in range(settings.epochs):
                for x, y in loader:
                    x, y = x.to(device), y.to(device)
                    optimizer.zero_grad()
                    cross_entropy(self.module(x), y).backward()
                    optimizer.step()
            trained.append(parameters_to_vector(self.module.parameters()).detach().clone())
        return torch.stack(trained)


class PFLlib(UsualWay):
    """The same by PFLlib's ``clientAVG``, which gets its samples from memory instead of files."""

    def __init__(self, *workload):
        super().__init__(*workload)
        sys.path.insert(0, str(Path(os.environ["PFLLIB"]).resolve() / "system"))
        from flcore.clients.clientavg import clientAVG

        settings = self.fed.settings
        arguments = SimpleNamespace(
            model=self.module, algorithm="FedAvg", dataset="", device=str(self.fed.device),
            save_folder_name="", num_classes=10, batch_size=settings.batch_size,
            local_learning_rate=settings.lr, local_epochs=settings.epochs, few_shot=0,
            learning_rate_decay=False, learning_rate_decay_gamma=1.0,
        )  # fmt: skip
        self.clients = []
        for number, samples in enumerate(self.sets):
            never = {"train_slow": False, "send_slow": False}
            client = clientAVG(arguments, number, len(samples), 0, **never)
            options = {"batch_size": settings.batch_size, "drop_last": True, "shuffle": True}
            client.load_train_data = partial(DataLoader, samples, **options)
            self.clients.append(client)

    def __call__(self):
        for row, client in zip(self.start, self.clients):
            vector_to_parameters(row[: self.count].clone(), self.module.parameters())
            client.set_parameters(self.module)
            client.train()


class Tried:
    """The library with something changed: ``chunk``, ``dtype``, ``precision``, the gradient by
    ``vmap``, the step through ``compile``, torch's own kernels for ``series``."""

    def __init__(self, changes, *workload):
        by_vmap = changes.pop("vmap", False)
        if changes.pop("series", False):
            network._conv_over_time = nn.Conv1d._conv_forward
        if changes.pop("compile", False):
            stacked._dense_step = torch.compile(stacked._dense_step)
        if "dtype" in changes:
            changes["dtype"] = getattr(torch, changes["dtype"])
        self.fed = federation(*workload, **changes)
        if by_vmap:
            self.fed.network.dense = None
        self.start = models_at_start(self.fed, workload)

    def __call__(self):
        return pfl_lib.train(self.fed, self.start, self.fed.everyone)


class Pairwise:
    """FedAMP's server step with a Python loop over pairs of clients."""

    def __init__(self, m, d, device="cpu"):
        self.w = stack(m, d, device)

    def __call__(self):
        w, m, messages = self.w, len(self.w), []
        for i in range(m):
            scores = {j: torch.exp(-((w[i] - w[j]) ** 2).sum() / SIGMA) for j in range(m) if j != i}
            total = sum(scores.values())
            message = SELF_WEIGHT * w[i]
            for j, score in scores.items():
                message = message + (1 - SELF_WEIGHT) * score / total * w[j]
            messages.append(message)
        return torch.stack(messages)


def stack(m, d, device):
    """Models as apart as trained ones are."""
    return (0.01 * torch.randn(m, d, generator=torch.Generator().manual_seed(0))).to(device)


class Timed:
    """A call, made again and again for a turn, that says how long one took on average: seconds,
    and seconds of processor time."""

    def __init__(self, call, device):
        self.call, self.device = call, device

    def __call__(self):
        began, calls = (time.perf_counter(), time.process_time()), 0
        while calls == 0 or time.perf_counter() - began[0] < TURN:
            self.call()
            if self.device == "cuda":
                torch.cuda.synchronize()
            calls += 1
        return [(time.perf_counter() - began[0]) / calls, (time.process_time() - began[1]) / calls]

    def close(self):
        self.call = None


class Process:
    """The same, in a process of its own."""

    def __init__(self, way, workload, python=sys.executable):
        command = [python, __file__, way, json.dumps(workload), str(torch.get_num_threads())]
        environment = os.environ | {"PFL_KEEP_MEMORY": "1" if way == "tried" else "0"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self):
        answer = ""
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self.process.stdin.write("again\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.process.args[2]} ended with {self.process.wait()}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    way, workload, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    workload = json.loads(workload)
    ways = {"usual": UsualWay, "PFLlib": PFLlib, "pairwise": Pairwise, "tried": Tried}
    device = "cpu" if "cpu" in workload else "cuda"
    timed = Timed(ways[way](*workload), device)
    for _ in sys.stdin:
        print(json.dumps(timed()), flush=True)


if __name__ == "__main__":
    main()
