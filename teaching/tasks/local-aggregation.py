# %% [markdown]
# # Graded tasks: Local aggregation
#
# Five functions, about ninety minutes, in NumPy. The cell below each function checks it on a case
# that you can do by hand. More cases are tried when the notebook is graded.

# %%
import numpy as np

# %% [task] ala_mix: 2 points, easy, 10 min
# **The mix.** Weight 1 takes the global value, weight 0 keeps the client's own.


def ala_mix(weights, own, glob):
    """The model between the client's own and the global one."""
    ### BEGIN SOLUTION
    weights, own, glob = (np.asarray(v, dtype=float) for v in (weights, own, glob))
    return own + (glob - own) * weights
    ### END SOLUTION


# %% [tests]
assert np.allclose(ala_mix([1, 0, 0.5], [0, 0, 0], [2, 2, 2]), [2, 0, 1])
### BEGIN HIDDEN TESTS
assert np.allclose(ala_mix([0.25], [4.0], [0.0]), [3.0])
### END HIDDEN TESTS

# %% [task] ala_step: 3 points, medium, 20 min
# **A step on the weights.** `grad` is $\nabla L$ at the present mix. Return the new weights,
# clipped to $[0,1]$. Mind the factor that does not belong there.


def ala_step(weights, own, glob, grad, lr):
    """Projected gradient descent on the weights."""
    ### BEGIN SOLUTION
    weights, own, glob, grad = (np.asarray(v, dtype=float) for v in (weights, own, glob, grad))
    return np.clip(weights - lr * (glob - own) * grad, 0, 1)
    ### END SOLUTION


# %% [tests]
assert np.allclose(ala_step([1.0], [0.0], [2.0], [0.5], lr=0.1), [0.9])
### BEGIN HIDDEN TESTS
import torch  # noqa: E402

from pfl_lib import formulas  # noqa: E402

W, own, glob, grad = np.random.default_rng(0).random((4, 8))
theirs = formulas.ala_step(*map(torch.from_numpy, (W, own, glob, grad)), 0.7).numpy()
assert np.allclose(ala_step(W, own, glob, grad, 0.7), theirs)
assert ala_step([0.1], [0.0], [1.0], [5.0], 1.0) == 0
### END HIDDEN TESTS

# %% [task] largest_eta: 3 points, easy, 15 min
# **Stable or not.** On $\tfrac12\sum_q h_q(\theta_q-c_q)^2$: below which η does every weight
# settle?


def largest_eta(h, own, glob):
    """The bound on the learning rate of the weights."""
    ### BEGIN SOLUTION
    h, own, glob = (np.asarray(v, dtype=float) for v in (h, own, glob))
    return 2 / (h * (glob - own) ** 2).max()
    ### END SOLUTION


# %% [tests]
assert np.isclose(largest_eta([1, 1], [0, 0], [1.5, 1.0]), 8 / 9)
### BEGIN HIDDEN TESTS
assert np.isclose(largest_eta([4.0, 1.0], [0, 0], [1.0, 3.0]), 2 / 9)
### END HIDDEN TESTS

# %% [task] weight_after: 3 points, medium, 20 min
# **On the way.** The client's own model is the best point of its training loss, with curvature
# `h`; it differs from the global one by `delta`. Return the weight after `steps` steps from 1,
# exactly (for $\eta h\Delta^2<1$).


def weight_after(steps, lr, h, delta):
    """The weight of one parameter on its way from 1 to 0."""
    ### BEGIN SOLUTION
    return (1 - lr * h * delta**2) ** steps
    ### END SOLUTION


# %% [tests]
assert np.isclose(weight_after(2, 0.1, 1.0, 1.0), 0.81)
### BEGIN HIDDEN TESTS
weight = 1.0
for _ in range(11):
    weight -= 0.05 * 0.8 * (0.8 * weight * 2.0)
assert np.isclose(weight_after(11, 0.05, 2.0, 0.8), weight)
### END HIDDEN TESTS

# %% [task] same_mix: 4 points, hard, 25 min
# **The budget law.** A run used the learning rate `lr` and `steps` steps, with differences Δ.
# Another client's differences are `stretch` times as large, everything else is equal, and its
# learning rate is `other_lr`. How many steps (a real number) give it the same mix, as long as
# steps are small and no weight reaches a wall?


def same_mix(lr, steps, stretch, other_lr):
    """The number of steps that spends the same budget."""
    ### BEGIN SOLUTION
    return lr * steps / (other_lr * stretch**2)
    ### END SOLUTION


# %% [tests]
assert np.isclose(same_mix(1.0, 10, stretch=1.0, other_lr=0.5), 20)
### BEGIN HIDDEN TESTS
assert np.isclose(same_mix(0.01, 400, 2.0, 0.01), 100)
c, glob = np.array([0.6]), np.array([1.0])  # a quadratic; the goal lies inside both boxes


def mix_after(own, lr, steps):
    W = np.ones(1)
    for _ in range(round(steps)):
        W = ala_step(W, own, glob, ala_mix(W, own, glob) - c, lr)
    return ala_mix(W, own, glob)


steps = same_mix(0.001, 400, 2.0, 0.002)
once, other = mix_after(np.array([0.0]), 0.001, 400), mix_after(np.array([-1.0]), 0.002, steps)
assert np.allclose(once, other, atol=1e-3) and once < 0.9
### END HIDDEN TESTS
