"""Who listens to whom: pulls, proximal steps, envelopes, angles, thresholds."""

import math

import torch

from pfl_lib import attention
from pfl_lib.book import theory
from pfl_lib.book.draw.basics import grid
from pfl_lib.book.draw.kit import Axes, Panel
from pfl_lib.formulas import (
    attention_weights,
    cosine_similarities,
    fedacs_weights,
    heurfedamp_weights,
    proximal_step_quadratic,
)


def _range(low, high, count=121):
    return torch.linspace(low, high, count, dtype=torch.float64)


# ------------------------------------------------------------------------ pull against distance
EXPONENTIAL = attention.by_name("negative_exponential", 1.0)
TAMED = attention.by_name("tamed_square_root", 1.0)


def pulls(r):
    """The pull 2rA'(r²) of three prices: the squared distance, tamed square root, exponential."""
    return {
        "distance": 0.35 * r,  # A(t) = 0.175 t, small enough to fit the picture
        "tamed": 2 * r * TAMED.derivative(r**2),
        "exponential": 2 * r * EXPONENTIAL.derivative(r**2),
    }


def pull():
    weight = Panel(
        "The weight falls with the distance",
        "Weights against distance. For the squared distance the weight is the same everywhere. "
        "For the tamed square root it falls slowly, for the exponential it is zero beyond twice "
        "the width.",
        height=222,
    )
    axes = Axes(weight, (30, 34, 290, 156), x=(0, 3.5), y=(0, 1.08))
    axes.frame("distance $r$ of two models", "weight $A'(r^2)$", below=20)
    r = _range(0.0, 3.4)
    axes.curve(r, torch.full_like(r, 0.175), "line mute dash")
    axes.curve(r, TAMED.derivative(r**2), "line g1")
    axes.curve(r, EXPONENTIAL.derivative(r**2), "line hot")
    weight.text(axes.at(0.75, 0)[0], axes.at(0, 0.86)[1], "exponential", "hot", "start")
    weight.text(axes.at(1.45, 0)[0], axes.at(0, 0.42)[1], "tamed square root", "g1", "start")
    weight.text(
        axes.at(0, 0)[0] + 8, axes.at(0, 0.175)[1] + 17, "squared distance", "mute", "start"
    )

    force = Panel(
        "The pull is the weight times the distance",
        "Pulls against distance. That of the squared distance grows without end, that of the "
        "tamed square root rises and then stays constant, that of the exponential rises, falls "
        "and dies out.",
        height=222,
    )
    axes = Axes(force, (30, 34, 290, 156), x=(0, 3.5), y=(0, 1.25))
    axes.frame("distance $r$ of two models", "pull $2rA'(r^2)$", below=20)
    curves = pulls(r)
    axes.curve(r, curves["distance"], "line mute dash")
    axes.curve(r, curves["tamed"], "line g1")
    axes.curve(r, curves["exponential"], "line hot")
    force.text(318, axes.at(0, 1.2)[1] - 2, "holds on ever harder", "mute", "end")
    force.text(318, axes.at(0, 1.0)[1] + 17, "holds on", "g1", "end")
    force.text(axes.at(1.95, 0)[0], axes.at(0, 0.16)[1], "lets go", "hot", "start")
    return weight, force


# ---------------------------------------------------------------------------- the proximal step
LOSS = {"h": 1.0, "c": 2.9}  # curvature and best point of the client's loss
MESSAGE = 0.8


def stepped(beta):
    """Where the client ends: between the message and its own best point."""
    u, h, c = (torch.tensor([[v]], dtype=torch.float64) for v in (MESSAGE, LOSS["h"], LOSS["c"]))
    return float(proximal_step_quadratic(u, h, c, beta))


