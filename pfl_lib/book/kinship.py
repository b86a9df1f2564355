"""Who is near whom, and why: kinship or size?  Distances between clients' models, in four ways."""

import statistics

import torch

import pfl_lib
from pfl_lib import partition
from pfl_lib.local import LocalFederation

SIZES = (200, 160, 120, 80, 40)  # training samples of a client, by group: FedAMP's, times 0.4
KINDS = ("models", "last layer only", "updates per step", "directions of updates")


def clients(seed=0, each=4):
    """Twenty clients in five hidden groups of unequal sizes, after FedAMP's grouped MNIST.

    >>> clients().partition.groups.bincount()
    tensor([4, 4, 4, 4, 4])
    """
    data = pfl_lib.data.load("mnist5k")
    dealt = partition.grouped(
        data, group_clients=each, group_sizes=list(SIZES), test_size=20, seed=seed
    )
    return LocalFederation(
        data, dealt, "mlp", optimizer="adam", lr=1e-3, batch_size=50, epochs=3, seed=seed
    )


def distances(start, w, steps, last):
    """Squared distances between clients' models, {kind: (m, m)}.

    ``steps`` says how many steps each took since ``start``, ``last`` how many parameters the last
    layer has.  The distance of directions is 1 less their cosine.

    >>> found = distances(torch.zeros(3), torch.tensor([[1.0, 0, 0], [2, 0, 0]]), [1, 2], 1)
    >>> [round(float(found[kind][0, 1]), 2) for kind in KINDS]
    [1.0, 0.0, 0.0, 0.0]
    """
    update = w - start
    unit = update / update.norm(dim=1, keepdim=True)
    per_step = update / torch.as_tensor(steps, dtype=w.dtype, device=w.device)[:, None]
    forms = (w, w[:, -last:], per_step, unit)
    found = {kind: (form[:, None] - form[None]).square().sum(2) for kind, form in zip(KINDS, forms)}
    return found | {"directions of updates": found["directions of updates"] / 2}


def nearest(apart, groups):
    """The share of clients whose nearest other is of their group; and, of those whose nearest
    stranger is in group g, the share, for every g.

    >>> line = torch.tensor([[0.0], [1], [10], [11]])
    >>> nearest((line - line.T).square(), torch.tensor([0, 0, 1, 1]))
    (1.0, [0.5, 0.5])
    """
    m = len(groups)
    far = apart + torch.diag(torch.full((m,), torch.inf, dtype=apart.dtype, device=apart.device))
    kin = groups[far.argmin(1)] == groups
    stranger = groups[:, None] != groups[None]
    chosen = groups[torch.where(stranger, far, torch.inf).argmin(1)]
    shares = [float((chosen == g).float().mean()) for g in groups.unique()]
    return float(kin.float().mean()), shares


def measured(rounds, seeds=range(5)):
    """Means over the seeds after so many rounds alone: {kind: (kin, shares by group)}.

    >>> kin, shares = measured(rounds=1, seeds=[0])["models"]
    >>> round(sum(shares), 6)
    1.0
    """
    kept: dict[str, list] = {kind: [] for kind in KINDS}
    for seed in seeds:
        fed = clients(seed)
        w = pfl_lib.run(pfl_lib.algorithm("separate"), fed, rounds, progress=False).state.w
        steps = [3 * rounds * -(-len(rows) // 50) for rows in fed.partition.train]
        last = fed.d - fed.layers[-1][1].start
        found = distances(fed.initial()[0], w, steps, last)
        for kind in KINDS:
            kept[kind].append(nearest(found[kind].double(), fed.partition.groups))
    return {
        kind: (
            statistics.fmean(kin for kin, _ in runs),
            [statistics.fmean(values) for values in zip(*(shares for _, shares in runs))],
        )
        for kind, runs in kept.items()
    }
