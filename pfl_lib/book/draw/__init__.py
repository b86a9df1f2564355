"""The book's drawn figures: schematics in one visual grammar, made of code, light and dark.

A figure is a function that returns panels (``kit.py``); what it shows of mathematics is computed
by the library.  Pages use the directive ``{drawn}`` (devtools/sphinxext/pfl_drawn.py):

    ```{drawn} round
    :name: fig-round
    The caption, in one or two sentences.
    ```

Clients are discs, numbered from 1, in the colour of their group; a message is a diamond, a model a
row of squares, data a pile of sheets, the best point for a loss a cross.
"""

import functools
from importlib import resources

from pfl_lib import _check
from pfl_lib.book.draw import basics, derivation, field, later, listening, rooms
from pfl_lib.book.draw.kit import WIDTH, number

FIGURES = {
    **basics.FIGURES,
    **listening.FIGURES,
    **derivation.FIGURES,
    **later.FIGURES,
    **field.FIGURES,
    **rooms.FIGURES,
}


def css():
    """The colours and strokes of all figures."""
    return resources.files(__package__).joinpath("drawn.css").read_text(encoding="utf-8")


@functools.cache
def panels(name):
    """The panels of a figure.

    >>> [panel.title for panel in panels("round")]
    ['One round of federated averaging']
    """
    return FIGURES[_check.one_of("name", name, FIGURES)]()


def html(name):
    """The figure for a page that has ``css()``; it follows the page's theme.

    >>> html("round").startswith('<div class="drawn"><svg')
    True
    """
    inside = "".join(p.svg(f"drawn-{name}-{k}") for k, p in enumerate(panels(name), start=1))
    return f'<div class="drawn">{inside}</div>'


def described(name):
    """What is seen in the figure, in words."""
    return " ".join(panel.desc for panel in panels(name))


def standalone(name, gap=16):
    """The figure as one SVG file with its own colours, on white: for places that know no theme.

    >>> standalone("round").startswith('<svg class="drawn"')
    True
    """
    shown = panels(name)
    columns = min(2, len(shown))
    rows = [shown[k : k + columns] for k in range(0, len(shown), columns)]
    wide, parts, top = WIDTH * columns + gap * (columns + 1), [], gap
    for row in rows:
        for k, panel in enumerate(row):
            x = gap + k * (WIDTH + gap)
            parts.append(f'<g transform="translate({x} {number(top)})">{"".join(panel.parts)}</g>')
        top += max(panel.height for panel in row) + gap
    style = css() + ".drawn text { font-family: system-ui, sans-serif; }"
    return (
        f'<svg class="drawn" viewBox="0 0 {wide} {number(top)}" width="{wide}" '
        f'height="{number(top)}" xmlns="http://www.w3.org/2000/svg"><style>{style}</style>'
        f'<rect class="paper fill" width="{wide}" height="{number(top)}"/>{"".join(parts)}</svg>'
    )
