"""All committed results at a glance: what ran, where we and the papers differ, who wins where."""

import statistics

from scipy.stats import kendalltau, rankdata

from pfl_lib import _check
from pfl_lib._show import Link, Shown
from pfl_lib.book import papers
from pfl_lib.book.experiments.results import queued, stored, waiting
from pfl_lib.methods import BY_NAME

NOTHING = "Nothing is stored yet."


HOME = {"plga": "spfl"}  # which paper an experiment belongs to, where its name does not say
PARAMETERS = {"fedala_cnn": 582_026, "mcmahan_cnn": 1_663_370}  # on MNIST, whoever built it
#: Experiments that no summary over settings counts, and why: their cases repeat a setting.
APART = {
    "fedamp_dirty": "a sweep over wrong labels",
    "fedamp_dropped": "a sweep over absent clients",
    "fedamp_columns": "other readings on the same clients",
    "fedala_cost": "four rounds, to measure what they cost",
}
FIRST = ("method", "where", "experiment", "scale", "ours", "paper", "difference")


def index(results=None, page="experiments/{}.html"):
    """One row per result file: the paper, the question, what was run, what it took, whether the
    paper's order came back, and how far the numbers carry."""
    rows = []
    for (name, scale), found in _all(results).items():
        record = found.record
        runs = record["runs"]
        rounds = sorted({case["rounds"] for case in record["cases"]})
        size = _size(len(found.methods), " or ".join(map(str, rounds)), len(record["seeds"]))
        left = waiting(name, scale, found) if results is None else 0
        size += f"; {left} more in the queue" * bool(left)
        rows.append(
            (
                Link(name, page.format(name)),
                f"{_brief(record['source'])}: {record['about']}",
                ", ".join(dict.fromkeys(r["settings"]["data"] for r in runs)),
                scale,
                size,
                f"{found.minutes:.0f}",
                _came_back(name, scale, found),
                carries(name, scale, found) + "; STALE" * bool(found.stale()),
            )
        )
    for name, scales in queued().items() if results is None else ():
        for scale, minutes in scales.items():
            if (name, scale) not in stored():
                about = ("waits in the queue of long runs", "", scale, "")
                rest = (f"{minutes:.0f}", "not run", "not run")
                rows.append((Link(name, page.format(name)), *about, *rest))
    head = (
        *("experiment", "paper and question", "data", "scale", "size", "minutes"),
        *("did the order come back?", "what the numbers carry"),
    )
    return Shown(head, rows, sortable=True)


def counted(results=None):
    """The stored results, or these, but for those that are ``APART``.

    >>> {name for name, _ in counted()} & {*APART}
    set()
    """
    return {key: found for key, found in _all(results).items() if key[0] not in APART}


def _size(methods, rounds, seeds):
    """ "1 method, 40 rounds, 3 seeds" """
    counted = ((methods, "method"), (seeds, "seed"))
    counts = [f"{count} {word}{'s' * (count != 1)}" for count, word in counted]
    return f"{counts[0]}, {rounds} rounds, {counts[1]}"


def _brief(source):
    """ "Huang et al. (FedAMP, AAAI 2021), Table 3" as "FedAMP, Table 3"."""
    if not source:
        return "Ours"
    name = source.partition("(")[2].split(",")[0].rstrip(")") if "et al" in source else "SPFL"
    return f"{name}, {source.rsplit(', ', 1)[-1]}"


def _came_back(name, scale, found):
    """The paper's order of the methods, and its winner, in words."""
    rows = same_order({(name, scale): found}).rows
    if not rows:
        return "no order is printed"
    middle = statistics.median(float(row[4]) for row in rows)
    clear = sum(float(row[7]) < 0.05 for row in rows)
    same = sum(row[5] == row[6] for row in rows)
    return f"τ {middle:+.2f}, clear in {clear} of {len(rows)}; winner in {same} of {len(rows)}"


