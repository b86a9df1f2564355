"""Same batches, same numbers: methods written out a second time, in plain torch.

Every method here is a loop over clients, batches and layers, after the description of its original
and without a line of ``pfl_lib.methods``.  Three clients with a few digits and a tiny network; a
batch is all that a client has, so both sides see the same batches.
"""

import math

import torch

from pfl_lib import data, models, partition
from pfl_lib.local import LocalFederation
from pfl_lib.methods import algorithm
from pfl_lib.methods.fedfomo import split

ROUNDS, EPOCHS, LR = 3, 2, 0.1
SHAPES = ((6, 64), (6,), (10, 6), (10,))
SIZES = [math.prod(shape) for shape in SHAPES]


def compare():
    """The largest difference between the library and the second writing, after three rounds.

    >>> all(difference < 1e-10 for difference in compare().values())
    True
    """
    fed = _federation()
    return {
        label: float((ours(fed) - theirs(_Clients(fed))).abs().max())
        for label, (ours, theirs) in _PAIRS.items()
    }


def _federation():
    digits = data.load("digits")
    rows = [torch.arange(60 * i, 60 * i + n) for i, n in enumerate((20, 32, 26))]
    clients = partition.Partition("three clients", rows, [own + 500 for own in rows])
    network = models.build("mlp", digits, seed=0, hidden=(6,))
    return LocalFederation(
        digits, clients, network, lr=LR, batch_size=50, epochs=EPOCHS, dtype=torch.float64,
        device="cpu",
    )  # fmt: skip


class _Clients:
    """What a second writing needs: samples, sizes, the common start."""

    def __init__(self, fed):
        self.fed, self.start = fed, fed.initial()[0].clone()
        rows = fed.partition.train
        self.x = [fed.data.normalized(fed.data.x[i], torch.float64).flatten(1) for i in rows]
        self.y = [fed.data.y[i] for i in rows]
        self.n = torch.tensor([float(len(y)) for y in self.y], dtype=torch.float64)
        self.m = len(self.y)


def _features(w, x):
    first, bias, _, _ = _tensors(w)
    return (x @ first.T + bias).clamp(min=0)


def _tensors(w):
    return [part.view(shape) for part, shape in zip(w.split(SIZES), SHAPES)]


def _loss(w, x, y):
    _, _, last, bias = _tensors(w)
    logits = _features(w, x) @ last.T + bias
    return (logits.logsumexp(1) - logits[range(len(y)), y]).mean()


def _slope(objective, w):
    w = w.detach().requires_grad_()
    return torch.autograd.grad(objective(w), w)[0]


def _descend(w, objective, steps=EPOCHS):
    for _ in range(steps):
        w = w - LR * _slope(objective, w)
    return w


def _average(models_, n):
    return sum(weight * w for weight, w in zip(n / n.sum(), models_))


def _fedala(c, eta=1.0, window=2, tol=1e-3, most=6):
    """Algorithm 1 of FedALA, p = 1: the mix is learned for the last layer, then training."""
    top = slice(SIZES[0] + SIZES[1], None)
    x, own = c.start, [c.start] * c.m
    weights = [torch.ones_like(c.start[top]) for _ in range(c.m)]
    first = [True] * c.m
    begin = list(own)
    for _ in range(ROUNDS):
        for i in range(c.m):
            mine, globe = own[i][top], x[top]
            if not torch.equal(mine, globe):
                losses = []
                while True:
                    whole = torch.cat([x[: top.start], mine + (globe - mine) * weights[i]])
                    losses.append(float(_loss(whole, c.x[i], c.y[i])))
                    g = _slope(lambda w, i=i: _loss(w, c.x[i], c.y[i]), whole)[top]
                    weights[i] = (weights[i] - eta * g * (globe - mine)).clamp(0, 1)
                    still = torch.tensor(losses[-window:]).std(correction=0) < tol
                    if not first[i] or len(losses) == most or (len(losses) > window and still):
                        break
                first[i] = False
            begin[i] = torch.cat([x[: top.start], mine + (globe - mine) * weights[i]])
        own = [_descend(b, lambda w, i=i: _loss(w, c.x[i], c.y[i])) for i, b in enumerate(begin)]
        x = _average(own, c.n)
    return torch.stack(begin)


