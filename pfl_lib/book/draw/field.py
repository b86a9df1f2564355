"""The field: which methods there are, who sees what, what to hold out, where one stands."""

import torch

from pfl_lib.book.draw.kit import WIDTH, Panel
from pfl_lib.data import from_arrays
from pfl_lib.methods import BY_NAME

#: Families of the map: what stays personal or is shared, and (method, who decides the weights).
#: A method that is listed in neither of the two goes where its ``place`` says, see ``families``.
#: Methods that the library does not have are drawn lighter.  Deciders: "rule" (fixed before
#: training), "server" (looks at models), "client" (looks at its own loss).
ONE_MODEL = {
    "nothing is personal": [
        ("fedavg", "FedAvg", "rule"),
        ("fedprox", "FedProx", "rule"),
        ("scaffold", "SCAFFOLD", "rule"),
        ("fedasync", "FedAsync", "rule"),
        ("fedbuff", "FedBuff", "rule"),
        ("lga", "LGA", "rule"),
    ],
    "some steps from the shared model": [
        ("label-prior", "Label prior", "rule"),
        ("fedavg-ft", "FedAvg-FT", "rule"),
        ("fedavg-c", "FedAvg-C", "rule"),
        ("per-fedavg", "Per-FedAvg", "rule"),
        ("pfedme", "pFedMe", "rule"),
    ],
    "a second model beside it": [
        ("ditto", "Ditto", "rule"),
        ("fedphp", "FedPHP", "rule"),
        ("plga", "PLGA", "server"),
        ("apfl", "APFL", "client"),
        ("fedala", "FedALA", "client"),
    ],
    "some layers": [
        ("fedper", "FedPer", "rule"),
        ("fedrep", "FedRep", "rule"),
        ("fedbabu", "FedBABU", "rule"),
        ("fedrod", "FedRoD", "rule"),
        ("feddbe", "FedDBE", "rule"),
        ("fedas", "FedAS", "rule"),
        ("fedbn", "FedBN", "rule"),
        ("lora", "personal LoRA", "rule"),
        ("partialfed", "PartialFed", "client"),
    ],
}
MANY_MODELS = {
    "a mixture for each client": [
        ("fedamp", "FedAMP", "server"),
        ("heurfedamp", "HeurFedAMP", "server"),
        ("fedacs", "FedACS", "server"),
        ("spfl", "SPFL", "server"),
        ("pfedgraph", "pFedGraph", "server"),
        ("fedfomo", "FedFomo", "client"),
        ("apple", "APPLE", "client"),
    ],
    "a common body, mixed heads": [("fedpac", "FedPAC", "server")],
    "a model for each cluster": [
        ("cfl", "CFL", "server"),
        ("ifca", "IFCA", "client"),
        ("oracle-groups", "Oracle groups", "rule"),
    ],
    "a network that writes the models": [("pfedhn", "pFedHN", "server")],
    "prototypes instead of models": [("fedproto", "FedProto", "rule")],
    "nothing is shared": [("separate", "Separate", "nobody")],
}
#: The family in ONE_MODEL of what stays personal, in the order of pfl_lib.comparison.PERSONAL.
PERSONAL = tuple(ONE_MODEL)
DECIDERS = ("nobody", "rule", "server", "client")
COLORS = {"nobody": "mute", "rule": "ink", "server": "msg", "client": "g1"}


def families():
    """ONE_MODEL and MANY_MODELS, completed by the methods whose class has a ``place``.

    >>> [len(families()[0][name]) >= len(ONE_MODEL[name]) for name in PERSONAL]
    [True, True, True, True]
    """
    one, many = (
        {name: list(rows) for name, rows in part.items()} for part in (ONE_MODEL, MANY_MODELS)
    )
    listed = {name for part in (one, many) for rows in part.values() for name, _, _ in rows}
    for name, method in BY_NAME.items():
        if method.place is None or name in listed:
            continue
        shared, personal, decider = method.place
        row = (name, method.label, DECIDERS[decider])
        if shared in (1, 2):
            one[PERSONAL[min(personal, len(PERSONAL) - 1)]].append(row)
        else:
            many["nothing is shared" if shared == 0 else "a mixture for each client"].append(row)
    return one, many


