"""The baselines on F_i(w) = ½ Σ h_i (w − c_i)²: every number of K8, and their reductions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from known_answers import ANSWERS, assert_known, known
from strategies import models, quick, vectors

from pfl_lib import formulas as f

H, C, SIZES, X = known("K8", "h"), known("K8", "c"), known("K8", "n"), known("K8", "server model x")
ETA = ANSWERS["K8"]["eta"]
V = torch.tensor([0.0, 1.0], dtype=torch.float64)


def gradient(i):
    return lambda w: H[i] * (w - C[i])


def loss(i, w):
    return (0.5 * H[i] * (w - C[i]) ** 2).sum(-1)


def train(step, start=X, steps=2):
    """Both clients, full gradients: step(i, w) is the direction."""
    rows = []
    for i in range(2):
        w = start
        for _ in range(steps):
            w = w - ETA * step(i, w)
        rows.append(w)
    return torch.stack(rows)


LOCAL = train(lambda i, w: gradient(i)(w))


# ---- one model for all


def test_eq_fedavg():
    assert_known(LOCAL, "K8", "FedAvg: local models, 2 steps")
    assert_known(f.weighted_average(LOCAL, SIZES), "K8", "FedAvg: aggregate (n-weighted)")
    assert_known(f.weighted_average(LOCAL), "K8", "uniform aggregate")


def test_eq_fedprox_gradient():
    local = train(lambda i, w: f.fedprox_gradient(gradient(i)(w), w, X, mu=0.5))
    assert_known(local, "K8", "FedProx mu=0.5: local models, 2 steps")
    assert torch.equal(train(lambda i, w: f.fedprox_gradient(gradient(i)(w), w, X, 0.0)), LOCAL)


def test_eq_scaffold():
    controls = known("K8", "SCAFFOLD: initial c_i")
    c = controls.mean(0)
    y = train(lambda i, w: f.scaffold_gradient(gradient(i)(w), controls[i], c))
    assert_known(y, "K8", "SCAFFOLD: y_i after 2 steps")
    new = f.scaffold_control(controls, c, X, y, lr=ETA, steps=2)
    assert_known(new, "K8", "SCAFFOLD: new c_i (option II)")
    x, c = f.scaffold_server(X, c, y, controls, new, clients=2)
    assert_known(x, "K8", "SCAFFOLD: x, eta_g=1, all clients")
    assert_known(c, "K8", "SCAFFOLD: new c")


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


def test_eq_fedasync():
    mixing = f.fedasync_mixing(0.6, 3, a=0.5)
    assert_known(mixing, "K8", "FedAsync alpha=.6, poly a=.5, staleness 3: mixing")
    new = f.fedasync_update(X, LOCAL[1], mixing)
    assert_known(new, "K8", "FedAsync: new x with w_new = FedAvg local 1")
    assert f.fedasync_mixing(0.6, 0, a=0.5) == 0.6


@quick
@given(models(), st.floats(0.01, 100))
def test_weighted_average_properties(W, scale):
    sizes = torch.arange(1, len(W) + 1, dtype=torch.float64)
    average = f.weighted_average(W, sizes)
    torch.testing.assert_close(average, f.weighted_average(W, scale * sizes))
    torch.testing.assert_close(average, (sizes[:, None] * W).sum(0) / sizes.sum())
    torch.testing.assert_close(f.weighted_average(W), W.mean(0))
    order = torch.arange(len(W) - 1, -1, -1)
    torch.testing.assert_close(average, f.weighted_average(W[order], sizes[order]))


# ---- personal models


def test_eq_apfl():
    alpha = torch.tensor(0.25, dtype=torch.float64)
    mixed = f.apfl_mix(alpha, V, X)
    assert_known(mixed, "K8", "APFL client 0, alpha=.25, v=(0,1), w=x: mixed model")
    alpha, v, w = f.apfl_step(alpha, V, X, gradient(0)(mixed), gradient(0)(X), lr=ETA)
    assert_known(v, "K8", "APFL: new v (chain rule, v - eta*alpha*grad F(mixed))")
    assert_known(w, "K8", "APFL: new w")
    assert_known(alpha, "K8", "APFL: new alpha = alpha - eta <v-w, grad F(mixed)>")


def test_eq_apfl_step_is_the_gradient_of_the_mixed_loss():
    alpha = torch.tensor(0.4, dtype=torch.float64)

    def mixed_loss(alpha, v):
        return loss(0, f.apfl_mix(alpha, v, X))

    slopes = torch.func.grad(mixed_loss, argnums=(0, 1))(alpha, V)
    grad = gradient(0)(f.apfl_mix(alpha, V, X))
    new_alpha, new_v, _ = f.apfl_step(alpha, V, X, grad, grad, lr=0.01)
    torch.testing.assert_close((alpha - new_alpha) / 0.01, slopes[0])
    torch.testing.assert_close((V - new_v) / 0.01, slopes[1])


@quick
@given(vectors(3), st.floats(0, 1))
def test_apfl_alpha_stays_in_the_unit_interval(drawn, alpha):
    v, w, grad = drawn
    new, _, _ = f.apfl_step(torch.tensor(alpha, dtype=torch.float64), v, w, grad, grad, lr=1.0)
    assert 0 <= float(new) <= 1
    torch.testing.assert_close(f.apfl_mix(1.0, v, w), v)
    torch.testing.assert_close(f.apfl_mix(0.0, v, w), w)


def test_apfl_rows_with_their_own_alpha():
    alpha = torch.tensor([0.25, 0.75], dtype=torch.float64)
    rows = f.apfl_step(alpha, LOCAL, LOCAL + 1, LOCAL, LOCAL, lr=0.1)
    for i in range(2):
        one = f.apfl_step(alpha[i], LOCAL[i], LOCAL[i] + 1, LOCAL[i], LOCAL[i], lr=0.1)
        for a, b in zip(rows, one):
            torch.testing.assert_close(a[i], b)


def test_eq_perfedavg():
    g = gradient(0)
    adapted = f.perfedavg_adapt(X, g, inner_lr=0.2)
    assert_known(adapted, "K8", "Per-FedAvg: adapted model from x")
    steps = {rule: f.perfedavg_step(X, g, g, 0.2, 0.1, rule) for rule in ("fo", "hf", "exact")}
    assert_known(steps["fo"], "K8", "Per-FedAvg client 0, inner .2, outer .1: FO step")
    for rule in ("hf", "exact"):
        assert_known(steps[rule], "K8", "Per-FedAvg: exact/HF step (I - a H) applied")


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


def test_eq_pfedme():
    exact = f.proximal_step_quadratic(X, H[0], C[0], beta=1 / 15)
    assert_known(exact, "K8", "pFedMe client 0, lambda=15: exact theta")
    theta = f.pfedme_inner(X, gradient(0), lam=15.0, lr=0.01, steps=5)
    assert_known(theta, "K8", "pFedMe: theta after K=5 steps lr .01")
    w = f.pfedme_local(X, theta, lam=15.0, lr=0.005)
    assert_known(w, "K8", "pFedMe: local w after one local round, eta=.005")
    many = f.pfedme_inner(X, gradient(0), lam=15.0, lr=0.05, steps=200)
    torch.testing.assert_close(many, exact)
    resumed = f.pfedme_inner(X, gradient(0), 15.0, 0.01, steps=3, start=theta)
    torch.testing.assert_close(resumed, f.pfedme_inner(X, gradient(0), 15.0, 0.01, steps=8))


def test_eq_pfedme_local_is_a_step_on_the_moreau_envelope():
    def envelope(w):
        theta = f.proximal_step_quadratic(w, H[0], C[0], beta=1 / 15)
        return loss(0, theta) + 7.5 * ((theta - w) ** 2).sum()

    theta = f.proximal_step_quadratic(X, H[0], C[0], beta=1 / 15)
    moved = f.pfedme_local(X, theta, lam=15.0, lr=0.01)
    torch.testing.assert_close((X - moved) / 0.01, torch.func.grad(envelope)(X))


def test_eq_pfedme_server():
    average = f.weighted_average(LOCAL)
    assert_known(f.pfedme_server(X, average), "K8", "uniform aggregate")
    torch.testing.assert_close(f.pfedme_server(X, average, beta=0.5), (X + average) / 2)


def test_eq_ditto_gradient():
    step = V - ETA * f.ditto_gradient(gradient(0)(V), V, X, lam=0.1)
    assert_known(step, "K8", "Ditto client 0, v=(0,1), lambda=.1: one step")
    assert torch.equal(f.ditto_gradient(gradient(0)(V), V, X, 0.0), gradient(0)(V))


# ---- other clients' models


def test_eq_fedfomo():
    losses = loss(0, LOCAL)
    scores = f.fedfomo_scores(X, loss(0, X), LOCAL, losses)
    assert_known(scores, "K8", "FedFomo client 0: raw scores for models loc0, loc1, theta_i=x")
    weights = f.fedfomo_weights(scores)
    assert_known(weights, "K8", "FedFomo: normalised weights")
    assert_known(f.fedfomo_update(X, LOCAL, weights), "K8", "FedFomo: new model")


@quick
@given(models(parameters=(2, 2)))
def test_fedfomo_weights_are_shares_or_nothing(W):
    weights = f.fedfomo_weights(f.fedfomo_scores(X, loss(0, X), W, loss(0, W)))
    assert weights.min() >= 0
    total = float(weights.sum())
    assert total == 0 or total == pytest.approx(1)
    if total == 0:
        assert torch.equal(f.fedfomo_update(X, W, weights), X)


def test_fedfomo_own_model_on_offer_scores_zero():
    scores = f.fedfomo_scores(X, loss(0, X), torch.stack([X, LOCAL[0]]), loss(0, LOCAL))
    assert scores[0] == 0 and bool(scores.isfinite().all())


def test_eq_apple():
    p, prior = torch.tensor([0.5, 0.5], dtype=torch.float64), SIZES / SIZES.sum()
    mixed = f.apple_mix(p, LOCAL)
    assert_known(mixed, "K8", "APPLE client 0: mixture, p=(.5,.5)")
    core, weights = f.apple_gradients(
        gradient(0)(mixed), p, LOCAL, own=0, prior=prior, mu=0.1, schedule=1.0
    )
    assert_known(p - 0.01 * weights, "K8", "APPLE: new p, eta2=.01, lambda(r)=1, mu=.1, p0=n/N")
    assert_known(LOCAL[0] - 0.1 * core, "K8", "APPLE: new core model 0, eta1=.1")


def test_eq_apple_gradients_against_autograd():
    p, prior = torch.tensor([0.7, -0.2], dtype=torch.float64), SIZES / SIZES.sum()

    def objective(core, p):
        return loss(1, f.apple_mix(p, core)) + 0.3 * 0.05 * ((p - prior) ** 2).sum()

    by_core, by_p = torch.func.grad(objective, argnums=(0, 1))(LOCAL, p)
    for own in (1, torch.tensor(1)):
        core, weights = f.apple_gradients(
            gradient(1)(f.apple_mix(p, LOCAL)), p, LOCAL, own, prior, mu=0.1, schedule=0.3
        )
        torch.testing.assert_close(core, by_core[1])
        torch.testing.assert_close(weights, by_p)


def test_eq_apple_schedule():
    name = "APPLE: lambda(r), cos scheduler, L=400, r=100"
    assert_known(f.apple_schedule(100, 400), "K8", name)
    assert_known(f.apple_schedule(torch.tensor(100.0, dtype=torch.float64), 400), "K8", name)
    assert f.apple_schedule(0, 400) == 1
    assert f.apple_schedule(400, 400) == f.apple_schedule(9999, 400) == 0


# ---- private models and layers


def test_eq_fedphp():
    momentum = f.fedphp_momentum(0.9, 50, expected=100)
    assert momentum == pytest.approx(0.45)
    new = f.fedphp_update(V, LOCAL[0], momentum)
    assert_known(new, "K8", "FedPHP mu_t=.45: HPM from old (0,1) and new local 0")
    assert f.fedphp_momentum(0.9, 0, expected=100) == 0
    assert f.fedphp_momentum(0.9, 500, expected=100) == 0.9


def test_fedphp_rows_with_their_own_momentum():
    taken = torch.tensor([0, 100])
    momentum = f.fedphp_momentum(1.0, taken, expected=100)
    new = f.fedphp_update(V.expand(2, -1), LOCAL, momentum)
    torch.testing.assert_close(new, torch.stack([LOCAL[0], V]))


def test_eq_partialfed_temperature():
    name = "PartialFed temperature 5*.965^t for t=10,100"
    assert_known([f.partialfed_temperature(t) for t in (10, 100)], "K8", name)
    assert_known(
        f.partialfed_temperature(torch.tensor([10.0, 100.0], dtype=torch.float64)), "K8", name
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


def test_fedrep_head_first_then_body():
    """FedRep has no formula of its own: plain gradient steps, one part frozen at a time."""

    def scalar_loss(head, body):
        return 0.5 * (head * body - 2) ** 2

    head, body = torch.tensor([1.5, 0.8], dtype=torch.float64)
    head = head - 0.1 * torch.func.grad(scalar_loss, argnums=0)(head, body)
    body = body - 0.1 * torch.func.grad(scalar_loss, argnums=1)(head, body)
    assert_known(
        torch.stack([head, body]),
        "K8",
        "FedRep scalar loss .5(h phi-y)^2, h=1.5, phi=.8, y=2, eta=.1: "
        "head after 1 step, then phi after 1 step with new head",
    )


# ---- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.weighted_average(LOCAL, SIZES[:1]), "sizes must be a tensor with one number"),
        (lambda: f.weighted_average(LOCAL, [1.0, 2.0]), "sizes must be a tensor with one number"),
        (lambda: f.fedprox_gradient(X, X, X, -1), "mu must be a non-negative finite number"),
        (lambda: f.ditto_gradient(X, X, X, math.nan), "lam must be a non-negative finite number"),
        (lambda: f.scaffold_control(X, X, X, X, 0, 2), "lr must be a positive finite number"),
        (lambda: f.scaffold_control(X, X, X, X, 0.1, 0), "steps must be a whole number >= 1"),
        (
            lambda: f.scaffold_server(X, X, LOCAL, LOCAL, LOCAL, clients=1),
            "clients must be a whole number >= 2, got 1",
        ),
        (lambda: f.fedasync_mixing(1.5, 1, 0.5), r"alpha must lie in \[0, 1\]"),
        (lambda: f.fedasync_mixing(0.5, -1, 0.5), "staleness must be a non-negative"),
        (lambda: f.fedasync_update(X, X, 2), r"mixing must lie in \[0, 1\]"),
        (lambda: f.apfl_mix(-0.1, X, X), r"alpha must lie in \[0, 1\]"),
        (lambda: f.perfedavg_step(X, abs, abs, 0.1, 0.1, "exactly"), "Did you mean 'exact'"),
        (lambda: f.pfedme_inner(X, abs, 15, 0.1, 0), "steps must be a whole number >= 1"),
        (lambda: f.pfedme_server(X, X, 0), "beta must be a positive finite number"),
        (lambda: f.apple_schedule(-1, 400), "round must be a non-negative finite number"),
        (lambda: f.apple_schedule(1, 0), "horizon must be a positive finite number"),
        (lambda: f.fedphp_momentum(2, 1, 10), r"mu must lie in \[0, 1\]"),
        (lambda: f.partialfed_temperature(1, decay=2), r"decay must lie in \[0, 1\]"),
        (lambda: f.gumbel_softmax(X, X, 0), "temperature must be a positive finite number"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
