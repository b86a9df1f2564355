"""Stragglers: the timetable, FedAvg sync and async, FedAsync, LGA and PLGA."""

import pytest
import torch
from known_answers import key, known

import pfl_lib
from pfl_lib import Federation, algorithm, partition, run
from pfl_lib.formulas import fedasync_mixing
from pfl_lib.stragglers import timetable
from pfl_lib.theory import QuadraticFederation, iterate

FAMILY = ("fedavg-sync", "fedavg-async", "fedasync", "lga", "plga")
LATE = (0, 0, 1, 2, 3)  # five clients, three of them late


@pytest.fixture(scope="module")
def data():
    return pfl_lib.data.load("digits")


@pytest.fixture(scope="module")
def uneven(data):
    return partition.grouped(data, group_clients=1, group_sizes=(17, 50, 31, 60, 20))


def federation(data, clients, model="mlp", **how):
    how = {"lr": 0.1, "batch_size": 16, "dtype": torch.float64, "device": "cpu", **how}
    return Federation(data, clients, model, **how)


def last(method, fed, rounds, **how):
    return run(method, fed, rounds, evaluate_every=rounds, progress=False, **how).state


class Steps:
    """What a toy federation must know beside its clients: one SGD step of length 0.1 is a phase."""

    lr, optimizer, batch_size, epochs, seed = 0.1, "sgd", 1, 1, 0


class Toy(QuadraticFederation):
    """One gradient step on ½‖w − c‖²; remembers who trained when, and from where."""

    settings = Steps()

    def __init__(self, clients):
        c = torch.arange(4.0 * clients, dtype=torch.float64).view(clients, 4).sin()
        super().__init__(h=torch.ones_like(c), c=c)
        self.layers = [("body", slice(0, 2)), ("output", slice(2, 4))]
        self.seen = []

    def train(self, start, who, **how):
        self.seen.append((self.k, who.tolist(), start))
        return start - self.settings.lr * (start - self.c[who])


# ---- the timetable ------------------------------------------------------------------------------

