"""FedACS, SPFL and SPFL-w: who listens to whom, and what they reduce to."""

import warnings

import pytest
import torch
from known_answers import key, known

import pfl_lib
from pfl_lib import Federation, algorithm, partition, run
from pfl_lib.formulas import cosine_similarities, sngs
from pfl_lib.theory import QuadraticFederation, iterate

SPFL_FAMILY = ("spfl", "spfl-1step", "spfl-w", "spfl-w-1step")


@pytest.fixture(scope="module")
def data():
    return pfl_lib.data.load("digits")


@pytest.fixture(scope="module")
def groups(data):
    """Ten clients of one size in five hidden groups."""
    return partition.grouped(data, group_clients=2, group_sizes=60)


@pytest.fixture(scope="module")
def uneven(data):
    return partition.grouped(data, group_clients=1, group_sizes=(17, 50, 31, 60, 20))


def federation(data, clients, model="mlp", **how):
    how = {"lr": 0.1, "batch_size": 16, "dtype": torch.float64, "device": "cpu", **how}
    return Federation(data, clients, model, **how)


def last(method, fed, rounds, **how):
    return run(method, fed, rounds, evaluate_every=rounds, progress=False, **how).state


class OneStep(QuadraticFederation):
    """Local training is one gradient step of length 0.1 on ½‖w − c‖²."""

    def train(self, start, who, **how):
        return start - 0.1 * (start - self.c[who])


class Given(QuadraticFederation):
    """Local training moves by given updates; the last two of four parameters are the last layer."""

    def __init__(self):
        self.g = known("K5", "g rows (g = w_before - w_after)")
        super().__init__(h=torch.ones_like(self.g), c=self.g, start=known("K5", "w rows"))
        self.sizes = known("K5", "|D_j|")
        self.layers = [("body", slice(0, 2)), ("output", slice(2, 4))]

    def train(self, start, who, **how):
        return start - self.g[who]


# ---- FedACS -------------------------------------------------------------------------------------


@pytest.fixture
def four():
    """The four models of K4, whose cosines have both signs."""
    centres = known("K4", key("K4", "p=0.5 then Eq.(5), beta=0.1"))
    return OneStep(h=torch.ones_like(centres), c=centres, start=known("K4", "W rows"))


def test_fedacs_eq4_and_eq5(four):
    state = iterate(algorithm("fedacs", p=0.5), four, 1)[-1]
    torch.testing.assert_close(state.xi, known("K4", "p=0.5: weights"))
    torch.testing.assert_close(state.delta, known("K4", "p=0.5: delta"))
    torch.testing.assert_close(state.u, known("K4", "p=0.5: u"))
    torch.testing.assert_close(state.w, known("K4", "p=0.5 then Eq.(5): w"))


def test_fedacs_negative_cosines_are_dropped_or_kept_and_said(four):
    with pytest.warns(UserWarning, match="negative cosines pass; they are left out"):
        dropped = iterate(algorithm("fedacs", p=0.0), four, 1)[-1]
    with pytest.warns(UserWarning, match="negative cosines pass; their weights are negative"):
        kept = iterate(algorithm("fedacs", p=0.0, negatives="keep"), four, 1)[-1]
    torch.testing.assert_close(dropped.u, known("K4", "p=0 with negatives dropped: u"))
    torch.testing.assert_close(kept.xi, known("K4", "p=0: weights"))
    assert dropped.xi.min() >= 0 > kept.xi.min()


def test_fedacs_at_p_one_is_separate_training_and_says_so(data, groups):
    fed = federation(data, groups)
    with pytest.warns(UserWarning, match=r"this is Separate training; take p < 0.9091"):
        alone = last(algorithm("fedacs", p=1.0), fed, 3)
    assert torch.equal(alone.w, last(algorithm("separate"), fed, 3).w)
    with pytest.warns(UserWarning, match="Separate training"):  # n/(n+1) is enough
        last(algorithm("fedacs", p=10 / 11), fed, 2)


def test_fedacs_at_p_zero_leaves_out_the_farthest_pair_only(data, groups):
    fed = federation(data, groups)
    method = algorithm("fedacs", p=0.0)
    before = last(method, fed, 2)
    state = method.round(before, fed.at(2), fed.everyone)
    S = cosine_similarities(before.w)
    assert ((state.xi == 0) == (S.min() == S)).all() and (state.xi == 0).sum() == 2
    heard = torch.where(state.xi > 0, S, 0)
    torch.testing.assert_close(state.xi, heard / heard.sum(1, keepdim=True))


def test_fedacs_hears_fewer_and_nearer_as_p_grows(data, groups):
    fed = federation(data, groups)
    w = last(algorithm("fedacs"), fed, 3)
    heard = []
    for p in (0.0, 0.3, 0.6, 0.8, 0.9):
        xi = algorithm("fedacs", p=p).round(w, fed.at(3), fed.everyone).xi
        heard.append(int((xi > 0).sum()))
        torch.testing.assert_close(xi.sum(1), torch.ones(10, dtype=torch.float64))
    assert heard == sorted(heard, reverse=True) and len(set(heard)) == len(heard)


