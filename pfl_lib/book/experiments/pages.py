"""How the page of an experiment opens: with what was measured, and what it takes to measure it."""

from pfl_lib import _check
from pfl_lib._show import Shown
from pfl_lib.book.experiments.results import SCALES, Results, names, queued, stored

HEAD = ("scale", "took", "rounds", "seeds", "measured", "on")
NOT_YET = ("not run yet", "", "", "", "")
RESTARTS = "pFedMe was run with θ restarting at w on every batch; its original goes on from θ."
THRESHOLD = (
    "FedALA's first stage was run with the threshold 0.1 of its authors' module; their read-me "
    "says 0.01 for the paper's runs, which makes that stage about twice as long."
)
HORIZON = "FedPHP was run with a horizon of {} rounds; its authors' would be {} here."
SMOKE = ("the run at the end of this page", "", "", "", "")


def opening(experiment, show=Results.grid):
    """Show the stored runs of an experiment and how long they took; gives them by scale.

    ``show`` is called with the results of every stored scale; what it returns is displayed.  Of
    an experiment that waits in the queue of long runs the expected time is shown.

    >>> list(opening("own_leap", show=lambda kept: None))  # doctest: +ELLIPSIS
    scale   took ...
    ['laptop']
    """
    from IPython.display import display

    waits = queued()
    _check.one_of("experiment", experiment, names() | {*waits})
    found = stored(experiment)
    display(durations(found, waits.get(experiment, {})))
    for scale, kept in found.items():
        shown = show(kept)
        if shown is not None:
            display(shown)
        for words in older(kept):
            print(f"{scale}: {words}")
    return found


def older(kept):
    """Where stored rows had settings that a run of today would no longer have, in words.

    >>> runs = [{"method": "pFedMe", "settings": {"pfedme.restart": True}, "rounds": [5]}]
    >>> older(Results({"experiment": "mine", "runs": runs}))
    ['pFedMe was run with θ restarting at w on every batch; its original goes on from θ.']
    """
    remarks: dict[str, None] = {}
    fedala = kept.record["experiment"].startswith("fedala")  # to be run with that paper's settings
    for run in kept.record["runs"]:
        settings = run["settings"]
        if settings.get("pfedme.restart"):
            remarks[RESTARTS] = None
        if fedala and settings.get("fedala.tol") == 0.1:
            remarks[THRESHOLD] = None
        expected = settings.get("fedphp.expected")
        joined = max(1, round(settings.get("participation", 1.0) * run["rounds"][-1]))
        if fedala and expected not in (None, joined):
            remarks[HORIZON.format(expected, joined)] = None
    return list(remarks)


def largest(found, methods, cases=None):
    """The stored runs of the largest scale at which all these methods were run.

    The long runs come in one by one, so a page that puts several methods beside each other takes
    the paper's scale only once they are all there.  Of that scale, the cases that hold them all are
    kept; where ``cases`` are named, it must be all of these.

    >>> runs = [{"method": m, "case": c} for m, c in (("A", "x"), ("B", "x"), ("A", "y"))]
    >>> record = {"cases": [{"case": "x"}, {"case": "y"}], "runs": runs}
    >>> kept = largest({"laptop": Results(record)}, ["A", "B"])
    >>> kept.cases, len(kept.record["runs"])
    (['x'], 2)
    """
    for scale in reversed(SCALES):
        kept = found.get(scale)
        whole = [c for c in kept.cases if all(kept.of(m, c) for m in methods)] if kept else []
        if whole and {*(cases or ())} <= {*whole}:
            record = kept.record | {
                "cases": [entry for entry in kept.record["cases"] if entry["case"] in whole],
                "runs": [run for run in kept.record["runs"] if run["case"] in whole],
            }
            return Results(record)
    raise ValueError(f"methods must have been run at one scale at least, got {list(methods)}")


def durations(found, waits=None):
    """What each scale takes, one row per scale; those that nobody has run yet are named, too.

    ``waits`` holds the minutes that the queue expects for the whole of a scale."""
    rows = []
    for scale in SCALES:
        cells = NOT_YET if scale != "smoke" else SMOKE
        if scale in (waits or {}):
            cells = (f"not run yet; all of it: about {in_words(waits[scale])}", *NOT_YET[1:])
        if scale in found:
            record = found[scale].record
            rounds = sorted({case["rounds"] for case in record["cases"]})
            cells = (
                in_words(found[scale].minutes),
                " or ".join(map(str, rounds)),
                str(len(record["seeds"])),
                record["date"],
                record["machine"],
            )
        rows.append((scale, *cells))
    return Shown(HEAD, rows)


def in_words(minutes):
    """A span of time as one would say it.

    >>> in_words(0.2), in_words(34.4), in_words(245)
    ('12 seconds', '34 minutes', '4.1 hours')
    """
    if minutes < 1.5:
        return f"{max(1, round(60 * minutes))} seconds"
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
