"""Every figure of the book: one style, one meaning for a colour, nothing smaller than the text.

Clients of the same hidden group share a colour (the palette is safe for colour-blind readers), a
method keeps its colour from figure to figure.
"""

from itertools import pairwise
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import torch

from pfl_lib import _deprecated
from pfl_lib._show import Shown
from pfl_lib.comparison import DECIDES, PERSONAL, SHARED, places
from pfl_lib.methods import BY_NAME

# Load the backend now: a notebook's would otherwise be set up inside the first rc_context below
# and undone at its end, and no later figure would be shown.
plt.switch_backend(matplotlib.get_backend())

#: Okabe and Ito's palette, in the order the explorers use.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8F7000", "#555555")
METHODS = {
    "Separate": "#555555",
    "FedAvg": "#56B4E9",
    "FedAvg-FT": "#0072B2",
    "FedAMP": "#D55E00",
    "FedAMP, σ=100": "#D55E00",
    "FedAMP, median σ": "#A6266E",
    "HeurFedAMP": "#E69F00",
    "FedACS": "#009E73",
    "SPFL": "#CC79A7",
    "FedALA": "#8F7000",
}
DECIDERS = (("#555555", ":"), ("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."))
STYLE: dict[Any, Any] = {
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 13,
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "legend.frameon": False,
    "lines.linewidth": 2,
}


def color_of(label, position=0):
    """The colour of a method; methods without one of their own take the palette in turn.

    >>> color_of("FedAMP") == color_of("FedAMP"), color_of("a method of mine", position=2)
    (True, '#009E73')
    """
    return METHODS.get(label, PALETTE[position % len(PALETTE)])


