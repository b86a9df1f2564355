"""What every explorer shares on the Python side: its settings, and its two ways of being shown."""

import functools
import html
import json
import math
import pathlib
import uuid

import anywidget
import traitlets

from pfl_lib import _check

_FOLDER = pathlib.Path(__file__).parent
KIT = ("kit_basics.js", "kit_picture.js", "kit_controls.js", "kit.js")  # one text, in this order


# ---- settings: traits that refuse bad values at the door -------------------------------------


class Positive(traitlets.TraitType):
    """A finite number above zero."""

    def validate(self, obj, value):
        return _check.positive(self.name, value)


class Between(traitlets.TraitType):
    """A number in a closed interval."""

    def __init__(self, default, low, high):
        super().__init__(default)
        self.low, self.high = low, high

    def validate(self, obj, value):
        return _check.between(self.name, value, self.low, self.high)


class Whole(Between):
    """A whole number in a closed interval."""

    def validate(self, obj, value):
        value = _check.whole(self.name, value, self.low)
        return int(_check.between(self.name, value, self.low, self.high))


class Word(traitlets.TraitType):
    """One of some words."""

    def __init__(self, default, allowed):
        super().__init__(default)
        self.allowed = tuple(allowed)

    def validate(self, obj, value):
        return _check.one_of(self.name, value, self.allowed)


class Switch(traitlets.TraitType):
    """True or False."""

    def validate(self, obj, value):
        if not isinstance(value, bool):
            raise TypeError(f"{self.name} must be True or False, got {value!r}")
        return value


class Rows(traitlets.TraitType):
    """Rows of finite numbers (a list, an array or a tensor); every row as long as ``columns``."""

    def __init__(self, default, columns=2, at_least=2, at_most=12, within=None):
        super().__init__()
        self.default_value = default
        self.columns, self.at_least, self.at_most, self.within = columns, at_least, at_most, within

    def validate(self, obj, value):
        rows = value.tolist() if hasattr(value, "tolist") else value
        try:
            rows = [[float(x) for x in row] for row in rows]
        except (TypeError, ValueError):
            raise TypeError(f"{self.name} must be rows of numbers, got {value!r}") from None
        if not self.at_least <= len(rows) <= self.at_most:
            raise ValueError(
                f"{self.name} must have {self.at_least} to {self.at_most} rows, got {len(rows)}"
            )
        for row in rows:
            if len(row) != self.columns or not all(map(math.isfinite, row)):
                raise ValueError(
                    f"{self.name} must have rows of {self.columns} finite numbers, got {row!r}"
                )
            if self.within and not all(self.within[0] <= x <= self.within[1] for x in row):
                raise ValueError(f"{self.name} must lie within {self.within}, got {row!r}")
        return rows


class Labels(traitlets.TraitType):
    """Names of the clients, or nothing for 1, 2, 3 …"""

    def __init__(self):
        super().__init__()
        self.default_value = []

    def validate(self, obj, value):
        if isinstance(value, str) or not all(isinstance(v, str) for v in value):
            raise TypeError(f"{self.name} must be a list of words, got {value!r}")
        return list(value)


class Groups(traitlets.TraitType):
    """The group of each client (a small whole number): it sets the colour, nothing else."""

    def __init__(self, default=()):
        super().__init__()
        self.default_value = list(default)

    def validate(self, obj, value):
        groups = value.tolist() if hasattr(value, "tolist") else list(value)
        return [_check.whole(self.name, g, at_least=0) for g in groups]


# ---- the explorer ----------------------------------------------------------------------------


class Explorer(anywidget.AnyWidget):
    """A figure one plays with: a live widget in a kernel, the same module on a static page.

    A subclass names its ``modules`` (its own last: a file of this folder, or its text) and, as
    traits, its settings. Every setting goes to the page and comes back: ``explorer.sigma`` is what
    the reader has set.

    >>> from pfl_lib.book.explore import FedAMPPlane
    >>> plane = FedAMPPlane(sigma=2.0)
    >>> isinstance(plane, Explorer), plane.sigma
    (True, 2.0)
    >>> "<script" in plane._repr_html_()
    True
    """

    modules: tuple = ()
    default_groups: tuple = ()  # of the points that are shown where none are given
    _settings = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "modules" not in vars(cls):  # traitlets makes a nameless subclass when it adds traits
            return
        # Settings are the traits a subclass writes down; each is shared with the page.
        for trait in vars(cls).values():
            if isinstance(trait, traitlets.TraitType):
                trait.tag(sync=True)
        cls._esm = "\n".join(_text(name) for name in (*KIT, *cls.modules))
        cls._css = _text("explore.css")

    def __init__(self, **settings):
        names = [n for n in self.trait_names() if n in self._own_settings()]
        for name in settings:
            if name != "layout":
                _check.one_of(f"setting of {type(self).__name__}", name, names)
        if self.default_groups and "points" not in settings:
            settings.setdefault("groups", list(self.default_groups))
        super().__init__(_settings=names, **settings)
        self.check()

    @classmethod
    def _own_settings(cls):
        return {
            name
            for kind in cls.__mro__
            if "modules" in vars(kind) and kind is not Explorer
            for name, trait in vars(kind).items()
            if isinstance(trait, traitlets.TraitType)
        }

    def check(self):
        """Refuse settings that are right one by one but do not fit together."""
        points = getattr(self, "points", None)
        for name in ("labels", "groups"):
            given = getattr(self, name, None)
            if given and points is not None and len(given) != len(points):
                raise ValueError(
                    f"{name} must have one entry a point, got {len(given)} for {len(points)} points"
                )

    @property
    def settings(self):
        """All settings as they are now: ``type(explorer)(**explorer.settings)`` is a copy."""
        return {name: getattr(self, name) for name in self._settings}

    def compute(self):
        """What the figure shows, by the library's own functions (the page has its own copy)."""
        raise NotImplementedError

    def __repr__(self):
        simple = {k: v for k, v in self.settings.items() if isinstance(v, (int, float, str))}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in simple.items())})"

    def _repr_html_(self):
        """The figure as plain HTML: no kernel, no widget manager, no network."""
        name = "pfl-" + uuid.uuid4().hex[:8]
        state = {"_settings": self._settings, **self.settings}
        kind = type(self).__name__
        place = f'<div id="{name}" class="pfl-explorer" data-explorer="{kind}"></div>'
        given = _script_json({"id": name, "name": kind, "state": state})
        return (
            f"<style>{self._css}</style>\n{place}\n"
            f"<noscript>{html.escape(repr(self))}: this figure needs JavaScript.</noscript>\n"
            f'<script type="module">\n'
            f"const PFL_STATIC = {given};\n{self._esm}\n</script>"
        )

    def _repr_mimebundle_(self, **kwargs):
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return {**data, "text/html": self._repr_html_()}, metadata


@functools.cache
def _text(name):
    """A file of this folder, or, if it has several lines, the module's text itself."""
    text = name if "\n" in name else (_FOLDER / name).read_text(encoding="utf-8")
    if "</script" in text or "<!--" in text:
        raise ValueError(f"{name[:60]!r} may hold neither a closing script tag nor an HTML comment")
    return text


def _script_json(value):
    """JSON that may stand inside a script element, whatever the labels say."""
    text = json.dumps(value, allow_nan=False)  # ASCII only: no U+2028 either
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