def proximal_step():
    def picture(title, beta, desc):
        panel = Panel(title, desc, height=250)
        axes = Axes(panel, (20, 40, 300, 168), x=(-0.3, 4.1), y=(0, 2.4))
        axes.frame()
        w = _range(-0.3, 4.0)
        loss = 0.5 * LOSS["h"] * (w - LOSS["c"]) ** 2
        spring = (w - MESSAGE) ** 2 / (2 * beta)
        axes.curve(w, loss, "line g1")
        axes.curve(w, spring, "thin msg dash")
        axes.curve(w, loss + spring, "line ink")
        end = stepped(beta)
        low = 0.5 * LOSS["h"] * (end - LOSS["c"]) ** 2 + (end - MESSAGE) ** 2 / (2 * beta)
        axes.drop(end, low)
        panel.circle(*axes.at(end, low), 4.5, "fill ink")
        base = axes.at(0, 0)[1]
        panel.spring(axes.at(MESSAGE, 0)[0] + 9, base, axes.at(end, 0)[0] - 6, base, "thin msg",
                     coils=5, high=4)  # fmt: skip
        panel.message(axes.at(MESSAGE, 0)[0], base)
        panel.circle(axes.at(end, 0)[0], base, 6, "fill hot")
        panel.cross(axes.at(LOSS["c"], 0)[0], base, "line g1")
        for x, label, style in ((MESSAGE, "$u_i$", "msg"), (end, "$w_i^+$", "hot"),
                               (LOSS["c"], "own best", "g1")):  # fmt: skip
            panel.text(axes.at(x, 0)[0], base + 24, label, style)
        panel.text(170, 18, title, "ink big")
        return panel, axes

    tight, axes = picture(
        "a tight spring", 0.35,
        "A client's loss with its bottom at the right, a message at the left, and a stiff spring "
        "to the message. The sum has its bottom near the message, and there the client ends.",
    )  # fmt: skip
    tight.text(axes.at(3.75, 0)[0], axes.at(0, 0.62)[1], "loss", "g1")
    tight.text(axes.at(2.1, 0)[0] + 6, axes.at(0, 1.9)[1], "spring", "msg", "start")
    tight.text(axes.at(0.62, 0)[0], axes.at(0, 2.15)[1], "sum", "ink", "end")
    loose, axes = picture(
        "a loose spring", 2.0,
        "The same loss and message with a soft spring. The bottom of the sum is near the client's "
        "own best point.",
    )  # fmt: skip
    loose.text(axes.at(3.75, 0)[0], axes.at(0, 0.62)[1], "loss", "g1")
    loose.text(axes.at(3.15, 0)[0], axes.at(0, 1.75)[1], "spring", "msg", "end")
    loose.text(axes.at(2.2, 0)[0], axes.at(0, 1.05)[1], "sum", "ink")
    return tight, loose


# --------------------------------------------------------------------------- the Moreau envelope
BOWL = 0.45  # the envelope is min over v of f(v) + BOWL (v − w)²


def bumpy(v):
    """Two bowls that become flat far away, as those of chapter 5."""

    def bowl(x):
        return x**2 / (1 + x**2)

    return 0.55 * bowl(1.7 * (v + 1.5)) + 0.75 * bowl(1.5 * (v - 1.3)) - 0.45


def envelope(w, reach=4.0, count=4001):
    """The envelope of ``bumpy`` at w, and the better point nearby that attains it."""
    v = _range(-reach, reach, count)
    inner = bumpy(v) + BOWL * (v - torch.as_tensor(w, dtype=torch.float64)[..., None]) ** 2
    low = inner.min(-1)
    return low.values, v[low.indices]


def moreau_envelope():
    w = _range(-3.1, 3.1, 187)
    both = Panel(
        "A function and its Moreau envelope",
        "A bumpy curve with two valleys. Its envelope lies below it, is smoother, and touches it "
        "at the bottom of each valley.",
        height=230,
    )
    axes = Axes(both, (20, 36, 300, 150), x=(-3.1, 3.1), y=(0, 1.0))
    axes.frame()
    smooth, _ = envelope(w)
    axes.area(w.tolist(), smooth.tolist(), bumpy(w).tolist(), "soft hot")
    axes.curve(w, bumpy(w), "line ink")
    axes.curve(w, smooth, "line hot")
    both.text(axes.at(-0.1, 0)[0], axes.at(0, 0.9)[1], "the objective", "ink")
    both.text(axes.at(-0.15, 0)[0], axes.at(0, 0.12)[1], "its envelope", "hot")
    both.text(170, 18, "smoother, and never above", "ink big")

    point = 0.4
    value, better = (float(t) for t in envelope(torch.tensor(point)))
    one = Panel(
        "One value of the envelope",
        "At a point W a bowl stands upside down and is raised until it touches the curve. It "
        "touches at a better point nearby; the height of its top is the value of the envelope.",
        height=230,
    )
    axes = Axes(one, (20, 36, 300, 150), x=(-3.1, 3.1), y=(0, 1.0))
    axes.frame()
    axes.curve(w, bumpy(w), "line ink")
    bowl = value - BOWL * (w - point) ** 2
    axes.curve(w, bowl, "line msg dash")
    touch = float(bumpy(torch.tensor(better)))
    axes.drop(point, float(bumpy(torch.tensor(point))))
    axes.drop(better, touch)
    one.circle(*axes.at(point, float(bumpy(torch.tensor(point)))), 5, "fill ink")
    one.circle(*axes.at(point, value), 5, "fill hot")
    one.circle(*axes.at(better, touch), 5, "fill msg")
    base = axes.at(0, 0)[1]
    one.text(axes.at(point, 0)[0] - 5, base + 18, "$W$", "ink")
    one.text(axes.at(better, 0)[0] + 5, base + 18, "better point", "msg", "start")
    one.text(axes.at(point, 0)[0] - 10, axes.at(0, value)[1] + 4, "envelope", "hot halo", "end")
    one.text(170, 18, "one value of it", "ink big")
    return both, one


