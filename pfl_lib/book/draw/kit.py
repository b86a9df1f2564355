"""A small kit for drawing: panels of SVG in which colours are meanings (see drawn.css).

A drawing is made of panels, each 340 units wide: a panel fills a phone, two stand side by side on
a desk.  Whatever is drawn says what it *means* (``"g1"``, a client of the first group; ``"msg"``, a
message; ``"hot"``, what the figure is about), never what colour it has.

Words may hold formulas between dollars: ``"loss $F_i$"`` has a real subscript.
"""

import math
import re
from html import escape

WIDTH = 340
MEANINGS = ("ink", "mute", "hair", "faint", "paper", "g1", "g2", "g3", "msg", "hot")
DOWN, UP = 4, -5.5  # how far an index is set below or above the line


def number(value):
    """A coordinate, short.

    >>> number(3), number(2.50049), number(-0.001)
    ('3', '2.5', '0')
    """
    short = f"{float(value):.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def words(text):
    """Words with formulas between dollars as the content of an SVG text.

    >>> words("a < $w_i$")
    'a &lt; <tspan class="tex">w<tspan class="sub" dy="4">i</tspan></tspan>'
    """
    out, off = [], 0  # off: how far the last index has left the line
    for k, part in enumerate(text.split("$")):
        if k % 2:
            inside, off = formula(part, off)
            out.append(f'<tspan class="tex">{inside}</tspan>')
        elif part:
            label = escape(part, quote=False)
            out.append(f'<tspan dy="{number(-off)}">{label}</tspan>' if off else label)
            off = 0
    return "".join(out)


def formula(tex, off=0):
    """Letters slanted, digits and signs upright, ``_x`` and ``^x`` (or in braces) moved."""
    out = []
    for mark, braced, single, plain in re.findall(r"([_^])(?:\{([^}]*)\}|(.))|([^_^]+)", tex):
        goal = {"_": DOWN, "^": UP, "": 0}[mark]
        inside = upright(braced or single or plain)
        if mark:
            out.append(f'<tspan class="sub" dy="{number(goal - off)}">{inside}</tspan>')
        else:
            out.append(f'<tspan dy="{number(-off)}">{inside}</tspan>' if off else inside)
        off = goal
    return "".join(out), off


def upright(text):
    """Digits, signs and capital Greek stand upright in a formula."""
    parts = re.split(r"([0-9.,+−=()½ΞΔΣ∇‖²<>≥≤|·/ ]+)", text)
    label = [escape(part, quote=False) for part in parts]
    return "".join(f'<tspan class="roman">{p}</tspan>' if k % 2 else p for k, p in enumerate(label))


def spoken(text):
    """The words without their marks, for measuring.

    >>> spoken("loss $F_{i}^2$")
    'loss Fi2'
    """
    return re.sub(r"[$_^{}]", "", text)


