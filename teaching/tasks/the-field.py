# %% [markdown]
# # Graded tasks: The field
#
# Five functions, about two hours, in NumPy. The cell below each function checks it on a case that
# you can do by hand. More cases are tried when the notebook is graded.

# %%
import numpy as np

# %% [task] ditto_model: 3 points, easy, 15 min
# **Ditto's personal model.** Minimise $\tfrac12\sum_q h_q(v_q-c_q)^2+\tfrac\lambda2\lVert
# v-x\rVert^2$.


def ditto_model(h, c, x, lam):
    """The personal model that Ditto's gradient leads to."""
    ### BEGIN SOLUTION
    h, c, x = (np.asarray(v, dtype=float) for v in (h, c, x))
    return (h * c + lam * x) / (h + lam)
    ### END SOLUTION


# %% [tests]
assert np.allclose(ditto_model([1.0], [2.0], [0.0], lam=1.0), [1.0])
### BEGIN HIDDEN TESTS
h, c, x = np.array([0.5, 2.0]), np.array([1.0, -3.0]), np.array([0.2, 0.4])
v = ditto_model(h, c, x, 0.7)
assert np.allclose(h * (v - c) + 0.7 * (v - x), 0)
assert np.allclose(ditto_model(h, c, x, 0.0), c) and np.allclose(ditto_model(h, c, x, 1e12), x)
### END HIDDEN TESTS

# %% [task] fedfomo_weights: 2 points, easy, 10 min
# **Try the others on.** Scores may be negative. Models that do not help get no weight, the others
# share in proportion; if nobody helps, all weights are 0.


def fedfomo_weights(scores):
    """FedFomo's weights from its scores."""
    ### BEGIN SOLUTION
    kept = np.maximum(0, np.asarray(scores, dtype=float))
    return kept / kept.sum() if kept.sum() > 0 else kept
    ### END SOLUTION


# %% [tests]
assert np.allclose(fedfomo_weights([3.0, -1.0, 1.0]), [0.75, 0, 0.25])
### BEGIN HIDDEN TESTS
assert np.allclose(fedfomo_weights([-1.0, 0.0]), 0)
### END HIDDEN TESTS

# %% [task] label_information: 4 points, medium, 25 min
# **What label counts can be worth.** `counts` is $m\times C$. Return $I(Y;C)$ in nats: the mutual
# information of the label and the client for a sample drawn at random. Zero counts are allowed.


def label_information(counts):
    """The mutual information of label and client, from the counts."""
    ### BEGIN SOLUTION
    joint = np.asarray(counts, dtype=float)
    joint = joint / joint.sum()
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    seen = joint > 0
    return (joint[seen] * np.log(joint[seen] / product[seen])).sum()
    ### END SOLUTION


# %% [tests]
assert np.isclose(label_information([[5, 0], [0, 5]]), np.log(2))
### BEGIN HIDDEN TESTS
assert abs(label_information([[3, 6], [1, 2]])) < 1e-12
counts = np.array([[6.0, 0, 2], [0, 3, 1]])
p = counts / counts.sum()
entropy = lambda q: -(q[q > 0] * np.log(q[q > 0])).sum()  # noqa: E731
assert np.isclose(label_information(counts), entropy(p.sum(0)) + entropy(p.sum(1)) - entropy(p))
### END HIDDEN TESTS

# %% [task] label_prior: 3 points, medium, 20 min
# **The label prior.** Return the shifts $s_{iy}=\log\pi_i(y)/\pi(y)$ with
# $\pi_i(y)=(n_{iy}+c\,\pi(y))/(n_i+c)$, for all clients and classes; $\pi$ is the share of a
# class among all samples.


def label_prior(counts, smoothing=1.0):
    """What is added to the common model's logits, client by client."""
    ### BEGIN SOLUTION
    counts = np.asarray(counts, dtype=float)
    common = counts.sum(0) / counts.sum()
    own = (counts + smoothing * common) / (counts.sum(1, keepdims=True) + smoothing)
    return np.log(own / common)
    ### END SOLUTION


# %% [tests]
assert np.allclose(label_prior([[2, 2], [1, 1]]), 0)
### BEGIN HIDDEN TESTS
import torch  # noqa: E402

from pfl_lib import formulas  # noqa: E402

counts = np.array([[6.0, 0, 2], [0, 3, 1], [5, 5, 5]])
theirs = formulas.label_prior_shift(torch.from_numpy(counts), smoothing=2.0).numpy()
assert np.allclose(label_prior(counts, 2.0), theirs)
### END HIDDEN TESTS

# %% [task] leaked: 4 points, medium, 30 min
# **What a message tells.** A client trained logistic regression on a *single* sample, some steps
# of any length. `weights` is the change of the $C\times D$ weights, `offsets` the change of the
# $C$ offsets. Return the sample, and the class it was labelled with.


def leaked(weights, offsets):
    """The sample (D numbers) and its label, from one message."""
    ### BEGIN SOLUTION
    weights, offsets = np.asarray(weights, dtype=float), np.asarray(offsets, dtype=float)
    label = int(offsets.argmax())
    return weights[label] / offsets[label], label
    ### END SOLUTION


# %% [tests]
sample, label = leaked([[2.0, 4.0], [-2.0, -4.0]], [2.0, -2.0])
assert np.allclose(sample, [1, 2]) and label == 0
### BEGIN HIDDEN TESTS
draw = np.random.default_rng(3)
x, A, b = draw.normal(size=6), draw.normal(size=(4, 6)), np.zeros(4)
A0, b0 = A.copy(), b.copy()
for _ in range(5):
    p = np.exp(A @ x + b)
    p /= p.sum()
    p[2] -= 1
    A, b = A - 0.1 * np.outer(p, x), b - 0.1 * p
sample, label = leaked(A - A0, b - b0)
assert np.allclose(sample, x) and label == 2
### END HIDDEN TESTS
