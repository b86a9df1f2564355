"""Fingerprints, stages, stragglers, the leap, and the box of adaptive local aggregation."""

import torch

from pfl_lib import stragglers
from pfl_lib.book import theory
from pfl_lib.book.draw.basics import grid
from pfl_lib.book.draw.kit import Axes, Panel
from pfl_lib.formulas import leap, sngs


# ------------------------------------------------------------------------- how flat a softmax is
def relative_weight(cosine, temperature):
    """The weight of a client at this cosine, beside that of one who points exactly the same way."""
    return torch.exp((torch.as_tensor(cosine, dtype=torch.float64) - 1) / temperature)


def ten_updates():
    """Updates of ten clients, every two of them at cosine ½."""
    cosines = torch.full((10, 10), 0.5, dtype=torch.float64).fill_diagonal_(1)
    return torch.linalg.cholesky(cosines)


def softmax_flat():
    panel = Panel(
        "The weight of a client, against its angle",
        "Weight against the cosine, from minus one to one. At temperature 1 it falls gently from "
        "1 to 0.14. At 0.3 it falls faster, at 0.1 only clients that point nearly the same way are "
        "heard.",
        height=236,
    )
    axes = Axes(panel, (34, 34, 286, 152), x=(-1, 1.02), y=(0, 1.08))
    axes.frame("cosine of two updates", "weight")
    x = torch.linspace(-1, 1, 121, dtype=torch.float64)
    for temperature, style in ((1.0, "line hot"), (0.3, "line ink"), (0.1, "line mute")):
        axes.curve(x, relative_weight(x, temperature), style)
    for c, label in ((-1, "−1"), (0, "0"), (1, "1")):
        axes.tick(c, label)
    low = float(relative_weight(-1.0, 1.0))
    panel.circle(*axes.at(-1, low), 4.5, "fill hot")
    panel.text(axes.at(-1, 0)[0] + 10, axes.at(0, low)[1] - 10, "$e^{−2}$", "hot", "start")
    panel.text(axes.at(-0.02, 0)[0], axes.at(0, 0.55)[1], "$T = 1$", "hot", "end")
    panel.text(axes.at(0.5, 0)[0] - 2, axes.at(0, 0.27)[1], "0.3", "ink halo", "end")
    panel.text(axes.at(0.72, 0)[0], axes.at(0, 0.13)[1], "0.1", "mute halo", "end")

    bars = Panel(
        "Ten clients at cosine one half",
        "Bars for the weights that client 1 gives to ten clients. At temperature 1 all bars are "
        "nearly equal, its own only a little higher. At temperature 0.1 it hears itself almost "
        "alone.",
        height=236,
    )
    G = ten_updates()
    for k, temperature in enumerate((1.0, 0.1)):
        left, base, high = 22 + 164 * k, 186, 130
        weights = sngs(G, temperature=temperature)[0]
        style = "hot" if k == 0 else "mute"
        bars.text(left + 70, 26, f"$T = {temperature:g}$", style)
        for j, weight in enumerate(weights.tolist()):
            tall = max(1.0, high * weight)
            bars.rect(left + 14 * j, base - tall, 11, tall, f"fill {style}", round=1)
        bars.line(left - 4, base, left + 142, base, "thin ink")
        share = f"{float(weights[0]):.2f}".lstrip("0")
        bars.text(left + 16, base - high * float(weights[0]) + (-6 if k == 0 else 10), share,
                  style if k == 0 else "mute", "start")  # fmt: skip
        bars.text(left + 5.5, base + 17, "1", "ink small")
        bars.text(left + 14 * 9 + 5.5, base + 17, "10", "ink small")
    bars.text(170, base + 34, "what client 1 hears, client by client", "mute")
    return panel, bars


