"""Measures of how much clients' data differ, and of how personal models compare.

Data: a table ``counts`` has one row per client, one column per class (``partition.counts(data)``).
Models: accuracies are one number per client, or a ``History``, whose last recorded round is meant.
"""

import math
from typing import NamedTuple

import torch

from pfl_lib import _check, _deprecated, _objectives
from pfl_lib.data.dataset import Dataset
from pfl_lib.history import History
from pfl_lib.partition import Partition

__all__ = [
    "Wilcoxon",
    "accuracy_error",
    "auc",
    "effective_classes",
    "effective_clients",
    "effective_samples",
    "f1",
    "group_recovery",
    "inside_by_chance",
    "inside_share",
    "label_shares",
    "mae",
    "majority_accuracy",
    "total_variation",
    "wilcoxon",
    "win_rate",
]


# ---- heterogeneity of the data -----------------------------------------------------------------


def label_shares(counts):
    """Each client's distribution of labels: the rows of ``counts``, divided by their sums.

    >>> label_shares(torch.tensor([[3, 1], [0, 2]]))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    counts = _table(counts)
    return counts / counts.sum(1, keepdim=True)


def total_variation(counts):
    """``½ Σ_c |p_ic − p_jc|`` for every pair of clients: 0 for equal shares, 1 for none in common.

    Equation label: eq-total-variation

    >>> total_variation(torch.tensor([[3, 1], [0, 2]]))
    tensor([[0.0000, 0.7500],
            [0.7500, 0.0000]], dtype=torch.float64)
    """
    share = label_shares(counts)
    return 0.5 * (share[:, None] - share[None]).abs().sum(2)


def effective_classes(counts):
    """exp(−Σ_c p_ic ln p_ic): the number of equally frequent classes with the same entropy.

    Equation label: eq-effective-classes

    >>> effective_classes(torch.tensor([[5, 5, 0], [9, 0, 0]]))
    tensor([2., 1.], dtype=torch.float64)
    """
    return torch.special.entr(label_shares(counts)).sum(1).exp()


def effective_samples(counts):
    """What client j's samples are worth for client i's mix of classes: 1 / Σ_c p_ic² / n_jc.

    Entry (i, j) of an (m, m) tensor.  The diagonal is n_i; where i needs a class that j lacks, the
    worth is 0.

    Equation label: eq-effective-samples

    >>> effective_samples(torch.tensor([[5, 5], [9, 1]]))
    tensor([[10.0000,  3.6000],
            [ 6.0976, 10.0000]], dtype=torch.float64)
    """
    counts = _table(counts)
    need = label_shares(counts)[:, None] ** 2
    variance = torch.where(need > 0, need / counts[None], 0.0).sum(2)
    return 1 / variance


def effective_clients(sizes):
    """(Σ n_i)² / Σ n_i²: the number of equal clients whose average has the same variance.

    Equation label: eq-effective-clients

    >>> effective_clients(torch.tensor([10, 10, 10])), effective_clients(torch.tensor([98, 1, 1]))
    (3.0, 1.041...)
    """
    sizes = _check.numbers("sizes", sizes).double()
    if sizes.ndim != 1 or len(sizes) == 0 or not bool(((sizes > 0) & (sizes < torch.inf)).all()):
        raise ValueError(f"sizes must be positive numbers, one per client; got {sizes.tolist()!r}")
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def majority_accuracy(partition, data):
    """Test accuracy of a client that always predicts its most frequent training label: (m,).

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> two_each = pfl_lib.partition.pathological(data, clients=5)
    >>> majority_accuracy(two_each, data).mean() > 0.4  # of two classes, about half
    tensor(True)
    """
    for name, value, kind in (("partition", partition, Partition), ("data", data, Dataset)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
    guess = partition.counts(data, "train").argmax(1)
    if partition.labels is not None:  # what the client believes
        guess = torch.stack([y.bincount(minlength=1).argmax() for y in partition.labels])
    tested = partition.counts(data, "test").double()
    return tested.gather(1, guess[:, None]).squeeze(1) / tested.sum(1)


# ---- comparison of models -------------------------------------------------------------------


class Wilcoxon(NamedTuple):
    """``smaller``: the smaller of the two sums of ranks; ``pairs``: clients that are not tied.

    >>> Wilcoxon(smaller=3.0, pairs=6, p=0.16)
    Wilcoxon(smaller=3.0, pairs=6, p=0.16)
    """

    smaller: float
    pairs: int
    p: float


def win_rate(ours, theirs):
    """The share of clients for which ``ours`` is better than ``theirs``; a tie is half a win.

    Equation label: eq-win-rate

    >>> win_rate([0.9, 0.8, 0.7, 0.6], [0.8, 0.8, 0.9, 0.5])
    0.625
    """
    difference = _differences(ours, theirs)
    return float((difference > 0).double().mean() + 0.5 * (difference == 0).double().mean())


def wilcoxon(ours, theirs, alternative="two-sided"):
    """Wilcoxon's signed-rank test on the clients' differences; clients with none are left out.

    ``alternative="greater"`` asks whether ``ours`` is better, ``"less"`` whether it is worse.  The
    p-value is exact, also where differences tie, as accuracies on a few samples often do.

    Equation label: eq-signed-rank

    >>> wilcoxon([0.9, 0.8, 0.7, 0.6, 0.5], [0.8, 0.6, 0.4, 0.2, 0.0])
    Wilcoxon(smaller=0.0, pairs=5, p=0.0625)
    """
    _check.one_of("alternative", alternative, ("two-sided", "greater", "less"))
    difference = _differences(ours, theirs)
    difference = difference[difference != 0]
    size = difference.abs()
    below = (size[None] < size[:, None]).sum(1)
    twice = 2 * below + (size[None] == size[:, None]).sum(1) + 1  # twice the mean rank: whole
    gained = int(twice[difference > 0].sum())
    total = int(twice.sum())
    sums = _sums_of_signs(twice.tolist(), total)
    at_least, at_most = float(sums[gained:].sum()), float(sums[: gained + 1].sum())
    p = {
        "two-sided": min(1.0, 2 * min(at_least, at_most)),
        "greater": at_least,
        "less": at_most,
    }
    return Wilcoxon(min(gained, total - gained) / 2, len(difference), min(1.0, p[alternative]))


def _sums_of_signs(ranks, total):
    """The null distribution of the sum 0..total of the positive ranks."""
    chance = torch.zeros(total + 1, dtype=torch.float64)
    chance[0] = 1.0
    for rank in ranks:
        chance = 0.5 * chance + 0.5 * torch.cat([torch.zeros(rank), chance[: total + 1 - rank]])
    return chance


def inside_share(xi, groups):
    """The share of a client's weight on others that is on its own group, on average.

    >>> xi = torch.tensor([[0.0, 0.75, 0.25], [0.75, 0.0, 0.25], [0.5, 0.5, 0.0]])
    >>> inside_share(xi, torch.tensor([0, 0, 1]))
    0.5
    """
    others, groups = _check.numbers("xi", xi).detach().cpu().clone(), _groups(groups)
    _one_row_per_client(others, groups)
    others.fill_diagonal_(0)
    same = groups[:, None] == groups[None, :]
    return ((others * same).sum(1) / others.sum(1).clamp(min=1e-30)).mean().item()


def inside_by_chance(groups):
    """``inside_share`` for equal weights on all others: the mean share of a client's own group
    among the others.

    >>> inside_by_chance(torch.tensor([0, 0, 1, 1, 1]))
    0.4
    """
    groups = _groups(groups)
    same = (groups[:, None] == groups[None]).double().sum(1) - 1
    return float((same / (len(groups) - 1)).mean())


def group_recovery(xi, groups):
    """How well the hidden groups can be read off the weights ``xi``: the adjusted Rand index.

    The clients are clustered by their mutual weights (ξ_ij + ξ_ji)/2 (average linkage) into as many
    clusters as there are groups.  1: the clusters are the groups; about 0: chance.  It tells
    whether the groups can be found at all; ``inside_share`` tells how much weight is on them.

    >>> xi = torch.tensor([[0.0, 0.8, 0.2], [0.8, 0.0, 0.2], [0.5, 0.5, 0.0]])
    >>> group_recovery(xi, torch.tensor([0, 0, 1]))
    1.0
    """
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import adjusted_rand_score

    groups, xi = _groups(groups), _check.numbers("xi", xi).detach().cpu().double()
    _one_row_per_client(xi, groups)
    loud = (xi + xi.T) / 2
    far = (loud.max() - loud).fill_diagonal_(0)
    clusters = AgglomerativeClustering(
        n_clusters=len(groups.unique()), metric="precomputed", linkage="average"
    ).fit_predict(far.numpy())
    return float(adjusted_rand_score(groups.numpy(), clusters))


def auc(scores, y):
    """Area under the ROC curve: how often a positive sample scores above a negative one.

    A tie counts half.  ``scores`` (n,) with ``y`` 0 or 1; or (n, classes) with labels ``y``: the
    mean over the classes, each against the rest; or (n, k) with k labels at once, each 0 or 1: the
    mean over them.  A column without samples of both kinds, or with a score that is NaN, is left
    out; NaN where none is left.

    >>> auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    >>> auc([[2.0, 0.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 2.0]], [0, 1, 2])
    1.0
    """
    scores, y = _pair("scores", scores, y)
    if scores.ndim == 1:
        scores, hits = scores[:, None], _binary(y[:, None])
    elif y.ndim == 1 and scores.shape[1] == 1:
        raise ValueError("scores of one class must be (n,); (n, classes) holds a column for each")
    else:
        hits = _binary(y) if y.ndim == 2 else _one_hot(y, scores.shape[1])
    if scores.shape != hits.shape:
        raise ValueError(
            f"scores must have a column for each of {hits.shape[1]} labels, "
            f"got shape {tuple(scores.shape)}"
        )
    return _mean_of_measured([_one_auc(s, hit) for s, hit in zip(scores.T, hits.T)])


def _one_auc(scores, hit):
    """The AUC from the mean ranks of the scores (Mann and Whitney)."""
    inside, outside = int(hit.sum()), int((~hit).sum())
    if not inside or not outside or scores.isnan().any():
        return math.nan
    _, place, count = scores.unique(return_inverse=True, return_counts=True)
    rank = (count.cumsum(0) - (count - 1) / 2)[place].double()
    return float((rank[hit].sum() - inside * (inside + 1) / 2) / (inside * outside))


def f1(predicted, y):
    """The mean over classes of F1 = 2·TP / (2·TP + FP + FN): "macro", every class alike.

    ``predicted`` and ``y`` are labels (n,), or several labels at once, each 0 or 1: (n, k).  A
    class that is neither there nor predicted is left out; NaN where none is left.

    >>> f1([0, 1, 1, 1], [0, 0, 1, 1])  # 2/3 for class 0, 4/5 for class 1
    0.7333...
    """
    predicted, y = _pair("predicted", predicted, y)
    if predicted.shape != y.shape:
        raise ValueError(f"predicted must have y's shape {tuple(y.shape)}, got {predicted.shape}")
    if y.ndim == 1:
        classes = 1 + int(max(predicted.max(), y.max()))
        positive, true = _one_hot(predicted, classes), _one_hot(y, classes)
    else:
        positive, true = _binary(predicted), _binary(y)
    right = 2 * (positive & true).sum(0).double()
    among = positive.sum(0) + true.sum(0)
    return _mean_of_measured((right / among)[among > 0].tolist())


def mae(predicted, y):
    """Mean absolute error of predicted numbers, over all samples and columns.  Less is better.

    >>> mae([1.0, 2.0, 4.0], [1.0, 3.0, 2.0])
    1.0
    """
    predicted, y = _pair("predicted", predicted, y)
    if predicted.shape != y.shape:
        raise ValueError(f"predicted must have y's shape {tuple(y.shape)}, got {predicted.shape}")
    return float((predicted.double() - y.double()).abs().mean())


def accuracy_error(accuracy, samples):
    """Standard error √(a(1 − a)/n) of an accuracy a that was measured on n test samples.

    >>> accuracy_error(0.9, 100)
    0.03
    """
    accuracy = _check.between("accuracy", accuracy, 0, 1)
    return math.sqrt(accuracy * (1 - accuracy) / _check.whole("samples", samples))


# ---- inside ----------------------------------------------------------------------------------


def _pair(name, values, y):
    values, y = _check.numbers(name, values), _check.numbers("y", y)
    for which, given in ((name, values), ("y", y)):
        if given.ndim not in (1, 2) or given.numel() == 0:
            raise ValueError(
                f"{which} must be (n,) or (n, columns), not empty; got shape {tuple(given.shape)}"
            )
    if len(values) != len(y):
        raise ValueError(
            f"{name} and y must be of the same samples, got {len(values)} and {len(y)}"
        )
    return values, y


def _binary(y):
    if not bool(((y == 0) | (y == 1)).all()):
        raise ValueError("y must be 0 or 1 in every entry")
    return y == 1


def _one_hot(y, classes):
    if y.is_floating_point() or y.min() < 0 or y.max() >= classes:
        raise ValueError(f"y must be labels, whole numbers from 0 to {classes - 1}")
    return y[:, None] == torch.arange(classes, device=y.device)


def _mean_of_measured(values):
    values = [v for v in values if v == v]
    return sum(values) / len(values) if values else math.nan


def _table(counts):
    counts = _check.numbers("counts", counts).double()
    if counts.ndim != 2 or not bool((counts >= 0).all() and (counts.sum(1) > 0).all()):
        raise ValueError(
            "counts must be a table of numbers >= 0, one row per client and none of them empty; "
            f"got shape {tuple(counts.shape)}"
        )
    return counts


def _groups(groups):
    groups = _check.numbers("groups", groups).cpu()
    if groups.ndim != 1 or len(groups) < 2:
        raise ValueError(
            f"groups must be one number for each of two or more clients, got {groups.tolist()!r}"
        )
    if groups.isnan().any():
        raise ValueError(f"groups must be known for every client, got {groups.tolist()!r}")
    return groups


def _one_row_per_client(xi, groups):
    if xi.shape != (len(groups), len(groups)):
        raise ValueError(
            f"xi must be square with a row for each of {len(groups)} clients, "
            f"got shape {tuple(xi.shape)}"
        )
    others = xi.clone().fill_diagonal_(0)  # what a client keeps of its own model does not matter
    if not bool(((others >= 0) & (others < torch.inf)).all()):
        raise ValueError("xi must hold finite weights of others, none below 0")


def _differences(ours, theirs):
    way = _way(ours, theirs)
    ours, theirs = _accuracies("ours", ours), _accuracies("theirs", theirs)
    if len(ours) != len(theirs):
        raise ValueError(
            f"ours and theirs must be of the same clients, got {len(ours)} and {len(theirs)}"
        )
    # accuracies are ratios: equal gains may differ in their last bits and must still tie
    difference = (way * (ours - theirs)).round(decimals=6)
    difference = difference[~difference.isnan()]  # a History has NaN where nothing was measured
    if len(difference) == 0:
        raise ValueError("ours and theirs must share a client that was measured in both")
    return difference


def _way(ours, theirs):
    """1 if larger is better, -1 if smaller is; two histories must have the same metric."""
    judged = {h.metric for h in (ours, theirs) if isinstance(h, History)} or {"accuracy"}
    if len(judged) > 1:
        raise ValueError(f"ours and theirs must have the same metric, got {sorted(judged)}")
    return _objectives.sign(judged.pop())


def _accuracies(name, values):
    if isinstance(values, History) and _objectives.sign(values.metric) < 0:
        return values.clients().double()  # an error, which may be any size
    values = values.clients() if isinstance(values, History) else values
    values = _check.numbers(name, values).double()
    what = f"{name} must be a History or accuracies in [0, 1], one per client"
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"{what}; got shape {tuple(values.shape)}")
    wrong = ((values < 0) | (values > 1)).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(f"{what}; got {values[wrong[0]]:g} for client {wrong[0]}")
    return values


_deprecated.keep_former_names(__name__)
