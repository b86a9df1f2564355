"""The federation that the chapters share: ten people, a watch on the wrist, seven exercises.

Everybody does all seven exercises, so label counts say that these people are alike.  They are not:
each moves in their own way.  How many labelled windows a person has decides who should join.
"""

import functools

import torch

import pfl_lib
from pfl_lib import _check
from pfl_lib.book import plots
from pfl_lib.data import from_arrays

__all__ = [
    "accuracies",
    "draw_movements",
    "draw_windows",
    "exercises",
    "federation",
    "people",
    "pooled",
]

#: How a person trains, in every chapter that does not say otherwise.
TRAINING = {"lr": 0.3, "epochs": 5, "batch_size": 16}
#: As everybody would call the seven exercises of the data set.
NAMES = (
    "pendulum",
    "abduction",
    "forward elevation",
    "inward rotation",
    "outward rotation",
    "trapezius",
    "rowing",
)


@functools.cache
def exercises():
    """Windows of three seconds as 18 numbers: mean, spread and jerk of each of six channels.

    >>> exercises().x.shape[1], len(exercises().classes)
    (18, 7)
    """
    watch = pfl_lib.data.load("watch")
    windows = watch.x
    parts = (windows.mean(2), windows.std(2), windows.diff(dim=2).abs().mean(2))
    who, arm = watch.columns["person"], watch.columns["arm"]
    return from_arrays(
        torch.cat(parts, dim=1).numpy(),
        watch.y.numpy(),
        "person",
        columns={"person": 1 + who.values.numpy(), "arm": arm.values.numpy()},
        name="exercises",
        kind="tabular",
        classes=NAMES,
        test=torch.arange(len(windows)).numpy() >= watch.n_train,
        note=watch.note,
    )


def people(windows=None, seed=0):
    """The ten people; each has labelled only so many ``windows``, drawn at random (None: all).

    >>> [len(rows) for rows in people(windows=7).train]
    [7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
    """
    everything = pfl_lib.partition.natural(exercises())
    if windows is None:
        return everything
    return pfl_lib.partition.scarce(everything, _check.whole("windows", windows), seed=seed)


def pooled(windows=None, seed=0):
    """What nobody may do: all windows in one place, tested on everybody's.

    >>> [len(rows) for rows in pooled(windows=7).train]
    [70]
    """
    own = people(windows, seed)
    train, test = torch.cat(own.train), torch.cat(own.test)
    return pfl_lib.partition.Partition("pooled", [train], [test], seed=seed)


def federation(windows=None, seed=0, model="logistic_regression", clients=people, **training):
    """The people as a federation; ``seed`` draws the windows, the initial model and the batches.

    ``clients=pooled`` puts everything in one place.

    >>> federation(windows=7).m
    10
    """
    training = {**TRAINING, "seed": seed, "init_seed": seed, **training}
    return pfl_lib.Federation(exercises(), clients(windows, seed), model, **training)


def accuracies(method, windows=None, seeds=range(5), rounds=15, **training):
    """Accuracy after the last round: a row per seed, a column per person.

    ``method`` is the name of a method, or a method.

    >>> accuracies("separate", windows=7, seeds=range(2), rounds=1).shape
    torch.Size([2, 10])
    """
    method = pfl_lib.algorithm(method) if isinstance(method, str) else method
    runs = (
        pfl_lib.run(
            method,
            federation(windows, seed, **training),
            rounds,
            evaluate_every=rounds,
            progress=False,
        )
        for seed in seeds
    )
    return torch.stack([run.clients() for run in runs])


def draw_windows(persons=(1, 2, 3), labels=(1, 3)):
    """Acceleration in one window each: an exercise per row, a person per column.

    >>> len(draw_windows(persons=(1, 2)))
    4
    """
    watch = pfl_lib.data.load("watch")
    who = watch.columns["person"].values + 1
    count = len(persons) * len(labels)
    axes = plots.panels(count, (9.5, 4.2), len(labels), sharex=True, sharey=True)[1]
    for k, ax in enumerate(axes):
        person, label = persons[k % len(persons)], labels[k // len(persons)]
        row = ((who == person) & (watch.y == label)).nonzero()[0, 0]
        _movement(ax, watch.x[row])
        ax.set_title(f"person {person}: {NAMES[label]}")
        ax.set_xlabel("seconds" if k >= count - len(persons) else "")
    return axes


def draw_movements(named):
    """Movements of three seconds side by side, ``named`` is {title: (6, moments)}.

    >>> len(draw_movements({"one": torch.zeros(6, 150), "two": torch.ones(6, 150)}))
    2
    """
    axes = plots.panels(len(named), (8.5, 2.6), sharey=True)[1]
    for ax, (title, window) in zip(axes, named.items()):
        _movement(ax, window)
        ax.set(title=title, xlabel="seconds")
    return axes


def _movement(ax, window):
    """The first three channels, acceleration along three axes, at 50 Hz."""
    seconds = torch.arange(window.shape[1]) / 50
    for curve, color in zip(window[:3], plots.PALETTE):
        ax.plot(seconds, curve, color=color, lw=1.6)
