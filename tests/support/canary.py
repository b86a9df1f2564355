"""What every method computes in two small rounds, in float64: tests/canary.json.

`python -m tests.support.canary` says what comes out differently, on every engine.  Write the file
anew (`write()`) only when a number is meant to change, and say so in the commit; `add()` records
methods that are new and leaves all else alone.
"""

import json
import warnings
from pathlib import Path

import torch

import pfl_lib

FILE = Path(__file__).resolve().parents[1] / "canary.json"
MODELS = ("logistic_regression", "mlp", "tiny cnn")
CHOSEN = {  # instead of the defaults
    "heurfedamp": {"self_weight": 0.3},
    "oracle-groups": {"groups": 2},
}
OTHER = {  # a second setting, where it takes another way through the code
    "fedamp alpha": ("fedamp", {"alpha": "safe", "sigma": 1.0, "lam": 0.1}),
    "fedamp w": ("fedamp", {"self_weight": 0.2, "begin": "w", "prox_beta": 2.0}),
}


def methods():
    """Every method by name, and some with other settings: (label, method)."""
    for name, method in pfl_lib.methods.BY_NAME.items():
        yield name, method(**{**method.needs, **CHOSEN.get(name, {})})
    for label, (name, hyper) in OTHER.items():
        yield label, pfl_lib.algorithm(name, **hyper)
    for name in (
        "fedavg",
        "ditto",
        "fedrep",
        "fedprox",
        "fedacs",
        "partialfed",
        "pfedme",
        "fedphp",
    ):
        yield f"{name}+ala", pfl_lib.methods.with_ala(pfl_lib.algorithm(name), max_epochs=3)


class TinyCNN(torch.nn.Module):
    """One convolution and a head: what the engines do with images, in milliseconds."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 3)
        self.head = torch.nn.Linear(27, 10)

    def features(self, x):
        return torch.nn.functional.max_pool2d(self.conv(x), 2).relu().flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


def federation(model, engine, optimizer="sgd"):
    data = pfl_lib.data.load("digits")
    if model == "tiny cnn":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = TinyCNN()
    clients = pfl_lib.partition.dirichlet(data, clients=5, a=0.5, seed=3)
    return pfl_lib.Federation(
        data, clients, model, lr=0.05, batch_size=20, optimizer=optimizer, engine=engine,
        dtype=torch.float64,
    )  # fmt: skip


def numbers(method, fed):
    """Accuracies by round and client, loss, and the length of every tensor of the state."""
    share = 0.6 if method.partial else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = pfl_lib.run(method, fed, 2, participation=share, progress=False)
    lengths = {n: t.double().norm().item() for n, t in history.state.items() if t.numel()}
    return {
        "accuracy": history.accuracy,
        "loss": history.loss,
        "extra_models": history.extra_models,
        "sent": history.sent,
        "state": lengths,
    }


def write():
    found = record(("mlp", "tiny cnn"), ("loop",), ("sgd",))
    FILE.write_text(compact(found))


def add():
    """Record the methods that the file does not know yet; all other numbers stay."""
    kept = json.loads(FILE.read_text())
    for setting, known in kept.items():
        fed = federation(*setting.rsplit(" ", 2))
        known |= {n: attempt(method, fed) for n, method in methods() if n not in known}
    FILE.write_text(compact(kept))


def compact(found):
    """JSON, one line per method."""
    text = []
    for setting, methods_ in found.items():
        lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(v)}" for n, v in methods_.items())
        text.append(f" {json.dumps(setting)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(text) + "\n}\n"


def changed(kept, engines=("loop", "stacked", "threads"), tolerance=1e-9):
    """What differs from the numbers that were kept, in words."""
    wrong = []
    for setting, was in kept.items():
        model, _, optimizer = setting.rsplit(" ", 2)
        for engine in engines:
            now = record((model,), (engine,), (optimizer,))[f"{model} {engine} {optimizer}"]
            for method in was.keys() | now.keys():
                far = distance(was.get(method), now.get(method))
                if not far <= tolerance:
                    wrong.append(f"{model}, {engine}, {optimizer}: {method} differs by {far:.2g}")
    return wrong


def distance(a, b):
    """The largest difference between two nested records; infinity where their shapes differ."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((distance(a[k], b[k]) for k in a), default=0.0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max((distance(x, y) for x, y in zip(a, b)), default=0.0)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return 0.0 if a == b or (a != a and b != b) else abs(a - b) / max(1.0, abs(a))
    return 0.0 if a == b else float("inf")


def record(models=MODELS, engines=("loop", "stacked", "threads"), optimizers=("sgd", "adam")):
    """{"model engine optimizer": {method: numbers}}; what cannot be run says why."""
    found = {}
    for model in models:
        for engine in engines:
            for optimizer in optimizers:
                fed = federation(model, engine, optimizer)
                here = found.setdefault(f"{model} {engine} {optimizer}", {})
                here |= {label: attempt(method, fed) for label, method in methods()}
    return found


def attempt(method, fed):
    """The method's numbers, or what kind of error refuses it."""
    try:
        return numbers(method, fed)
    except (ValueError, TypeError) as error:
        return {"refused": type(error).__name__}


if __name__ == "__main__":
    print("\n".join(changed(json.loads(FILE.read_text()))))
