# %% [markdown]
# # Graded tasks: Gradients and time
#
# Six functions, about an hour and a half, in NumPy. The cell below each function checks it on a
# case that you can do by hand. More cases are tried when the notebook is graded.

# %%
import numpy as np

# %% [task] sngs: 3 points, easy, 15 min
# **From updates to weights.** Rows of `g` are updates. Return the softmax of each row of their
# cosines, divided by the temperature.


def sngs(g, temperature=1.0):
    """The softmax-normalised gradient similarity of all pairs."""
    ### BEGIN SOLUTION
    g = np.asarray(g, dtype=float)
    unit = g / np.linalg.norm(g, axis=1, keepdims=True)
    score = unit @ unit.T / temperature
    e = np.exp(score - score.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
    ### END SOLUTION


# %% [tests]
opposite = sngs([[1.0, 0.0], [-3.0, 0.0]])
assert np.isclose(opposite[0, 0] / opposite[0, 1], np.exp(2))
### BEGIN HIDDEN TESTS
import torch  # noqa: E402

from pfl_lib import formulas  # noqa: E402

g = np.random.default_rng(0).normal(size=(6, 4))
for T in (1.0, 0.1, 1e-4):
    theirs = formulas.sngs(torch.from_numpy(g), temperature=T).numpy()
    assert np.allclose(sngs(g, T), theirs)
### END HIDDEN TESTS

# %% [task] clients_heard: 2 points, easy, 10 min
# **How many are effectively heard?** For each row of weights return $1/\sum_j S(i,j)^2$.


def clients_heard(S):
    """The effective number of clients in each row."""
    ### BEGIN SOLUTION
    return 1 / (np.asarray(S, dtype=float) ** 2).sum(1)
    ### END SOLUTION


# %% [tests]
assert np.allclose(clients_heard([[0.5, 0.5, 0], [1, 0, 0]]), [2, 1])
### BEGIN HIDDEN TESTS
assert np.allclose(clients_heard(np.full((7, 7), 1 / 7)), 7)
### END HIDDEN TESTS

# %% [task] after_rounds: 4 points, hard, 30 min
# **SPFL as a filter.** On $\tfrac12\lVert w-c_i\rVert^2$ a local phase moves a client the part
# `eta` of its way to $c_i$. With fixed weights $S$ the server does $W\leftarrow W-SG$ with
# $G=\eta(W-C)$. Return $W$ after `rounds` rounds from `W0`, in closed form (a power of a matrix,
# no loop).


def after_rounds(C, W0, S, eta, rounds):
    """SPFL without a reset on quadratics."""
    ### BEGIN SOLUTION
    C, W0, S = (np.asarray(values, dtype=float) for values in (C, W0, S))
    decay = np.eye(len(C)) - eta * S
    return C + np.linalg.matrix_power(decay, rounds) @ (W0 - C)
    ### END SOLUTION


# %% [tests]
assert np.allclose(after_rounds([[1.0]], [[0.0]], [[1.0]], eta=0.5, rounds=2), [[0.75]])
### BEGIN HIDDEN TESTS
draw = np.random.default_rng(1)
C, W = draw.normal(size=(2, 5, 3))
S = sngs(draw.normal(size=(5, 3)))
by_loop = W
for _ in range(9):
    by_loop = by_loop - S @ (0.3 * (by_loop - C))
assert np.allclose(after_rounds(C, W, S, 0.3, 9), by_loop)
### END HIDDEN TESTS

# %% [task] arrival_shares: 2 points, easy, 10 min
# **Who is heard how often?** A client with delay $q$ arrives once in $q+1$ rounds. Return each
# client's share of all arrivals.


def arrival_shares(delays):
    """The share of all arrivals that each client has."""
    ### BEGIN SOLUTION
    often = 1 / (np.asarray(delays, dtype=float) + 1)
    return often / often.sum()
    ### END SOLUTION


# %% [tests]
assert np.allclose(arrival_shares([0, 1]), [2 / 3, 1 / 3])
### BEGIN HIDDEN TESTS
late = arrival_shares([0] * 5 + [1, 2, 3, 4, 5])
assert np.isclose(late[5:].sum(), 1.45 / 6.45) and np.isclose(late.sum(), 1)
### END HIDDEN TESTS

# %% [task] guess: 3 points, medium, 20 min
# **Where would a late model be?** Return a dictionary with the three guesses `"stale"` (the model
# as it arrived), `"re-based"` (its move, added to the present model) and `"corrected"` (the same
# with the move corrected by $-\beta E\,h\odot(w_{\text{now}}-w_{\text{pull}})$; `h` is the
# diagonal of the Hessian).


def guess(pull, now, local, h, lr, steps):
    """Three guesses of a late model."""
    ### BEGIN SOLUTION
    pull, now, local, h = (np.asarray(v, dtype=float) for v in (pull, now, local, h))
    move = local - pull
    return {
        "stale": local,
        "re-based": now + move,
        "corrected": now + move - lr * steps * h * (now - pull),
    }
    ### END SOLUTION


# %% [tests]
found = guess([0.0], [1.0], [0.1], [1.0], lr=0.05, steps=2)
assert np.allclose([found["stale"], found["re-based"], found["corrected"]], [[0.1], [1.1], [1.0]])
### BEGIN HIDDEN TESTS
h, c = np.array([0.5, 2.0]), np.array([1.0, -1.0])
pull, now = np.array([0.0, 0.0]), np.array([0.4, -0.5])


def trained(w, steps=3, lr=0.01):
    for _ in range(steps):
        w = w - lr * h * (w - c)
    return w


found = guess(pull, now, trained(pull), h, 0.01, 3)
wrong = {name: np.linalg.norm(model - trained(now)) for name, model in found.items()}
assert wrong["corrected"] < 0.1 * wrong["re-based"] < wrong["stale"]
### END HIDDEN TESTS

# %% [task] fair_weights: 2 points, medium, 10 min
# **Seldom heard.** Arrivals are `late` rounds late. With which weights, normalised to sum 1, must
# this round's arrivals enter the average so that over time every client counts the same?


def fair_weights(late):
    """Weights of this round's arrivals."""
    ### BEGIN SOLUTION
    counts = np.asarray(late, dtype=float) + 1
    return counts / counts.sum()
    ### END SOLUTION


# %% [tests]
assert np.allclose(fair_weights([0, 0]), [0.5, 0.5])
### BEGIN HIDDEN TESTS
assert np.allclose(fair_weights([0, 3]), [0.2, 0.8])
### END HIDDEN TESTS
