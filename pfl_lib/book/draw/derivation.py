"""FedAMP's derivation, a picture for each step, and the graph behind it: six clients."""

import torch

from pfl_lib.attention import negative_exponential
from pfl_lib.book.draw.kit import Panel
from pfl_lib.book.theory import laplacian
from pfl_lib.formulas import (
    fedamp_weights,
    largest_convex_alpha,
    mix,
    proximal_step_quadratic,
    squared_distances,
)

W = torch.tensor(
    [[-2.1, 0.7], [-1.2, -0.4], [-0.5, 1.0], [0.9, -1.1], [2.2, -0.5], [1.5, 0.6]],
    dtype=torch.float64,
)
BEST = W + torch.tensor(  # where each client's own loss is least
    [[-0.7, 0.4], [-0.4, -0.7], [0.3, 0.6], [-0.1, -0.7], [0.7, -0.3], [0.6, 0.6]],
    dtype=torch.float64,
)
A, ALPHA, HEIGHT, NEAR = negative_exponential(sigma=2.0), 0.6, 212, 0.45


def _at(point):
    """A point of the plane in a panel."""
    return 170 + 50 * float(point[0]), 90 - 44 * float(point[1])


def _clients(panel):
    for i, w in enumerate(W):
        panel.client(*_at(w), i + 1, 1 + i // 3, r=10)


def _links(panel, weights, meaning, at=W):
    """A line for each pair, as wide as the larger of its two weights."""
    for i in range(6):
        for j in range(i):
            wide = 9 * float(max(weights[i, j], weights[j, i]))
            if wide > 0.12:
                (x1, y1), (x2, y2) = _at(at[i]), _at(at[j])
                panel.put("line", f"line {meaning}", x1=x1, y1=y1, x2=x2, y2=y2,
                          style=f"stroke-width: {wide:.2f}", opacity=0.55)  # fmt: skip


def _start(step, title, desc, caption):
    panel = Panel(f"Step {step}: {title}", desc, HEIGHT)
    panel.text(170, HEIGHT - 8, caption, "ink")
    return panel


def derivation():
    wishes = _start(1, "two wishes", "Six clients in two groups. Each has a cross near it, the "
                    "best point for its own loss, and dotted lines to all others.",
                    "near your own ✕, and near each other")  # fmt: skip
    for i in range(6):
        for j in range(i):
            wishes.line(*_at(W[i]), *_at(W[j]), "thin msg dots")
        wishes.line(*_at(W[i]), *_at(BEST[i]), "thin ink")
        wishes.cross(*_at(BEST[i]), "line ink", r=4)
    _clients(wishes)

    price = _start(2, "what a distance costs", "The same clients. Lines inside a group are wide, "
                   "the pull is strong; lines between the groups have all but vanished.",
                   "the width is the pull: far pairs let go")  # fmt: skip
    t = squared_distances(W)
    _links(price, 2 * t.sqrt() * A.derivative(t) / 1.6, "msg")
    _clients(price)

    messages = mix(fedamp_weights(W, A, ALPHA, grad_factor=2), W)
    trained = proximal_step_quadratic(messages, torch.ones_like(W), BEST, 2.0)
    turns = _start(3, "in turns", "Each client has a diamond inside its group, the "
                   "server's step; from there an arrow leads back towards its own best point.",
                   "the server pulls together, a client back")  # fmt: skip
    for i in range(6):
        turns.cross(*_at(BEST[i]), "thin ink", r=4)
        turns.arrow(*_at(messages[i]), *_at(trained[i]), "line ink", gap=(5, 0), head=7)
    _clients(turns)
    for i in range(6):
        turns.message(*_at(messages[i]), r=5)

    one, two = (mix(fedamp_weights(W, A, ALPHA, grad_factor=c), W) for c in (1, 2))
    factor = _start(4, "the factor that went missing", "Two diamonds on each client's way into its "
                    "group: a hollow one half way, a full one at the end.",
                    "printed ◇: half as far as the gradient ◆")  # fmt: skip
    for i in range(6):
        factor.line(*_at(W[i]), *_at(two[i]), "thin msg")
    _clients(factor)
    for i in range(6):
        factor.message(*_at(two[i]), r=5)
        factor.message(*_at(one[i]), r=4.5, style="box msg")

    xi = fedamp_weights(W, A, ALPHA, grad_factor=2)
    mixture = _start(5, "a step is a mixture", "Wide links inside each group, thin ones between; "
                     "the message of each client, a diamond, lies among the models of its group.",
                     "links as wide as $ξ_{ij}$; a message ◆ is a mean")  # fmt: skip
    _links(mixture, xi, "mute")
    _clients(mixture)
    for i in range(6):
        mixture.message(*_at(messages[i]), r=5)

    alpha = 2.2 * float(largest_convex_alpha(W, A, grad_factor=2).min())
    far = mix(fedamp_weights(W, A, alpha, grad_factor=2), W)
    fair = _start(7, "too long a step", "The same with a step that is too long: the diamonds have "
                  "jumped over the other clients of their group and out of it.",
                  "$α$ too large: messages jump out of the group")  # fmt: skip
    for i in range(6):
        fair.arrow(*_at(W[i]), *_at(far[i]), "thin hot", head=6)
    _clients(fair)
    for i in range(6):
        fair.message(*_at(far[i]), r=5, style="fill hot")
    return wishes, price, turns, factor, mixture, fair


def safe_steps():
    """The graph's safe step α = 1/(2λmax(L)), for models that are near and for groups apart."""
    return [1 / (2 * float(torch.linalg.eigvalsh(laplacian(V, A)).max())) for V in (NEAR * W, W)]


def graph():
    steps = safe_steps()
    moments = (
        ("at first: everybody is near", NEAR, "many strong edges: a step of {:.2f} is safe"),
        ("later: groups are apart", 1.0, "few strong edges: {:.2f} is safe now"),
    )
    panels = []
    for step, (title, scale, caption) in zip(steps, moments, strict=True):
        panel = Panel(
            f"The graph behind the models, {title}",
            "Six clients as the nodes of a graph; an edge is the wider, the nearer two models are. "
            + ("All are close together, with wide edges between all of them." if scale < 1 else
               "Two groups stand apart; edges are wide inside the groups and thin between them."),
            HEIGHT,
        )  # fmt: skip
        panel.text(170, 16, title, "ink big")
        V = scale * W
        weights = A.derivative(squared_distances(V)) / 0.8
        _links(panel, weights, "mute", at=V)
        for i in range(6):
            x, y = _at(V[i])
            panel.client(x, y, i + 1, 1 + i // 3, r=10)
        panel.text(170, HEIGHT - 8, caption.format(step), "ink")
        panels.append(panel)
    return tuple(panels)


FIGURES = {"fedamp-derivation": derivation, "graph": graph}
