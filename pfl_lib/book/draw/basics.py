"""A federation, its round, what travels, and why clients that differ are a problem."""

import math

import torch

from pfl_lib import attention
from pfl_lib.book.draw.kit import Axes, Panel
from pfl_lib.formulas import attention_weights, mix, weighted_average


# -------------------------------------------------------------------- a federation is a matrix
def stack():
    """Models of four clients in two groups, with six parameters, and the weights FedAMP finds."""
    random = torch.Generator().manual_seed(3)
    groups = torch.rand(2, 6, generator=random, dtype=torch.float64)
    noise = torch.rand(4, 6, generator=random, dtype=torch.float64) - 0.5
    W = (groups.repeat_interleave(2, 0) + 0.35 * noise).clamp(0.05, 1)
    xi = attention_weights(W, attention.by_name("negative_exponential", 0.3), self_weight=0.45)
    return W, xi


def grid(panel, left, top, values, cell, meanings):
    """A matrix; the larger a number, the darker its field. ``cell`` is (width, height)."""
    wide, high = cell
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            x, y = left + j * wide, top + i * high
            panel.put("rect", f"fill {meanings[i]}", x=x, y=y, width=wide, height=high,
                      opacity=0.06 + 0.89 * value)  # fmt: skip
            panel.rect(x, y, wide, high, "thin hair", round=0)