# ---------------------------------------------------------------------------- the convexity line
GROUP, WIDTH_OF_ATTENTION = 4, 1.0


def stretched(r, mu, lam):
    """The objective of ``theory.bistable_centers`` per partner, as the distance r is stretched.

    The others follow: with w − v = r fixed, the losses are least at (μ/2m)(r − c)² per partner.
    """
    c = float(theory.bistable_centers(mu, lam, WIDTH_OF_ATTENTION, GROUP)[0])
    A = attention.by_name("negative_exponential", WIDTH_OF_ATTENTION)
    return mu / (2 * GROUP) * (r - c) ** 2 + lam * A.value(r**2)


def convexity_line():
    A = attention.by_name("negative_exponential", WIDTH_OF_ATTENTION)
    rho = theory.weak_convexity(A, GROUP)
    mu, edge = 2.0, 2.0 / rho
    places = (("g3", 0.4 * edge), ("ink", edge), ("hot", 2.6 * edge))
    sums = Panel(
        "One bottom or two",
        "Three curves of the objective against the distance of one client from its group. With a "
        "small λ there is one bottom, at the line the curve is flat in its middle, and with a "
        "large λ there are two bottoms.",
        height=240,
    )
    axes = Axes(sums, (18, 40, 302, 166), x=(0, 4.4), y=(0, 1.3))
    axes.frame("distance from the group", "", below=18)
    r = _range(0.0, 3.0)
    for base, (meaning, lam), (down, label) in zip(
        (0.84, 0.44, 0.04), places[::-1], ((0, "two bottoms"), (14, "flat"), (10, "one bottom"))
    ):
        curve = stretched(r, mu, lam)
        curve = 0.36 * (curve - curve.min()) / (curve.max() - curve.min()) + base
        axes.curve(r, curve, f"line {meaning}")
        x, y = axes.at(3.0, curve[-1])
        sums.text(x + 8, y + down, label, meaning, "start")
    sums.text(170, 18, "the objective, stretched", "ink big")

    plane = Panel(
        "Where the line runs",
        "A plane with λ across and the strong convexity μ up. Above a straight line through the "
        "origin FedAMP has one end, below it several. Three dots at one height mark the three "
        "curves beside.",
        height=240,
    )
    axes = Axes(plane, (30, 40, 290, 156), x=(0, 3.2 * edge), y=(0, 4.0))
    far = 4.0 / rho
    left, top = axes.at(0, 4)
    plane.path([axes.at(0, 0), axes.at(far, 4), (left, top)], "soft g3", closed=True)
    plane.path([axes.at(0, 0), axes.at(far, 4), axes.at(3.2 * edge, 4), axes.at(3.2 * edge, 0)],
               "soft hot", closed=True)  # fmt: skip
    plane.line(*axes.at(0, 0), *axes.at(far, 4), "line ink")
    axes.frame("coupling $λ$", "", below=18)
    plane.text(26, 52, "$μ$", "ink", "end")
    for meaning, lam in places:
        plane.circle(*axes.at(lam, mu), 5.5, f"fill {meaning}")
    plane.text(axes.at(0.55 * edge, 0)[0], axes.at(0, 3.1)[1], "one end", "g3")
    plane.text(axes.at(2.2 * edge, 0)[0], axes.at(0, 0.85)[1], "several ends", "hot")
    plane.text(axes.at(1.75 * edge, 0)[0] + 12, axes.at(0, 3.45)[1], "$μ = λρ$", "ink", "start")
    plane.text(170, 18, "where the line runs", "ink big")
    return sums, plane