def panels(count, size=(10, 4.2), rows=1, **options):
    """A figure with ``count`` axes side by side, or in ``rows`` rows, in the book's style.

    >>> figure, axes = panels(2)
    >>> len(axes)
    2
    >>> len(panels(3, size=(8, 7), rows=2)[1])
    3
    """
    with plt.rc_context(STYLE):
        columns = -(-count // rows)
        figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", **options)
    if rows > 1:
        for spare in axes.flat[count:]:
            spare.remove()
        axes = axes.flat[:count]
    return figure, axes


def _number(axis, count):
    """Clients 1, 2, … along an axis (their places stay 0, 1, …), not more than can be read."""
    step = next(step for step in (1, 5, 10, 20, 50, 100, count) if count <= 12 * step)
    at = sorted({0, *range(step - 1, count, step)})
    axis.set_ticks(at, [str(i + 1) for i in at])


def weights(xi, groups=None, ax=None, title="", self_too=False, top=None):
    """Heat map of collaboration weights: row i is what client i hears, lines part the groups.
    Clients are numbered from 1.

    The diagonal is left white unless ``self_too``: a large self-weight would hide all others.
    ``top`` is the weight of the brightest colour, by default the largest there is; maps that are
    to be compared want one scale (``weight_maps``) and get no colour bar of their own.

    >>> xi = torch.tensor([[0.0, 0.8, 0.2], [0.8, 0.0, 0.2], [0.5, 0.5, 0.0]])
    >>> ax = weights(xi, groups=torch.tensor([0, 0, 1]), title="who hears whom")
    >>> ax.get_title(), [text.get_text() for text in ax.get_xticklabels()]
    ('who hears whom', ['1', '2', '3'])
    """
    xi = xi.detach().cpu().clone()
    if not self_too:
        xi.fill_diagonal_(float("nan"))
    with plt.rc_context(STYLE):
        ax = ax or plt.subplots(figsize=(4.6, 4))[1]
        picture = ax.imshow(xi, cmap="cividis", vmin=0, vmax=top)
        if top is None:
            ax.figure.colorbar(picture, ax=ax, label="weight $\\xi_{ij}$", shrink=0.85)
        if groups is not None:
            for edge in (groups[1:] != groups[:-1]).nonzero().flatten().tolist():
                ax.axhline(edge + 0.5, color="white", lw=1)
                ax.axvline(edge + 0.5, color="white", lw=1)
        for axis, count in ((ax.yaxis, xi.shape[0]), (ax.xaxis, xi.shape[1])):
            _number(axis, count)
        ax.set(xlabel="speaking client $j$", ylabel="hearing client $i$", title=title)
        ax.tick_params(length=0)
    return ax


def weight_maps(maps, groups=None, size=(10, 4.2)):
    """Heat maps of weights side by side on *one* scale; ``maps`` is title: xi.

    With a scale for each, uniform weights would glow as brightly as sharp ones.

    >>> uniform, sharp = torch.full((3, 3), 1 / 3), torch.eye(3)[[1, 0, 1]]
    >>> axes = weight_maps({"uniform": uniform, "sharp": sharp})
    >>> {ax.images[0].get_clim() for ax in axes}
    {(0.0, 1.0)}
    """
    others = [xi.detach().cpu().clone().fill_diagonal_(0) for xi in maps.values()]
    top = max(float(xi.max()) for xi in others)
    figure, axes = panels(len(maps), size=size, squeeze=False)
    axes = list(axes.flat)
    for ax, (title, xi) in zip(axes, maps.items()):
        weights(xi, groups, ax, title, top=top)
    figure.colorbar(axes[0].images[0], ax=axes, label="weight $\\xi_{ij}$", shrink=0.85)
    return axes


def dumbbells(before, after, labels=("before", "after"), ax=None, title="", xlabel="accuracy"):
    """Pairs as dumbbells: one line per client from ``before`` to ``after``, sorted by the gain.

    The same clients under two methods; those that gain are drawn in the second
    colour, those that lose in grey.  Clients are numbered from 1.

    >>> ax = dumbbells([0.5, 0.9], [0.8, 0.7], labels=("Separate", "FedAMP"))
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['2', '1']
    """
    before, after = (torch.as_tensor(values).detach().cpu().double() for values in (before, after))
    if before.shape != after.shape or before.ndim != 1:
        raise ValueError(
            "before and after must hold one number per client each, "
            f"got shapes {tuple(before.shape)} and {tuple(after.shape)}"
        )
    order = (after - before).argsort().tolist()
    with plt.rc_context(STYLE):
        if ax is None:
            ax = plt.subplots(figsize=(7, 1.3 + 0.24 * len(order)), layout="constrained")[1]
        for y, i in enumerate(order):
            gain = after[i] > before[i]
            line = {"color": PALETTE[5] if gain else "#999999", "lw": 2, "zorder": 1}
            ax.plot((before[i], after[i]), (y, y), **line)
        for values, label, color in (
            (before, labels[0], "#555555"),
            (after, labels[1], PALETTE[5]),
        ):
            ax.scatter(values[order], range(len(order)), s=42, color=color, label=label, zorder=2)
        ax.set_yticks(range(len(order)), [str(i + 1) for i in order])
        ax.set(xlabel=xlabel, ylabel="client", title=title)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        ax.tick_params(axis="y", length=0)
    return ax


def curves(histories, ax=None, title="", labels=None):
    """Mean test accuracy over the rounds, one line a history.

    >>> import pfl_lib
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), pfl_lib.example(), 2, progress=False)
    >>> curves([history]).get_ylabel()
    'mean test accuracy of the clients'
    """
    with plt.rc_context(STYLE):
        ax = ax or plt.subplots(figsize=(7, 4))[1]
        for position, history in enumerate(histories):
            label = labels[position] if labels else history.label
            color = color_of(label, position)
            ax.plot(history.rounds, history.mean, color=color, label=label)
        ax.set(xlabel="round", ylabel="mean test accuracy of the clients", title=title)
        ax.legend(loc="lower right")
    return ax


def rates(lines, ax=None, title="", xlabel="rounds $K$", ylabel="", floor=1e-16):
    """Numbers against rounds, both on logarithmic scales; ``lines`` is name: (x, y, line style).

    What is below ``floor`` is rounding and is left out.

    >>> ax = rates({"a bound": ([1, 10, 100], [1.0, 0.1, 0.01], "--")})
    >>> ax.get_xscale(), ax.get_yscale()
    ('log', 'log')
    """
    with plt.rc_context(STYLE):
        ax = ax or plt.subplots(figsize=(7.5, 4.4), layout="constrained")[1]
        for position, (name, (x, y, style)) in enumerate(lines.items()):
            shown = [(a, b) for a, b in zip(x, y) if b > floor]
            ax.plot(*zip(*shown), style, color=PALETTE[position % len(PALETTE)], label=name)
        ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel, title=title)
        ax.legend()
    return ax


