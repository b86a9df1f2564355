# %% [markdown]
# # Graded tasks: Attention
#
# Six functions, about two hours. Models are rows of an array; write everything with NumPy. The
# cell below each function checks it on a case that you can do by hand. More cases are tried when
# the notebook is graded.

# %%
import numpy as np

# %% [task] fedamp_weights: 4 points, medium, 25 min
# **FedAMP's weights** with the exponential: $\xi_{ij}=c\,\alpha\,A'(t_{ij})$ for $j\ne i$, where
# $A'(t)=\tfrac1\sigma e^{-t/\sigma}$ and $t_{ij}=\lVert w_i-w_j\rVert^2$; the self-weight is what
# is left of 1.


def fedamp_weights(W, sigma, alpha, c=2):
    """The matrix of FedAMP's server step, c = 2 for the true gradient."""
    ### BEGIN SOLUTION
    W = np.asarray(W, dtype=float)
    t = ((W[:, None] - W[None]) ** 2).sum(2)
    xi = c * alpha * np.exp(-t / sigma) / sigma
    np.fill_diagonal(xi, 0)
    np.fill_diagonal(xi, 1 - xi.sum(1))
    return xi
    ### END SOLUTION


# %% [tests]
equal = fedamp_weights([[0.0], [0.0]], sigma=2, alpha=0.5, c=1)
assert np.allclose(equal, [[0.75, 0.25], [0.25, 0.75]])
### BEGIN HIDDEN TESTS
import torch  # noqa: E402

from pfl_lib import attention, formulas  # noqa: E402

W = np.random.default_rng(0).normal(size=(5, 3))
for c in (1, 2):
    A = attention.negative_exponential(1.3)
    theirs = formulas.fedamp_weights(torch.from_numpy(W), A, 0.2, grad_factor=c).numpy()
    assert np.allclose(fedamp_weights(W, 1.3, 0.2, c), theirs)
assert np.allclose(fedamp_weights(W, 1.3, 50.0).sum(1), 1)  # also where it overshoots
### END HIDDEN TESTS

# %% [task] safe_alpha: 2 points, easy, 10 min
# **A step that is always safe.** For $m$ clients and the exponential: the largest α for which no
# self-weight can be negative, whatever the models are.


def safe_alpha(sigma, m, c=2):
    """The largest step that keeps every message between the models."""
    ### BEGIN SOLUTION
    return sigma / (c * (m - 1))
    ### END SOLUTION


# %% [tests]
assert safe_alpha(2.0, 3, c=1) == 1.0
### BEGIN HIDDEN TESTS
assert safe_alpha(5.0, 11, c=2) == 0.25
together = np.zeros((6, 2))
t = fedamp_weights(together, 3.0, safe_alpha(3.0, 6))
assert np.allclose(t.diagonal(), 0)
### END HIDDEN TESTS

# %% [task] proximal: 3 points, easy, 15 min
# **The client's half.** Minimise $\tfrac12\sum_q h_q(w_q-c_q)^2+\tfrac1{2\beta}\lVert
# w-u\rVert^2$ over $w$, coordinate by coordinate.


def proximal(h, c, u, beta):
    """The exact proximal step on a parabola."""
    ### BEGIN SOLUTION
    h, c, u = (np.asarray(values, dtype=float) for values in (h, c, u))
    return (beta * h * c + u) / (beta * h + 1)
    ### END SOLUTION


# %% [tests]
assert np.allclose(proximal([1.0], [4.0], [0.0], beta=1.0), [2.0])
### BEGIN HIDDEN TESTS
h, c, u, beta = np.array([0.5, 3.0]), np.array([1.0, -2.0]), np.array([0.2, 0.7]), 0.8
w = proximal(h, c, u, beta)
assert np.allclose(h * (w - c) + (w - u) / beta, 0)
assert np.allclose(proximal(h, c, u, 1e-9), u) and np.allclose(proximal(h, c, u, 1e9), c)
### END HIDDEN TESTS

# %% [task] heurfedamp_weights: 3 points, medium, 20 min
# **HeurFedAMP's weights**: a fixed self-weight, and the rest shared by a softmax of
# $\sigma\cos(w_i,w_j)$ over the others. Large σ must not overflow.


def heurfedamp_weights(W, sigma, self_weight):
    """The matrix of HeurFedAMP's server step."""
    ### BEGIN SOLUTION
    W = np.asarray(W, dtype=float)
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    score = sigma * unit @ unit.T
    np.fill_diagonal(score, -np.inf)
    e = np.exp(score - score.max(1, keepdims=True))
    xi = (1 - self_weight) * e / e.sum(1, keepdims=True)
    np.fill_diagonal(xi, self_weight)
    return xi
    ### END SOLUTION


# %% [tests]
flat = heurfedamp_weights([[1.0, 0], [0, 1], [1, 1]], sigma=0.0, self_weight=0.2)
assert np.allclose(flat[0], [0.2, 0.4, 0.4])
### BEGIN HIDDEN TESTS
W = np.random.default_rng(1).normal(size=(6, 3))
for sigma in (1.0, 25.0):
    theirs = formulas.heurfedamp_weights(torch.from_numpy(W), sigma, 0.3).numpy()
    assert np.allclose(heurfedamp_weights(W, sigma, 0.3), theirs)
assert np.isfinite(heurfedamp_weights(W, 1e5, 0.3)).all()
assert np.allclose(heurfedamp_weights(5 * W, 4.0, 0.3), heurfedamp_weights(W, 4.0, 0.3))
### END HIDDEN TESTS

# %% [task] fedacs_weights: 4 points, medium, 30 min
# **FedACS's weights** with the guards of the chapter: the threshold δ is the $p$-quantile of all
# $m^2$ cosines (`np.quantile`); whoever is above it, and oneself, is heard in proportion to the
# cosine; negative cosines are dropped.


def fedacs_weights(W, p):
    """The matrix of FedACS's server step."""
    ### BEGIN SOLUTION
    W = np.asarray(W, dtype=float)
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    s = unit @ unit.T
    np.fill_diagonal(s, 1)
    heard = (s > np.quantile(s, p)) | np.eye(len(W), dtype=bool)
    kept = np.where(heard, np.maximum(s, 0), 0)
    return kept / kept.sum(1, keepdims=True)
    ### END SOLUTION


# %% [tests]
assert np.allclose(fedacs_weights([[1.0, 2], [1, 2], [1, 2]], p=0.5), np.eye(3))  # a common start
### BEGIN HIDDEN TESTS
W = np.random.default_rng(2).normal(size=(7, 4))
for p in (0.0, 0.4, 0.8, 0.99):
    theirs = formulas.fedacs_weights(torch.from_numpy(W), p)[0].numpy()
    assert np.allclose(fedacs_weights(W, p), theirs)
### END HIDDEN TESTS

# %% [task] best_p: 2 points, easy, 10 min
# **Which quantile?** Groups of the given sizes, every cosine inside a group above every cosine
# between groups: which $p$ lets exactly the groups pass?


def best_p(sizes):
    """The share of all pairs that lie between groups."""
    ### BEGIN SOLUTION
    sizes = np.asarray(sizes, dtype=float)
    return 1 - ((sizes / sizes.sum()) ** 2).sum()
    ### END SOLUTION


# %% [tests]
assert np.isclose(best_p([5, 5]), 0.5)
### BEGIN HIDDEN TESTS
assert np.isclose(best_p([6, 4, 2]), 1 - 56 / 144) and np.isclose(best_p([3]), 0)
### END HIDDEN TESTS