# ----------------------------------------------------------------------------- angle or distance
def rays():
    """Six classifiers in the plane: two directions, three lengths each."""
    angle = torch.deg2rad(torch.tensor([14.0, 25.0, 19.0, 72.0, 66.0, 76.0], dtype=torch.float64))
    length = torch.tensor([0.85, 1.8, 2.8, 0.75, 1.7, 2.5], dtype=torch.float64)
    return length[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


def angle_distance():
    W = rays()
    rules = {
        "by distance": attention_weights(W, attention.by_name("negative_exponential", 1.0), 0.25),
        "by angle": heurfedamp_weights(W, 10.0, 0.25),
    }
    label = {
        "by distance": "Six arrows from the origin in two directions. Client 1 has a short arrow. "
        "Measured by distance, it hears most from client 4, the short arrow of the other group.",
        "by angle": "The same six arrows. Measured by angle, client 1 hears clients 2 and 3, which "
        "point the same way, and nearly nothing from the others.",
    }
    panels = []
    for title, xi in rules.items():
        panel = Panel(title, label[title], height=312)
        axes = Axes(panel, (30, 34, 280, 216), x=(-0.1, 3.15), y=(-0.1, 2.407))
        origin = axes.at(0, 0)
        panel.text(170, 18, title, "ink big")
        first = axes.at(*W[0])
        if title == "by distance":
            panel.put("circle", "soft hot", cx=first[0], cy=first[1], r=280 / 3.25 * 0.98)
        else:
            turn = math.atan2(float(W[0, 1]), float(W[0, 0]))
            edge = [axes.at(3.05 * math.cos(turn + k), 3.05 * math.sin(turn + k))
                    for k in _range(-0.24, 0.24, 25).tolist()]  # fmt: skip
            panel.path([origin, *edge], "soft hot", closed=True)
        for j in range(1, 6):
            share = float(xi[0, j]) / 0.75
            if share > 0.03:
                (x1, y1), (x2, y2) = first, axes.at(*W[j])
                wide = f"stroke-width:{1 + 9 * share:.1f}px"
                panel.put("line", "thin hot", x1=x1, y1=y1, x2=x2, y2=y2, style=wide)
        for j in range(6):
            panel.line(*origin, *axes.at(*W[j]), f"thin g{1 + j // 3}")
        for j in range(6):
            panel.client(*axes.at(*W[j]), j + 1, 1 + j // 3, r=10.5)
        panel.circle(*origin, 3, "fill ink")
        panels.append(panel)
    return tuple(panels)


# ---------------------------------------------------------------------------- the feedback loop
def feedback_loop():
    def loop(title, desc, steps, clouds, meaning):
        panel = Panel(title, desc, height=268)
        panel.text(170, 18, title, "ink big")
        cx, cy, rx, ry = 170, 148, 113, 84
        spots = [(cx, cy - ry), (cx + rx, cy), (cx, cy + ry), (cx - rx, cy)]
        # arcs from box to box
        for a, b in ((-56, -22), (22, 54), (124, 156), (202, 234)):
            way = [(cx + rx * math.cos(math.radians(t)), cy + ry * math.sin(math.radians(t)))
                   for t in _range(a, b, 15).tolist()]  # fmt: skip
            panel.path(way[:-2], f"line {meaning}")
            panel.arrow(*way[-4], *way[-1], f"line {meaning}", head=9)
        for (x, y), lines in zip(spots, steps):
            panel.rect(x - 51, y - 21, 102, 42, f"box {meaning}", round=8)
            panel.lines(x, y - 3.5, lines, "ink small", step=15)
        for x, y, i in clouds:
            panel.client(cx + x, cy + y, i, 1 if i <= 3 else 2, r=8)
        return panel

    apart = [(-32, -6, 1), (-24, 12, 2), (-40, 12, 3), (32, -10, 4), (24, 8, 5), (41, 7, 6)]
    crowd = [(-11, -11, 1), (8, -9, 4), (-17, 6, 3), (1, 6, 5), (18, 8, 6), (-2, 22, 2)]
    narrow = loop(
        "a width that fits",
        "A circle of four steps: a client hears its own group, becomes more like it, the gap "
        "between groups grows, so it hears its own group still more. In the middle two separate "
        "groups of three clients.",
        [["hears mostly", "its own group"], ["becomes", "more like it"],
         ["the groups'", "gap grows"], ["strangers", "lose weight"]], apart, "g3",
    )  # fmt: skip
    wide = loop(
        "a width too wide",
        "A circle of four steps: a client hears everybody, becomes like everybody, the gap between "
        "groups shrinks, so it hears everybody even more alike. In the middle one crowd.",
        [["hears", "everybody"], ["becomes", "like everybody"],
         ["the groups'", "gap shrinks"], ["nobody looks", "like a stranger"]], crowd, "hot",
    )  # fmt: skip
    return narrow, wide


# ---------------------------------------------------------------------------- selection by δ
def six_estimates():
    """The six clients with which chapter 7 begins."""
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    truth = torch.tensor([[3.0, 1.0], [1.0, 3.0]], dtype=torch.float64)[groups]
    random = torch.Generator().manual_seed(2)
    return truth + 0.7 * torch.randn(6, 2, generator=random, dtype=torch.float64)


def selection(p=0.5):
    W = six_estimates()
    S = cosine_similarities(W)
    xi, delta = fedacs_weights(W, p)
    order = S.flatten().sort()
    kin = (torch.arange(6)[:, None] // 3 == torch.arange(6)[None] // 3).flatten()[order.indices]
    ladder = Panel(
        "All cosines, sorted, and the threshold",
        "Thirty-six dots, the cosines of all pairs in rising order. A line at the median, the "
        "threshold delta, cuts off the lower half. Nearly all dots above it belong to pairs of one "
        "group, those below to strangers.",
        height=244,
    )
    low = math.floor(10 * float(S.min())) / 10
    axes = Axes(ladder, (36, 34, 284, 166), x=(-0.5, 36), y=(low, 1.03))
    x0, y0 = axes.at(-0.5, float(delta))
    ladder.rect(x0, axes.at(0, 1.03)[1], 284, y0 - axes.at(0, 1.03)[1], "soft hot", round=0)
    axes.frame("all pairs, sorted", "cosine", below=20)
    ladder.line(x0, y0, x0 + 284, y0, "line hot")
    for k, (value, near) in enumerate(zip(order.values.tolist(), kin.tolist())):
        if near:
            ladder.circle(*axes.at(k, value), 4, "fill g1")
        else:
            ladder.circle(*axes.at(k, value), 3.6, "box mute")
    ladder.text(x0 + 8, y0 - 8, "heard: above $δ$", "hot", "start")
    ladder.text(x0 + 8, y0 + 18, "not heard", "mute", "start")
    ladder.circle(206, axes.at(0, low)[1] - 34, 4, "fill g1")
    ladder.text(216, axes.at(0, low)[1] - 30, "same group", "g1 small", "start")
    ladder.circle(206, axes.at(0, low)[1] - 16, 3.6, "box mute")
    ladder.text(216, axes.at(0, low)[1] - 12, "strangers", "mute small", "start")

    matrix = Panel(
        "Who hears whom",
        "A six by six matrix of the weights that result: two blocks of three, the rest empty.",
        height=244,
    )
    cell, left, top = 25, 108, 56
    grid(matrix, left, top, xi, (cell, cell), ["g1"] * 3 + ["g2"] * 3)
    for i in range(6):
        matrix.client(left - 18, top + (i + 0.5) * cell, i + 1, 1 + i // 3, r=9.5)
        matrix.client(left + (i + 0.5) * cell, top - 18, i + 1, 1 + i // 3, r=9.5)
    matrix.text(left - 36, top + 3 * cell + 4, "hears", "mute", "end")
    matrix.text(left + 3 * cell, 18, "whom", "mute")
    matrix.text(left + 3 * cell, top + 6 * cell + 22, "the weights $ξ_{ij}$", "ink")
    return ladder, matrix


FIGURES = {
    "pull": pull,
    "proximal-step": proximal_step,
    "moreau-envelope": moreau_envelope,
    "convexity-line": convexity_line,
    "angle-distance": angle_distance,
    "feedback-loop": feedback_loop,
    "selection": selection,
}