def _pfedme(c, lam=15.0, inner=3, rate=0.02, restart=False):
    """Dinh et al.: θ is sought near w on every batch, going on from the batch before."""
    x = c.start
    for _ in range(ROUNDS):
        local, found = [], []
        for i in range(c.m):
            w = theta = x
            for _ in range(EPOCHS):
                theta = w if restart else theta
                for _ in range(inner):
                    g = _slope(lambda t, i=i: _loss(t, c.x[i], c.y[i]), theta)
                    theta = theta - rate * (g + lam * (theta - w))
                w = w - LR * lam * (w - theta)
            local.append(w)
            found.append(theta)
        x = _average(local, c.n)
    return torch.stack(found)


def _fedphp(c, mu=0.9, lam=0.3, expected=ROUNDS):
    """Li et al.: a moving average of its own models teaches by its features (MMD)."""

    def discrepancy(w, h, x):
        new, old = _features(w, x), _features(h, x)
        width = (old**2).sum(1).mean()

        def kernel(a, b):
            return torch.exp(-((a[:, None] - b[None]) ** 2).sum(2) / (2 * width)).mean()

        return kernel(new, new) + kernel(old, old) - 2 * kernel(new, old)

    x, h = c.start, [c.start] * c.m
    for k in range(ROUNDS):
        local = []
        for i in range(c.m):
            weight, teacher = (lam if k else 0.0), h[i]

            def objective(w, i=i, weight=weight, teacher=teacher):
                learned = (1 - weight) * _loss(w, c.x[i], c.y[i])
                return learned + weight * discrepancy(w, teacher, c.x[i])

            local.append(_descend(x, objective))
            share = mu * min(1.0, k / expected)
            h[i] = share * h[i] + (1 - share) * local[-1]
        x = _average(local, c.n)
    return torch.stack(h)


def _apple(c, rate=0.5, mu=0.1, horizon=2, by_tensor=True):
    """Luo and Wu: everybody's cores in learned proportions; slopes as in public code, or true."""
    core = [c.start] * c.m
    prior = c.n / c.n.sum()
    p = [prior.clone() for _ in range(c.m)]
    for k in range(ROUNDS):
        hold = (math.cos(math.pi * min(k / horizon, 1)) + 1) / 2
        offered, new = list(core), []
        for i in range(c.m):
            cores = list(offered)
            for _ in range(EPOCHS):
                mixed = sum(share * w for share, w in zip(p[i], cores))
                g = _slope(lambda w, i=i: _loss(w, c.x[i], c.y[i]), mixed)
                products = [(w * g).split(SIZES) for w in cores]
                if by_tensor:
                    slopes = [sum(t.mean() for t in parts) / len(parts) for parts in products]
                else:
                    slopes = [sum(t.sum() for t in parts) for parts in products]
                cores[i] = cores[i] - LR * p[i][i] * g
                p[i] = p[i] - rate * (torch.stack(slopes) + hold * mu * (p[i] - prior))
            new.append(cores[i])
        core = new
    return torch.stack([sum(share * w for share, w in zip(p[i], core)) for i in range(c.m)])