def clients(histories, ax=None, title=""):
    """Accuracy of every client in the last round, one column of dots a history.

    >>> import pfl_lib
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), pfl_lib.example(), 2, progress=False)
    >>> [text.get_text() for text in clients([history]).get_xticklabels()]
    ['FedAvg']
    """
    with plt.rc_context(STYLE):
        ax = ax or plt.subplots(figsize=(7, 4))[1]
        for position, history in enumerate(histories):
            values = history.clients().sort().values
            spread = torch.linspace(-0.25, 0.25, len(values))
            color = color_of(history.label, position)
            ax.scatter(position + spread, values, s=24, color=color, alpha=0.8)
            ax.hlines(values.mean(), position - 0.35, position + 0.35, color=color, lw=2)
        ax.set_xticks(range(len(histories)), [h.label for h in histories], rotation=20, ha="right")
        ax.set(ylabel="test accuracy of one client", title=title)
    return ax


def strips(named, ax=None, title="", xlabel="mean test accuracy of the clients"):
    """A result as a distribution: a row of dots per name, one per seed, and a line at the mean.

    >>> ax = strips({"Separate": [0.5, 0.6], "FedAvg": [0.8, 0.7]})
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['Separate', 'FedAvg']
    """
    with plt.rc_context(STYLE):
        if ax is None:
            ax = plt.subplots(figsize=(8, 1.2 + 0.5 * len(named)), layout="constrained")[1]
        for y, (name, values) in enumerate(named.items()):
            values = torch.as_tensor(values).detach().cpu().double()
            color = color_of(name, y)
            ax.scatter(values, [y] * len(values), s=46, color=color, alpha=0.6, linewidths=0)
            ax.vlines(values.mean(), y - 0.3, y + 0.3, color=color, lw=2.5)
        ax.set_yticks(range(len(named)), list(named))
        ax.set(xlabel=xlabel, title=title, ylim=(len(named) - 0.5, -0.5))
        ax.tick_params(axis="y", length=0)
    return ax


def plane(points, groups, ax=None, messages=None, title="", label="client {}"):
    """Models with two parameters as points; arrows lead to the messages, where they are given.
    ``label`` is filled with the client's number, counted from 1.

    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> ax = plane(points, groups=[0, 0, 1], messages=points.mean(0).expand(3, 2))
    >>> [text.get_text() for text in ax.texts if text.get_text()]
    ['client 1', 'client 2', 'client 3']
    """
    points = points.detach().cpu()
    with plt.rc_context(STYLE):
        ax = ax or plt.subplots(figsize=(5, 4.4))[1]
        for i, (x, y) in enumerate(points.tolist()):
            color = PALETTE[int(groups[i]) % len(PALETTE)]
            ax.scatter(x, y, s=90, color=color, zorder=3)
            ax.annotate(label.format(i + 1), (x, y), xytext=(7, 5), textcoords="offset points")
            if messages is not None:
                u, v = messages[i].tolist()
                arrow = {"arrowstyle": "->", "color": color, "lw": 1.5, "shrinkA": 5}
                ax.annotate("", (u, v), (x, y), arrowprops=arrow)
        ax.set(xlabel="first parameter", ylabel="second parameter", title=title)
        ax.set_aspect("equal", adjustable="datalim")
        ax.margins(0.2)
    return ax