def federation_matrix():
    W, xi = stack()
    clients, cell, top = ("g1", "g1", "g2", "g2"), (15, 24), 56
    mixing = Panel(
        "Mix: a small matrix times the models",
        "Four rows of numbers, one for each client, are the matrix W. A four by four matrix of "
        "weights in front of it, dark in two blocks, turns them into four messages U: each is a "
        "blend of the rows of its own group.",
        height=196,
    )
    left = {"xi": 34, "w": 123, "u": 236}
    mixing.text(170, 18, "mix", "ink big")
    grid(mixing, left["xi"], top, xi, cell, ["ink"] * 4)
    grid(mixing, left["w"], top, W, cell, clients)
    grid(mixing, left["u"], top, mix(xi, W), cell, ["msg"] * 4)
    for i in range(4):
        mixing.client(17, top + (i + 0.5) * cell[1], i + 1, 1 + i // 2, r=9.5)
    for name, wide, label in (("xi", 4, "$Ξ$"), ("w", 6, "$W$"), ("u", 6, "$U$")):
        mixing.text(left[name] + wide * cell[0] / 2, top - 9, label)
    mixing.text(108, top + 2 * cell[1] + 5, "×", "ink big")
    mixing.text(224, top + 2 * cell[1] + 5, "=", "ink big")
    mixing.lines(64, 172, ["who hears", "whom"], "mute small", step=14)
    mixing.lines(168, 172, ["one row", "per client"], "mute small", step=14)
    mixing.lines(281, 172, ["one message", "per client"], "mute small", step=14)

    training = Panel(
        "Train: each row on its own data",
        "Each message goes to its client, which trains it on data that nobody else sees, and "
        "sends the row back. The four new rows are the matrix W of the next round.",
        height=196,
    )
    training.text(170, 18, "train", "ink big")
    grid(training, 14, top, mix(xi, W), cell, ["msg"] * 4)
    grid(training, 236, top, W, cell, clients)
    training.text(59, top - 9, "$U$")
    training.text(281, top - 9, "$W^+$")
    for i in range(4):
        y = top + (i + 0.5) * cell[1]
        training.arrow(110, y, 154, y, "thin mute", head=6)
        training.client(170, y, i + 1, 1 + i // 2, r=9.5)
        training.arrow(186, y, 230, y, "thin mute", head=6)
    training.lines(59, 172, ["start from", "the message"], "mute small", step=14)
    training.lines(170, 172, ["a few steps on", "its own data"], "mute small", step=14)
    training.lines(281, 172, ["send the", "row back"], "mute small", step=14)
    return mixing, training


# ------------------------------------------------------------------------------------- a round
def _badge(panel, x, y, k):
    """A step of several, numbered in the order of time."""
    panel.circle(x, y, 9, "fill hot")
    panel.text(x, y + 4.3, str(k), "paper small")


def round_():
    panel = Panel(
        "One round of federated averaging",
        "A server above three clients. First the server sends one model down to all. Second, each "
        "client trains it on its own data, which stay below the client. Third, the clients send "
        "three different models up. Fourth, the server averages them.",
        height=312,
    )
    panel.server(170, 58)
    panel.model(170, 92, "ink")
    panel.text(196, 96.5, "$x$", "ink", "start")
    _badge(panel, 92, 22, 4)
    panel.text(107, 26.5, "average: $x^+ = Σ p_i w_i$", "ink", "start")
    for i, x in enumerate((56, 170, 284)):
        panel.client(x, 212, i + 1, r=15)
        panel.data(x - 2, 266)
        start = 170 + (x - 170) * 0.28
        panel.arrow(start - 8, 108, x - 10, 194, "line ink", gap=(0, 0))
        panel.arrow(x + 10, 194, start + 10, 108, "line g1")
        panel.line(x, 230, x, 246, "thin mute")
        panel.model(x + 37, 212, "g1", cells=3)
        panel.text(x + 37, 233, f"$w_{i + 1}$", "g1")
    _badge(panel, 62, 128, 1)
    panel.text(48, 132.5, "send $x$", "ink", "end")
    _badge(panel, 24, 266, 2)
    _badge(panel, 277, 128, 3)
    panel.text(291, 132.5, "send $w_i$", "g1", "start")
    panel.text(170, 302, "train on data that stay at home", "mute")
    return (panel,)


# --------------------------------------------------------------------------------- what travels
#: The ten people of chapter 1: windows of 6 × 150 numbers, summed up in 18; a model of 133.
PEOPLE, LABELLED, WINDOWS, PARAMETERS, ROUNDS = 10, 70, 1070, 133, 30
SUMMED = LABELLED * 18 * 4  # bytes
TRAVELS = ROUNDS * PEOPLE * 2 * PARAMETERS * 4
RECORDED = WINDOWS * 6 * 150 * 4


def travels():
    wall = Panel(
        "What stays and what travels",
        "Inside a watch: recordings, labels and everything computed from them. Only two things "
        "cross its wall: the common model on its way in and the trained copy on its way out.",
        height=214,
    )
    wall.rect(14, 30, 158, 150, "box g1", round=10)
    wall.client(40, 56, 1)
    wall.text(62, 60.5, "person 1", "g1", "start")
    wall.data(50, 112)
    wall.text(72, 112, "recordings,", "ink", "start")
    wall.text(72, 128, "labels", "ink", "start")
    wall.text(93, 166, "stay", "ink big")
    wall.server(290, 105)
    wall.arrow(246, 84, 152, 64, "line ink", bend=12)
    wall.arrow(152, 150, 250, 124, "line g1", bend=14)
    wall.model(213, 52, "ink")
    wall.text(213, 40, "$x$, down")
    wall.model(213, 164, "g1")
    wall.text(213, 184, "$w_1$, up", "g1")
    wall.text(300, 184, "travel", "ink big")
    wall.text(170, 206, "each way $d$ numbers in every round", "mute")

    bytes_ = Panel(
        "How much travels",
        f"Three squares drawn to scale: the {LABELLED} labelled windows, summed up in 18 numbers "
        f"each, {SUMMED:,} bytes; what {ROUNDS} rounds send, {TRAVELS:,} bytes; and all training "
        f"recordings, {RECORDED:,} bytes.",
        height=214,
    )
    large, base = 112, 145
    for left, size, style, caption in (
        (40, SUMMED, "mute", ("70 labelled", "windows,", "summed up")),
        (112, TRAVELS, "hot", (f"{ROUNDS} rounds", "of models")),
        (202, RECORDED, "ink", ("all training", "recordings")),
    ):
        side = large * math.sqrt(size / RECORDED)
        bytes_.rect(left, base - side, side, side, f"fill {style}", round=1)
        words = [*caption, f"{size / 1000:,.0f} kB"]
        bytes_.lines(left + side / 2, base + 17, words, style, step=15)
    bytes_.text(170, 20, "areas to scale", "mute small")
    return wall, bytes_


# ---------------------------------------------------------------------------------------- drift
H = torch.tensor([[3.0, 0.5], [0.5, 3.0]], dtype=torch.float64)
C = torch.tensor([[-1.5, -0.9], [1.5, 0.9]], dtype=torch.float64)
RATE = 0.15


def fedavg_path(epochs, rounds, start=(1.7, -1.15)):
    """FedAvg on two valleys ½Σh(w − c)²: the global models, and the last round's local paths."""
    x = [torch.tensor(start, dtype=torch.float64)]
    for _ in range(rounds):
        ways = [x[-1].expand(2, 2)]
        for _ in range(epochs):
            ways.append(ways[-1] - RATE * H * (ways[-1] - C))
        x.append(weighted_average(ways[-1]))
    return torch.stack(x), torch.stack(ways)


def best_common():
    """Where the two slopes cancel."""
    return (H * C).sum(0) / H.sum(0)


def drift():
    def picture(title, desc, epochs, rounds):
        panel = Panel(title, desc, height=250)
        axes = Axes(panel, (14, 34, 312, 205), x=(-2.45, 2.45), y=(-1.61, 1.61))
        for i in range(2):
            for level in (0.16, 0.6, 1.35):
                angles = torch.linspace(0, 2 * math.pi, 73).double()
                ring = torch.stack([angles.cos(), angles.sin()], 1)
                ring = C[i] + ring * (2 * level / H[i]).sqrt() * 0.55
                panel.path([axes.at(*p) for p in ring], f"thin g{i + 1}")
                panel.parts[-1] = panel.parts[-1].replace("<path", '<path opacity="0.45"')
        x, ways = fedavg_path(epochs, rounds)
        panel.path([axes.at(*p) for p in x], "thin ink dash")
        for p in x[:-1]:
            panel.circle(*axes.at(*p), 3, "fill ink")
        for i in range(2):
            way = [axes.at(*p) for p in ways[:, i]]
            panel.path(way, f"line g{i + 1}")
            panel.client(*axes.at(*C[i]), i + 1, i + 1, r=10)
        goal, end = axes.at(*best_common()), axes.at(*x[-1])
        panel.cross(*goal, "line hot", r=6)
        panel.circle(*end, 5.5, "fill ink")
        panel.text(170, 18, title, "ink big")
        return panel, goal, end, axes.at(*x[0])

    one, goal, _, start = picture(
        "one local step", "Two valleys, of client 1 and client 2. With one local step per round "
        "the common model walks to the cross, the best common model.", 1, 40)  # fmt: skip
    one.text(start[0], start[1] + 17, "start", "ink small halo")
    one.text(goal[0] + 12, goal[1] - 12, "best common model", "hot small halo")
    many, goal, end, _ = picture(
        "thirty local steps", "The same two valleys. With thirty local steps each client walks "
        "all the way to its own optimum, and the average of the two comes to rest away from the "
        "cross.", 30, 12)  # fmt: skip
    many.text(goal[0] + 12, goal[1] - 12, "best common model", "hot small halo")
    many.text(end[0] + 14, end[1] + 4, "FedAvg rests here", "ink small halo", "start")
    return one, many


# ---------------------------------------------------------------------------- what can differ
def differ():
    def bars(panel, left, base, heights, group):
        for k, high in enumerate(heights):
            panel.rect(left + 13 * k, base - high, 10, high, f"fill g{group}", round=1)
        panel.line(left - 3, base, left + 13 * len(heights), base, "thin ink")

    def head(panel, label, sign):
        panel.text(170, 18, label, "ink big")
        panel.text(170, 36, sign, "mute")
        panel.client(30, 82, 1)
        panel.client(200, 82, 2, group=2)

    labels = Panel("Label skew", "Two clients with bars for four classes: client 1 has mostly the "
                   "first two classes, client 2 mostly the last two.", height=112)  # fmt: skip
    head(labels, "label skew", "$p_i(y)$: how often each class")
    bars(labels, 62, 98, (44, 34, 8, 5), 1)
    bars(labels, 232, 98, (5, 9, 30, 46), 2)
    sizes = Panel("Quantity skew", "Two clients with bars of the same shape, those of client 2 "
                  "four times as high.", height=112)  # fmt: skip
    head(sizes, "quantity skew", "$n_i$: how many samples")
    bars(sizes, 62, 98, (9, 7, 11, 8), 1)
    bars(sizes, 232, 98, (36, 28, 44, 32), 2)
    names = Panel("Conflicting labels", "Both clients hold the same picture, a triangle. Client 1 "
                  "calls it A, client 2 calls it B.", height=112)  # fmt: skip
    head(names, "conflicting labels", "$p_i(y|x)$: what one calls it")
    for x, label, g in ((78, "“A”", 1), (248, "“B”", 2)):
        names.path([(x, 98), (x + 17, 66), (x + 34, 98)], f"line g{g}", closed=True)
        names.text(x + 58, 87, label, f"g{g} big")
    looks = Panel("Feature skew", "Both clients call their picture A: client 1 holds a thin "
                  "upright triangle, client 2 a slanted, filled one.", height=112)  # fmt: skip
    head(looks, "feature skew", "$p_i(x|y)$: what it looks like")
    looks.path([(78, 98), (95, 66), (112, 98)], "line g1", closed=True)
    looks.path([(246, 98), (276, 68), (284, 94)], "fill g2", closed=True)
    looks.text(136, 87, "“A”", "g1 big")
    looks.text(306, 87, "“A”", "g2 big")
    return labels, sizes, names, looks


# ------------------------------------------------------------------------------------ shrinkage
PATIENT, HOSPITAL, MANY = 4.0, 1.0, 20  # days, days, hospitals: as in chapter 3


def errors(n):
    """Expected squared errors of one's own mean, the common mean and the best mixture."""
    v = PATIENT**2 / n
    own = v
    common = v / MANY + (1 - 1 / MANY) * HOSPITAL**2
    best = v - (1 - 1 / MANY) * v**2 / (v + HOSPITAL**2)
    return own, common, best


def shrunk(n=16, count=9, draws=500):
    """True means of some hospitals, their own means, and those drawn to the common mean by the
    best λ.

    Of many draws the most typical one: errors and spreads are nearest to what is expected.
    """
    random = torch.Generator().manual_seed(0)
    luck = torch.randn(2, draws, count, generator=random, dtype=torch.float64)
    truth = 7 + HOSPITAL * luck[0]
    own = truth + PATIENT / math.sqrt(n) * luck[1]
    lam = (PATIENT**2 / n) / (PATIENT**2 / n + HOSPITAL**2)
    moved = (1 - lam) * own + lam * own.mean(1, keepdim=True)
    seen = torch.stack([
        (own - truth).square().mean(1), (moved - truth).square().mean(1), truth.var(1), own.var(1)
    ])  # fmt: skip
    expected = torch.tensor([PATIENT**2 / n, errors(n)[2], HOSPITAL**2, 2 * HOSPITAL**2])
    typical = (seen / expected[:, None] - 1).square().sum(0).argmin()
    return truth[typical], own[typical], moved[typical]


def shrinkage():
    truth, own, best = shrunk()
    moved = Panel(
        "Shrinkage moves every mean towards the common one",
        "Nine own means on an upper line. Lines lead from each to a middle line, half of the way "
        "towards the common mean, and on to the true means on the lowest line. The lower lines are "
        "less slanted: the shrunk means are nearer to the truth.",
        height=236,
    )
    axes = Axes(moved, (22, 40, 296, 160), x=(3.6, 10.4), y=(0, 2))
    for y, label in ((2, "own means"), (1, "shrunk by half"), (0, "the truth")):
        moved.line(*axes.at(3.6, y), *axes.at(10.4, y), "thin hair")
        moved.text(22, axes.at(0, y)[1] + 15, label, "mute small", "start")
    middle = own.mean()
    moved.line(*axes.at(middle, 2), *axes.at(middle, 0), "thin ink dash")
    moved.text(axes.at(middle, 2)[0], 18, "common mean")
    for a, b, t in zip(own, best, truth):
        moved.line(*axes.at(a, 2), *axes.at(b, 1), "thin g1")
        moved.line(*axes.at(b, 1), *axes.at(t, 0), "thin hair")
        moved.circle(*axes.at(a, 2), 4.5, "fill g1")
        moved.circle(*axes.at(b, 1), 4.5, "fill hot")
        moved.circle(*axes.at(t, 0), 4.5, "fill ink")
    moved.text(318, 218, "length of stay →", "mute small", "end")

    panel = Panel(
        "Error against the number of patients",
        "The error of one's own mean falls with the number of patients, that of the common mean "
        "stays near one. They cross at sixteen patients. The best mixture lies below both, at "
        "half their height where they cross.",
        height=236,
    )
    axes = Axes(panel, (34, 32, 286, 160), x=(0, 6), y=(0, 2.1))
    axes.frame("patients per hospital", "error")
    steps = torch.linspace(1.5, 6, 91).tolist()  # powers of two
    curves = [errors(2**s) for s in steps]
    for k, style in enumerate(("line g1", "line ink", "line hot")):
        axes.curve(steps, [c[k] for c in curves], style)
    for s in (2, 4, 6):
        axes.tick(s, str(2**s))
    axes.drop(4, 1)
    panel.circle(*axes.at(4, 1), 4, "fill ink")
    panel.text(axes.at(3.05, 0)[0] + 14, axes.at(0, 1.75)[1], "own mean", "g1", "start")
    panel.text(320, axes.at(0, 1.05)[1], "common mean", "ink", "end")
    panel.text(axes.at(1.6, 0)[0], axes.at(0, 0.52)[1], "best mixture", "hot", "start")
    return moved, panel


FIGURES = {
    "federation-matrix": federation_matrix,
    "round": round_,
    "travels": travels,
    "drift": drift,
    "differ": differ,
    "shrinkage": shrinkage,
}
