"""The federation playground: twelve clients learn in the page, and the library does the same.

``federation(settings)`` is the ``pfl_lib.Federation`` behind the page, digit by digit;
``rounds(name, settings)`` runs a method on it as the page does.  tests/site/test_playground.py
compares the two in a browser.
"""

import base64
import functools
import json
import math
import warnings

import numpy as np
import torch
import traitlets

import pfl_lib
from pfl_lib import _check, models
from pfl_lib.book.explore.base import Between, Explorer, Switch, Whole, Word, _text
from pfl_lib.data.dataset import Dataset
from pfl_lib.faults import Faulty
from pfl_lib.partition import Partition

# as in playground_engine.js
CLIENTS, CLASSES, TESTED, MOST, HIDDEN = 12, 10, 40, 5, 16
HOME = (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)
RATE = {"softmax": 0.5, "mlp": 0.5}
HELD, FIRST = (10, 8, 6, 5, 4, 3), (0, 3, 7)
METHODS = (
    *("separate", "fedavg", "fedavg-ft", "ditto", "fedamp", "heurfedamp", "fedacs", "spfl"),
    "fedala",
)


# ---- the digits --------------------------------------------------------------------------------


@functools.cache
def digits():
    """scikit-learn's digits as the page has them: (1797, 64) grey levels 0 to 15, and labels.

    The file has seventeen levels; black and almost black become one, so that four bits are enough.

    >>> pixels, labels = digits()
    >>> pixels.shape, int(pixels.max()), labels[:5].tolist()
    ((1797, 64), 15, [0, 1, 2, 3, 4])
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.minimum(found.data, 15).astype(np.uint8), found.target.astype(np.int64)


def packed():
    """The digits as text for the page: two pixels a byte, in base64; the labels as they are read.

    >>> len(packed()["pixels"]) < 77_000, packed()["labels"][:5]
    (True, '01234')
    """
    pixels, labels = digits()
    both = (pixels[:, 0::2] << 4) | pixels[:, 1::2]
    text = base64.b64encode(both.tobytes()).decode()
    return {"pixels": text, "labels": "".join(map(str, labels))}


# ---- draws by key, and who holds which digits ---------------------------------------------------


def keyed(*parts):
    """A function that draws numbers in [0, 1), the same as the page's for the same key.

    FNV-1a over the letters of the key, then a counter through MurmurHash3's last steps.

    >>> draw = keyed(0, "names")
    >>> 0 <= draw() < 1
    True
    """
    whole = 0xFFFFFFFF
    h = 0x811C9DC5
    for letter in "/".join(map(str, parts)):
        h = ((h ^ ord(letter)) * 0x01000193) & whole
    count = 0

    def draw():
        nonlocal count
        count += 1
        x = (h + count * 0x9E3779B9) & whole
        x = ((x ^ (x >> 16)) * 0x85EBCA6B) & whole
        x = ((x ^ (x >> 13)) * 0xC2B2AE35) & whole
        return (x ^ (x >> 16)) / 2**32

    return draw


def shuffled(items, draw):
    """The items in another order (Fisher and Yates)."""
    out = list(items)
    for i in range(len(out) - 1, 0, -1):
        j = int(draw() * (i + 1))
        out[i], out[j] = out[j], out[i]
    return out


@functools.cache
def _stretches():
    """Twelve stretches of the file, each cut 60 / 40 once and for all: (training, testing)."""
    n, parts = len(digits()[1]), []
    for i in range(CLIENTS):
        begin, end = i * n // CLIENTS, (i + 1) * n // CLIENTS
        order = [begin + k for k in shuffled(range(end - begin), keyed("stretch", i))]
        cut = int(0.6 * len(order))
        parts.append({"train": order[:cut], "test": order[cut:]})
    return parts


def groups_of(s):
    """The group of each client; one for all where there are none."""
    return tuple(s["groups"]) if s["data"] in ("classes", "names") else (0,) * CLIENTS


def names_of(s, g):
    """What group g calls each of the ten digits."""
    names = list(range(CLASSES))
    if s["data"] != "names" or g == 0:
        return names
    order = shuffled(names, keyed(s["seed"], "names"))
    for k in range(s["how"]):
        a, b = order[(2 * k + g - 1) % CLASSES], order[(2 * k + g) % CLASSES]
        names[a], names[b] = b, a
    return names


def classes_of(s, g):
    """The digits that group g sees."""
    if s["data"] != "classes":
        return list(range(CLASSES))
    order = shuffled(range(CLASSES), keyed(s["seed"], "classes"))
    return [order[(FIRST[g] + k) % CLASSES] for k in range(HELD[s["how"]])]


def hand(s, i, part):
    """Which pictures client i holds, for "train" or "test"."""
    labels, count = digits()[1], s["size"] if part == "train" else TESTED
    pool = [k for stretch in _stretches() for k in stretch[part]]
    draw = keyed(s["seed"], part, i)
    if s["data"] == "natural":
        own, other = shuffled(_stretches()[i][part], draw), shuffled(pool, draw)
        out: list[int] = []
        used = set()
        while len(out) < count:
            chosen = own if draw() < s["how"] / MOST and own else other
            k = chosen.pop(0)
            if k not in used:
                out.append(k)
            used.add(k)
        return out
    wanted = set(classes_of(s, groups_of(s)[i]))
    return shuffled([k for k in pool if int(labels[k]) in wanted], draw)[:count]


def away(s, k):
    """The clients that stay away from round k."""
    return set(shuffled(range(CLIENTS), keyed(s["seed"], "away", k))[: s["away"]])


# ---- the same with the library ------------------------------------------------------------------


def federation(settings):
    """The library's federation for these settings: each client's digits, names, start and rate.

    >>> fed = federation(dict(Playground().settings, data="names", size=20))
    >>> fed.m, fed.d, fed.dtype
    (12, 650, torch.float64)
    """
    s = settings
    pixels, labels = digits()
    x, y, place = [], [], 0
    train: list[torch.Tensor] = []
    test: list[torch.Tensor] = []
    for i in range(CLIENTS):
        names = np.array(names_of(s, groups_of(s)[i]))
        for part, rows in (("train", train), ("test", test)):
            chosen = hand(s, i, part)
            x.append(pixels[chosen] * 17)  # grey levels 0, 17, ..., 255
            y.append(names[labels[chosen]])
            rows.append(torch.arange(place, place + len(chosen)))
            place += len(chosen)
    data = Dataset(
        name=f"digits ({s['data']}, {s['how']} of {MOST})",
        x=torch.from_numpy(np.concatenate(x)).reshape(-1, 1, 8, 8),
        y=torch.from_numpy(np.concatenate(y)),
        n_train=place,
        classes=tuple("0123456789"),
        mean=(0.0,),
        std=(1.0,),
        note="each client's own copies, with the names its group uses",
    )
    groups = torch.tensor(groups_of(s))
    clients = Partition("playground", train, test, groups=groups, seed=s["seed"])
    fed = pfl_lib.Federation(
        data,
        clients,
        _model(s),
        lr=RATE[s["model"]],
        batch_size=s["size"],  # full batches
        epochs=s["steps"],
        seed=s["seed"],
        dtype=torch.float64,
        device="cpu",
    )
    return Faulty(fed, clients=(s["liar"] - 1,)) if s["liar"] else fed


def _model(s):
    """The network with the page's start: small multiples of 1/1024."""
    if s["model"] == "softmax":
        module = models.logistic_regression(64, CLASSES).double()
    else:
        module = models.mlp(64, CLASSES, hidden=(HIDDEN,)).double()
    draw = keyed(s["seed"], "start")
    for name, parameter in module.named_parameters():
        bound = 8 if s["model"] == "softmax" else 128 if name.startswith("hidden") else 256
        numbers = [math.floor((2 * draw() - 1) * bound + 0.5) for _ in range(parameter.numel())]
        parameter.data = torch.tensor(numbers, dtype=torch.float64).view(parameter.shape) / 1024
        if name == "hidden.0.bias":
            parameter.data += 1 / 4096  # no unit exactly at ReLU's corner
    return module


