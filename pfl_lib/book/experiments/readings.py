"""The readings we chose where papers and public code differ, beside the others that can be run."""

from typing import Any

from pfl_lib._show import Link, Shown
from pfl_lib.book.experiments.standings import lead, span
from pfl_lib.methods import BY_NAME, algorithm

SPLIT: dict[str, Any] = {"eps1": 1.0, "eps2": 0.6, "warmup": 4}
#: The other readings of each method, by what one would call them; ours are the default settings.
READINGS: dict[str, dict[str, dict[str, Any]]] = {
    "label-prior": {"smoothed with ten samples": {"smoothing": 10.0}},
    "pfedme": {"θ starts at w on every batch": {"restart": True}},
    "apfl": {"α moves with every step": {"adapt": "step"}},
    "fedbabu": {
        "all layers fine-tuned": {"part": "all"},
        "all layers fine-tuned, five epochs": {"part": "all", "ft_epochs": 5},
    },
    "feddbe": {"momentum 0.1": {"momentum": 0.1}},
    "fedproto": {
        "mean square over samples": {"pull": "samples"},
        "sum of squares (λ = 32)": {"lam": 32.0},
    },
    "fedas": {
        "gradients of whole batches": {"fisher": "batches"},
        "weighted by samples": {"fisher": "none"},
    },
    "fedphp": {"a horizon of these ten rounds": {"expected": 10}},
    "fedala": {
        "threshold 0.01": {"tol": 0.01},
        "η = 10": {"ala_lr": 10.0},
        "mixed once more before the test": {"remix_before_test": True},
    },
    "cfl": {
        "thresholds that split": SPLIT,
        "thresholds that split, complete linkage": SPLIT | {"rule": "complete"},
        "thresholds that split, weighted by samples": SPLIT | {"weighting": "sizes"},
    },
    "ifca": {"weighted by samples": {"weighting": "sizes"}},
    "pfedgraph": {
        "pushed away": {"lam": -0.01},
        "pulled with λ = 1": {"lam": 1.0},
        "updates of the round": {"since": "round"},
        "cosines above 0.9 are 1": {"snap": 0.9},
    },
    "spfl": {
        "head at home": {"local_head": True},
        "head at home but for resets": {"local_head": "reset"},
    },
    "fedfomo": {"on from the trained model": {"if_nobody_helps": "trained"}},
    "apple": {"mean over each tensor": {"p_gradient": "tensor mean"}},
    "fedavg-sync": {"late every other time": {"stragglers": "alternating"}},
    "fedasync": {
        "staleness in updates": {"staleness": "updates"},
        "late models alone are mixed": {"mixing": "late"},
    },
    "fedbuff": {
        "a step for every 4": {"buffer": 4},
        "late updates in full": {"staleness_power": 0.0},
    },
    "lga": {"added to the model pulled": {"base": "pull"}},
    "plga": {"the trained model is mixed": {"mixes": "trained"}},
}


def methods(names=tuple(READINGS)):
    """Our reading and the others of these methods, by label.

    >>> list(methods(["ifca"]))
    ['IFCA', 'IFCA, weighted by samples']
    """
    found = {}
    for name in names:
        label, others = BY_NAME[name].label, READINGS[name]
        found[label] = algorithm(name)
        found |= {f"{label}, {words}": algorithm(name, **o) for words, o in others.items()}
    return found


def effect(found, name, words, case):
    """By how much another reading of a method is ahead of ours, in points, with its interval.

    >>> from pfl_lib.book.experiments import stored
    >>> effect(stored("own_readings")["laptop"], "ifca", "weighted by samples", "mixes")[-1]
    ']'
    """
    label = BY_NAME[name].label
    return span(*lead(found, f"{label}, {words}", case, label))


def effects(found):
    """Every reading that was run: what ours gives in each case, and what the other one changes."""
    rows = [
        (
            Link(BY_NAME[name].label, f"../reference/{name}.html"),
            words,
            *(
                cell
                for case in found.cases
                for cell in (
                    f"{100 * found.mean(BY_NAME[name].label, 'last', case):.1f}",
                    effect(found, name, words, case),
                )
            ),
        )
        for name, others in READINGS.items()
        for words in others
        if found.of(f"{BY_NAME[name].label}, {words}")  # one added since has not been run
    ]
    ours = [head for case in found.cases for head in (f"{case}: ours", f"{case}: the other")]
    note = f"In % and points. {found.caption(found.cases[0])}"
    return Shown(("method", "the other reading", *ours), rows, note=note)
