# %% [markdown]
# # Graded tasks: Foundations
#
# Six functions, about two hours. Write each with NumPy alone; the cell below it checks your
# function on a case that you can do by hand. More cases are tried when the notebook is graded.

# %%
import numpy as np

# %% [task] average: 2 points, easy, 10 min
# **FedAvg's server.** `models` is $m\times d$, one row per client, `sizes` holds $n_i$. Return
# $\sum_i \frac{n_i}{n} w_i$.


def average(models, sizes):
    """The mean of the models, each weighted by its client's number of samples."""
    ### BEGIN SOLUTION
    sizes = np.asarray(sizes, dtype=float)
    return sizes / sizes.sum() @ np.asarray(models, dtype=float)
    ### END SOLUTION


# %% [tests]
assert np.allclose(average([[0, 0], [4, 8]], [3, 1]), [1, 2])
### BEGIN HIDDEN TESTS
assert np.allclose(average([[1.0], [1.0], [1.0]], [5, 1, 94]), [1])
assert average(np.ones((7, 3)), range(1, 8)).shape == (3,)
assert np.allclose(average([[2, 0], [0, 2]], [1, 1]), [1, 1])
### END HIDDEN TESTS

# %% [task] drift_limit: 4 points, medium, 25 min
# **Where FedAvg ends.** Client $i$ has the loss $\tfrac12 h_i(w-c_i)^2$ and the weight $p_i$ in
# the average. In every round it makes `epochs` gradient steps of length `lr`. Return the number
# at which FedAvg comes to rest. (Derive it; do not iterate.)


def drift_limit(h, c, p, lr, epochs):
    """The fixed point of FedAvg on parabolas."""
    ### BEGIN SOLUTION
    h, c, p = (np.asarray(values, dtype=float) for values in (h, c, p))
    s = 1 - (1 - lr * h) ** epochs
    return (p * s * c).sum() / (p * s).sum()
    ### END SOLUTION


# %% [tests]
assert abs(drift_limit([1, 4], [0, 1], [0.5, 0.5], 0.1, 1) - 0.8) < 1e-9
### BEGIN HIDDEN TESTS
h, c, p, x = np.array([1.0, 4.0, 2.5]), np.array([0.0, 1.0, -2.0]), np.array([0.2, 0.5, 0.3]), 0.0
for _ in range(2000):
    w = np.full(3, x)
    for _ in range(7):
        w = w - 0.1 * h * (w - c)
    x = p @ w
assert abs(drift_limit(h, c, p, 0.1, 7) - x) < 1e-9
assert abs(drift_limit([1, 4], [0, 1], [0.5, 0.5], 0.1, 500) - 0.5) < 1e-6
### END HIDDEN TESTS

# %% [task] total_variation: 3 points, easy, 15 min
# **How far apart are two clients?** `counts` is $m\times C$: how many samples of each class a
# client has. Return the $m\times m$ matrix of total-variation distances between the clients'
# label *shares*.


def total_variation(counts):
    """Half the sum of the absolute differences of two clients' label shares, for all pairs."""
    ### BEGIN SOLUTION
    counts = np.asarray(counts, dtype=float)
    shares = counts / counts.sum(1, keepdims=True)
    return 0.5 * np.abs(shares[:, None] - shares[None]).sum(2)
    ### END SOLUTION


# %% [tests]
assert np.allclose(total_variation([[1, 1], [2, 0]]), [[0, 0.5], [0.5, 0]])
### BEGIN HIDDEN TESTS
assert np.allclose(total_variation([[10, 10], [1, 1]]), 0)
found = total_variation([[5, 0, 5], [0, 7, 0], [1, 1, 2]])
assert np.allclose(found, found.T) and found[0, 1] == 1 and np.allclose(found[0, 2], 0.25)
### END HIDDEN TESTS

# %% [task] effective_samples: 3 points, medium, 20 min
# **What is a neighbour worth?** Return the matrix $n_{ij}=\big(\sum_c p_{ic}^2/n_{jc}\big)^{-1}$:
# how many samples of client $i$'s own mix client $j$'s samples are worth. A class that $j$ lacks
# and $i$ has makes it 0; a class that $i$ lacks does not matter.