def lines(named, ax=None, x=None, levels=None, title="", **axes):
    """Numbers by name, one line each, over ``x`` (0, 1, … by default); ``levels`` are dashed lines
    across.  What is left over, such as labels and scales, is set on the axes.

    >>> ax = lines({"squares": [0, 1, 4, 9]}, levels={"a limit": 10}, xlabel="round")
    >>> ax.get_xlabel()
    'round'
    """
    with plt.rc_context(STYLE):
        ax = ax or plt.subplots(figsize=(7, 4), layout="constrained")[1]
        for position, (name, y) in enumerate(named.items()):
            dots = {"marker": "o", "markersize": 5} if len(y) <= 20 else {}
            at = range(len(y)) if x is None else x
            ax.plot(at, y, color=color_of(name, position), label=name, **dots)
        for position, (name, height) in enumerate((levels or {}).items(), start=len(named)):
            ax.axhline(height, color=color_of(name, position), ls="--", label=name)
        ax.set(title=title, **axes)
        ax.legend()
    return ax


def valley(h, c, paths=None, marks=None, box=None, ax=None, title=""):
    """Contours of ½·Σ h(θ − c)² in the plane, with ``paths`` {name: (n, 2)} and ``marks`` {name:
    (2,)} in it; ``box`` is two models, and what lies between them is shaded.

    >>> h, c = torch.tensor([1.0, 4.0]), torch.tensor([1.0, 0.0])
    >>> ax = valley(h, c, marks={"start": torch.tensor([-1.0, 1.0])})
    >>> len(ax.collections) > 0
    True
    """
    paths, marks = paths or {}, marks or {}
    drawn = [*paths.values(), *marks.values(), *(box or ())]
    seen = torch.cat([torch.as_tensor(points).reshape(-1, 2) for points in drawn])
    low, high = seen.min(0).values, seen.max(0).values
    room = 0.15 * (high - low).max()
    x, y = (torch.linspace(float(a - room), float(b + room), 120) for a, b in zip(low, high))
    loss = 0.5 * (h[0] * (x[None] - c[0]) ** 2 + h[1] * (y[:, None] - c[1]) ** 2)
    with plt.rc_context(STYLE):
        ax = ax or plt.subplots(figsize=(6, 4.6), layout="constrained")[1]
        ax.contour(x, y, loss.sqrt(), levels=12, colors="#bbbbbb", linewidths=0.8)
        if box is not None:
            (x0, y0), (x1, y1) = (corner.tolist() for corner in box)
            ax.fill([x0, x1, x1, x0], [y0, y0, y1, y1], color=PALETTE[1], alpha=0.15, lw=0)
        for position, (name, path) in enumerate(paths.items()):
            line = {"color": color_of(name, position), "marker": "o", "markersize": 4}
            ax.plot(*torch.as_tensor(path).T, label=name, **line)
        for name, point in marks.items():
            ax.scatter(*point, color="black", s=45, zorder=4)
            ax.annotate(name, point, xytext=(7, 6), textcoords="offset points")
        ax.set(xlabel="first parameter", ylabel="second parameter", title=title)
        ax.set_aspect("equal", adjustable="box")
        if paths:
            ax.legend(loc="best")
    return ax