def letters(text, size=13):
    """About how wide words are; generous, so that boxes fit in any font."""
    return sum(0.33 if c in "iljt-.,' I" else 0.86 if c in "MWmw" else 0.63 for c in text) * size


def _branch(panel, families, top):
    """A trunk with a branch for each family and its methods as boxes; returns the lowest y."""
    y, trunk = top, 14
    for family, methods in families.items():
        panel.line(trunk, y - 4, trunk + 12, y - 4, "thin mute")
        last = y - 4
        panel.text(trunk + 18, y, family, "mute", "start")
        x, y = trunk + 18, y + 12
        for name, label, who in methods:
            wide = letters(label) + 12
            if x + wide > WIDTH - 4:
                x, y = trunk + 18, y + 31
            here = name in BY_NAME
            meaning = COLORS[who]
            if here:
                panel.rect(x, y, wide, 25, f"soft {meaning}", round=6)
            panel.rect(x, y, wide, 25, f"thin {meaning}" + ("" if here else " dash"), round=6)
            panel.text(x + wide / 2, y + 17, label, meaning)
            x += wide + 7
        y += 53
    panel.line(trunk, top - 30, trunk, last, "thin mute")
    return y - 28


def _legend(panel, y):
    x = 14
    panel.text(x, y, "weights decided by", "ink small", "start")
    for k, (label, meaning) in enumerate(
        (("a fixed rule", "ink"), ("the server", "msg"), ("the client", "g1"))
    ):
        left = x + (0, 102, 196)[k]
        panel.rect(left, y + 10, 14, 14, f"soft {meaning}", round=3)
        panel.rect(left, y + 10, 14, 14, f"thin {meaning}", round=3)
        panel.text(left + 20, y + 21, label, f"{meaning} small", "start")
    panel.rect(x, y + 34, 14, 14, "thin ink dash", round=3)
    panel.text(x + 20, y + 45, "dashed: not in this library", "ink small", "start")


def family_map():
    one, many = families()
    left = Panel(
        "Methods with one shared model",
        "A tree. Under one shared model hang four families: nothing is personal, FedAvg and its "
        "kin; some steps from the shared model, such as FedAvg-FT and pFedMe; a second model "
        "beside it, such as Ditto and FedALA; some layers, such as FedPer, FedRep, FedBABU, "
        "FedRoD, FedDBE, FedAS, FedBN and personal LoRA.",
        height=10,
    )
    left.rect(4, 4, 204, 30, "fill ink", round=8)
    left.text(106, 24, "one shared model", "paper big")
    left.height = _branch(left, one, 66) + 4
    right = Panel(
        "Methods with many models, or none",
        "A second tree. Many models: a mixture for each client, such as FedAMP, FedACS, SPFL and "
        "pFedGraph; a common body with mixed heads, FedPAC; a model for each cluster, CFL and "
        "IFCA; a network that writes the models, pFedHN; prototypes instead of models, FedProto; "
        "and Separate, where nothing is shared.",
        height=10,
    )
    right.rect(4, 4, 204, 30, "fill ink", round=8)
    right.text(106, 24, "many models, or none", "paper big")
    end = _branch(right, many, 66)
    _legend(right, end + 30)
    right.height = end + 84
    return left, right


# -------------------------------------------------------------------------------- who sees what
def _eye(panel, x, y, meaning="hot"):
    """Somebody looks."""
    panel.put("path", f"box {meaning}", d=f"M{x - 10} {y}Q{x} {y - 10} {x + 10} {y}Q{x} {y + 10} "
              f"{x - 10} {y}Z")  # fmt: skip
    panel.circle(x, y, 3, f"fill {meaning}")