def effective_samples(counts):
    """Row i, column j: what client j's samples are worth to client i."""
    ### BEGIN SOLUTION
    counts = np.asarray(counts, dtype=float)
    shares = counts / counts.sum(1, keepdims=True)
    worth = np.zeros((len(counts), len(counts)))
    for i, p in enumerate(shares):
        need = p > 0
        for j, n in enumerate(counts):
            if (n[need] > 0).all():
                worth[i, j] = 1 / (p[need] ** 2 / n[need]).sum()
    return worth
    ### END SOLUTION


# %% [tests]
assert np.allclose(effective_samples([[10, 0], [5, 5]]), [[10, 5], [0, 10]])
### BEGIN HIDDEN TESTS
import torch  # noqa: E402

from pfl_lib import metrics  # noqa: E402

many = np.random.default_rng(0).integers(1, 40, (6, 4))
theirs = metrics.effective_samples(torch.from_numpy(many)).numpy()
assert np.allclose(effective_samples(many), theirs)
### END HIDDEN TESTS

# %% [task] best_mixture: 4 points, medium, 25 min
# **Shrinkage.** Each of $m$ clients has $n$ samples of variance `sigma2` around its own truth,
# and truths differ with variance `tau2`. Return $(\lambda^\star, e^\star)$: how much of the
# common mean to take in, and the expected squared error that is left.


def best_mixture(sigma2, tau2, n, m):
    """The best share of the common mean, and the error with it."""
    ### BEGIN SOLUTION
    v = sigma2 / n
    return v / (v + tau2), v - (1 - 1 / m) * v**2 / (v + tau2)
    ### END SOLUTION


# %% [tests]
assert np.allclose(best_mixture(16, 1, 16, 20), (0.5, 1 - 0.95 * 0.5))
### BEGIN HIDDEN TESTS
assert best_mixture(1, 0, 5, 10)[0] == 1 and np.isclose(best_mixture(1, 0, 5, 10)[1], 1 / 50)
draw = np.random.default_rng(1)
truth = 2 * draw.normal(size=(20_000, 8))
own = truth + 3 / np.sqrt(4) * draw.normal(size=truth.shape)
lam, error = best_mixture(9, 4, 4, 8)
mixed = (1 - lam) * own + lam * own.mean(1, keepdims=True)
assert abs(((mixed - truth) ** 2).mean() / error - 1) < 0.03
### END HIDDEN TESTS

# %% [task] signed_rank: 4 points, hard, 35 min
# **Wilcoxon's signed-rank test**, exactly. `ours` and `theirs` are accuracies of the same
# clients, at most twelve, no two differences of the same size and none zero. Try all $2^m$ ways
# in which coins could have decided the signs, and return the two-sided p-value: twice the share
# of them whose smaller sum of ranks could be as small as yours, and at most 1.


def signed_rank(ours, theirs):
    """The exact two-sided p-value of the signed-rank test."""
    ### BEGIN SOLUTION
    gain = np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float)
    ranks = np.abs(gain).argsort().argsort() + 1
    smaller = min(ranks[gain > 0].sum(), ranks[gain < 0].sum())
    coins = (np.arange(2 ** len(gain))[:, None] >> np.arange(len(gain))) & 1
    return min(1.0, 2 * (coins @ ranks <= smaller).mean())
    ### END SOLUTION


# %% [tests]
assert signed_rank([0.80, 0.65, 0.90, 0.75, 0.98], [0.75, 0.67, 0.80, 0.60, 0.77]) == 0.125
### BEGIN HIDDEN TESTS
from scipy import stats  # noqa: E402

for seed in range(5):
    a, b = np.random.default_rng(seed).random((2, 9))
    assert abs(signed_rank(a, b) - stats.wilcoxon(a, b, method="exact").pvalue) < 1e-12
assert signed_rank([3.0], [1.0]) == 1
### END HIDDEN TESTS