def gains(values, rows, columns, ax=None, title="", label="points gained"):
    """A table of differences with its numbers in it: purple where something is gained, orange where
    it is lost.  ``values`` has one line for each of ``rows``; None or NaN leaves a place empty.

    >>> ax = gains([[1.0, -0.5], [0.2, None]], ["few", "many"], ["FedAMP", "FedACS"])
    >>> [text.get_text() for text in ax.texts]
    ['+1.0', '−0.5', '+0.2']
    """
    grid = torch.tensor(
        [[float("nan") if v is None else float(v) for v in line] for line in values]
    )
    top = max(1e-9, float(grid.nan_to_num(0).abs().max()))
    names = [str(name).replace(", ", ",\n") for name in columns]
    with plt.rc_context(STYLE):
        if ax is None:
            # every column as wide as the longest of their names, and room for the rows' names
            widest = max(len(line) for name in names for line in name.split("\n"))
            beside = 1.5 + 0.085 * max(len(str(row)) for row in rows)
            wide = beside + len(columns) * (0.25 + 0.09 * widest)
            size = (wide, max(2.9, 1.6 + 0.42 * len(rows)))
            ax = plt.subplots(figsize=size, layout="constrained")[1]
        style = {"cmap": "PuOr", "vmin": -top, "vmax": top, "aspect": "auto"}
        picture = ax.imshow(grid, **style)
        ax.figure.colorbar(picture, ax=ax, label=label)
        for y, line in enumerate(grid.tolist()):
            for x, value in enumerate(line):
                if value == value:  # not NaN
                    color = "white" if abs(value) > 0.6 * top else "black"
                    text = f"{value:+.1f}".replace("-", "−")
                    ax.text(x, y, text, ha="center", va="center", color=color)
        ax.set_xticks(range(len(columns)), names)
        ax.set_yticks(range(len(rows)), rows)
        ax.set_title(title)
        ax.tick_params(length=0)
    return ax


def timeline(table, rounds, ax=None, title=""):
    """When clients are away: a bar from each pull to its arrival, the longer the later.

    ``table`` is a ``pfl_lib.stragglers.Timetable``; work that arrives after the end is left open.

    >>> from pfl_lib import stragglers
    >>> ax = timeline(stragglers.timetable("spfl", clients=6), rounds=10)
    >>> ax.get_xlabel()
    'round'
    """
    clients = len(table.delays)
    with plt.rc_context(STYLE):
        if ax is None:
            ax = plt.subplots(figsize=(7.5, 1.3 + 0.3 * clients), layout="constrained")[1]
        for k in range(rounds):
            pulled, here = table.pulled(k), table.arrivals(k)
            for i in range(clients):
                late = i in here and pulled[i] < k
                if i in here:
                    bar = {"color": PALETTE[1 if late else 0], "height": 0.55, "alpha": 0.85}
                    ax.barh(i, k - pulled[i] + 0.8, left=pulled[i] + 0.1, **bar)
                if late:
                    ax.text(k + 0.5, i, k - pulled[i], ha="center", va="center", color="black")
                elif k == rounds - 1 and i not in here:
                    ax.plot((pulled[i] + 0.1, rounds), (i, i), color=PALETTE[1], ls=":")
        ax.set(xlabel="round", ylabel="client", title=title, xlim=(0, rounds))
        ax.set_yticks(range(clients), range(1, clients + 1))
        ax.set_xticks([k + 0.5 for k in range(rounds)], range(rounds))
        ax.invert_yaxis()
        ax.tick_params(length=0)
    return ax


def table(histories):
    """A results table: method, last, best, worst tenth, parameters sent, which model is tested.

    >>> import pfl_lib
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), pfl_lib.example(), 2, progress=False)
    >>> table([history]).head
    ('method', 'last', 'best', 'worst 10 %', 'sent', 'tested')
    """
    rows = []
    for row in (history.summary() for history in histories):
        measured = (f"{row[what]:.3f}" for what in ("last", "best", "worst 10 %"))
        rows.append((row["method"], *measured, _short(row["sent"]), row["tested"]))
    return Shown(("method", "last", "best", "worst 10 %", "sent", "tested"), rows)


def across(settings):
    """Accuracy in the last round, methods down and settings across; ``settings`` is
    {setting: {method: history}}.

    >>> import pfl_lib
    >>> history = pfl_lib.run(pfl_lib.algorithm("fedavg"), pfl_lib.example(), 2, progress=False)
    >>> across({"unlike labels": {"FedAvg": history}}).head
    ('last round', 'unlike labels')
    """
    labels = next(iter(settings.values()))
    rows = [
        (label, *(f"{histories[label].last:.3f}" for histories in settings.values()))
        for label in labels
    ]
    return Shown(("last round", *settings), rows)


