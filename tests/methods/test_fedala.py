"""FedALA: the mix, the step of its weights, the first time, and what is tested."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import pfl_lib
from pfl_lib import Federation, algorithm, partition, run
from pfl_lib import formulas as f
from pfl_lib.methods import State
from pfl_lib.work import Batch
from tests.support.known_answers import assert_known, known
from tests.support.methods import (
    ENGINES,
    FIRST,
    close,
    go,
    quick_ala,
    refused,
    watched,
)
from tests.support.quadratics import (
    Toy,
)
from tests.support.strategies import quick, vectors

LOCAL, GLOBAL = known("ALA", "Theta_i (local)"), known("ALA", "Theta (global)")
C = known("ALA", "loss 0.5||Theta^-c||^2, c")
ONE = torch.ones(3, dtype=torch.float64)


def step(weights, lr, learnable=None):
    grad = f.ala_mix(weights, LOCAL, GLOBAL, learnable) - C
    return f.ala_step(weights, LOCAL, GLOBAL, grad, lr, learnable)


@pytest.mark.parametrize(("lr", "eta"), [(0.1, "0.1"), (1.0, "1")])
def test_eq_ala_step_and_mix(lr, eta):
    history = [ONE]
    for _ in range(3):
        history.append(step(history[-1], lr))
    assert_known(torch.stack(history[1:]), "ALA", f"eta={eta}: W after steps 1,2,3 (clipped)")
    assert_known(f.ala_mix(history[-1], LOCAL, GLOBAL), "ALA", f"eta={eta}: Theta^ after step 3")


def test_eq_ala_mix_only_on_the_top_layers():
    learnable = torch.tensor([False, True, True])
    weights = step(ONE, 0.1, learnable)
    assert weights[0] == 1
    assert_known(
        weights[1:], "ALA", "range: only coordinates 1,2 learnable, eta=.1: W^p after 1 step"
    )
    assert_known(
        f.ala_mix(weights, LOCAL, GLOBAL, learnable),
        "ALA",
        "range: Theta^ after 1 step (coordinate 0 overwritten by global)",
    )


def test_eq_ala_step_limit_on_a_quadratic():
    weights = ONE
    for _ in range(2000):
        weights = step(weights, 0.1)
    assert_known(weights, "ALA", "limit weights clip((c-Theta_i)/(Theta-Theta_i),0,1)")


def test_eq_ala_step_without_a_difference():
    assert_known((GLOBAL - GLOBAL) * C, "ALA", "first round Theta==Theta_i: gradient of W")
    half = ONE / 2
    assert torch.equal(f.ala_step(half, GLOBAL, GLOBAL, C, 1.0), half)


def test_eq_ala_step_follows_the_gradient_of_the_weights():
    """∂L/∂W = (Θ − Θ_i)⊙∂L/∂Θ̂, with no η in it."""
    weights = torch.tensor([0.3, 0.5, 0.6], dtype=torch.float64)

    def loss(weights):
        return 0.5 * ((f.ala_mix(weights, LOCAL, GLOBAL) - C) ** 2).sum()

    moved = f.ala_step(weights, LOCAL, GLOBAL, f.ala_mix(weights, LOCAL, GLOBAL) - C, 0.01)
    torch.testing.assert_close((weights - moved) / 0.01, torch.func.grad(loss)(weights))


@quick
@given(vectors(4), st.floats(1e-3, 1e3))
def test_ala_weights_stay_in_the_box_and_the_mix_between_the_models(drawn, lr):
    local, global_, grad, start = drawn
    weights = f.ala_step(start.clamp(0, 1), local, global_, grad, lr)
    assert weights.min() >= 0 and weights.max() <= 1
    mixed = f.ala_mix(weights, local, global_)
    low, high = torch.minimum(local, global_), torch.maximum(local, global_)
    assert bool((mixed >= low - 1e-12).all()) and bool((mixed <= high + 1e-12).all())


@quick
@given(vectors(2))
def test_ala_weights_one_are_fedavg_and_zero_separate_exactly(drawn):
    local, global_ = drawn
    assert torch.equal(f.ala_mix(torch.ones_like(local), local, global_), global_)
    assert torch.equal(f.ala_mix(torch.zeros_like(local), local, global_), local)


@quick
@given(vectors(3))
def test_ala_without_learnable_layers_is_fedavg(drawn):
    local, global_, weights = drawn
    none = torch.zeros_like(local, dtype=torch.bool)
    assert torch.equal(f.ala_mix(weights, local, global_, none), global_)
    assert torch.equal(f.ala_step(weights, local, global_, local, 1.0, none), weights)


def test_ala_oscillates_beyond_the_stable_step():
    """η(Θ − Θ_i)² > 2 in the last coordinate (2.25): η = 1 swings between the walls."""
    weights, seen = ONE, []
    for _ in range(6):
        weights = step(weights, 1.0)
        seen.append(float(weights[2]))
    assert seen == pytest.approx([0.0, 0.9, 0.0, 0.9, 0.0, 0.9])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="weights must have the shape of theta_local"):
        f.ala_mix(ONE[:2], LOCAL, GLOBAL)
    with pytest.raises(ValueError, match="grad must have the shape of weights"):
        f.ala_step(ONE, LOCAL, GLOBAL, C[:1], 1.0)
    with pytest.raises(ValueError, match="lr must be a positive finite number, got -1"):
        f.ala_step(ONE, LOCAL, GLOBAL, C, -1)


HOLD = 1e-300  # a learning rate too small to move anything


def one_quadratic(engine, layers=((0, 3),)):
    """One client, its own model Θ_i, the download Θ, and ½‖Θ̂ − c‖² as its loss."""
    fed = Toy(torch.cat([ONE, C])[None], GLOBAL, engine=engine)
    fed.layers = [(str(ends), slice(*ends)) for ends in layers]
    return fed


def mixed_once(method, state, fed):
    """The state once the client has mixed the download into its own model, and not trained."""
    received = method.mixed(state, State(w=GLOBAL[None]), fed, FIRST)
    return state.put(FIRST, **{name: received[name] for name in received if name != "w"})


def passes(method, fed, count):
    """The states after 1, 2, … times that the client mixes, its first time behind it."""
    state = method.start(fed).set(ala_own=LOCAL[None], ala_started=torch.tensor([True]))
    states = []
    for _ in range(count):
        state = mixed_once(method, state, fed)
        states.append(state)
    return states


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("eta", ["0.1", "1"])
def test_known_answers_ala_step(engine, eta):
    states = passes(algorithm("fedala", ala_lr=float(eta)), one_quadratic(engine), 3)
    weights = torch.cat([state.ala_weights for state in states])
    assert_known(weights, "ALA", f"eta={eta}: W after steps 1,2,3 (clipped)")
    assert_known(states[-1].ala_begin[0], "ALA", f"eta={eta}: Theta^ after step 3")


@pytest.mark.parametrize("engine", ENGINES)
def test_known_answers_below_the_top_layers_the_download_is_taken_whole(engine):
    fed = one_quadratic(engine, layers=((0, 1), (1, 3)))
    (state,) = passes(algorithm("fedala", ala_lr=0.1), fed, 1)
    key = "range: only coordinates 1,2 learnable, eta=.1: W^p after 1 step"
    assert_known(state.ala_weights[0], "ALA", key)
    key = "range: Theta^ after 1 step (coordinate 0 overwritten by global)"
    assert_known(state.ala_begin[0], "ALA", key)


def test_known_answers_the_first_time_lasts_until_convergence():
    method = algorithm("fedala", ala_lr=0.8, tol=1e-14, max_epochs=200)
    fed = one_quadratic("stacked")
    state = method.start(fed).set(ala_own=LOCAL[None])
    state = mixed_once(method, state, fed)
    key = "limit weights clip((c-Theta_i)/(Theta-Theta_i),0,1)"
    close(state.ala_weights[0], known("ALA", key), 1e-6)
    assert state.ala_started.all()


def test_nothing_is_learned_where_own_model_and_download_agree():
    fed, method = one_quadratic("loop"), algorithm("fedala")
    state = mixed_once(method, method.start(fed), fed)
    assert torch.equal(state.ala_weights, torch.ones(1, 3, dtype=torch.float64))
    assert torch.equal(state.ala_begin[0], GLOBAL) and not state.ala_started.any()


@pytest.mark.parametrize(
    "hyper", [{"ala_layers": 0}, {"ala_lr": HOLD, **quick_ala()}], ids=["p=0", "W=1"]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_without_layers_or_without_learning_fedala_is_fedavg(federation, engine, hyper):
    fed = federation(engine=engine)
    method, average = algorithm("fedala", **hyper), algorithm("fedavg")
    state = go(method, fed, 3)
    assert torch.equal(state.x, go(average, fed, 3).x)
    assert torch.equal(method.personal(state, fed), average.personal(go(average, fed, 2), fed))
    assert (state.ala_weights == 1).all()


def test_weights_stay_between_zero_and_one_and_reach_both_ends(federation):
    state = go(algorithm("fedala", ala_layers=2, ala_lr=100.0, **quick_ala()), federation(), 3)
    assert state.ala_weights.min() == 0 and state.ala_weights.max() == 1
    assert ((state.ala_weights > 0) & (state.ala_weights < 1)).any()


def passes_of(asked, client):
    return sum(work.step == "ala" and client in who for work, who in asked)


@pytest.mark.parametrize("tol, first", [(1e9, 4), (1e-15, 7)], ids=["converged", "never"])
def test_each_client_has_its_own_first_time(federation, tol, first):
    """Not round 2 for all: the first round in which a client's model and the download differ."""
    method = algorithm("fedala", tol=tol, window=3, max_epochs=7)
    fed = federation()
    state, early, late = method.start(fed), torch.tensor([0, 1]), torch.tensor([1, 2])
    counts = []
    for k, who in enumerate((early, early, late, late)):
        here, asked = watched(fed.at(k))
        state = method.round(state, here, who)
        counts.append([passes_of(asked, client) for client in (0, 1, 2)])
    assert counts == [[0, 0, 0], [first, first, 0], [0, 1, first], [0, 1, 1]]
    assert state.ala_started.tolist() == [True, True, True, False, False]


