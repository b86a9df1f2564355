"""Toys of FedALA: known answers, kinds of mixtures, the library's own step on quadratic clients."""

import itertools
from types import SimpleNamespace

import matplotlib.pyplot as plt
import torch

import pfl_lib
from pfl_lib import train
from pfl_lib.book import plots, theory
from pfl_lib.formulas import ala_mix, ala_step
from pfl_lib.methods import FedALA, FedAvg
from tests.support.known_answers import assert_known

LOCAL, GLOBAL, BEST = (
    torch.tensor(v, dtype=torch.float64) for v in ([1, 2, -1], [1.5, 1, 0.5], [1.2, 1.8, -0.4])
)
ONE = torch.ones(3, dtype=torch.float64)


def loss(w):
    return 0.5 * ((ala_mix(w, LOCAL, GLOBAL) - BEST) ** 2).sum()


def test_k7_ala_path():
    for eta in ("0.1", "1"):
        path = theory.ala_path(LOCAL, GLOBAL, ONE, BEST, float(eta), 3)
        assert_known(path[1:], "ALA", f"eta={eta}: W after steps 1,2,3 (clipped)")


def test_k7_best_mixtures_are_the_best_of_their_kind():
    best = theory.best_mixtures(LOCAL, GLOBAL, ONE, BEST)
    assert_known(best["each its own"], "ALA", "limit weights clip((c-Theta_i)/(Theta-Theta_i),0,1)")
    numbers = torch.linspace(0, 1, 1001, dtype=torch.float64)
    assert loss(best["one number"]) <= min(loss(n * ONE) for n in numbers) + 1e-12
    corners = [torch.tensor(w, dtype=torch.float64) for w in itertools.product((0, 1), repeat=3)]
    assert loss(best["all or nothing"]) == min(map(loss, corners))
    by_layer = theory.best_mixtures(LOCAL, GLOBAL, ONE, BEST, [slice(0, 2), slice(2, 3)])
    allowed = [w for w in corners if w[0] == w[1]]
    assert loss(by_layer["all or nothing"]) == min(map(loss, allowed))


def test_parameters_that_agree_stay_global():
    weights = theory.best_mixtures(LOCAL, LOCAL, ONE, BEST)
    assert torch.equal(weights["each its own"], ONE)
    assert all(torch.isfinite(w).all() for w in weights.values())


def test_fedala_runs_on_quadratic_clients():
    _, own = theory.shared_and_personal()
    h = torch.tensor([1.0, 2.0], dtype=torch.float64).expand_as(own)
    fed = theory.DescentFederation(h, own, lr=0.2, steps=3)
    method = FedALA(ala_lr=0.1, max_epochs=4)
    states = theory.iterate(method, fed, 3)
    assert torch.equal(states[1].ala_weights, torch.ones_like(own))  # nothing to learn yet
    x, mine = states[1].x.expand_as(own), states[1].ala_own
    for i in range(fed.m):
        path = theory.ala_path(mine[i], x[i], h[i], own[i], 0.1, 4)
        torch.testing.assert_close(states[2].ala_weights[i], path[-1])
    begin = ala_mix(states[2].ala_weights, mine, x)
    torch.testing.assert_close(states[2].ala_begin, begin)
    torch.testing.assert_close(states[2].ala_own, train(fed, begin, fed.everyone))
    plain = theory.iterate(FedAvg(), fed, 3)[-1]
    torch.testing.assert_close(theory.iterate(FedALA(ala_layers=0), fed, 3)[-1].x, plain.x)


def test_valley_draws_contours_box_paths_and_marks():
    one = torch.ones(2, dtype=torch.float64)
    box = (-one, one)
    path = torch.stack([one, 0.5 * one, 0 * one])
    ax = plots.valley(one, 0 * one, {"FedALA": path}, {"own": -one}, box, title="a valley")
    (line,) = ax.get_lines()
    assert line.get_label() == "FedALA" and len(line.get_xdata()) == 3
    assert line.get_color() == plots.METHODS["FedALA"]
    assert [text.get_text() for text in ax.texts] == ["own"] and len(ax.patches) == 1
    low, high = ax.get_xlim()
    assert low < -1 and high > 1
    plt.close(ax.figure)


def test_lines_and_levels():
    ax = plots.lines({"FedALA": [1, 2], "b": [3, 4]}, x=[1, 10], levels={"top": 5}, xscale="log")
    assert [line.get_label() for line in ax.get_lines()] == ["FedALA", "b", "top"]
    assert ax.get_xscale() == "log" and list(ax.get_lines()[1].get_xdata()) == [1, 10]
    plt.close(ax.figure)


def test_across_puts_methods_down_and_settings_across():
    shown = plots.across(
        {name: {"FedALA": SimpleNamespace(last=value)} for name, value in (("a", 0.5), ("bb", 1.0))}
    )
    assert [row.split() for row in str(shown).splitlines()] == [
        ["last", "round", "a", "bb"],
        ["FedALA", "0.500", "1.000"],
    ]


# --- eq-ala-budget: the mix depends on η × steps × Δ² until a weight reaches its wall ------------


def test_ala_with_fixed_passes_makes_exactly_these_steps():
    optima = torch.tensor([[0.0, 0.0], [3.0, 1.0]], dtype=torch.float64)
    toy = theory.DescentFederation(torch.ones(2, 2).double(), optima, lr=0.1, steps=1)
    x, own = torch.tensor([2.0, 1.0]).double(), optima
    mixes = theory.ala_once(toy, x, own, lr=0.01, passes=7)
    for i in range(2):
        weights = theory.ala_path(own[i], x, torch.ones(2).double(), optima[i], 0.01, 7)[-1]
        torch.testing.assert_close(mixes[i], ala_mix(weights, own[i], x))


def test_twice_the_distance_is_four_times_the_time():
    """The path of the mix in the small-step limit, on a loss that is not quadratic."""

    def end(scale, lr, steps):
        glob = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
        own = glob + scale * torch.tensor([0.4, -0.7, 0.2], dtype=torch.float64)
        weights = torch.ones(3, dtype=torch.float64)
        for _ in range(steps):
            mix = ala_mix(weights, own, glob).requires_grad_()
            (slope,) = torch.autograd.grad((mix.exp() - 2 * mix).sum().square(), mix)
            weights = ala_step(weights, own, glob, slope, lr)
        assert ((weights > 0) & (weights <= 1)).all()  # no wall below has been reached
        return ala_mix(weights, own, glob)

    near, far = end(1.0, 1e-4, 800), end(2.0, 1e-4, 200)
    torch.testing.assert_close(near, far, rtol=0, atol=1e-4)
    assert (near - end(2.0, 1e-4, 400)).abs().max() > 1e-3  # Δ alone is another law


def test_effort_is_learning_rate_times_steps():
    fed = pfl_lib.example()
    spent = theory.ala_spent(fed, rounds=4, lr=0.5, passes=3)
    batches = [-(-n // fed.settings.batch_size) for n in fed.sample_counts]
    expected = 0.5 * (3 + 1 + 1) * sum(batches) / len(batches)
    assert abs(spent["effort"] - expected) < 1e-6 and spent["budget"] > 0
