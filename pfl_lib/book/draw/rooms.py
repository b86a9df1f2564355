"""The house itself: the rooms of the library and of the book, and the way data takes."""

from pfl_lib.book.draw.kit import WIDTH, Panel

#: The library's rooms in the order in which data passes: (title, modules, what happens there,
#: what is handed on).  A test asks that every module of the library has its room.
LIBRARY = [
    ("Data", ["data"], "loads and checks data sets", "samples and labels"),
    (
        "Clients",
        ["partition", "_dealing", "_groups"],
        "who holds which samples",
        "indices per client",
    ),
    ("Models", ["models", "_torchvision"], "the networks of the papers", "one network"),
    (
        "Federation",
        ["federation", "work", "local", "devices", "flower", "_terms", "random"],
        "performs work, here or over a network",
        "models, one row per client",
    ),
    (
        "Methods",
        ["methods", "formulas", "attention", "stragglers", "robust", "comparison"],
        "mix the rows, have the clients train",
        "new models, round after round",
    ),
    (
        "Rounds",
        [
            "rounds",
            "history",
            "metrics",
            "checkpoints",
            "_disk",
            "faults",
            "privacy",
            "callbacks",
            "tuning",
            "newcomers",
            "_show",
        ],
        "repeat, remember, judge, survive",
        "a History",
    ),
]
#: Small helpers that every room may use.
EVERYWHERE = [
    "_check",
    "_threads",
    "_deprecated",
    "_example",
    "_objectives",
    "_schedules",
    "_version",
]
BOOK = [
    ("Experiments", "pfl_lib.book", "papers, settings, canaries", "what was measured"),
    ("Results", "results/", "one file per experiment and scale", "numbers"),
    ("Chapters", "notebooks/", "explain, compute, show", "pages that ran"),
    ("Pages", "book/", "what you are reading", ""),
]
WATCHERS = [
    ("Tests", "tests/", "keep all of this true"),
    ("Tools", "devtools/", "build, run, check, publish"),
]
TALL, GAP = 56, 30


def _room(panel, y, title, where, words, style):
    panel.rect(6, y, WIDTH - 12, TALL, f"soft {style}", round=8)
    panel.rect(6, y, WIDTH - 12, TALL, f"thin {style}", round=8)
    panel.text(18, y + 23, title, f"{style} big", "start")
    panel.text(WIDTH - 18, y + 23, where, "mute small", "end")
    panel.text(18, y + 44, words, "ink", "start")


def _way(panel, y, words, style):
    panel.arrow(32, y + 3, 32, y + GAP - 3, f"line {style}", head=7)
    panel.text(46, y + 20, words, "mute small", "start")


def _public(modules):
    """The names one meets first: a package stands for what is in it."""
    return ", ".join(name for name in modules[:3] if name[0] != "_")


def rooms():
    """Two panels: the library's rooms, and the book's."""
    library = Panel(
        "The rooms of the library",
        "Six boxes one below the other, joined by arrows: data gives samples to clients, who are "
        "given a network, form a federation that performs work, in which methods mix and train; "
        "rounds repeat it and end in a history.",
        height=len(LIBRARY) * (TALL + GAP) + 34,
    )
    library.text(6, 18, "pfl_lib, the library", "g1 big", "start")
    y = 32
    for title, modules, words, carried in LIBRARY:
        _room(library, y, title, _public(modules), words, "g1")
        _way(library, y + TALL, carried, "g1")
        y += TALL + GAP
    book = Panel(
        "The rooms of the book",
        "Four boxes one below the other, joined by arrows: experiments run the library and write "
        "results, chapters read them, pages show them. Two boxes stand aside: tests and tools.",
        height=library.height,
    )
    book.text(6, 18, "the book, which imports the library", "g2 big", "start")
    y = 32
    for title, where, words, carried in BOOK:
        _room(book, y, title, where, words, "g2")
        if carried:
            _way(book, y + TALL, carried, "g2")
        y += TALL + GAP
    for title, where, words in WATCHERS:
        _room(book, y, title, where, words, "mute")
        y += TALL + GAP
    return [library, book]


FIGURES = {"rooms": rooms}