# --------------------------------------------------------------------------------------- stages
def staged_updates():
    """Updates of six clients with a body of four numbers and a head of two.

    Bodies differ by hidden groups of three; heads are alike for odd and for even clients.
    """
    random = torch.Generator().manual_seed(1)
    noise = 0.25 * torch.randn(6, 6, generator=random, dtype=torch.float64)
    who = torch.arange(6)
    body = torch.tensor([[1.0, 0.2, 0.9, -0.3], [-0.7, 1.0, 0.1, 0.8]]).double()[who // 3]
    head = torch.tensor([[1.0, 0.1], [-0.4, 1.0]]).double()[who % 2]
    return torch.cat([body, head], 1) + noise


def stages():
    S = sngs(staged_updates(), stages=[slice(0, 4), slice(4, 6)], temperature=0.4)
    panel = Panel(
        "Two stages, two matrices",
        "A network of four layers. The first three are the body, the last is the head. Each stage "
        "has a six by six matrix of its own: the body's is dark in two blocks, the head's in a "
        "chessboard, so that the layers disagree about who is alike.",
        height=252,
    )
    for k in range(4):
        meaning = "g1" if k < 3 else "g3"
        panel.rect(24 + 22 * k, 62 + 6 * k, 15, 108 - 12 * k, f"soft {meaning}", round=3)
        panel.rect(24 + 22 * k, 62 + 6 * k, 15, 108 - 12 * k, f"thin {meaning}", round=3)
    panel.text(53, 50, "body", "g1")
    panel.text(100, 66, "head", "g3")
    panel.lines(66, 194, ["an update,", "cut into stages"], "mute small", step=15)
    for name, meaning, top, part in (("body", "g1", 20, S[0]), ("head", "g3", 134, S[1])):
        high = part / part.max()
        grid(panel, 196, top, high, (16, 16), [meaning] * 6)
        panel.text(302, top + 46, name, meaning, "start")
        panel.text(302, top + 62, "$S_{" + name[0] + "}$", meaning, "start")
    panel.arrow(72, 50, 188, 62, "thin g1", bend=22, head=7)
    panel.arrow(116, 128, 188, 178, "thin g3", bend=-14, head=7)
    panel.text(244, 248, "who is like whom", "mute small")
    return (panel,)


# -------------------------------------------------------------------------- a straggler's time line
def straggler():
    table = stragglers.timetable([0, 1, 2, 4], clients=4)
    rounds = 8
    panel = Panel(
        "When late clients come back",
        "A time line of eight rounds. Client 1 answers in every round. Client 2 is one round late, "
        "client 3 two, client 4 four: bars run from the round in which it took the model to the "
        "round in which its answer arrives, and while it was away the others moved on.",
        height=238,
    )
    left, wide, top, step = 46, 34.5, 46, 42
    for k in range(rounds + 1):
        panel.line(left + k * wide, top - 12, left + k * wide, top + 4 * step - 14, "thin hair")
    for k in range(rounds):
        panel.text(left + (k + 0.5) * wide, top - 20, str(k + 1), "mute small")
    panel.text(3, top - 20, "round", "mute small", "start")
    for i in range(4):
        y = top + step * i + 8
        panel.client(20, y, i + 1, r=12)
        for k in range(rounds):
            begun = table.pulled(k)[i]
            if i in table.arrivals(k):
                x0, x1 = left + begun * wide + 4, left + (k + 1) * wide - 4
                late = k - begun
                meaning = "hot" if late else "g1"
                panel.rect(x0, y - 9, x1 - x0, 18, "fill paper", round=9)
                panel.rect(x0, y - 9, x1 - x0, 18, f"soft {meaning}", round=9)
                panel.rect(x0, y - 9, x1 - x0, 18, f"thin {meaning}", round=9)
                panel.circle(x0 + 9, y, 3.2, f"fill {meaning}")
                panel.path([(x1 - 3, y), (x1 - 12, y - 5), (x1 - 12, y + 5)],
                           f"fill {meaning}", closed=True)  # fmt: skip
                if late:
                    label = f"{late} late" if late > 1 else "1"
                    panel.text((x0 + x1) / 2 - 1, y + 4, label, "hot small")
            elif k == rounds - 1:
                x0 = left + begun * wide + 4
                panel.line(x0 + 9, y, left + rounds * wide, y, "thin hot dash")
                panel.circle(x0 + 9, y, 3.2, "fill hot")
    y = top + 4 * step + 8
    panel.circle(70, y - 4, 3.2, "fill ink")
    panel.text(80, y, "takes the model", "ink small", "start")
    panel.path([(214, y - 4), (205, y - 9), (205, y + 1)], "fill ink", closed=True)
    panel.text(221, y, "its answer arrives", "ink small", "start")
    return (panel,)


# -------------------------------------------------------------------------------------- the leap
GOAL = torch.tensor([2.0, 2.5], dtype=torch.float64)  # what the straggler wants
CURVED = torch.tensor([1.0, 1.0], dtype=torch.float64)
LOCAL_LR, LOCAL_STEPS = 0.12, 4


def local_phase(w):
    """What the straggler makes of w: a few steps down ½Σh(w − goal)²."""
    for _ in range(LOCAL_STEPS):
        w = w - LOCAL_LR * CURVED * (w - GOAL)
    return w


def leap_places():
    """The models of the chapter's notation, in the plane."""
    t = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    pull, now = (torch.tensor(v, dtype=torch.float64) for v in ([0.0, 0.0], [3.2, 0.75]))
    path = pull + t * (now - pull) + 0.3 * (t * (1 - t)) * torch.tensor([-0.4, -2.2]).double()
    local = local_phase(path[0])
    move = local - path[0]
    reach = LOCAL_LR * LOCAL_STEPS
    return {
        "path": path,
        "local": local,
        "re-based": path[-1] + move,
        "(11)": leap(path[0], path[1], path[-1], local),
        "taylor": path[-1] + move - reach * CURVED * (path[-1] - path[0]),
        "truth": local_phase(path[-1]),
    }


def the_leap():
    at = leap_places()
    panel = Panel(
        "Guesses for a late model",
        "The global model has moved from where the straggler took it, at the lower left, to where "
        "it is now, at the right. The stale model lies beside the old place. Re-based on the "
        "present model the same move points too far, and the printed leap goes farther still; "
        "the true update is shorter, and the Taylor correction comes close to it.",
        height=272,
    )
    axes = Axes(panel, (26, 30, 292, 214), x=(-0.35, 4.75), y=(-0.6, 3.14))
    path = [axes.at(*p) for p in at["path"]]
    panel.path(path, "line ink dash")
    for p in path[1:-1]:
        panel.circle(*p, 3, "fill ink")
    panel.arrow(*path[0], *axes.at(*at["local"]), "line g1", gap=(6, 8))
    panel.arrow(*path[-1], *axes.at(*at["re-based"]), "thin g1 dash", gap=(6, 7))
    panel.arrow(*axes.at(*at["re-based"]), *axes.at(*at["(11)"]), "thin msg", gap=(7, 7), head=6)
    panel.arrow(*path[-1], *axes.at(*at["truth"]), "line hot", gap=(6, 8))
    panel.circle(*path[0], 5.5, "fill ink")
    panel.circle(*path[-1], 5.5, "fill ink")
    panel.circle(*axes.at(*at["local"]), 6, "fill g1")
    panel.circle(*axes.at(*at["re-based"]), 6, "box g1")
    panel.circle(*axes.at(*at["(11)"]), 6, "box msg")
    panel.cross(*axes.at(*GOAL), "line g1", r=6)
    panel.circle(*axes.at(*at["truth"]), 6.5, "fill hot")
    panel.circle(*axes.at(*at["taylor"]), 6, "box hot")
    for place, dx, dy, label, style, anchor in (
        (at["path"][0], -2, 22, "$w_{pull}$", "ink", "middle"),
        (at["path"][-1], 6, 22, "$w_{now}$", "ink", "middle"),
        (at["local"], -24, -14, "stale, (10)", "g1", "middle"),
        (at["re-based"], 6, -13, "re-based", "g1", "end"),
        (at["(11)"], 8, 22, "(11)", "msg", "end"),
        (at["truth"], 10, -9, "truth", "hot", "start"),
        (at["taylor"], -10, 5, "corrected", "hot", "end"),
        (GOAL, 0, -12, "its goal", "g1", "middle"),
    ):
        x, y = axes.at(*place)
        panel.text(x + dx, y + dy, label, style + " halo", anchor)
    x, y = axes.at(*((at["path"][0] + at["local"]) / 2))
    panel.text(x + 8, y + 10, "$Δ$", "g1", "start")
    return (panel,)


# ----------------------------------------------------------------------------------- the ALA box
OWN, COMMON = torch.tensor([0.0, 0.0]).double(), torch.tensor([1.0, 2.0]).double()
BEST = torch.tensor([0.15, 0.25]).double()
FLAT = torch.ones(2, dtype=torch.float64)


def ala_models(lr=0.08, steps=40):
    """The mixes on the way, from the global model on: own + weights ⊙ (global − own)."""
    weights = theory.ala_path(OWN, COMMON, FLAT, BEST, lr=lr, steps=steps)
    return OWN + weights * (COMMON - OWN), weights


def ala_box():
    mixes, weights = ala_models()
    box = Panel(
        "Descent inside the box",
        "A box with the client's own model in one corner and the global model in the opposite one. "
        "The path of the mix starts at the global model, runs down along the long side first, and "
        "then bends towards the best point for the training data, near the personal model.",
        height=276,
    )
    axes = Axes(box, (46, 36, 250, 214), x=(-0.45, 2.015), y=(-0.1, 2.01))
    x0, y0 = axes.at(*OWN)
    x1, y1 = axes.at(*COMMON)
    box.rect(min(x0, x1), min(y0, y1), abs(x1 - x0), abs(y1 - y0), "soft hot", round=0)
    box.rect(min(x0, x1), min(y0, y1), abs(x1 - x0), abs(y1 - y0), "thin hot", round=0)
    way = [axes.at(*p) for p in mixes]
    box.path(way, "line hot")
    for p in way[1:16:2]:
        box.circle(*p, 3, "fill hot")
    box.circle(x0, y0, 7, "fill g1")
    box.circle(x1, y1, 7, "fill ink")
    box.cross(*axes.at(*BEST), "line ink", r=6)
    box.text(x0 - 12, y0 + 5, "own", "g1", "end")
    box.text(x1 + 13, y1 + 5, "global $Θ$", "ink", "start")
    box.lines(x1 + 12, axes.at(*BEST)[1] - 2, ["best on the", "training data"], "ink", "start")
    box.line(axes.at(*BEST)[0] + 10, axes.at(*BEST)[1], x1 + 8, axes.at(*BEST)[1], "thin ink dots")
    box.text((x0 + x1) / 2, y1 - 10, "small $Δ_1$", "mute")
    box.text(x0 - 10, (y0 + y1) / 2, "large $Δ_2$", "mute", "end")
    box.text(x1 + 12, axes.at(0, 0.95)[1], "the mix", "hot", "start")
    box.text(x1 + 12, axes.at(0, 0.95)[1] + 16, "on its way", "hot", "start")

    curves = Panel(
        "The weights, step by step",
        "Two weights that start at one. That of the parameter with the large difference falls at "
        "once, that of the parameter with the small difference lingers.",
        height=276,
    )
    axes = Axes(curves, (34, 46, 286, 176), x=(0, 41), y=(0, 1.05))
    axes.frame("steps of ALA", "weight $W_q$", below=20)
    steps = list(range(len(weights)))
    axes.curve(steps, weights[:, 0], "line ink")
    axes.curve(steps, weights[:, 1], "line hot")
    curves.text(axes.at(17, 0)[0], axes.at(0, 0.56)[1], "small difference: lingers", "ink", "start")
    curves.text(axes.at(9, 0)[0], axes.at(0, 0.88)[1], "large difference: falls at once", "hot",
                "start")  # fmt: skip
    curves.text(170, 18, "who differs most goes first", "ink big")
    return box, curves


FIGURES = {
    "softmax-flat": softmax_flat,
    "stages": stages,
    "straggler": straggler,
    "leap": the_leap,
    "ala-box": ala_box,
}
