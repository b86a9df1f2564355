"""PartialFed: temperature, soft draws, and the choice of each layer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pfl_lib
from pfl_lib import algorithm, partition
from pfl_lib import formulas as f
from tests.support.known_answers import assert_known
from tests.support.methods import (
    ENGINES,
    close,
    go,
    refused,
)
from tests.support.quadratics import (
    X,
)
from tests.support.strategies import quick, vectors


def test_eq_partialfed_temperature():
    name = "PartialFed temperature 5*.965^t for t=10,100"
    assert_known([f.partialfed_temperature(t) for t in (10, 100)], "baselines", name)
    assert_known(
        f.partialfed_temperature(torch.tensor([10.0, 100.0], dtype=torch.float64)),
        "baselines",
        name,
    )


def test_eq_gumbel_softmax_draws_from_the_softmax():
    logits = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
    uniform = torch.rand(20000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    choices = f.gumbel_softmax(logits, uniform, temperature=0.5, hard=True)
    assert torch.equal(choices.sum(1).round(), torch.ones(20000, dtype=torch.float64))
    torch.testing.assert_close(choices.mean(0), logits.softmax(0), rtol=0, atol=0.01)


@quick
@given(vectors(1, parameters=(2, 5)), st.floats(0.05, 20))
def test_gumbel_softmax_is_a_softmax_for_equal_noise(drawn, temperature):
    (logits,) = drawn
    soft = f.gumbel_softmax(logits, torch.full_like(logits, 0.5), temperature)
    torch.testing.assert_close(soft, (logits / temperature).softmax(0))


def test_gumbel_softmax_extreme_noise_and_straight_through():
    for dtype in (torch.float32, torch.float64):
        logits = torch.zeros(2, dtype=dtype)
        soft = f.gumbel_softmax(logits, torch.tensor([0.0, 1.0], dtype=dtype), 1.0)
        assert bool(soft.isfinite().all()) and float(soft[1]) > 0.99
    logits, uniform = torch.tensor([0.2, 0.1]), torch.tensor([0.5, 0.4])
    value = torch.tensor([1.0, 3.0])

    def score(logits, hard):
        return (f.gumbel_softmax(logits, uniform, 1.0, hard) * value).sum()

    assert float(score(logits, True)) == pytest.approx(1.0)
    torch.testing.assert_close(
        torch.func.grad(score)(logits, True), torch.func.grad(score)(logits, False)
    )


def test_eq_partialfed_mix():
    layers = [slice(0, 1), torch.tensor([1, 2])]
    local, global_ = torch.zeros(2, 3), torch.ones(2, 3)
    choice = torch.tensor([[1.0, 0.0], [0.25, 1.0]])
    mixed = f.partialfed_mix(choice, local, global_, layers)
    assert mixed.tolist() == [[1.0, 0.0, 0.0], [0.25, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.partialfed_temperature(1, decay=2), r"decay must lie in \[0, 1\]"),
        (lambda: f.gumbel_softmax(X, X, 0), "temperature must be a positive finite number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("choice, name", [(0, "fedavg"), (1, "separate")])
def test_partialfed_all_global_is_fedavg_and_all_local_is_separate(federation, choice, name):
    fed, method = federation(), algorithm("partialfed", strategy_batches=0)
    state = method.start(fed)
    logits = state.logits.clone()
    logits[..., choice] = 1.0
    state = state.set(logits=logits)
    for k in range(2):
        state = method.round(state, fed.at(k), fed.everyone)
    other = go(algorithm(name), fed, 2)
    close(state.x if name == "fedavg" else state.w, other.x if name == "fedavg" else other.w)
    assert torch.equal(state.logits, logits)


@pytest.mark.parametrize("engine", ENGINES)
def test_partialfed_gives_each_batch_to_the_model_or_to_the_choice(federation, engine):
    """Counting goes on from round to round, so that a client of few batches has its turn too."""
    test = tuple(torch.arange(1500, 1509) for _ in range(2))
    two = partition.Partition("two", (torch.arange(40), torch.arange(40, 64)), test)
    fed = federation(two, engine=engine)  # 5 and 3 batches of 8
    method = algorithm("partialfed", model_batches=4, strategy_batches=2)
    first = go(method, fed, 1)
    assert first.batch.tolist() == [5, 3]
    assert (first.logits[0] != 0).all() and (first.logits[1] == 0).all()
    second = method.round(first, fed.at(1), fed.everyone)
    assert second.batch.tolist() == [10, 6]
    assert (second.logits[1] != 0).all()
    only = algorithm("partialfed", model_batches=1, strategy_batches=10**6)
    own = first.w + 0.05
    state = only.start(fed).set(batch=torch.tensor([1, 1]), w=own)
    after = only.round(state, fed.at(1), fed.everyone)
    likelier = (after.logits.argmax(-1) == 0).to(fed.dtype)
    stages = [columns for _, columns in fed.layers]
    kept = pfl_lib.formulas.partialfed_mix(likelier, own, state.x.expand(2, -1), stages)
    assert torch.equal(after.w, kept)  # no model batch, so no model moved


def test_partialfeds_draws_are_keyed_and_its_choice_follows_the_loss(federation):
    """With a ruined own head the choice turns to the global one."""
    fed = federation()
    method = algorithm("partialfed", model_batches=1, strategy_batches=10**6, lr_strategy=1.0)
    state = method.start(fed)
    ruined = state.w + 3 * torch.randn(
        fed.d, generator=torch.Generator().manual_seed(0), dtype=fed.dtype
    ) * fed.head_mask.to(fed.dtype)
    state = state.set(w=ruined, batch=torch.ones_like(state.batch))
    for k in range(3):
        state = method.round(state.set(w=ruined, x=method.start(fed).x), fed.at(k), fed.everyone)
    assert (state.logits[:, 1, 0] > state.logits[:, 1, 1]).all()


BAD = [
    ("partialfed", {"model_batches": 0}, "model_batches must be a whole number >= 1, got 0"),
    ("partialfed", {"decay": 1.5}, r"decay must lie in \[0, 1\], got 1.5"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