def method(name, settings):
    """The library's method as the page runs it.

    >>> method("fedacs", Playground(p=0.7).settings)
    FedACS(p=0.7, negatives='drop')
    """
    s = settings
    width = {"multiple": s["sigma"]} if s["unit"] == "median" else {"sigma": s["width"]}
    given = {
        "ditto": {"lam": 0.1, "personal_epochs": s["steps"]},
        "fedamp": {"self_weight": s["self_weight"], **width},
        "heurfedamp": {"self_weight": s["self_weight"], "sigma": s["sharpness"]},
        "fedacs": {"p": s["p"]},
        "fedala": {"ala_percent": 100},  # all of the local data: nothing to draw
    }
    _check.one_of("name", name, METHODS)
    return pfl_lib.algorithm(name, **given.get(name, {}))


def rounds(name, settings, count=30, fed=None):
    """Run a method by the library; of each round: xi, models, accuracy, mean, who.

    ``mean`` is over the clients that do not lie; ``fed`` is ``federation(settings)``, where one
    has it already.

    >>> steps = list(rounds("fedavg", Playground(data="alike").settings, count=2))
    >>> len(steps), steps[-1]["mean"] > 0.5
    (2, True)
    """
    fed, algorithm = fed or federation(settings), method(name, settings)
    state = algorithm.start(fed.at(0))
    honest = [i for i in range(CLIENTS) if i + 1 != settings["liar"]]
    for k in range(count):
        absent = away(settings, k) if algorithm.partial else set()
        who = torch.tensor([i for i in range(CLIENTS) if i not in absent])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FedACS speaks of thresholds, which are the topic
            state = algorithm.round(state, fed.at(k), who)
        tested = algorithm.personal(state, fed.at(k))
        accuracy = fed.evaluate(tested)[0]
        yield {
            "xi": _drawn(state, who),
            "models": tested,
            "accuracy": accuracy,
            "mean": accuracy[honest].mean().item(),
            "who": who,
        }