def test_fedacs_from_a_common_start_has_messages_equal_to_the_models(data, groups):
    """All cosines are 1: the printed strict test would divide 0 by 0."""
    fed = federation(data, groups)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = last(algorithm("fedacs", p=0.5), fed, 1)
    assert torch.equal(state.u, fed.initial())
    assert torch.equal(state.w, fed.train(fed.initial(), fed.everyone))


def test_fedacs_participants_hear_each_other_only(data, groups):
    fed = federation(data, groups)
    method = algorithm("fedacs", p=0.3)
    before = last(method, fed, 2)
    there = torch.tensor([0, 2, 3, 7])
    after = method.round(before, fed.at(2), there)
    away = torch.tensor([1, 4, 5, 6, 8, 9])
    assert torch.equal(after.w[away], before.w[away])
    assert after.xi[there][:, away].count_nonzero() == 0
    assert torch.equal(after.xi[away], torch.eye(10, dtype=torch.float64)[away])
    part = run(method, fed, 3, participation=0.4, progress=False)
    assert part.sent[-1] == 3 * 4 * 2 * fed.d


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fedacs_keeps_to_the_groups(data, seed):
    """p = 0.8 leaves a fifth of the pairs: with 5 groups of 4, just those inside a group."""
    clients = partition.grouped(data, group_clients=4, seed=seed)
    fed = federation(data, clients, seed=seed)
    xi = last(algorithm("fedacs", p=0.8), fed, 3).xi
    same = clients.groups[:, None] == clients.groups[None, :]
    assert float((xi * same).sum(1).mean()) > 0.95  # chance is 0.2


# ---- SPFL ---------------------------------------------------------------------------------------


def spfl_round(name, **hyper):
    """Round 1 (between two resets) of the K5 clients, with the similarities of their updates."""
    fed, method = Given(), algorithm(name, **hyper)
    S = sngs(fed.g, method.parts(fed), method.temperature)
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
    torch.testing.assert_close(state.w, known("K5", answer))
    torch.testing.assert_close(state.S[1], known("K5", key("K5", "S~_s stage 1")))


def test_spfl_w_mixes_the_trained_models():
    answer = known("K5", key("K5", "SPFL-w: sum_j"))
    torch.testing.assert_close(spfl_round("spfl-w").w, answer)


def test_spfl_eq5_has_one_stage():
    torch.testing.assert_close(
        spfl_round("spfl", stages=1).S, known("K5", "S~ whole model (Eq.5)")[None]
    )


def test_uniform_spfl_is_fedavg_with_a_server_step(data, groups):
    """All similarities alike, all sizes alike: everybody moves by the mean update."""
    fed = federation(data, groups)
    alike = {"temperature": 1e12, "steps_per_batch": 1, "period": 2}
    x = last(algorithm("fedavg"), fed, 3).x.expand(10, -1)
    for name in ("spfl", "spfl-w"):
        w = last(algorithm(name, **alike), fed, 3).w
        torch.testing.assert_close(w, x, rtol=0, atol=1e-10)
    x = fed.initial()
    for k in range(3):
        x = x - 0.5 * (x - fed.at(k).train(x, fed.everyone)).mean(0)
    half = last(algorithm("spfl", **alike, lr_server=0.5), fed, 3).w
    torch.testing.assert_close(half, x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["spfl", "spfl-w"])
def test_spfl_at_temperature_zero_is_separate_training_between_resets(data, groups, name):
    fed = federation(data, groups)
    alone = last(algorithm("separate"), fed, 3).w
    cold = algorithm(name, temperature=1e-4, steps_per_batch=1, period=3)
    state = last(cold, fed, 3)
    torch.testing.assert_close(state.w, alone, rtol=0, atol=1e-10)
    after = cold.round(state, fed.at(3), fed.everyone)  # the reset
    begin = alone.mean(0).expand(10, -1)
    torch.testing.assert_close(after.trained, fed.at(3).train(begin, fed.everyone))


def test_one_step_and_two_steps_on_a_batch(data, uneven):
    fed = federation(data, uneven)
    for one, two in (("spfl-1step", "spfl"), ("spfl-w-1step", "spfl-w")):
        a = last(algorithm(one), fed, 2).w
        assert torch.equal(a, last(algorithm(two, steps_per_batch=1), fed, 2).w)
        assert not torch.allclose(a, last(algorithm(two), fed, 2).w, atol=1e-3)
    begin = fed.initial()
    twice = algorithm("spfl").round(algorithm("spfl").start(fed), fed, fed.everyone).trained
    assert torch.equal(twice, fed.train(begin, fed.everyone, repeats=2))


class Watched(Federation):
    """Remembers where local training started."""

    def train(self, start, who, **how):
        self.seen.append((self.k, how.get("tag", ""), start))
        return super().train(start, who, **how)


def watched(data, clients):
    fed = Watched(data, clients, lr=0.1, batch_size=16, dtype=torch.float64, device="cpu")
    fed.seen = []
    return fed


def test_spfl_probes_and_resets_every_period(data, groups):
    fed = watched(data, groups)
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
    fed = watched(data, groups)
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