def carries(name, scale, found):
    """What a result may be held against: the paper only where its network and clients are.

    Cases for which the paper prints nothing are not asked, unless all are such."""
    first = name.split("_")[0]
    paper = HOME.get(first, first)
    if not found.record["source"] or paper not in papers.PAPERS:
        return "a question of our own"
    runs = found.record["runs"]
    printed = {entry["case"] for entry in found.record["cases"] if entry["paper"]}
    compared = [run for run in runs if run["case"] in printed] or runs
    networks = {_network(paper, run["settings"]) for run in compared}
    if "not printed" in networks:
        return "the paper prints no setting: order only"
    if scale == "paper" and networks == {"theirs"}:
        return "the paper's network and clients" + _shorter(first, paper, compared)
    why = [] if networks == {"theirs"} else ["another network"]
    why += ["smaller data"] * (scale != "paper")
    return f"at this scale: {', '.join(why)}"


def _shorter(method, paper, runs):
    """Where the paper prints how many rounds or clients there are and a run has fewer: how many."""
    about = runs[0]["settings"]
    kind = about["partition"].split("-")[0]
    kind = kind if kind in papers.names()["partitions"] else None
    printed = papers.settings(method, about["data"], kind, paper=paper)
    longest = max(run["rounds"][-1] for run in runs)
    found = ""
    for what, ours in (("clients", len(runs[0]["clients"])), ("rounds", longest)):
        if what in printed and what not in printed.chosen() and ours < printed[what]:
            found += f", {ours:,} of its {printed[what]:,} {what}"
    return found


def _network(paper, settings):
    """Whether a run had the network that its paper names."""
    if paper == "fedacs":
        return "not printed"
    try:
        printed = papers.settings(paper, settings["data"], paper=paper)["model"]
    except (KeyError, ValueError):
        return "another"
    same = settings["model"].lower() == printed.lower()
    return "theirs" if same or settings["parameters"] == PARAMETERS.get(printed) else "another"


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
    shown = [row for _, row in rows[:most]]
    return Shown(FIRST, shown, note="" if rows else NOTHING, sortable=True)


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
    return Shown((*head, "p"), rows, sortable=True)


def standing(results=None, scale=None, least=3):
    """Each method over all cases it was in: mean rank (0 best, 1 worst) and how often it beats
    Separate and FedAvg, by the last round.  Methods in fewer than ``least`` cases are left out, and
    experiments that are ``APART``.

    Only methods by their own names count, and FedAMP with the median rule: a sweep of some
    setting would compare a method with itself many times.  FedAMP's width decides what it does, so
    it has one row for each way in which the width is set."""
    names = {algorithm.label for algorithm in BY_NAME.values()} | {"FedAMP, median σ"}
    ranks: dict[str, list] = {}
    over: dict[str, dict] = {"Separate": {}, "FedAvg": {}}
    for (_, size), found in counted(results).items():
        if scale not in (None, size):
            continue
        for case in found.cases:
            here = [m for m in found.methods_in(case) if m in names]
            last = {
                with_setting(m, found.of(m, case)[0]["settings"]): found.mean(m, "last", case)
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
    head = ("method", "cases", "mean rank", "beats Separate", "beats FedAvg")
    return Shown(head, rows, sortable=True)


def where(name, page="../experiments/{}.html"):
    """The experiments that ran a method: a link to each, what it asks, settings and seeds.

    >>> where("fedala").head
    ('experiment', 'what was run', 'scale', 'settings', 'seeds')
    """
    _check.one_of("name", name, BY_NAME)
    rows = []
    for (experiment, scale), found in stored().items():
        runs = [run for run in found.record["runs"] if run["settings"]["algorithm"] == name]
        if runs:
            cases, seeds = ({run[what] for run in runs} for what in ("case", "seed"))
            link = Link(experiment, page.format(experiment))
            about = found.record["about"]
            rows.append((link, about, scale, str(len(cases)), str(len(seeds))))
    head = ("experiment", "what was run", "scale", "settings", "seeds")
    return Shown(head, rows, note="" if rows else NOTHING)


def with_setting(label, settings):
    """The label, and for FedAMP how its width is set."""
    if settings["algorithm"] != "fedamp":
        return label
    if settings.get("fedamp.alpha") is not None:
        return f"FedAMP, α = {settings['fedamp.alpha']:g}"
    return "FedAMP, median σ" if settings["fedamp.sigma"] == "median" else "FedAMP, given σ"


def _all(results):
    return stored() if results is None else results
