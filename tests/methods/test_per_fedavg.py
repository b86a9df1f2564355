"""Per-FedAvg: the adapted loss, its Hessian in three readings, a batch for each gradient."""

import itertools

import pytest
import torch

from pfl_lib import Federation, algorithm, train
from pfl_lib import formulas as f
from pfl_lib.methods import per_fedavg
from tests.support.known_answers import assert_known
from tests.support.methods import (
    FIRST,
    close,
    go,
    refused,
    small_federation,
    whole_batches,
)
from tests.support.quadratics import (
    X,
    gradient,
)


def test_eq_perfedavg():
    g = gradient(0)
    adapted = f.perfedavg_adapt(X, g, inner_lr=0.2)
    assert_known(adapted, "baselines", "Per-FedAvg: adapted model from x")
    steps = {rule: f.perfedavg_step(X, g, g, 0.2, 0.1, rule) for rule in ("fo", "hf", "exact")}
    assert_known(steps["fo"], "baselines", "Per-FedAvg client 0, inner .2, outer .1: FO step")
    for rule in ("hf", "exact"):
        assert_known(steps[rule], "baselines", "Per-FedAvg: exact/HF step (I - a H) applied")


def test_eq_perfedavg_step_exact_is_the_gradient_of_the_adapted_loss():
    def curved(w):  # no quadratic: the Hessian changes from place to place
        return (w**4).sum() + (w[0] * w[1]) ** 2 + w.sum()

    g = torch.func.grad(curved)
    w = torch.tensor([0.3, -0.7], dtype=torch.float64)
    direct = torch.func.grad(lambda w: curved(w - 0.05 * g(w)))(w)
    for rule, tolerance in (("exact", 1e-12), ("hf", 1e-5)):
        moved = f.perfedavg_step(w, g, g, 0.05, 0.1, rule)
        torch.testing.assert_close((w - moved) / 0.1, direct, rtol=tolerance, atol=tolerance)
    mapped = torch.func.vmap(lambda w: f.perfedavg_step(w, g, g, 0.05, 0.1, "exact"))
    torch.testing.assert_close((w - mapped(w[None])[0]) / 0.1, direct)


def test_perfedavg_uses_its_three_batches():
    g = [lambda w, s=s: s * w for s in (1.0, 2.0, 3.0)]
    one = torch.ones(1, dtype=torch.float64)
    # adapted: 1 − .1 = .9; outer gradient 1.8; Hessian of the third batch: 3
    step = f.perfedavg_step(one, g[0], g[1], 0.1, 1.0, "exact", gradient_hessian=g[2])
    assert float(step) == pytest.approx(1 - (1 - 0.1 * 3) * 1.8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.perfedavg_step(X, abs, abs, 0.1, 0.1, "exactly"), "Did you mean 'exact'"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_known_answers_of_per_fedavg(quadratics):
    fed = quadratics()
    for variant in ("fo", "hf", "exact"):
        method = algorithm("per-fedavg", variant=variant, inner_lr=0.2)
        first_order = "Per-FedAvg client 0, inner .2, outer .1: FO step"
        key = first_order if variant == "fo" else "Per-FedAvg: exact/HF step (I - a H) applied"
        assert_known(go(method, fed, 1, who=FIRST).x, "baselines", key)
        adapted = method.personal(method.start(fed), fed)
        assert_known(adapted[0], "baselines", "Per-FedAvg: adapted model from x")


@pytest.mark.parametrize("variant", ["fo", "hf", "exact"])
def test_per_fedavg_without_an_inner_step_is_fedavg(data, unequal, variant):
    fed = whole_batches(data, unequal)
    method = algorithm("per-fedavg", variant=variant, inner_lr=0.0)
    state = go(method, fed, 3)
    close(state.x, go(algorithm("fedavg"), fed, 3).x)
    assert torch.equal(method.personal(state, fed), state.x.expand(fed.m, -1))


def test_per_fedavg_differences_come_close_to_the_exact_product(data, unequal):
    """For a smooth model; a difference across a kink of ReLU is another number."""
    fed = Federation(data, unequal, "logistic_regression", lr=0.1, dtype=torch.float64)
    x = {v: go(algorithm("per-fedavg", variant=v), fed, 1).x for v in ("fo", "hf", "exact")}
    close(x["hf"], x["exact"], 1e-5)
    assert (x["fo"] - x["exact"]).norm() > 1e-2


@pytest.mark.parametrize("variant, count", [("fo", 2), ("hf", 3), ("exact", 3)])
def test_per_fedavg_takes_each_gradient_from_a_batch_of_its_own(
    monkeypatch, data, unequal, variant, count
):
    seen = []

    def watch(w, first, second, inner, outer, rule, third, delta):
        assert (inner, outer, rule, delta) == (0.3, 0.1, variant, 1e-3)
        seen.append([gradient(w) for gradient in (first, second, third)[:count]])
        return w

    monkeypatch.setattr(per_fedavg, "perfedavg_step", watch)
    fed = small_federation(data, unequal, engine="loop")
    go(algorithm("per-fedavg", variant=variant, inner_lr=0.3), fed, 1, who=torch.tensor([1]))
    assert len(seen) == -(-7 // count)  # 50 samples in batches of 8
    for gradients in seen:
        for a, b in itertools.combinations(gradients, 2):
            assert (a - b).norm() > 1e-3


def test_per_fedavg_is_tested_after_exactly_one_step(data, unequal):
    fed = whole_batches(data, unequal)
    method = algorithm("per-fedavg", inner_lr=0.3)
    state = go(method, fed, 1)
    x = state.x.expand(fed.m, -1)
    close(method.personal(state, fed), train(fed, x, fed.everyone, epochs=1, lr=0.3))


BAD = [
    ("per-fedavg", {"variant": "fi"}, "variant must be one of 'fo', 'hf', 'exact'; got 'fi'"),
    ("per-fedavg", {"inner_lr": -0.1}, "inner_lr must be a non-negative"),
    ("per-fedavg", {"delta": 0.0}, "delta must be a positive"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