class Panel:
    """One picture: ``title`` names it, ``desc`` says what is seen to those who cannot see it.

    >>> panel = Panel("A client", "Client 1 alone.", height=60)
    >>> panel.client(170, 30, 1)
    >>> panel.svg("example").startswith('<svg viewBox="0 0 340 60"')
    True
    """

    def __init__(self, title, desc, height):
        self.title, self.desc, self.height = title, desc, height
        self.parts, self.texts = [], []  # texts: (x, y, anchor, style, words), for the tests

    def put(self, tag, kind, /, **values):
        """Any element; ``kind`` are classes of drawn.css, numbers are shortened."""
        label = {"class": kind} | {
            name.replace("_", "-"): v if isinstance(v, str) else number(v)
            for name, v in values.items()
        }
        inside = " ".join(f'{name}="{escape(v)}"' for name, v in label.items())
        self.parts.append(f"<{tag} {inside}/>")

    # -------------------------------------------------------------------------------- strokes
    def line(self, x1, y1, x2, y2, style="thin ink"):
        self.put("line", style, x1=x1, y1=y1, x2=x2, y2=y2)

    def path(self, points, style="line ink", closed=False):
        """A line through ``points``; ``closed`` for an area."""
        way = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.put("path", style, d=f"M{way}{'Z' if closed else ''}")

    def rect(self, x, y, wide, high, style="box ink", round=4):
        self.put("rect", style, x=x, y=y, width=wide, height=high, rx=round)

    def circle(self, x, y, r, style="fill ink"):
        self.put("circle", style, cx=x, cy=y, r=r)

    def arrow(self, x1, y1, x2, y2, style="line ink", bend=0, gap=(0, 0), head=8, both=False):
        """From one point to another; ``bend`` moves its middle to the left, ``gap`` shortens it."""
        length = math.hypot(x2 - x1, y2 - y1)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        mx, my = (x1 + x2) / 2 + bend * uy, (y1 + y2) / 2 - bend * ux

        def towards(x, y, by):  # from an end some way to the middle of the arc
            far = math.hypot(mx - x, my - y)
            return x + by * (mx - x) / far, y + by * (my - y) / far

        (x1, y1), (x2, y2) = towards(x1, y1, gap[0]), towards(x2, y2, gap[1])
        # the stroke ends inside the head, so that the tip stays sharp
        (sx, sy), (tx, ty) = towards(x1, y1, head * 0.6 if both else 0), towards(x2, y2, head * 0.6)
        way = f"M{number(sx)} {number(sy)}Q{number(mx)} {number(my)} {number(tx)} {number(ty)}"
        self.put("path", style, d=way)
        meaning = next(word for word in style.split() if word in MEANINGS)
        ends = [(x2, y2)] + ([(x1, y1)] if both else [])
        for x, y in ends:
            far = math.hypot(x - mx, y - my)
            vx, vy = (x - mx) / far, (y - my) / far
            left = (x - head * vx + head / 2.2 * vy, y - head * vy - head / 2.2 * vx)
            right = (x - head * vx - head / 2.2 * vy, y - head * vy + head / 2.2 * vx)
            self.path([(x, y), left, right], f"fill {meaning}", closed=True)

    # ---------------------------------------------------------------------------------- words
    def text(self, x, y, label, style="ink", anchor="middle"):
        """Words on one line; ``y`` is where they stand, not their middle."""
        self.texts.append((x, y, anchor, style, label))
        self.parts.append(
            f'<text class="{style}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">'
            f"{words(label)}</text>"
        )

    def lines(self, x, y, label, style="ink", anchor="middle", step=16):
        """Several lines of words, the first standing at ``y``."""
        for k, one in enumerate(label):
            self.text(x, y + k * step, one, style, anchor)

    # --------------------------------------------------------------------------- the grammar
    def client(self, x, y, i, group=1, r=13, style=""):
        """Client i: a numbered disc in the colour of its group."""
        self.circle(x, y, r, f"fill g{group} {style}".strip())
        self.text(x, y + 4.5, str(i), "paper big" if r >= 12 else "paper small")

    def server(self, x, y, wide=84, high=30, label="server"):
        """The server: a dark box with its name, centred at x, y."""
        self.rect(x - wide / 2, y - high / 2, wide, high, "fill ink", round=7)
        self.text(x, y + 4.5, label, "paper big")

    def model(self, x, y, meaning="ink", cells=4, size=9):
        """A model: a row of numbers, centred at x, y."""
        left = x - cells * size / 2
        for k in range(cells):
            self.rect(left + k * size, y - size / 2, size, size, f"thin {meaning}", round=0)
            # unlike numbers, the same in every figure
            shade = (0.9, 0.35, 0.65, 0.2, 0.8, 0.5)[k % 6]
            self.put("rect", f"fill {meaning}", x=left + k * size, y=y - size / 2, width=size,
                     height=size, opacity=shade)  # fmt: skip

    def message(self, x, y, r=8, style="fill msg"):
        """A message: a diamond, as in the explorers."""
        self.path([(x, y - r), (x + r, y), (x, y + r), (x - r, y)], style, closed=True)

    def data(self, x, y, meaning="mute"):
        """Data that stay where they are: a small pile of sheets."""
        for k in (2, 1, 0):
            self.rect(x - 9 + 3 * k, y - 8 - 3 * k, 16, 16, f"box {meaning}", round=2)
        for k in range(3):
            self.line(x - 6, y - 3 + 4 * k, x + 4, y - 3 + 4 * k, f"thin {meaning}")

    def cross(self, x, y, style="line ink", r=5):
        """The best point for some loss."""
        self.line(x - r, y - r, x + r, y + r, style)
        self.line(x - r, y + r, x + r, y - r, style)

    def spring(self, x1, y1, x2, y2, style="thin msg", coils=7, high=5):
        """A spring: a penalty that grows with the distance."""
        length = math.hypot(x2 - x1, y2 - y1)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        points = [(x1, y1)]
        for k in range(2 * coils):
            along = length * (0.1 + 0.8 * (k + 0.5) / (2 * coils))
            side = high if k % 2 else -high
            points.append((x1 + along * ux - side * uy, y1 + along * uy + side * ux))
        self.path([*points, (x2, y2)], style)

    def svg(self, name):
        """The panel as SVG; ``name`` makes its ids unique on a page."""
        head = (
            f'<svg viewBox="0 0 {WIDTH} {number(self.height)}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc" xmlns="http://www.w3.org/2000/svg">'
        )
        label = f'<title id="{name}-title">{escape(self.title)}</title>'
        label += f'<desc id="{name}-desc">{escape(self.desc)}</desc>'
        return head + label + "".join(self.parts) + "</svg>"