def _short(count):
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)


def partition_bubbles(partition, data, ax=None, part="train", title=None, top=None):
    """Who holds what: a bubble for each client (across) and class (up), its area the count.

    Clients are numbered from 1; those of one hidden group share a colour.
    ``part``: ``"train"`` or ``"test"``.  ``top`` is the
    count of the largest possible bubble: charts that are to be compared want one for all.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> ax = partition_bubbles(pfl_lib.partition.iid(data, clients=4), data)
    >>> ax.get_xlabel()
    'client'
    """
    counts = partition.counts(data, part)
    m, classes = counts.shape
    who, held = counts.nonzero(as_tuple=True)
    groups = torch.zeros(m, dtype=torch.int64) if partition.groups is None else partition.groups
    colors = [PALETTE[g % len(PALETTE)] for g in groups[who].tolist()]
    largest = int(counts.max())
    with plt.rc_context(STYLE):
        if ax is None:
            size = (min(11.0, 2.4 + 0.24 * m), min(8.5, 1.6 + 0.34 * classes))
            ax = plt.subplots(figsize=size, layout="constrained")[1]
        # the largest bubble fits between its neighbours, or overlaps them a little on one side
        box = ax.get_window_extent()
        cell = sorted(s / ax.figure.dpi for s in (box.width / (m + 1), box.height / (classes + 1)))
        diameter = 66 * min(1.5 * cell[0], cell[1])
        area = max(3.0, diameter) ** 2 * counts[who, held] / (top or largest)
        ax.scatter(who, held, s=area.clamp(min=1.5), c=colors, alpha=0.85, linewidths=0)
        ax.set(xlim=(-0.8, m - 0.2), ylim=(-0.8, classes - 0.2), xlabel="client", ylabel="class")
        _number(ax.xaxis, m)
        if classes <= 20:
            # a name may hold anything, and between dollar signs matplotlib would read a formula
            ax.set_yticks(range(classes), [str(n).replace("$", r"\$") for n in data.classes])
        else:
            ax.yaxis.set_major_locator(plt.MaxNLocator(10, integer=True))
        word = "training" if part == "train" else "test"
        ax.set_title(f"{word} samples; largest: {largest:,}" if title is None else title)
        ax.tick_params(length=0)
    return ax


