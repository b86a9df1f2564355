"""Distribute samples over clients: first how many of each class, then which ones."""

from itertools import pairwise

import torch

from pfl_lib.random import keyed_generator


def even_quota(sizes, weights, *key):
    """Whole numbers of samples: row i sums to ``sizes[i]`` and follows ``weights[i]``.

    Each entry is its fair share rounded down or up, chosen so that the total of each class over all
    clients is its fair total rounded down or up, too: a split that fits the data on average then
    fits it exactly.
    """
    weights = weights.double()
    total = weights.sum(1, keepdim=True)
    if bool(((total.squeeze(1) <= 0) & (sizes > 0)).any()):
        raise ValueError("a client is to hold samples but may hold no class")
    fair = sizes.double()[:, None] * weights / total.clamp_min(1e-300)
    counts = (fair + 1e-9).floor().long()
    fractional = fair - counts > 1e-9  # entries that may be rounded up
    missing = sizes - counts.sum(1)
    owed = torch.zeros(weights.shape[1], dtype=torch.float64)
    up = torch.zeros_like(fractional)
    for i in range(len(sizes)):
        owed += fair[i] - counts[i]
        if missing[i]:
            chance = torch.rand(len(owed), generator=keyed_generator(*key, i), dtype=torch.float64)
            priority = torch.where(fractional[i], owed + 1e-6 * chance, -torch.inf)
            chosen = priority.topk(int(missing[i])).indices
            up[i, chosen] = True
            owed[chosen] -= 1
    _balance_rounding(up, fractional, owed)
    return counts + up


def _balance_rounding(up, fractional, owed):
    """Exchange roundings until the total of each class is its fair total rounded down or up.

    Such a rounding always exists, and is reached by chains of exchanges, each within one client.
    """
    while True:
        if float(owed.min()) < -1 + 1e-6:
            sources, targets = owed <= owed.min(), owed > 1e-6
        elif float(owed.max()) > 1 - 1e-6:
            sources, targets = owed < -1e-6, owed >= owed.max()
        else:
            return
        chain = _chain(up, fractional, sources, targets)
        for a, b in pairwise(chain):
            i = int((up[:, a] & fractional[:, b] & ~up[:, b]).nonzero()[0])
            up[i, a], up[i, b] = False, True
        owed[chain[0]] += 1
        owed[chain[-1]] -= 1


def _chain(up, fractional, sources, targets):
    """The shortest chain of classes along which one rounding can move from source to target."""
    can = up.double().T @ (fractional & ~up).double() > 0
    before = dict.fromkeys(sources.nonzero().squeeze(1).tolist())
    queue = list(before)
    for a in queue:
        if targets[a]:
            chain = [a]
            while before[chain[-1]] is not None:
                chain.append(before[chain[-1]])
            return chain[::-1]
        for b in can[a].nonzero().squeeze(1).tolist():
            if b not in before:
                before[b] = a
                queue.append(b)
    raise AssertionError("a rounding within one of all totals exists")


def deal(labels, offset, counts, *key):
    """Indices for each client by ``counts`` (m, classes), and the classes dealt more than once.

    The samples of a class are shuffled and dealt cyclically, so that no client gets a sample twice,
    and two clients share one only if the class has run out.
    """
    hands: list[list[int]] = [[] for _ in range(len(counts))]
    shared = []
    for c in range(counts.shape[1]):
        needed = int(counts[:, c].sum())
        if not needed:
            continue
        pool = (labels == c).nonzero().squeeze(1)
        if not len(pool) or int(counts[:, c].max()) > len(pool):
            raise ValueError(
                f"class {c}: one client needs {int(counts[:, c].max()):,}, there are {len(pool):,}"
            )
        pool = pool[torch.randperm(len(pool), generator=keyed_generator(*key, "class", c))]
        if needed > len(pool):
            shared.append((c, needed, len(pool)))
        start = 0
        for i, take in enumerate(counts[:, c].tolist()):
            if take:
                hands[i].append(pool[torch.arange(start, start + take) % len(pool)])
                start += take
    return tuple(shuffled(hand, offset, *key, "client", i) for i, hand in enumerate(hands)), shared


