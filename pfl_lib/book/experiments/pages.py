"""How the page of an experiment opens: with what was measured, and what it takes to measure it."""

from pfl_lib import _check
from pfl_lib._show import Shown
from pfl_lib.book.experiments.results import SCALES, Results, names, queued, stored
from pfl_lib.methods import BY_NAME

HEAD = ("scale", "took", "rounds", "seeds", "measured", "on")
NOT_YET = ("not run yet", "", "", "", "")
#: What rows may have been run with, and what the original has; an absent setting had its default.
OLDER = {
    ("pfedme.restart", True): "pFedMe was run with θ restarting at w on every batch; its original "
    "goes on from θ.",
    ("fedala.tol", 0.1): "FedALA's first stage was run with the threshold 0.1 of its authors' "
    "module; their read-me says 0.01 for the paper's runs, which makes that stage about twice as "
    "long.",
    ("fedala.remix_before_test", False): "FedALA was tested with the mix that began the last "
    "round; its authors' code has all clients mix once more before the test.",
    ("apple.p_gradient", "derivative"): "APPLE's weights followed the derivative that its paper "
    "prints; the step size is printed for its public code, which takes the mean over each tensor "
    "instead and so moves the weights far less.",
    ("fedfomo.if_nobody_helps", "begin"): "FedFomo's clients whom no model helped began again "
    "where they had begun; public code goes on from the trained model.",
}
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
        for words in (*older(kept), *lacking(kept)):
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
        for (key, former), words in OLDER.items():
            name, _, what = key.partition(".")
            runs_it = settings.get("algorithm") == name
            had = settings.get(key, getattr(BY_NAME[name], what) if runs_it else None)
            if had == former and (fedala or name == "pfedme"):
                remarks[words] = None
        expected = settings.get("fedphp.expected")
        joined = max(1, round(settings.get("participation", 1.0) * run["rounds"][-1]))
        if fedala and expected not in (None, joined):
            remarks[HORIZON.format(expected, joined)] = None
    return list(remarks)


def lacking(kept, least=4):
    """Which yardsticks a stored table does not have, in words; tables of fewer than ``least``
    methods are no comparison.

    A fine-tuned model is one by any name (FedAvg-C is one in every round).  Where the clients'
    groups are known, training inside them is a yardstick, too.

    >>> runs = [{"method": m, "case": "", "settings": {"partition": "iid-10"}}
    ...         for m in ("Separate", "FedAvg", "FedAMP", "FedAvg-C")]
    >>> lacking(Results({"experiment": "mine", "cases": [{"case": ""}], "runs": runs}))
    ['not run beside these rows: Label prior']
    """
    wanted: dict[str, set] = {}
    for case in kept.cases:
        here = {*kept.methods_in(case)}
        if len(here) < least:
            continue
        needed = {"Separate": {"Separate"}, "FedAvg-FT": {"FedAvg-FT", "FedAvg-C"}}
        needed |= {"Label prior": {"Label prior"}}
        used = kept.within([case]).record["runs"][0]["settings"]
        if used.get("partition", "").startswith("grouped"):
            needed |= {"Oracle groups": {"Oracle groups"}}
        for name, any_of in needed.items():
            if not here & any_of:
                wanted.setdefault(name, set()).add(case)
    if not wanted:
        return []
    words = [
        name + f" (in {len(cases)} of {len(kept.cases)} columns)" * (len(cases) < len(kept.cases))
        for name, cases in wanted.items()
    ]
    return [f"not run beside these rows: {', '.join(words)}"]


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
            return kept.within(whole)
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