def test_what_spfl_sends_counts_the_probes(data, groups):
    fed = federation(data, groups)
    history = run(algorithm("spfl", period=3), fed, 6, progress=False)
    once = 2 * fed.d * fed.m
    assert history.sent == [2 * once, 3 * once, 4 * once, 6 * once, 7 * once, 8 * once]
    assert history.sent[-1] == 6 * once * (1 + 1 / 3)


def test_spfl_tests_its_models_after_and_before_mixing(data, groups):
    fed = federation(data, groups)
    history = run(algorithm("spfl"), fed, 2, progress=False)
    state = history.state
    assert history.accuracy[-1] == fed.evaluate(state.w)[0].tolist()
    assert history.also["before mixing"][-1] == fed.evaluate(state.trained)[0].tolist()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_updates_are_more_alike_inside_a_group(data, seed):
    clients = partition.grouped(data, group_clients=4, seed=seed)
    fed = federation(data, clients, seed=seed)
    S = last(algorithm("spfl", period=2), fed, 3).S
    same = clients.groups[:, None] == clients.groups[None, :]
    inside = same & ~torch.eye(fed.m, dtype=torch.bool)
    for stage in S:
        assert stage[inside].mean() > stage[~same].mean() * 1.05
        assert stage[inside].min() > stage[~same].median()


# ---- all of them --------------------------------------------------------------------------------

CHANGES = [
    ("fedacs", {"p": 0.8}),
    ("spfl", {"period": 1}),
    ("spfl", {"stages": 1}),
    ("spfl", {"temperature": 0.1}),
    ("spfl", {"local_head": True}),
    ("spfl", {"rule": "size_renorm"}),
    ("spfl", {"lr_server": 0.5}),
    ("spfl-w", {"period": 1}),
    ("spfl-w", {"temperature": 0.1}),
    ("spfl-w", {"local_head": True}),
]


@pytest.mark.parametrize("name, change", CHANGES, ids=str)
def test_each_hyper_parameter_acts(data, uneven, name, change):
    fed = federation(data, uneven)
    plain = last(algorithm(name), fed, 3).w
    changed = last(algorithm(name, **change), fed, 3).w
    assert (changed - plain).norm(dim=1).mean() > 1e-2


@pytest.mark.parametrize("name", ["fedacs", *SPFL_FAMILY])
@pytest.mark.parametrize("model", ["mlp", "logistic_regression"])
def test_loop_and_stack_agree(data, uneven, name, model):
    loop, stacked = (
        last(algorithm(name), federation(data, uneven, model, engine=engine), 3)
        for engine in ("loop", "stacked")
    )
    for tensor in loop:
        torch.testing.assert_close(stacked[tensor], loop[tensor], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["fedacs", "spfl", "spfl-w"])
def test_a_resumed_run_is_the_same_run(data, uneven, name, tmp_path):
    fed = federation(data, uneven)
    method = algorithm(name, **({} if name == "fedacs" else {"period": 3}))
    whole = run(method, fed, 5, progress=False)
    run(method, fed, 2, checkpoint=tmp_path, progress=False)
    resumed = run(method, fed, 5, checkpoint=tmp_path, progress=False)
    assert resumed.accuracy == whole.accuracy and resumed.sent == whole.sent
    assert all(torch.equal(resumed.state[n], whole.state[n]) for n in whole.state)


@pytest.mark.parametrize("name", SPFL_FAMILY)
def test_spfl_refuses_to_go_without_some_clients(data, groups, name):
    with pytest.raises(ValueError, match="needs every client in every round"):
        run(algorithm(name), federation(data, groups), 2, participation=0.5, progress=False)


def test_a_local_head_needs_a_body(data, groups):
    fed = federation(data, groups, "logistic_regression")
    with pytest.raises(ValueError, match=r"local_head=True .* no other layer"):
        run(algorithm("spfl", local_head=True), fed, 1, progress=False)


BAD = [
    ("fedacs", {"p": 1.2}, r"p must lie in \[0, 1\], got 1.2"),
    ("fedacs", {"negatives": "dropp"}, "Did you mean 'drop'"),
    ("spfl", {"period": 0}, "period must be a whole number >= 1, got 0"),
    ("spfl", {"steps_per_batch": 3}, "steps_per_batch must be one of 1, 2; got 3"),
    ("spfl", {"stages": 3}, "stages must be one of 1, 2; got 3"),
    ("spfl", {"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
    ("spfl", {"rule": "soft"}, "rule must be one of 'softmax', 'size_renorm', 'literal'"),
    ("spfl", {"lr_server": -1.0}, "lr_server must be a positive finite number, got -1.0"),
    ("spfl-w", {"rule": "softmax"}, "hyper-parameter of spfl-w must be one of"),
    ("spfl-w", {"local_head": "yes"}, "local_head must be one of False, True; got 'yes'"),
]


@pytest.mark.parametrize("name, hyper, message", BAD, ids=lambda v: str(v)[:30])
def test_bad_hyper_parameters(name, hyper, message):
    with pytest.raises(ValueError, match=message):
        algorithm(name, **hyper)
