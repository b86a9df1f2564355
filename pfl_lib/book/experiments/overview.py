"""All committed results at a glance: what ran, where we and the papers differ, who wins where."""

from scipy.stats import kendalltau, rankdata

from pfl_lib._show import Shown
from pfl_lib.book.experiments.results import stored
from pfl_lib.methods import BY_NAME

NOTHING = "Nothing is stored yet."


def ran(results=None):
    """One row a result file: what, at which scale, how long, and whether it is still fresh."""
    rows = []
    for (name, scale), found in _all(results).items():
        record = found.record
        rounds = sorted({case["rounds"] for case in record["cases"]})
        rows.append(
            (
                name,
                scale,
                "stale" if found.stale() else "fresh",
                " or ".join(map(str, rounds)),
                str(len(record["seeds"])),
                f"{found.minutes:.0f}",
                record["date"],
                record["about"],
            )
        )
    head = ("experiment", "scale", "code", "rounds", "seeds", "minutes", "date", "what")
    return Shown(head, rows)


def disagreements(results=None, most=25, scale=None):
    """Our number and the paper's, the largest difference first."""
    rows = []
    for (name, size), found in _all(results).items():
        if scale not in (None, size):
            continue
        for case in found.cases:
            for method in found.methods:
                difference = found.difference(method, case)
                if difference is not None:
                    ours = found.percent(method, found.record["judged"], case, 1)
                    theirs = f"{found.paper(method, case):.1f}"
                    row = (method, case, name, size, ours, theirs, f"{difference:+.1f}")
                    rows.append((abs(difference), row))
    rows.sort(key=lambda pair: -pair[0])
    head = ("method", "where", "experiment", "scale", "ours", "paper", "difference")
    return Shown(head, [row for _, row in rows[:most]], note="" if rows else NOTHING)


def same_order(results=None, scale=None):
    """Does the paper's order of the methods come back?  Kendall's τ for every case: 1 the same
    order, 0 unrelated, −1 reversed.  p says how often unrelated orders would give such a τ."""
    rows = []
    for (name, size), found in _all(results).items():
        if scale not in (None, size):
            continue
        for case in found.cases:
            both = [m for m in found.methods if found.difference(m, case) is not None]
            if len(both) >= 3:
                ours = [found.mean(m, found.record["judged"], case) for m in both]
                theirs = [found.paper(m, case) for m in both]
                best = [both[max(range(len(both)), key=v.__getitem__)] for v in (ours, theirs)]
                tau = kendalltau(ours, theirs)
                p = f"{tau.pvalue:.3f}"
                rows.append((name, case, size, str(len(both)), f"{tau.statistic:+.2f}", *best, p))
    head = ("experiment", "where", "scale", "methods", "Kendall's τ", "our best", "paper's best")
    return Shown((*head, "p"), rows)


def standing(results=None, scale=None, least=3):
    """Each method over all cases it was in: mean rank (0 best, 1 worst) and how often it beats
    Separate and FedAvg, by the last round.  Methods in fewer than ``least`` cases are left out.

    Only methods by their own names count, and FedAMP with the median rule: a sweep of some
    setting would compare a method with itself many times.  FedAMP's width decides what it does, so
    it has one row for each way in which the width is set."""
    names = {algorithm.label for algorithm in BY_NAME.values()} | {"FedAMP, median σ"}
    ranks: dict[str, list] = {}
    over: dict[str, dict] = {"Separate": {}, "FedAvg": {}}
    for (_, size), found in _all(results).items():
        if scale not in (None, size):
            continue
        for case in found.cases:
            here = [m for m in found.methods_in(case) if m in names]
            last = {
                _with_setting(m, found.of(m, case)[0]["settings"]): found.mean(m, "last", case)
                for m in here
            }
            here = list(last)
            if len(here) < 3:
                continue
            places = rankdata([-last[m] for m in here])
            for method, place in zip(here, places):
                ranks.setdefault(method, []).append((place - 1) / (len(here) - 1))
                for rival in over:
                    if rival in last and method != rival:
                        won = last[method] > last[rival]
                        over[rival].setdefault(method, []).append(won)
    rows = []
    for method, places in sorted(ranks.items(), key=lambda pair: sum(pair[1]) / len(pair[1])):
        if len(places) >= least:
            wins = [over[rival].get(method, []) for rival in over]
            wins = [f"{sum(w)} of {len(w)}" if w else "" for w in wins]
            rows.append((method, str(len(places)), f"{sum(places) / len(places):.2f}", *wins))
    return Shown(("method", "cases", "mean rank", "beats Separate", "beats FedAvg"), rows)


def _with_setting(label, settings):
    """The label, and for FedAMP how its width is set."""
    if settings["algorithm"] != "fedamp":
        return label
    if settings.get("fedamp.alpha") is not None:
        return f"FedAMP, α = {settings['fedamp.alpha']:g}"
    return "FedAMP, median σ" if settings["fedamp.sigma"] == "median" else "FedAMP, given σ"


def _all(results):
    return stored() if results is None else results
