"""What the claims' tests read: stored results, in per cent."""

from pfl_lib.book.experiments import stored


def laptop(experiment):
    """The stored results at laptop scale."""
    return stored(experiment)["laptop"]


def paper_scale(experiment):
    """The stored results at the paper's own scale."""
    return stored(experiment)["paper"]


def percent(found, case=None, what="last"):
    """{method: mean accuracy in %} of those that were run in a case."""
    case = found.cases[0] if case is None else case
    return {m: 100 * found.mean(m, what, case) for m in found.methods_in(case)}


def gains(found, ours, theirs, case=None, what="last"):
    """What one method gains on another, in points, seed by seed."""
    pairs = zip(found.values(ours, what, case), found.values(theirs, what, case), strict=True)
    return [100 * (a - b) for a, b in pairs]


def first(accuracy):
    """The method with the highest number."""
    return max(accuracy, key=accuracy.get)