def _fedfomo(c, held=0.2):
    """Zhang et al.: gain per distance on held-back samples; all the way to the mixture."""
    learn, judge = (part._train_samples.index for part in split(c.fed, held))
    x, y = c.fed.data.normalized(c.fed.data.x, torch.float64).flatten(1), c.fed.data.y
    w, begin = [c.start] * c.m, [c.start] * c.m
    for _ in range(ROUNDS):
        trained = []
        for i in range(c.m):
            rows = judge[i]
            mine = _loss(begin[i], x[rows], y[rows])
            scores = []
            for other in w:
                apart = (other - begin[i]).norm()
                gain = mine - _loss(other, x[rows], y[rows])
                scores.append(gain / apart if apart > 0 else torch.zeros(()))
            good = torch.stack(scores).double().clamp(min=0)
            if good.sum() > 0:
                begin[i] = sum(share * other for share, other in zip(good / good.sum(), w))
            rows = learn[i]
            trained.append(_descend(begin[i], lambda t, rows=rows: _loss(t, x[rows], y[rows])))
        w = trained
    return torch.stack(w)


def _spfl(c, period=2, own_head=False):
    """Algorithm 1 of SPFL: two steps on every batch, softmax of cosines in two stages, a reset to
    the mean every ``period`` rounds; in a script of its authors heads are reset, but not mixed."""
    top = SIZES[0] + SIZES[1]
    stages = (slice(0, top), slice(top, None))
    w = [c.start] * c.m
    for k in range(ROUNDS):
        if k % period == 0:
            w = [sum(w) / c.m] * c.m
        moves = []
        for i in range(c.m):
            end = _descend(w[i], lambda t, i=i: _loss(t, c.x[i], c.y[i]), steps=2 * EPOCHS)
            moves.append(w[i] - end)
        if k % period == 0:  # the probe takes the same batches from the same start
            weights = [_softmax_of_cosines([g[part] for g in moves]) for part in stages]
            if own_head:
                weights[1] = torch.eye(c.m, dtype=torch.float64)
        for i in range(c.m):
            common = [
                sum(share * g[part] for share, g in zip(S[i], moves))
                for part, S in zip(stages, weights)
            ]
            w[i] = w[i] - torch.cat(common)
    return torch.stack(w)


def _softmax_of_cosines(moves):
    rows = [[float(g @ h / (g.norm() * h.norm())) for h in moves] for g in moves]
    powers = [[math.exp(cosine) for cosine in row] for row in rows]
    return torch.tensor([[e / sum(row) for e in row] for row in powers], dtype=torch.float64)


def _ours(name, part, **hyper):
    """The tensor ``part`` of the library's state after three rounds ("": the personal models)."""

    def compute(fed):
        method = algorithm(name, **hyper)
        state = method.start(fed.at(0))
        for k in range(ROUNDS):
            state = method.round(state, fed.at(k), fed.everyone)
        return state[part] if part else method.personal(state, fed.at(ROUNDS - 1))

    return compute


_PAIRS = {
    "FedALA: the mix": (
        _ours("fedala", "", ala_percent=100, window=2, tol=1e-3, max_epochs=6),
        _fedala,
    ),
    "pFedMe: θ, going on": (
        _ours("pfedme", "", lam=15.0, inner_steps=3, lr_personal=0.02),
        _pfedme,
    ),
    "pFedMe: θ, starting again": (
        _ours("pfedme", "", lam=15.0, inner_steps=3, lr_personal=0.02, restart=True),
        lambda clients: _pfedme(clients, restart=True),
    ),
    "FedPHP: the inherited model": (
        _ours("fedphp", "", mu=0.9, lam=0.3, expected=ROUNDS),
        _fedphp,
    ),
    "APPLE: slopes of public code": (
        _ours("apple", "", lr_p=0.5, mu=0.1, horizon=2, p_gradient="tensor mean"),
        _apple,
    ),
    "APPLE: the derivative": (
        _ours("apple", "", lr_p=0.001, mu=0.1, horizon=2),
        lambda clients: _apple(clients, rate=0.001, by_tensor=False),
    ),
    "FedFomo: the trained models": (_ours("fedfomo", "w", validation=0.2), _fedfomo),
    "SPFL: softmax, in two stages": (_ours("spfl", "", period=2), _spfl),
    "SPFL: a head of one's own, reset": (
        _ours("spfl", "", period=2, local_head="reset"),
        lambda clients: _spfl(clients, own_head=True),
    ),
}