def who_sees():
    def start(title, names, desc):
        panel = Panel(title, desc, height=216)
        panel.text(170, 18, title, "ink big")
        panel.text(170, 36, names, "mute small")
        for i in range(3):
            panel.client(26, 72 + 48 * i, i + 1, r=12)
            panel.model(66, 72 + 48 * i, "g1")
        return panel

    total = start(
        "the sum is enough", "FedAvg, FedAvg-FT, Ditto, FedALA, FedRep",
        "Three clients add secret masks to their models. The server sees only the sum and sends "
        "one average back to all.",
    )  # fmt: skip
    total.path([(100, 58), (152, 104), (152, 136), (100, 182)], "soft ink", closed=True)
    total.path([(100, 58), (152, 104), (152, 136), (100, 182)], "thin ink", closed=True)
    total.text(126, 125, "Σ", "ink big")
    total.arrow(156, 120, 186, 120, "line ink")
    total.model(212, 120, "ink")
    _eye(total, 212, 96)
    total.text(212, 80, "server", "hot small")
    total.arrow(238, 120, 278, 120, "line ink")
    total.client(300, 120, 3, r=12)
    _eye(total, 300, 92)
    total.text(300, 76, "client 3", "hot small")
    total.text(170, 206, "one average is all that anybody sees", "mute")

    server = start(
        "the server compares", "FedAMP, HeurFedAMP, FedACS, SPFL",
        "Three clients send their models. The server sees each of them, one by one, and who "
        "resembles whom. A client sees only its message, a mixture of models like its own.",
    )  # fmt: skip
    for i in range(3):
        server.arrow(90, 72 + 48 * i, 142, 72 + 48 * i, "line g1")
    server.rect(146, 54, 84, 132, "thin ink", round=8)
    for i in range(3):
        server.model(176, 72 + 48 * i, "g1")
        _eye(server, 212, 72 + 48 * i)
    server.arrow(236, 120, 266, 120, "line msg")
    server.message(279, 120)
    server.client(310, 120, 3, r=12)
    _eye(server, 279, 94)
    server.text(285, 78, "a mixture", "hot small")
    server.text(170, 206, "the server sees every single model", "mute")

    clients = start(
        "the clients compare", "FedFomo, APPLE",
        "Three clients send their models. The server hands them on, and client 3 sees the models "
        "of clients 1 and 2 as they are.",
    )  # fmt: skip
    for i in range(3):
        clients.arrow(90, 72 + 48 * i, 142, 72 + 48 * i, "line g1")
    clients.rect(146, 54, 36, 132, "fill ink", round=8)
    for i in range(3):
        _eye(clients, 164, 72 + 48 * i, "hot")
    for i in range(2):
        clients.arrow(186, 72 + 48 * i, 216, 72 + 48 * i, "line g1")
        clients.model(240, 72 + 48 * i, "g1")
        _eye(clients, 276, 72 + 48 * i)
        clients.arrow(291, 78 + 46 * i, 309 - 5 * i, 155, "thin g1", head=6)
    clients.client(308, 168, 3, r=12)
    clients.text(170, 206, "clients see each other's models", "mute")
    return total, server, clients


# ------------------------------------------------------------------------------------ three runs
def three_runs():
    panel = Panel(
        "Three short runs and where they lead",
        "Three questions, one below the other. Does the common model, FedAvg, serve as well as "
        "anything? Then take it. Does fine-tuning it, FedAvg-FT, beat training alone? Then take "
        "that. Does attention beat training alone? Then take attention. If not, stay alone.",
        height=372,
    )

    def ask(y, lines):
        panel.rect(8, y - 25, 150, 50, "box ink", round=10)
        panel.lines(83, y - 4, lines, "ink", step=18)

    def take(y, name, why, meaning):
        panel.rect(212, y - 25, 120, 50, f"soft {meaning}", round=10)
        panel.rect(212, y - 25, 120, 50, f"thin {meaning}", round=10)
        panel.text(272, y - 4, name, f"{meaning} big")
        panel.text(272, y + 14, why, "mute small")

    rows = (
        (36, ["Does FedAvg do as", "well as anything?"], "FedAvg", "all are alike", "g1"),
        (136, ["Does FedAvg-FT", "beat Separate?"], "FedAvg-FT", "a good start", "g3"),
        (236, ["Does attention", "beat Separate?"], "attention", "choose partners", "hot"),
    )
    for y, lines, name, why, meaning in rows:
        ask(y, lines)
        take(y, name, why, meaning)
        panel.arrow(160, y, 206, y, "line ink")
        panel.text(182, y - 8, "yes", "ink small")
        panel.arrow(83, y + 27, 83, y + 72, "line ink")
        panel.text(93, y + 53, "no", "ink small", "start")
    panel.rect(23, 311, 120, 50, "soft mute", round=10)
    panel.rect(23, 311, 120, 50, "thin mute", round=10)
    panel.text(83, 332, "Separate", "mute big")
    panel.text(83, 350, "own data suffice", "mute small")
    return (panel,)