# round:      0  1  2  3  4  5  6  7  8
BY_HAND = {  # pulls in these rounds, arrives in those
    0: ([0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    1: ([0, 2, 4, 6, 8], [1, 3, 5, 7]),
    2: ([0, 3, 6], [2, 5, 8]),
    3: ([0, 4, 8], [3, 7]),
}


@pytest.mark.parametrize("q", BY_HAND)
def test_timetable_of_one_delay(q):
    table = timetable([q], clients=1)
    pulls, arrivals = BY_HAND[q]
    assert [k for k in range(9) if table.pulls(k)] == pulls
    assert [k for k in range(9) if table.arrivals(k)] == arrivals
    for k in arrivals:
        assert table.pulled(k) == [k - q]  # staleness q
    assert [k for k in range(9) if table.on_time(k)] == (arrivals if q == 0 else [])


def test_timetable_of_delays_that_follow_each_other():
    table = timetable([(2, 0, 1)], clients=1)  # away 2, on time, away 1, and again
    assert [table.pulled(k)[0] for k in range(10)] == [0, 0, 0, 3, 4, 4, 6, 6, 6, 9]
    assert [k for k in range(10) if table.arrivals(k)] == [2, 3, 5, 8, 9]
    assert table.draw(10) == "0 ↓·↑↕↓↑↓·↑↕"


def test_timetable_by_name_and_by_number():
    section_4_2 = ((0,),) * 5 + ((1,), (2,), (3,), (4,), (5,))
    assert timetable("spfl", 10).delays == timetable(5, 10).delays == section_4_2
    assert timetable("spfl", 25).delays[13:] == tuple((q,) for q in [1, 2, 3, 4, 5] * 2 + [1, 2])
    assert timetable(0, 3).delays == timetable("spfl", 1).delays * 3 == ((0,),) * 3


@pytest.mark.parametrize("name", FAMILY)
def test_clients_train_when_they_arrive_from_what_they_pulled(name):
    """By hand for delays 0, 1, 2, 3; the model pulled in round r is the server's before round r."""
    fed = Toy(4)
    states = iterate(algorithm(name, stragglers=(0, 1, 2, 3)), fed, 9)
    assert [who for _, who, _ in fed.seen] == [
        *([0], [0, 1], [0, 2], [0, 1, 3], [0]),
        *([0, 1, 2], [0], [0, 1, 3], [0, 2]),
    ]
    for k, who, start in fed.seen:
        for i, row in zip(who, start):
            pulled = k - i  # client i has delay i
            assert torch.equal(row, states[pulled].x), (k, i)
            assert states[k + 1].pulled[i] == pulled
    assert not torch.equal(states[8].x, states[9].x)


@pytest.mark.parametrize("name", FAMILY)
def test_what_is_sent_follows_the_timetable(name):
    fed, method = Toy(4), algorithm(name, stragglers=(0, 1, 2, 3))
    pulls = [4, 1, 2, 2, 3, 1, 3, 1, 3]
    arrivals = [1, 2, 2, 3, 1, 3, 1, 3, 2]
    downloads = 2 if name == "plga" else 1  # the personal model goes back to those who arrive
    for k in range(9):
        expected = pulls[k] + arrivals[k] + (downloads - 1) * arrivals[k]
        assert method.sent(fed, fed.everyone, k) == 4 * expected


@pytest.mark.parametrize("name", ["fedavg-async", "fedasync", "lga", "plga"])
def test_a_round_in_which_nobody_arrives_leaves_the_server_alone(name):
    states = iterate(algorithm(name, stragglers=(2, 2)), Toy(2), 3)
    assert torch.equal(states[2].x, states[0].x) and not torch.equal(states[3].x, states[0].x)


# ---- FedAvg and FedAsync ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg-async", "fedavg-sync", "lga", "plga"])
def test_without_stragglers_it_is_fedavg(data, uneven, name):
    fed = federation(data, uneven)
    x = last(algorithm("fedavg"), fed, 3).x
    assert torch.equal(last(algorithm(name, stragglers=0, weighting="sizes"), fed, 3).x, x)


def test_fedavg_sync_is_fedavg_of_those_on_time(data, uneven):
    fed = federation(data, uneven)
    state = last(algorithm("fedavg-sync", stragglers=LATE), fed, 4)
    plain, on_time = algorithm("fedavg"), fed.everyone[:2]
    expected = plain.start(fed)
    for k in range(4):
        expected = plain.round(expected, fed.at(k), on_time)
    torch.testing.assert_close(state.x, expected.x, rtol=0, atol=1e-12)


def test_fedavg_async_averages_stale_models_as_they_are():
    fed = Toy(2)
    states = iterate(algorithm("fedavg-async", stragglers=(0, 2)), fed, 3)
    fresh = states[2].x - 0.1 * (states[2].x - fed.c[0])
    stale = states[0].x - 0.1 * (states[0].x - fed.c[1])
    torch.testing.assert_close(states[3].x, (fresh + stale) / 2)


def test_fedasync_trusts_a_late_model_less():
    """One client, two rounds late: x ← (1 − α/√3)·x + (α/√3)·w."""
    fed = Toy(1)
    states = iterate(algorithm("fedasync", stragglers=(2,), alpha=0.6), fed, 3)
    share = fedasync_mixing(0.6, 2, 0.5)
    w = states[0].x - 0.1 * (states[0].x - fed.c[0])
    torch.testing.assert_close(states[3].x, (1 - share) * states[0].x + share * w)


def test_fedasync_with_alpha_one_keeps_the_last_arrival_in_a_keyed_order(data, uneven):
    fed = federation(data, uneven)
    method = algorithm("fedasync", stragglers=0, alpha=1.0)
    winners = []
    for k in range(6):
        state = method.round(method.start(fed), fed.at(k), fed.everyone)
        distance = (state.w - state.x).norm(dim=1)
        assert distance.min() < 1e-12
        winners.append(int(distance.argmin()))
    assert len(set(winners)) > 1


# ---- LGA and PLGA -------------------------------------------------------------------------------


class Scripted(Toy):
    """The straggler of K6: pulls w^{t0}, arrives three rounds later with w_k^{t0}."""

    def __init__(self):
        super().__init__(1)
        self.start = known("K6", "w^{t0}")[None]

    def train(self, start, who, **how):
        return known("K6", "w_k^{t0}")[None]


def arrival(name, **hyper):
    fed, method = Scripted(), algorithm(name, stragglers=(3,), **hyper)
    state = method.start(fed)
    for k, x in enumerate(["w^{t0}", "w^{t1}", "w^{t1}", "w^{t_tau}"]):
        state = method.round(state.set(x=known("K6", x)), fed.at(k), fed.everyone)
    return state


@pytest.mark.parametrize(
    "hyper, answer",
    [
        ({}, "Eq.(11)"),
        ({"base": "pull"}, "Eq.(10)"),
        ({"rule": "delay_compensated"}, "delay-compensated form"),
    ],
)
def test_lga_eq10_and_eq11(hyper, answer):
    torch.testing.assert_close(arrival("lga", **hyper).x, known("K6", key("K6", answer)))


def test_lga_without_the_leap_adds_the_move_to_the_model_of_now():
    moved = known("K6", "w_k^{t0}") - known("K6", "w^{t0}")
    torch.testing.assert_close(arrival("lga", rule="none").x, known("K6", "w^{t_tau}") + moved)


def test_plga_eq12_and_eq14():
    whole, staged = arrival("plga", stages=1), arrival("plga")
    torch.testing.assert_close(whole.x, known("K6", "Eq.(11)"))
    torch.testing.assert_close(whole.p[0], known("K6", "Eq.(12) with (11)"))
    old = arrival("plga", stages=1, base="pull")
    torch.testing.assert_close(old.p[0], known("K6", "Eq.(12) with (10)"))
    torch.testing.assert_close(staged.x, known("K6", "staged Eq.(11)"))
    torch.testing.assert_close(staged.p[0], known("K6", "staged PLGA Eq.(14) with (11)"))


def test_lga_one_round_late_is_w_next_plus_the_move():
    """For delay 1 the printed leap is zero."""
    fed = Toy(2)
    states = iterate(algorithm("lga", stragglers=(0, 1)), fed, 2)
    moved = -0.1 * (states[0].x - fed.c[1])
    fresh = states[1].x - 0.1 * (states[1].x - fed.c[0])
    torch.testing.assert_close(states[2].x, (fresh + states[1].x + moved) / 2)
    none = iterate(algorithm("lga", stragglers=(0, 1), rule="none"), Toy(2), 2)
    torch.testing.assert_close(states[2].x, none[2].x)


def test_lga_remembers_the_model_after_the_pull(data, uneven):
    fed = federation(data, uneven)
    states = iterate(algorithm("lga", stragglers=(0, 2, 3, 3, 5)), fed, 4)
    for i in (1, 2, 3, 4):  # all pulled in round 0
        assert torch.equal(states[2].next[i], states[1].x)
        assert torch.equal(states[2].pull[i], states[0].x)
    assert torch.equal(states[4].next[4], states[1].x)  # and keeps it


def test_lga_from_the_pull_without_a_leap_is_fedavg_async(data, uneven):
    fed = federation(data, uneven)
    plain = last(algorithm("fedavg-async", stragglers=LATE, weighting="equal"), fed, 6).x
    stale = last(algorithm("lga", stragglers=LATE, base="pull", rule="none"), fed, 6).x
    torch.testing.assert_close(stale, plain, rtol=0, atol=1e-12)


def test_local_steps_of_the_delay_compensated_form(data, uneven):
    """E is what the engine really does: all batches of all epochs, or the number of steps."""
    fed = federation(data, uneven, epochs=2)
    by_epoch = algorithm("lga", stragglers=LATE, rule="delay_compensated")
    assert by_epoch.steps(fed, fed.everyone).flatten().tolist() == [4, 8, 4, 8, 4]
    assert algorithm("lga", local_steps=7).steps(fed, fed.everyone) == 7
    with pytest.raises(ValueError, match="reads gradients off SGD steps"):
        run(by_epoch, federation(data, uneven, optimizer="adam"), 1, progress=False)


def test_personal_models_lie_between_prediction_and_server_and_never_come_back(data, uneven):
    fed = federation(data, uneven)
    lga = iterate(algorithm("lga", stragglers=LATE, rule="none"), fed, 4)
    plga = iterate(algorithm("plga", stragglers=LATE, rule="none", stages=1), fed, 4)
    assert all(torch.equal(a.x, b.x) for a, b in zip(lga, plga))
    x_new, x_old, state = plga[4].x, plga[3].x, plga[4]  # in round 3 clients 0, 1, 2, 4 arrive
    assert torch.equal(state.p[3], plga[3].p[3])  # client 3 keeps what it took home in round 2
    for i in (0, 1, 2, 4):
        now = x_new if i < 2 else x_old
        moved = state.w[i] - state.pull[i]
        share = 1 - (state.p[i] - now) @ moved / (moved @ moved)  # p = now + (1 − S̃)·Δ
        torch.testing.assert_close(state.p[i], now + (1 - share) * moved)
        assert 0.1192 <= share <= 0.5


def test_what_is_tested_and_what_beside_it(data, uneven):
    fed = federation(data, uneven)
    for name, personal, also in (
        ("fedasync", lambda s: s.x.expand(5, -1), {"client": lambda s: s.w}),
        ("lga", lambda s: s.x.expand(5, -1), {"client": lambda s: s.w}),
        ("plga", lambda s: s.p, {"server": lambda s: s.x.expand(5, -1), "client": lambda s: s.w}),
    ):
        history = run(algorithm(name, stragglers=LATE), fed, 2, progress=False)
        assert history.accuracy[-1] == fed.evaluate(personal(history.state))[0].tolist()
        assert {n: rows[-1] for n, rows in history.also.items()} == {
            n: fed.evaluate(model(history.state))[0].tolist() for n, model in also.items()
        }


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_moving_late_models_to_now_helps_the_server(data, seed):
    """Eq. (11) against averaging stale models, with half of the clients late."""
    fed = federation(data, partition.grouped(data, group_clients=2, seed=seed), seed=seed)
    stale, leapt = (
        run(algorithm(name), fed, 12, evaluate_every=12, progress=False)
        for name in ("fedavg-async", "plga")
    )
    server = sum(leapt.also["server"][-1]) / fed.m
    assert server > stale.last
    assert leapt.last > server  # and the personal models are better still on skewed clients


# ---- all of them --------------------------------------------------------------------------------

CHANGES = [
    ("fedavg-async", {"stragglers": 0}),
    ("fedavg-async", {"weighting": "equal"}),
    ("fedavg-async", {"local_steps": 1}),
    ("fedavg-sync", {"weighting": "equal"}),
    ("fedasync", {"alpha": 0.4}),
    ("fedasync", {"staleness_power": 2.0}),
    ("fedasync", {"rho": 1.0}),
    ("lga", {"base": "pull"}),
    ("lga", {"rule": "none"}),
    ("lga", {"rule": "delay_compensated"}),
    ("lga", {"weighting": "sizes"}),
    ("plga", {"stages": 1}),
    ("plga", {"base": "pull"}),
]


@pytest.mark.parametrize("name, change", CHANGES, ids=str)
def test_each_hyper_parameter_acts(data, uneven, name, change):
    fed = federation(data, uneven)
    late = {"stragglers": LATE}
    plain = algorithm(name, **late)
    other = algorithm(name, **{**late, **change})
    a, b = (method.personal(last(method, fed, 5), fed) for method in (plain, other))
    least = 1e-5 if "rule" in change else 1e-3  # the leap term is that small
    assert (a - b).norm(dim=1).mean() > least


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("model", ["mlp", "logistic_regression"])
def test_loop_and_stack_agree(data, uneven, name, model):
    loop, stacked = (
        last(algorithm(name, stragglers=LATE), federation(data, uneven, model, engine=engine), 4)
        for engine in ("loop", "stacked")
    )
    for tensor in loop:
        torch.testing.assert_close(stacked[tensor], loop[tensor], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", FAMILY)
def test_resumed_in_the_middle_of_an_absence_it_is_the_same_run(data, uneven, name, tmp_path):
    fed = federation(data, uneven)
    method = algorithm(name, stragglers=(0, 1, 4, 2, (3, 1)))
    whole = run(method, fed, 7, progress=False)
    run(method, fed, 2, checkpoint=tmp_path, progress=False)  # three clients are away now
    resumed = run(method, fed, 7, checkpoint=tmp_path, progress=False)
    assert resumed.accuracy == whole.accuracy and resumed.also == whole.also
    assert resumed.sent == whole.sent
    assert all(torch.equal(resumed.state[n], whole.state[n]) for n in whole.state)


@pytest.mark.parametrize("name", FAMILY)
def test_the_timetable_says_who_takes_part(data, uneven, name):
    fed = federation(data, uneven)
    with pytest.raises(ValueError, match="needs every client in every round"):
        run(algorithm(name), fed, 2, participation=0.5, progress=False)
    method = algorithm(name)
    with pytest.raises(ValueError, match="who must hold all 5 clients, got 2"):
        method.round(method.start(fed), fed, fed.everyone[:2])


BAD = [
    ("lga", {"stragglers": -1}, "stragglers must be a whole number >= 0, got -1"),
    ("lga", {"stragglers": "half"}, "stragglers must be one of 'spfl'; got 'half'"),
    ("lga", {"stragglers": (0, 1.5)}, "each delay in stragglers must be a whole number >= 0"),
    ("lga", {"stragglers": (0, ())}, "a client with no delay at all"),
    ("lga", {"base": "then"}, "base must be one of 'now', 'pull'; got 'then'"),
    ("lga", {"rule": "prnted"}, "Did you mean 'printed'"),
    ("lga", {"weighting": "size"}, "Did you mean 'sizes'"),
    ("plga", {"stages": 3}, "stages must be one of 1, 2; got 3"),
    ("fedasync", {"alpha": 0.0}, r"alpha must lie in \(0, 1\], got 0.0"),
    ("fedasync", {"alpha": 1.5}, r"alpha must lie in \[0, 1\], got 1.5"),
    ("fedasync", {"staleness_power": -1.0}, "staleness_power must be a non-negative"),
    ("fedasync", {"rho": -1.0}, "rho must be a non-negative finite number, got -1.0"),
    ("fedavg-async", {"local_steps": 0}, "local_steps must be a whole number >= 1, got 0"),
]


@pytest.mark.parametrize("name, hyper, message", BAD, ids=lambda v: str(v)[:30])
def test_bad_hyper_parameters(name, hyper, message):
    with pytest.raises(ValueError, match=message):
        algorithm(name, **hyper)


def test_timetables_that_do_not_fit_the_federation():
    with pytest.raises(ValueError, match="one entry for each of the 3 clients, got 2"):
        algorithm("lga", stragglers=(0, 1)).start(Toy(3))
    with pytest.raises(ValueError, match="stragglers must be at most 3, the clients; got 4"):
        algorithm("lga", stragglers=4).start(Toy(3))
    with pytest.raises(ValueError, match="needs a client that is on time, but all 2 are late"):
        algorithm("fedavg-sync", stragglers=(1, (2, 3))).start(Toy(2))
