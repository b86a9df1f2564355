"""How every method stands on natural clients: intervals, tables and one picture."""

import ast
import inspect
import math
import statistics
import sys

import matplotlib.pyplot as plt
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from pfl_lib._example import example
from pfl_lib._show import Link, Shown
from pfl_lib.book import plots
from pfl_lib.methods import BY_NAME

NUMBERS = {
    "last round": "last",
    "best round": "best",
    "worst 10 %": "worst 10 %",
    "newcomers": "newcomers",
}


def paired(ours, theirs, level=0.95):
    """The mean difference between two methods, seed by seed, in points, and Student's interval.

    Both are numbers between 0 and 1 by seed; with fewer than two seeds in common, NaN.

    >>> [round(x, 2) for x in paired({0: 0.9, 1: 0.92, 2: 0.94}, {0: 0.9, 1: 0.9, 2: 0.91})]
    [1.67, -2.13, 5.46]
    """
    gains = [100 * (ours[seed] - theirs[seed]) for seed in sorted(set(ours) & set(theirs))]
    if len(gains) < 2:  # the others diverged
        return math.nan, math.nan, math.nan
    mean = statistics.fmean(gains)
    half = float(stats.t.ppf((1 + level) / 2, len(gains) - 1) * stats.sem(gains))
    return mean, mean - half, mean + half


def by_seed(found, method, case, what="last"):
    """A method's numbers in a case, by seed."""
    values = found.values(method, what, case)
    return {run["seed"]: value for run, value in zip(found.of(method, case), values)}


def lead(found, method, case, over="Separate", what="last"):
    """By how much a method is ahead of another one, in points, with its interval."""
    return paired(by_seed(found, method, case, what), by_seed(found, over, case, what))


def client_by_client(found, method, case, over="Separate"):
    """How far a method is ahead of another over the clients of the first seed, in points, with its
    interval: it speaks of these clients, not of another start.  Empty where one was not run.

    >>> from pfl_lib.book.experiments import Results
    >>> runs = [{"method": m, "case": "", "clients": a}
    ...         for m, a in (("Separate", [0.5, 0.7]), ("FedAMP", [0.6, 0.9]))]
    >>> client_by_client(Results({"runs": runs}), "FedAMP", "")
    '+15.00 [−48.53, 78.53]'
    """
    both = [found.of(m, case) for m in (method, over)]
    if method == over or not all(both):
        return ""
    ours, theirs = (dict(enumerate(runs[0]["clients"])) for runs in both)
    mean, low, high = paired(ours, theirs)
    return span(mean, low, high, digits=2)


def moved(run, share=0.2):
    """By how many points the last ``share`` of the rounds has changed a run's mean accuracy.

    >>> moved({"rounds": [1, 8, 10], "mean by round": [0.5, 0.875, 0.9375]})
    6.25
    """
    rounds, curve = run["rounds"], run["mean by round"]
    before = [a for number, a in zip(rounds, curve) if number <= (1 - share) * rounds[-1]]
    return 100 * (curve[-1] - (before or curve[:1])[-1])


def standings(found, case):
    """Every method in one case, the best first: members, leads with intervals, newcomers."""
    rows = []
    order = sorted(found.methods_in(case), key=lambda m: -found.mean(m, "last", case))
    for method in order:
        leads = [
            "" if method == over else span(*lead(found, method, case, over))
            for over in ("Separate", "FedAvg-FT")
        ]
        numbers = [100 * found.mean(method, w, case) for w in NUMBERS.values()]
        broken = len(found.diverged(method, case))
        seconds = f"{found.mean(method, 'seconds', case):.1f}"
        label = method + f" ({broken} of {len(found.record['seeds'])} diverged)" * bool(broken)
        rows.append((label, *(f"{n:.1f}" for n in numbers), *leads, seconds))
    head = ("method", *NUMBERS, "− Separate [95 %]", "− FedAvg-FT [95 %]", "seconds")
    note = f"Accuracy in %, mean over clients and seeds. {found.caption(case)}"
    return Shown(head, rows, note=note, sortable=True)


def span(mean, low, high, digits=1):
    """A difference and its interval in words; "" where there is none.

    >>> span(1.67, -2.13, 5.46)
    '+1.7 [−2.1, 5.5]'
    """
    if math.isnan(mean):
        return ""
    return f"{mean:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]".replace("-", "−")