def _drawn(state, who):
    """Row i: whose models client i's new one is made of, as the page draws it."""
    if "xi" in state:
        return state.xi
    if "S" in state:
        return state.S[-1]
    own = torch.eye(CLIENTS, dtype=torch.float64)
    if "x" not in state:
        return own
    mean = torch.zeros(CLIENTS, CLIENTS, dtype=torch.float64)
    mean[:, who] = 1 / len(who)
    if "ala_weights" in state:  # the part of the average that FedALA's clients took
        part = state.ala_weights.mean(1, keepdim=True)
        return (1 - part) * own + part * mean
    return mean


# ---- the widget ---------------------------------------------------------------------------------


class Chosen(traitlets.TraitType):
    """The group, 0 to 2, of each of the twelve clients."""

    def __init__(self):
        super().__init__()
        self.default_value = list(HOME)

    def validate(self, obj, value):
        value = [_check.whole(self.name, g, at_least=0) for g in value]
        if len(value) != CLIENTS or max(value) > 2:
            raise ValueError(f"{self.name} must be 12 numbers from 0 to 2, got {value}")
        return value


class Playground(Explorer):
    """Personalised federated learning that runs in the page, two methods side by side.

    >>> play = Playground(a="fedavg", b="fedamp", data="names")
    >>> play.federation().m
    12
    >>> play.models["a"] is None                  # until the page has trained
    True
    """

    modules = (
        f"const DIGITS =\n{json.dumps(packed())};",
        "playground_engine.js",
        "playground_stage.js",
        "playground_story.js",
        "playground_lab.js",
        "playground.js",
    )

    a = Word("fedavg", METHODS)
    b = Word("fedamp", METHODS)
    data = Word("names", ("alike", "classes", "names", "natural"))
    how = Whole(MOST, 0, MOST)
    groups = Chosen()
    size = Whole(30, 10, 60)
    steps = Whole(5, 1, 20)
    sigma = Between(0.1, 0.001, 100)
    unit = Word("median", ("median", "absolute"))
    width = Between(1.0, 1e-4, 1e4)
    self_weight = Between(0.1, 0, 1)
    sharpness = Between(10.0, 0, 200)
    p = Between(0.5, 0, 1)
    away = Whole(0, 0, 6)
    liar = Whole(0, 0, CLIENTS)
    model = Word("softmax", ("softmax", "mlp"))
    seed = Whole(0, 0, 9999)
    shown = Whole(3, 0, 9)
    round = Whole(0, 0, 30)
    small = Switch(False)
    link = traitlets.Unicode("play.html")
    _from_a, _from_b = traitlets.Bytes(), traitlets.Bytes()  # models on their way to Python,
    _to_a, _to_b = traitlets.Bytes(), traitlets.Bytes()  # and to the page

    @classmethod
    def _own_settings(cls):
        return {name for name in super()._own_settings() if not name.startswith("_")}

    @property
    def state(self):
        """What the reader has set, and the round that is shown."""
        return self.settings

    def federation(self):
        """The library's federation with these clients, digits and start."""
        return federation(self.settings)

    def method(self, which):
        """The library's method in place "a" or "b"."""
        return method(self.settings[_check.one_of("which", which, ("a", "b"))], self.settings)

    @property
    def models(self):
        """The page's models, {"a": (12, d), "b": (12, d)}, as tensors; None until there are some.

        Set it to show models of your own: ``play.models = {"b": w}``.
        """
        return {w: self._rows(getattr(self, f"_from_{w}")) for w in ("a", "b")}

    @models.setter
    def models(self, given):
        d = {"softmax": 650, "mlp": 1210}[self.model]
        for which, w in given.items():
            _check.one_of("which", which, ("a", "b"))
            w = torch.as_tensor(w, dtype=torch.float64)
            if w.shape != (CLIENTS, d):
                raise ValueError(f"models must have shape (12, {d}), got {tuple(w.shape)}")
            setattr(self, f"_to_{which}", w.contiguous().numpy().tobytes())

    def _rows(self, sent):
        if not sent:
            return None
        return torch.from_numpy(np.frombuffer(sent, dtype="<f8").copy()).view(CLIENTS, -1)

    def compute(self):
        """The mean accuracies that both methods reach after the last round, by the library."""
        s = self.settings
        return {w: [one["mean"] for one in rounds(s[w], s)] for w in ("a", "b")}


Playground._css += _text("playground.css")
