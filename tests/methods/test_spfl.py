"""SPFL: similarities of updates, the server step in its readings, the local step, the resets."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import Federation, algorithm, partition, run, train
from pfl_lib import formulas as f
from pfl_lib.book.theory import QuadraticFederation, iterate
from tests.support.known_answers import assert_known, key, known
from tests.support.methods import (
    close,
    last,
    plain_federation,
    refused,
)
from tests.support.quadratics import (
    ETA,
    X,
    gradient,
)
from tests.support.strategies import models, quick, shuffled_models

G5 = known("SPFL", "g rows (g = w_before - w_after)")
W5 = known("SPFL", "w rows")
SIZES = known("SPFL", "|D_j|")
STAGES = [slice(0, 2), slice(2, 4)]
INDICES = [torch.tensor([0, 1]), torch.tensor([2, 3])]


@pytest.mark.parametrize("stages", [STAGES, INDICES], ids=["slices", "indices"])
def test_eq_sngs(stages):
    assert_known(f.sngs(G5), "SPFL", "S~ whole model (Eq.5)")
    first, second = f.sngs(G5, stages)
    assert_known(first, "SPFL", "S~_s stage 0 (Eq.6)")
    assert_known(second, "SPFL", "S~_s stage 1 (Eq.6)")


@pytest.mark.parametrize("stages", [STAGES, INDICES], ids=["slices", "indices"])
@pytest.mark.parametrize(
    ("rule", "lr", "name"),
    [
        ("literal", 0.01, "Eq.(7) literal, alpha=0.01"),
        ("softmax", 1.0, "softmax-only, alpha=1 (recommended)"),
        ("size_renorm", 1.0, "size*softmax renormalised, alpha=1"),
    ],
)
def test_eq_spfl_step(rule, lr, name, stages):
    S = f.sngs(G5, stages)
    assert_known(f.spfl_step(W5, G5, S, rule, SIZES, lr, stages), "SPFL", name)


def test_eq_spfl_local_step():
    h = torch.tensor([1.0, 4.0], dtype=torch.float64)
    c = torch.tensor([1.0, -1.0], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)

    def gradient(w):
        return h * (w - c)

    twice = f.spfl_local_step(zero, gradient, 0.01)
    double = f.spfl_local_step(zero, gradient, 0.01, rule="double")
    assert_known(twice, "SPFL", "ClientUpdate: two beta steps on the same batch (recommended)")
    assert_known(
        double,
        "SPFL",
        "ClientUpdate, F=0.5 sum H(w-c)^2, H=(1,4), c=(1,-1), w=0, beta=.01: one 2beta step",
    )
    torch.testing.assert_close(twice, double + 0.01**2 * h * gradient(zero))  # + β²H∇F


@quick
@given(models(), st.floats(0.05, 50))
def test_sngs_rows_are_positive_and_sum_to_one(G, temperature):
    S = f.sngs(G, temperature=temperature)
    assert S.min() > 0
    torch.testing.assert_close(S.sum(1), torch.ones(len(G), dtype=G.dtype))


@quick
@given(models())
def test_sngs_weights_differ_by_e_squared_at_most(G):
    S = f.sngs(G)
    assert float((S.amax(1) / S.amin(1)).max()) <= math.e**2 * (1 + 1e-12)


@quick
@given(shuffled_models())
def test_spfl_is_permutation_equivariant(drawn):
    G, order = drawn
    W = G.flip(1) + 1
    moved = f.spfl_step(W[order], G[order], f.sngs(G[order]))
    torch.testing.assert_close(moved, f.spfl_step(W, G, f.sngs(G))[order])


@quick
@given(models(), st.floats(0.01, 2))
def test_spfl_uniform_weights_apply_the_mean_update(G, lr):
    m = len(G)
    uniform = torch.full((m, m), 1 / m, dtype=G.dtype)
    W = torch.ones_like(G)
    expected = W - lr * G.mean(0)  # FedAvg with server step lr, since all models are equal
    torch.testing.assert_close(f.spfl_step(W, G, uniform, lr=lr), expected)
    sizes = torch.full((m,), 7.0)
    renormed = f.spfl_step(W, G, uniform, "size_renorm", sizes, lr)
    torch.testing.assert_close(renormed, expected)
    literal = f.spfl_step(W, G, uniform, "literal", sizes, lr)  # m times too short
    torch.testing.assert_close(literal, W - lr / m * G.mean(0))


@quick
@given(models(clients=(1, 1)), st.integers(1, 5))
def test_spfl_equal_updates_are_applied_whole(row, m):
    G = row.expand(m, -1)
    W = torch.randn(G.shape, dtype=G.dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(f.spfl_step(W, G, f.sngs(G)), W - G)


def test_sngs_temperature_from_plain_mean_to_oneself():
    hot, cold = f.sngs(G5, temperature=1e9), f.sngs(G5, temperature=1e-3)
    torch.testing.assert_close(hot, torch.full_like(hot, 1 / 3))
    torch.testing.assert_close(cold, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(f.sngs(G5, STAGES, temperature=1.0), f.sngs(G5, STAGES))


def test_spfl_columns_in_no_stage_stay():
    body = [slice(0, 3)]
    S = f.sngs(G5, body)
    for new in (f.spfl_step(W5, G5, S, stages=body), f.spfl_w_step(W5, S, body)):
        assert torch.equal(new[:, 3], W5[:, 3])
        assert not torch.equal(new[:, :3], W5[:, :3])


def test_spfl_one_matrix_serves_all_stages_and_nothing_is_changed_in_place():
    S, before = f.sngs(G5), W5.clone()
    torch.testing.assert_close(f.spfl_step(W5, G5, S, stages=STAGES), f.spfl_step(W5, G5, S))
    assert torch.equal(W5, before)


def test_spfl_zero_updates_and_one_client():
    assert f.sngs(torch.zeros(3, 2)).tolist() == torch.full((3, 3), 1 / 3).tolist()
    G = torch.tensor([[1.0, 2.0]])
    assert f.sngs(G).tolist() == [[1.0]]
    assert f.spfl_step(torch.zeros(1, 2), G, f.sngs(G)).tolist() == [[-1.0, -2.0]]


def test_bad_input_is_named():
    S = f.sngs(G5)
    with pytest.raises(ValueError, match="sizes must hold the clients' numbers of samples"):
        f.spfl_step(W5, G5, S, rule="literal")
    with pytest.raises(ValueError, match="rule must be one of 'softmax', 'size_renorm', 'literal'"):
        f.spfl_step(W5, G5, S, rule="mean")
    with pytest.raises(ValueError, match="G must have the shape of W"):
        f.spfl_step(W5, G5[:, :2], S)
    with pytest.raises(ValueError, match="S must hold one matrix for each of 1 stages, got 2"):
        f.spfl_step(W5, G5, f.sngs(G5, STAGES))
    with pytest.raises(ValueError, match="stages must be None or a non-empty list"):
        f.sngs(G5, stages=[])
    with pytest.raises(ValueError, match="stages must be None or a non-empty list"):
        f.sngs(G5, stages=slice(0, 2))
    with pytest.raises(ValueError, match="temperature must be a positive finite number, got 0"):
        f.sngs(G5, temperature=0)


SPFL_FAMILY = ("spfl", "spfl-1step", "spfl-w", "spfl-w-1step")


class Given(QuadraticFederation):
    """Local training moves by given updates; the last two of four parameters are the last layer."""

    def __init__(self):
        self.g = known("SPFL", "g rows (g = w_before - w_after)")
        super().__init__(h=torch.ones_like(self.g), c=self.g, start=known("SPFL", "w rows"))
        self.sizes = known("SPFL", "|D_j|")
        self.layers = [("body", slice(0, 2)), ("output", slice(2, 4))]

    def perform(self, work, who):
        return {"w": work.rows["w"] - self.g[who]}


def spfl_round(name, **hyper):
    """Round 1 (between two resets) of three clients, with the similarities of their updates."""
    fed, method = Given(), algorithm(name, **hyper)
    S = f.sngs(fed.g, method.parts(fed), method.temperature)
    return method.round(method.start(fed).set(S=S), fed.at(1), fed.everyone)


@pytest.mark.parametrize(
    "hyper, answer",
    [
        ({}, "softmax-only, alpha=1 (recommended)"),
        ({"rule": "size_renorm"}, "size*softmax renormalised, alpha=1"),
        ({"rule": "literal", "lr_server": 0.01}, "Eq.(7) literal, alpha=0.01"),
    ],
)
def test_spfl_eq7(hyper, answer):
    state = spfl_round("spfl", **hyper)
    torch.testing.assert_close(state.w, known("SPFL", answer))
    torch.testing.assert_close(state.S[1], known("SPFL", key("SPFL", "S~_s stage 1")))


def test_spfl_eq5_has_one_stage():
    torch.testing.assert_close(
        spfl_round("spfl", stages=1).S, known("SPFL", "S~ whole model (Eq.5)")[None]
    )


def test_uniform_spfl_is_fedavg_with_a_server_step(data, groups):
    """All similarities alike, all sizes alike: everybody moves by the mean update."""
    fed = plain_federation(data, groups)
    alike = {"temperature": 1e12, "steps_per_batch": 1, "period": 2}
    x = last(algorithm("fedavg"), fed, 3).x.expand(10, -1)
    for name in ("spfl", "spfl-w"):
        w = last(algorithm(name, **alike), fed, 3).w
        torch.testing.assert_close(w, x, rtol=0, atol=1e-10)
    x = fed.initial()
    for k in range(3):
        x = x - 0.5 * (x - train(fed.at(k), x, fed.everyone)).mean(0)
    half = last(algorithm("spfl", **alike, lr_server=0.5), fed, 3).w
    torch.testing.assert_close(half, x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["spfl", "spfl-w"])
def test_spfl_at_temperature_zero_is_separate_training_between_resets(data, groups, name):
    fed = plain_federation(data, groups)
    alone = last(algorithm("separate"), fed, 3).w
    cold = algorithm(name, temperature=1e-4, steps_per_batch=1, period=3)
    state = last(cold, fed, 3)
    torch.testing.assert_close(state.w, alone, rtol=0, atol=1e-10)
    after = cold.round(state, fed.at(3), fed.everyone)  # the reset
    begin = alone.mean(0).expand(10, -1)
    torch.testing.assert_close(after.trained, train(fed.at(3), begin, fed.everyone))


def test_one_step_and_two_steps_on_a_batch(data, uneven):
    fed = plain_federation(data, uneven)
    for one, two in (("spfl-1step", "spfl"), ("spfl-w-1step", "spfl-w")):
        a = last(algorithm(one), fed, 2).w
        assert torch.equal(a, last(algorithm(two, steps_per_batch=1), fed, 2).w)
        assert not torch.allclose(a, last(algorithm(two), fed, 2).w, atol=1e-3)
    begin = fed.initial()
    twice = algorithm("spfl").round(algorithm("spfl").start(fed), fed, fed.everyone).trained
    assert torch.equal(twice, train(fed, begin, fed.everyone, repeats=2))


class Watched(Federation):
    """Remembers where local training started."""

    def perform(self, work, who):
        self.seen.append((self.k, work.tag, work.rows["w"]))
        return super().perform(work, who)


def remembering(data, clients):
    fed = Watched(data, clients, lr=0.1, batch_size=16, dtype=torch.float64, device="cpu")
    fed.seen = []
    return fed


def test_spfl_probes_and_resets_every_period(data, groups):
    fed = remembering(data, groups)
    states = iterate(algorithm("spfl-1step", period=2), fed, 4)
    assert [(k, tag) for k, tag, _ in fed.seen] == [
        *[(0, "probe"), (0, ""), (1, "")],
        *[(2, "probe"), (2, ""), (3, "")],
    ]
    mean = states[2].w.mean(0).expand(10, -1)
    for k, _, start in fed.seen:
        torch.testing.assert_close(start, {0: states[0].w, 2: mean}.get(k, states[k].w))
    assert torch.equal(states[1].S, states[2].S) and not torch.equal(states[2].S, states[3].S)


@pytest.mark.parametrize("name", SPFL_FAMILY)
def test_a_local_head_stays_at_home(data, groups, name):
    fed = remembering(data, groups)
    head = fed.layers[-1][1]
    method = algorithm(name, local_head=True, period=2)
    states = iterate(method, fed, 3)
    for state in states[1:]:
        assert torch.equal(state.w[:, head], state.trained[:, head])
        assert len(state.S) == 1
    start = next(start for k, tag, start in fed.seen if k == 2 and tag == "probe")
    body = slice(0, head.start)
    torch.testing.assert_close(start[:, body], states[2].w[:, body].mean(0).expand(10, -1))
    assert torch.equal(start[:, head], states[2].w[:, head])  # the reset spares it
    assert method.sent(fed, fed.everyone, 1) == 2 * 10 * head.start


@pytest.mark.parametrize("name", SPFL_FAMILY)
def test_a_local_head_may_still_be_reset(data, groups, name):
    fed = remembering(data, groups)
    head = fed.layers[-1][1]
    method = algorithm(name, local_head="reset", period=2)
    states = iterate(method, fed, 3)
    for state in states[1:]:
        assert torch.equal(state.w[:, head], state.trained[:, head])  # mixed by the identity
        assert len(state.S) == 1
    start = next(start for k, tag, start in fed.seen if k == 2 and tag == "probe")
    torch.testing.assert_close(start, states[2].w.mean(0).expand(10, -1))
    body, last_layer = head.start, head.stop - head.start
    assert method.sent(fed, fed.everyone, 1) == 2 * 10 * body
    assert method.sent(fed, fed.everyone, 2) == 2 * 10 * (2 * body + last_layer)


def test_layers_may_have_cosines_of_their_own():
    """By hand: a stage of two layers, weighted 0.7 and 0.3."""
    pieces = [slice(0, 1), slice(1, 4)]
    S = f.sngs(G5, layers=[[(pieces[0], 0.7), (pieces[1], 0.3)]])
    cosines = [f.cosine_similarities(G5[:, piece]) for piece in pieces]
    close(S, torch.softmax(0.7 * cosines[0] + 0.3 * cosines[1], dim=1))
    close(f.sngs(G5, layers=[[(slice(0, 4), 1.0)]]), f.sngs(G5))
    with pytest.raises(ValueError, match="layers must hold one list for each of 2 stages, got 1"):
        f.sngs(G5, STAGES, layers=[[(slice(0, 4), 1.0)]])


def test_spfl_weighs_the_cosines_of_its_layers(data, groups):
    fed = remembering(data, groups)
    body = [where for _, where in fed.layers[:-1]]
    assert len(body) == 1  # one layer before the last: its weight is a temperature
    weighed = last(algorithm("spfl", layer_weights=(0.5,)), fed, 1)
    warm = last(algorithm("spfl", temperature=2.0), fed, 1)
    plain = last(algorithm("spfl"), fed, 1)
    close(weighed.S[0], warm.S[0])
    close(weighed.S[1], plain.S[1])
    assert len(last(algorithm("spfl", layer_weights=(0.5,), local_head=True), fed, 1).S) == 1
    for wrong in ({"layer_weights": (0.5, 0.3, 0.2)}, {"layer_weights": (0.5,), "stages": 1}):
        with pytest.raises(ValueError, match="layer_weights must hold one number for each layer"):
            last(algorithm("spfl", **wrong), fed, 1)


def test_what_spfl_sends_counts_the_probes(data, groups):
    fed = plain_federation(data, groups)
    history = run(algorithm("spfl", period=3), fed, 6, progress=False)
    once = 2 * fed.d * fed.m
    assert history.sent == [2 * once, 3 * once, 4 * once, 6 * once, 7 * once, 8 * once]
    assert history.sent[-1] == 6 * once * (1 + 1 / 3)


def test_spfl_tests_its_models_after_and_before_mixing(data, groups):
    fed = plain_federation(data, groups)
    history = run(algorithm("spfl"), fed, 2, progress=False)
    state = history.state
    assert history.accuracy[-1] == fed.evaluate(state.w)[0].tolist()
    assert history.extra_models["before mixing"][-1] == fed.evaluate(state.trained)[0].tolist()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_updates_are_more_alike_inside_a_group(data, seed):
    clients = partition.grouped(data, group_clients=4, seed=seed)
    fed = plain_federation(data, clients, seed=seed)
    S = last(algorithm("spfl", period=2), fed, 3).S
    same = clients.groups[:, None] == clients.groups[None, :]
    inside = same & ~torch.eye(fed.m, dtype=torch.bool)
    for stage in S:
        assert stage[inside].mean() > stage[~same].mean() * 1.05
        assert stage[inside].min() > stage[~same].median()


@pytest.mark.parametrize("name", SPFL_FAMILY)
def test_spfl_refuses_to_go_without_some_clients(data, groups, name):
    with pytest.raises(ValueError, match="needs every client in every round"):
        run(algorithm(name), plain_federation(data, groups), 2, participation=0.5, progress=False)


def test_a_local_head_needs_a_body(data, groups):
    fed = plain_federation(data, groups, "logistic_regression")
    with pytest.raises(ValueError, match=r"local_head=True .* no other layer"):
        run(algorithm("spfl", local_head=True), fed, 1, progress=False)


def test_two_steps_on_a_batch_are_the_printed_local_step(quadratics):
    """What runs is Algorithm 1's ClientUpdate, two steps on the same batch."""
    fed, method = quadratics(), algorithm("spfl")
    state = method.round(method.start(fed), fed, fed.everyone)
    for i in (0, 1):
        close(state.trained[i], f.spfl_local_step(X, gradient(i), ETA), 1e-12)


BAD = [
    ("spfl", {"period": 0}, "period must be a whole number >= 1, got 0"),
    ("spfl", {"steps_per_batch": 3}, "steps_per_batch must be one of 1, 2; got 3"),
    ("spfl", {"stages": 3}, "stages must be one of 1, 2; got 3"),
    ("spfl", {"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
    ("spfl", {"rule": "soft"}, "rule must be one of 'softmax', 'size_renorm', 'literal'"),
    ("spfl", {"lr_server": -1.0}, "lr_server must be a positive finite number, got -1.0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