# -------------------------------------------------------------------------- three ways to hold out
RECORDINGS, WINDOWS = 4, 10  # of one person: two exercises, each with either arm


def held_out():
    """Which windows of each recording three splits put into the test, {name: booleans}."""
    window = torch.arange(RECORDINGS * WINDOWS)
    late = (window % WINDOWS >= 7).numpy()
    splits: dict[str, dict] = {
        "at random": {"test": 0.3},
        "by time": {"test": late},
        "by group": {"test": 0.3, "split": "group", "group": window // WINDOWS},
    }
    found = {}
    for name, how in splits.items():
        exercise, person = window // (2 * WINDOWS), torch.zeros_like(window)
        data = from_arrays(
            window[:, None].double(), exercise, person, columns={"window": window}, seed=1, **how
        )
        column = data.columns["window"]
        tested = torch.zeros(len(window), dtype=torch.bool)
        tested[[int(column.names[v]) for v in column.values[data.n_train :]]] = True
        found[name] = tested.view(RECORDINGS, WINDOWS)
    return found


def three_splits():
    said = {
        "at random": ("moments in between", "Filled fields are scattered over all four strips."),
        "by time": ("later moments", "The last three fields of every strip are filled."),
        "by group": ("another recording", "Two whole strips are filled, one per exercise."),
    }
    names = ["lift, left arm", "lift, right arm", "turn, left arm", "turn, right arm"]
    panels = []
    for name, tested in held_out().items():
        new, seen = said[name]
        panel = Panel(
            f"Held out {name}",
            f"Four strips of ten windows, one for each recording of one person. {seen} "
            f"What is new in the test: {new}.",
            height=178,
        )
        panel.text(170, 20, name, "ink big")
        for i, label in enumerate(names):
            y = 36 + 28 * i
            panel.text(104, y + 13.5, label, "mute small", "end")
            for k in range(WINDOWS):
                fresh = bool(tested[i, k])
                x = 112 + 22 * k
                panel.rect(x, y, 19, 19, "fill hot" if fresh else "soft g1", round=2)
                panel.rect(x, y, 19, 19, "thin hot" if fresh else "thin g1", round=2)
        panel.text(170, 168, f"new in the test: {new}", "hot")
        panels.append(panel)
    return tuple(panels)


# --------------------------------------------------------------------------- over a network
def over_network():
    panel = Panel(
        "Who talks to whom over a network",
        "On the left the server's program, in the middle the SuperLink, on the right three "
        "SuperNodes, each with a client and its data. Arrows join the SuperLink with all others; "
        "server and clients are not joined directly.",
        height=252,
    )

    def box(x, y, wide, high, style):
        panel.rect(x, y - high / 2, wide, high, f"soft {style}", round=8)
        panel.rect(x, y - high / 2, wide, high, f"thin {style}", round=8)

    box(5, 118, 95, 74, "ink")
    panel.lines(52.5, 102, ["ServerApp"], "ink big")
    panel.lines(52.5, 122, ["the algorithm,", "no data"], "ink small")
    box(124, 118, 90, 54, "mute")
    panel.text(169, 114, "SuperLink", "ink big")
    panel.text(169, 132, "holds parcels", "mute small")
    panel.arrow(102, 118, 122, 118, "line ink", head=7, both=True)
    for i, y in enumerate((40, 118, 196)):
        box(238, y, 98, 64, "g1")
        panel.text(287, y - 14, "SuperNode", "g1 big")
        panel.client(268, y + 12, i + 1, r=12)
        panel.data(304, y + 14, "mute")
        panel.arrow(216, 118 + 0.24 * (y - 118), 236, y, "line g1", head=7, both=True)
    panel.text(170, 246, "server and clients never meet", "mute")
    return (panel,)


FIGURES = {
    "family-map": family_map,
    "who-sees": who_sees,
    "three-runs": three_runs,
    "three-splits": three_splits,
    "over-network": over_network,
}