def shuffled(parts, offset, *key):
    """One client's samples in a random order, as indices into the pool."""
    if not parts:
        return torch.empty(0, dtype=torch.int64)
    hand = torch.cat(list(parts)) + offset
    return hand[torch.randperm(len(hand), generator=keyed_generator(*key))]


def cut(n, share):
    """n cut by proportions: whole numbers that sum to n, each within one of its share."""
    ends = (share.cumsum(0) * n + 0.5).floor().long().clamp(max=n)
    ends[-1] = n
    return torch.diff(ends, prepend=torch.zeros(1, dtype=torch.int64))


def share_for_test(labels, share, *key):
    """Which of one client's samples are for testing: a mask, in which every class has its share.

    The samples are ordered by class, at random within a class, and test samples are chosen at equal
    distances along that order.  Of two or more samples at least one is on either side; a single
    one is for training.
    """
    n = len(labels)
    chosen = torch.zeros(n, dtype=torch.bool)
    if n < 2:
        return chosen
    count = min(n - 1, max(1, round(share * n)))
    generator = keyed_generator(*key)
    order = torch.randperm(n, generator=generator)
    order = order[labels[order].argsort(stable=True)]
    start = torch.rand((), generator=generator, dtype=torch.float64)
    places = ((torch.arange(count, dtype=torch.float64) + start) * n / count).long()
    chosen[order[places.clamp(max=n - 1)]] = True
    return chosen


def last_for_test(index, share):
    """The same by time: the samples that come last in the data set, ``index`` being their rows."""
    n = len(index)
    chosen = torch.zeros(n, dtype=torch.bool)
    chosen[index.argsort()[n - min(n - 1, max(1, round(share * n))) :]] = True
    return chosen


def sides(labels, rows, share, *key, groups=None, by_time=False):
    """Which of all samples are for testing: a mask, drawn client by client; ``rows[i]`` are the
    samples of client i.  A group that several clients hold is drawn once."""
    tested = torch.zeros(len(labels), dtype=torch.bool)
    for i, own in enumerate(rows if groups is None else at_home(rows, groups)):
        if groups is not None:
            tested[own] = groups_for_test(labels[own], groups[own], share, *key, i)
        elif by_time:
            tested[own] = last_for_test(own, share)
        else:
            tested[own] = share_for_test(labels[own], share, *key, i)
    return tested


def at_home(rows, groups):
    """The clients' samples, every group of samples with the first client that holds any of it."""
    at = torch.cat(list(rows))
    holder = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(own) for own in rows]))
    home = torch.full((int(groups.max()) + 1,), len(rows))
    home = home.scatter_reduce(0, groups[at], holder, "amin")[groups[at]]
    order = home.argsort(stable=True)
    return at[order].split(torch.bincount(home, minlength=len(rows)).tolist())


def groups_for_test(labels, groups, share, *key):
    """The same by whole groups of samples that belong together: a group never falls on both sides.

    A group counts for the class of its first sample.  Groups of a class are chosen in random order
    as long as each brings the class nearer to its share; the only group of a class is for training.
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    members: dict[int, list[tuple[int, int]]] = {}
    for group in groups.unique().tolist():
        rows = (groups == group).nonzero().squeeze(1)
        members.setdefault(int(labels[rows[0]]), []).append((group, len(rows)))
    for label, found in sorted(members.items()):
        order = torch.randperm(len(found), generator=keyed_generator(*key, label)).tolist()
        wanted, taken = share * sum(size for _, size in found), 0
        for group, size in [found[i] for i in order][:-1]:
            if not taken or abs(taken + size - wanted) < abs(taken - wanted):
                chosen |= groups == group
                taken += size
    return chosen