def family_map(names=None, here=()):
    """The field on one sheet: across what clients share, up what stays personal, and in colour
    who decides the weights.  ``here`` are set in bold.

    >>> ax = family_map(["fedavg", "fedamp", "ditto"], here=["fedamp"])
    >>> "FedAMP" in [text.get_text() for text in ax.texts]
    True
    """
    known = places()
    names = list(known if names is None else names)
    slots = (1, 3, 1, 2)  # boxes side by side in a column
    left = [0, 1.0, 4.5, 5.6, 8.1]
    cells: dict[tuple[int, int], list] = {}
    for name in names:
        shared, personal, who = known[name]
        cells.setdefault((shared, personal), []).append((name, who))
    lines = [
        max([1, *(-(-len(found) // slots[c]) for (c, r), found in cells.items() if r == row)])
        for row in range(len(PERSONAL))
    ]
    low = [0, *torch.tensor(lines).cumsum(0).tolist()]

    def frame(who):
        color, line = DECIDERS[who]
        return {"fc": f"{color}30", "ec": color, "lw": 1.5, "ls": line}

    with plt.rc_context(STYLE):
        ax = plt.subplots(figsize=(10.2, 1.6 + 0.42 * low[-1]), layout="constrained")[1]
        for (column, row), found in cells.items():
            for k, (name, who) in enumerate(found):
                wide = (left[column + 1] - left[column]) / slots[column]
                x = left[column] + (0.5 + k % slots[column]) * wide
                y = (low[row] + low[row + 1] - (len(found) - 1) // slots[column]) / 2
                box = {"boxstyle": "round,pad=0.25", **frame(who)}
                weight = "bold" if name in here else "normal"
                words = ax.text(x, y + k // slots[column], BY_NAME[name].label, weight=weight)
                words.set(ha="center", va="center", bbox=box)
        ax.set(xlim=(0, left[-1]), ylim=(0, low[-1]))
        ax.set_xticks([(a + b) / 2 for a, b in pairwise(left)], SHARED)
        ax.set_yticks([(a + b) / 2 for a, b in pairwise(low)], PERSONAL)
        ax.hlines(low[1:-1], 0, left[-1], color="#cccccc", lw=1, zorder=0)
        ax.vlines(left[1:-1], 0, low[-1], color="#cccccc", lw=1, zorder=0)
        ax.tick_params(length=0)
        ax.set(xlabel="clients share …", ylabel="what stays personal is …")
        marks = [plt.Rectangle((0, 0), 1, 1, label=w, **frame(k)) for k, w in enumerate(DECIDES)]
        ax.figure.legend(
            handles=marks, loc="outside lower center", ncols=2, title="the weights are decided by"
        )
    return ax


def two_settings(first, second, labels, ax=None, yardstick="Separate", title=""):
    """Mean accuracy of each method in two settings: two dots on a line, small marks for the seeds.

    ``first`` and ``second`` are ``Results`` of the same methods.  Dashed lines
    show how the ``yardstick`` does.

    >>> from pfl_lib.book.experiments import Results
    >>> runs = [
    ...     {"method": method, "case": "", "seed": 0, "last": last}
    ...     for method, last in {"Separate": 0.8, "FedAMP": 0.9}.items()
    ... ]
    >>> here = Results({"cases": [], "runs": runs})
    >>> ax = two_settings(here, here, ["one", "the same again"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['Separate', 'FedAMP']
    """
    methods = sorted(first.methods, key=lambda m: second.mean(m))
    with plt.rc_context(STYLE):
        if ax is None:
            size = (8.4, 1.4 + 0.33 * len(methods))
            ax = plt.subplots(figsize=size, layout="constrained")[1]
        for y, method in enumerate(methods):
            ends = [results.mean(method) for results in (first, second)]
            ax.plot(ends, (y, y), color="#bbbbbb", lw=2, zorder=1)
        for results, label, color, marker in zip(
            (first, second), labels, (PALETTE[0], PALETTE[5]), ("o", "D")
        ):
            means = [results.mean(m) for m in methods]
            style = {"color": color, "zorder": 3, "marker": marker}
            ax.scatter(means, range(len(methods)), s=64, label=label, **style)
            for y, method in enumerate(methods):
                seeds = [run["last"] for run in results.of(method)]
                ax.plot(seeds, [y] * len(seeds), "|", color=color, ms=11, mew=1.5)
            if yardstick in methods:
                ax.axvline(results.mean(yardstick), color=color, ls="--", lw=1, zorder=0)
        ax.set_yticks(range(len(methods)), methods)
        ax.set(xlabel="mean test accuracy of the clients", title=title)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        ax.tick_params(axis="y", length=0)
    return ax


def pictures(rows, titles=None, size=0.75):
    """Small grey pictures, ``rows`` is name: (n, height, width); None leaves a place empty.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> axes = pictures({"digits": data.x[:3, 0]})
    >>> axes.shape
    (1, 3)
    """
    count = max(len(row) for row in rows.values())
    with plt.rc_context(STYLE):
        shape = (size * count + 1.9, size * len(rows) + 0.5)
        axes = plt.subplots(len(rows), count, figsize=shape, layout="constrained", squeeze=False)[1]
        for line, (name, row) in zip(axes, rows.items()):
            for ax in line:
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(False)
            for ax, picture in zip(line, row):
                if picture is not None:
                    ax.imshow(torch.as_tensor(picture).numpy(), cmap="gray_r")
            line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for ax, title in zip(axes[0], titles or ()):
            ax.set_title(title)
    return axes


_deprecated.keep_former_names(__name__)
