"""SCAFFOLD: controls, their mean, and the optimum that FedAvg misses."""

import pytest
import torch

from pfl_lib import algorithm, run
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known, known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
    small_federation,
    whole_batches,
)
from tests.support.quadratics import (
    ETA,
    LOCAL,
    H,
    X,
    descend,
    gradient,
    optimum,
)


def test_eq_scaffold():
    controls = known("baselines", "SCAFFOLD: initial c_i")
    c = controls.mean(0)
    y = descend(lambda i, w: f.scaffold_gradient(gradient(i)(w), controls[i], c))
    assert_known(y, "baselines", "SCAFFOLD: y_i after 2 steps")
    new = f.scaffold_control(controls, c, X, y, lr=ETA, steps=2)
    assert_known(new, "baselines", "SCAFFOLD: new c_i (option II)")
    x, c = f.scaffold_server(X, c, y, controls, new, clients=2)
    assert_known(x, "baselines", "SCAFFOLD: x, eta_g=1, all clients")
    assert_known(c, "baselines", "SCAFFOLD: new c")


def test_eq_scaffold_control_is_the_mean_gradient_seen():
    zero = torch.zeros(2, dtype=torch.float64)
    seen = [gradient(0)(X), gradient(0)(X - ETA * gradient(0)(X))]
    control = f.scaffold_control(zero, zero, X, LOCAL[0], lr=ETA, steps=2)
    torch.testing.assert_close(control, sum(seen) / 2)


def test_eq_scaffold_control_with_unequal_numbers_of_steps():
    zero = torch.zeros(2, 2, dtype=torch.float64)
    steps = torch.tensor([1, 2])
    rows = f.scaffold_control(zero, zero[0], X, LOCAL, lr=ETA, steps=steps)
    for i in range(2):
        one = f.scaffold_control(zero[i], zero[0], X, LOCAL[i], lr=ETA, steps=int(steps[i]))
        torch.testing.assert_close(rows[i], one)


def test_eq_scaffold_server_with_few_participants():
    zero = torch.zeros(1, 2, dtype=torch.float64)
    x, c = f.scaffold_server(X, zero[0], LOCAL[:1], zero, zero + 1, clients=4, lr=0.5)
    torch.testing.assert_close(x, (X + LOCAL[0]) / 2)
    torch.testing.assert_close(c, torch.full_like(c, 0.25))


def test_scaffold_with_identical_clients_is_fedavg():
    c = torch.ones(2, dtype=torch.float64)
    assert torch.equal(f.scaffold_gradient(gradient(0)(X), c, c), gradient(0)(X))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.scaffold_control(X, X, X, X, 0, 2), "lr must be a positive finite number"),
        (lambda: f.scaffold_control(X, X, X, X, 0.1, 0), "steps must be a whole number >= 1"),
        (
            lambda: f.scaffold_server(X, X, LOCAL, LOCAL, LOCAL, clients=1),
            "clients must be a whole number >= 2, got 1",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_scaffold(quadratics):
    fed, method = quadratics(epochs=2), algorithm("scaffold")
    c_local = known("baselines", "SCAFFOLD: initial c_i")
    state = method.start(fed).set(c_local=c_local, c=c_local.mean(0))
    new = method.round(state, fed, fed.everyone)
    assert_known(new.c_local, "baselines", "SCAFFOLD: new c_i (option II)")
    assert_known(new.x, "baselines", "SCAFFOLD: x, eta_g=1, all clients")
    assert_known(new.c, "baselines", "SCAFFOLD: new c")
    alone = method.round(state, fed, FIRST)
    close(alone.x, known("baselines", "SCAFFOLD: y_i after 2 steps")[0], 1e-12)
    close(alone.c, alone.c_local.mean(0), 1e-12)  # one of two took part: half its change


def test_scaffold_gets_there_and_fedavg_does_not(quadratics):
    fed = quadratics(sizes=[2, 2], epochs=3)
    best = optimum(H)
    assert (go(algorithm("scaffold"), fed, 30).x - best).abs().max() < 1e-3
    assert (go(algorithm("fedavg"), fed, 30).x - best).abs().max() > 0.02


def test_scaffolds_control_is_the_mean_of_the_clients(data, unequal):
    """c moves by participants/m of the mean change, which keeps c = mean of all c_i."""
    fed = small_federation(data, unequal)
    state = run(algorithm("scaffold"), fed, 5, participation=0.4, progress=False).state
    close(state.c, state.c_local.mean(0), 1e-12)
    assert state.c.norm() > 1e-2


def test_runs_with_identical_clients_are_those_of_fedavg(data, twins):
    """Then every c_i is c, and nothing is left to correct."""
    fed = whole_batches(data, twins, epochs=3)
    state = go(algorithm("scaffold"), fed, 4)
    close(state.x, go(algorithm("fedavg"), fed, 4).x)
    close(state.c_local, state.c.expand_as(state.c_local))


BAD = [
    ("scaffold", {"lr_server": 0.0}, "lr_server must be a positive finite number, got 0.0"),
    ("scaffold", {"lr": 0.0}, "lr must be a positive"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