def test_a_client_leaves_the_first_time_when_its_own_losses_are_still(federation):
    fed, method = federation(), algorithm("fedala", ala_layers=2, tol=0.02, window=2)
    here, asked = watched(fed.at(1))
    method.round(go(method, fed, 1), here, fed.everyone)
    counts = [passes_of(asked, client) for client in range(fed.m)]
    assert min(counts) >= 3 and len(set(counts)) > 1
    works = [work for work, _ in asked if work.step == "ala"]
    assert {(w.tag, w.share, w.epochs) for w in works} == {("ala", 0.8, 1)}


def test_fedala_beats_fedavg_where_labels_are_skewed(data):
    """At equal rounds, although what it tests holds the global model of the round before."""
    for seed in range(3):
        clients = partition.grouped(data, group_clients=3, share=0.95, test_size=20, seed=seed)
        options = {"lr": 0.1, "batch_size": 10, "dtype": torch.float64, "seed": seed}
        fed = Federation(data, clients, "logistic_regression", device="cpu", **options)
        adaptive, average = (
            run(algorithm(name), fed, 6, evaluate_every=6, progress=False).last
            for name in ("fedala", "fedavg")
        )
        assert adaptive > average + 0.03


def test_more_layers_than_the_model_has(federation):
    with pytest.raises(ValueError, match=r"ala_layers must be at most 2, .* 'MLP', got 3"):
        algorithm("fedala", ala_layers=3).start(federation())