class Axes:
    """A part of a panel with coordinates of its own, for curves computed by the library.

    >>> panel = Panel("A line", "A line.", height=100)
    >>> axes = Axes(panel, (40, 10, 280, 70), x=(0, 1), y=(0, 2))
    >>> axes.at(0.5, 1)
    (180.0, 45.0)
    """

    def __init__(self, panel, box, x, y):
        self.panel, self.box, self.xlim, self.ylim = panel, box, x, y

    def at(self, x, y) -> tuple[float, float]:
        left, top, wide, high = self.box
        (x0, x1), (y0, y1) = self.xlim, self.ylim
        return (
            left + wide * (float(x) - x0) / (x1 - x0),
            top + high * (y1 - float(y)) / (y1 - y0),
        )

    def frame(self, xlabel="", ylabel="", below=34):
        """Two axes with their names; ``below`` is how far under its axis the lower name stands."""
        left, top, wide, high = self.box
        self.panel.arrow(left, top + high, left + wide + 8, top + high, "thin ink", head=6)
        self.panel.arrow(left, top + high, left, top - 8, "thin ink", head=6)
        if xlabel:
            self.panel.text(left + wide + 8, top + high + below, xlabel, "ink", "end")
        if ylabel:
            self.panel.text(left + 6, top - 4, ylabel, "ink", "start")

    def curve(self, x, y, style="line ink"):
        """A line through points; what leaves the frame is left out."""
        low, high = self.ylim
        pieces: list[list[tuple[float, float]]] = [[]]
        for a, b in zip(x, y):
            if low - 1e-9 <= float(b) <= high + 1e-9:
                pieces[-1].append(self.at(a, b))
            elif pieces[-1]:
                pieces.append([])
        for piece in pieces:
            if len(piece) > 1:
                self.panel.path(piece, style)

    def area(self, x, low, high, style="soft hot"):
        """What lies between two curves."""
        points = [self.at(a, b) for a, b in zip(x, high)]
        points += [self.at(a, b) for a, b in zip(reversed(list(x)), reversed(list(low)))]
        self.panel.path(points, style, closed=True)

    def tick(self, x, label, style="ink small"):
        """A mark on the lower axis."""
        px, py = self.at(x, self.ylim[0])
        self.panel.line(px, py, px, py + 4, "thin ink")
        self.panel.text(px, py + 17, label, style)

    def drop(self, x, y, style="thin mute dots"):
        """A dotted line from a point down to the lower axis."""
        self.panel.line(*self.at(x, y), *self.at(x, self.ylim[0]), style)
