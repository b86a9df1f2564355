"""What every method computes in two small rounds, in float64: tests/canary.json.

`python -m tests.support.canary` says what comes out differently, every setting on every engine; the
unit tests run a third of that.  Write the file
anew (`write()`) only when a number is meant to change, and say so in the commit; `add()` records
methods that are new and leaves all else alone.
"""

import json
import warnings
from pathlib import Path

import torch

import pfl_lib

FILE = Path(__file__).resolve().parents[1] / "canary.json"
SETTINGS = ("mlp loop sgd", "tiny cnn loop sgd", "mlp loop adam")  # model, engine, optimizer
ENGINES = ("loop", "stacked", "threads")
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
    lr = {"sgd": 0.05, "adam": 0.005}[optimizer]  # Adam's large steps would magnify rounding
    return pfl_lib.Federation(
        data, clients, model, lr=lr, batch_size=20, optimizer=optimizer, engine=engine,
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
    FILE.unlink(missing_ok=True)
    add()


def add():
    """Record the methods and settings that the file does not know; all other numbers stay."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for setting in SETTINGS:
        known = kept.setdefault(setting, {})
        known |= record(setting, [label for label, _ in methods() if label not in known])
    FILE.write_text(compact(kept))


def compact(found):
    """JSON, one line per method."""
    text = []
    for setting, methods_ in found.items():
        lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(v)}" for n, v in methods_.items())
        text.append(f" {json.dumps(setting)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(text) + "\n}\n"


#: Adam divides by gradients that may be tiny, and the rounding of an engine grows with that.
TOLERANCE = {"sgd": 1e-9, "adam": 1e-5}


def changed(setting, was, engine, only=None):
    """Which methods (``only`` these) come out differently on an engine than was kept, in words."""
    labels = [label for label, _ in methods()] if only is None else only
    now = record(setting, labels, engine)
    tolerance = TOLERANCE[setting.rsplit(" ", 1)[1]]
    apart = {label: distance(was.get(label), now.get(label)) for label in labels}
    return [
        f"{setting}, {engine}: {label} differs by {far:.2g}"
        for label, far in apart.items()
        if not far <= tolerance
    ]


def distance(a, b):
    """The largest difference between two nested records; infinity where their shapes differ."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((distance(a[k], b[k]) for k in a), default=0.0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max((distance(x, y) for x, y in zip(a, b)), default=0.0)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return 0.0 if a == b or (a != a and b != b) else abs(a - b) / max(1.0, abs(a))
    return 0.0 if a == b else float("inf")


def record(setting, labels, engine="loop"):
    """{method: numbers} of some methods in a setting; what cannot be run says why."""
    model, _, optimizer = setting.rsplit(" ", 2)
    fed = federation(model, engine, optimizer)
    return {label: attempt(method, fed) for label, method in methods() if label in labels}


def attempt(method, fed):
    """The method's numbers, or what kind of error refuses it."""
    try:
        return numbers(method, fed)
    except (ValueError, TypeError) as error:
        return {"refused": type(error).__name__}


if __name__ == "__main__":
    for setting, was in json.loads(FILE.read_text()).items():
        gone = was.keys() - dict(methods())
        print("\n".join([f"{setting}: {label} is gone" for label in gone]), end="")
        for engine in ENGINES:
            print("".join(f"{line}\n" for line in changed(setting, was, engine)), end="")