def picture(found, cases, what="last", over="Separate"):
    """One line per method: by how many points it leads ``over`` in each case, with intervals."""
    there = {m for case in cases for m in found.methods_in(case)}
    methods = [m for m in found.methods if m in there and m != over]

    def middle(method):
        leads = [lead(found, method, c, over, what)[0] for c in cases]
        return statistics.fmean([x for x in leads if not math.isnan(x)] or [-math.inf])

    methods.sort(key=middle)
    with plt.rc_context(plots.STYLE):
        ax = plt.subplots(figsize=(7, 1.2 + 0.27 * len(methods)), layout="constrained")[1]
        for number, case in enumerate(cases):
            for y, method in enumerate(methods):
                mean, low, high = lead(found, method, case, over, what)
                at = y + 0.25 * (1 - number)
                color, mark = plots.PALETTE[number], "osD"[number]
                ax.plot((low, high), (at, at), color=color, lw=1.4)
                ax.plot(mean, at, mark, color=color, ms=3.5, label=case if y == 0 else None)
        ax.axvline(0, color="#555555", lw=1)
        ax.set_yticks(range(len(methods)), methods)
        ax.set_ylim(-0.7, len(methods) - 0.3)
        ax.set_xlabel(f"points ahead of {over}")
        ax.legend(loc="lower right")
        ax.grid(axis="x", alpha=0.3)
    return ax


# ---- what a method costs ------------------------------------------------------------------------


def code_lines(kind):
    """Lines of code in the file of a method, without comments, docstrings and blank lines.

    >>> code_lines(BY_NAME["separate"]) < code_lines(BY_NAME["fedamp"])
    True
    """
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return sum(bool(line.strip()) for line in ast.unparse(tree).splitlines())


class _Counter(TorchDispatchMode):
    """Counts operations that compute something; views are free."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        given = [r.alias_info for r in operation._schema.returns]
        self.count += not any(a is not None and not a.is_write for a in given)
        return operation(*args, **(kwargs or {}))


def operations(method, fed=None, after=1):
    """Tensor operations of one round per batch that a client trains on: on a GPU, the launches.

    All clients are trained as one stack, so the number does not grow with them, unless a method
    goes through its clients one by one.

    >>> operations(BY_NAME["separate"]()) < operations(BY_NAME["ditto"]())
    True
    """
    fed = fed or example(batch_size=64)
    state = method.start(fed)
    for k in range(after):
        state = method.round(state, fed.at(k), fed.everyone)
    with _Counter() as counter:
        method.round(state, fed.at(after), fed.everyone)
    batches = -(-max(fed.sample_counts) // fed.settings.batch_size) * fed.settings.epochs
    return counter.count / batches


def costs(found, cases):
    """Every method: its code, its operations, what it sends, and how it fares in these cases.

    A preset stands in the file of its parent.  What is sent is counted in whole models per client
    and round.
    """
    fed = example(batch_size=64)
    known = {kind.label: kind for kind in BY_NAME.values()}
    rows = []
    for label in found.methods:
        kind, (first, *_) = known[label], found.of(label)
        settings, m = first["settings"], len(first["clients"])
        models = first["sent"] / (first["rounds"][-1] * m * settings["parameters"])
        numbers = [plus_minus(found, label, case) for case in cases]
        method = kind(**kind.needs)
        work = "" if label == "Oracle groups" else f"{operations(method, fed):.0f}"
        rows.append(
            (
                Link(label, f"../reference/{kind.name}.html"),
                str(code_lines(kind)),
                work,
                f"{models:.2f}",
                *numbers,
                kind.newcomer,
            )
        )
    head = ("method", "lines of code", "operations per batch", "models sent", *cases)
    return Shown((*head, "a newcomer gets"), rows, sortable=True)


def plus_minus(found, method, case, level=0.95, what="last"):
    """Mean accuracy in % and half the width of Student's interval over the seeds.

    >>> from pfl_lib.book.experiments import stored
    >>> plus_minus(stored("natural")["laptop"], "Separate", "people")
    '91.0 ± 0.8'
    """
    values = [100 * v for v in found.values(method, what, case)]
    if len(values) < 2:
        return ""
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values)
    return f"{statistics.fmean(values):.1f} ± {half:.1f}"