BAD = [
    ("fedala", {"ala_layers": -1}, "ala_layers must be a whole number >= 0, got -1"),
    ("fedala", {"ala_percent": 0}, r"ala_percent must lie in \(0, 100\], got 0"),
    ("fedala", {"ala_percent": 101}, r"ala_percent must lie in \(0, 100\], got 101"),
    ("fedala", {"ala_lr": 0.0}, "ala_lr must be a positive finite number, got 0"),
    ("fedala", {"window": 0}, "window must be a whole number >= 1, got 0"),
    ("fedala", {"max_epochs": 1.5}, "max_epochs must be a whole number >= 1, got 1.5"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()


def test_remix_before_test_is_where_the_next_round_begins(federation):
    """All clients mix, then they are tested: with everybody present, the next round's start."""
    fed = federation()
    method = algorithm("fedala", remix_before_test=True, **quick_ala())
    before, after = go(method, fed, 2), go(method, fed, 3)
    assert torch.equal(method.personal(before, fed.at(1)), after.ala_begin)
    plain = algorithm("fedala", **quick_ala())
    assert torch.equal(plain.personal(before, fed.at(1)), before.ala_begin)


def test_remix_reaches_clients_that_stayed_away(federation):
    """The mix of the last attended round may be old; the new one holds the newest global model."""
    fed = federation()
    method = algorithm("fedala", remix_before_test=True, ala_lr=HOLD, **quick_ala())
    state = method.start(fed)
    for k in range(3):
        state = method.round(state, fed.at(k), fed.everyone[1:])
    mixed = method.personal(state, fed.at(2))
    assert torch.equal(state.ala_begin[0], fed.initial()[0])
    torch.testing.assert_close(mixed[0], state.x)  # weights of one: the newest global model


def test_only_the_top_layers_gradient_is_computed():
    """The same numbers as the gradient of the whole model, in fewer operations."""
    fed = pfl_lib.example(model="mlp", dtype=torch.float64, engine="loop")
    network, w = fed.network, fed.initial()[0]
    index = fed._train_samples.index[0]
    x, y = fed._train_samples.inputs(index), fed.data.y[index]
    batch = Batch(x, y, torch.ones(len(y), dtype=x.dtype), None)
    start = fed.layers[-1][1].start
    below, top = w[:start], w[start:]
    counted = {}
    with FlopCounterMode(display=False) as flops:
        whole = torch.func.grad(network.loss)(w, batch)[start:]
    counted["whole"] = flops.get_total_flops()
    with FlopCounterMode(display=False) as flops:
        part = torch.func.grad(lambda t: network.loss_above(below, t, batch))(top)
    counted["top"] = flops.get_total_flops()
    assert torch.equal(part, whole)
    assert counted["top"] < 0.65 * counted["whole"]  # forward, and the last layer's gradient
