"""What the asynchronous methods share: the timetable, pulls, arrivals, and what is sent."""

import pytest
import torch

from pfl_lib import algorithm, run
from pfl_lib.book.theory import iterate
from pfl_lib.stragglers import timetable
from tests.support.methods import (
    LATE,
    last,
    plain_federation,
)
from tests.support.quadratics import (
    LateToy,
)

FAMILY = ("fedavg-sync", "fedavg-async", "fedasync", "lga", "plga")
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
    assert timetable("alternating", 10).delays[5:] == ((1, 0), (2, 0), (3, 0), (4, 0), (5, 0))
    assert timetable("alternating", 10).delays[:5] == ((0,),) * 5
    assert timetable(0, 3).delays == timetable("spfl", 1).delays * 3 == ((0,),) * 3


@pytest.mark.parametrize("name", FAMILY)
def test_clients_train_when_they_arrive_from_what_they_pulled(name):
    """By hand for delays 0, 1, 2, 3; the model pulled in round r is the server's before round r."""
    fed = LateToy(4)
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
    fed, method = LateToy(4), algorithm(name, stragglers=(0, 1, 2, 3))
    pulls = [4, 1, 2, 2, 3, 1, 3, 1, 3]
    arrivals = [1, 2, 2, 3, 1, 3, 1, 3, 2]
    downloads = 2 if name == "plga" else 1  # the personal model goes back to those that arrive
    for k in range(9):
        expected = pulls[k] + arrivals[k] + (downloads - 1) * arrivals[k]
        assert method.sent(fed, fed.everyone, k) == 4 * expected


@pytest.mark.parametrize("name", ["fedavg-async", "fedasync", "lga", "plga"])
def test_a_round_in_which_nobody_arrives_leaves_the_server_alone(name):
    states = iterate(algorithm(name, stragglers=(2, 2)), LateToy(2), 3)
    assert torch.equal(states[2].x, states[0].x) and not torch.equal(states[3].x, states[0].x)


@pytest.mark.parametrize("name", ["fedavg-async", "fedavg-sync", "lga", "plga"])
def test_without_stragglers_it_is_fedavg(data, uneven, name):
    fed = plain_federation(data, uneven)
    x = last(algorithm("fedavg"), fed, 3).x
    assert torch.equal(last(algorithm(name, stragglers=0, weighting="sizes"), fed, 3).x, x)


def test_what_is_tested_and_what_beside_it(data, uneven):
    fed = plain_federation(data, uneven)
    for name, personal, also in (
        ("fedasync", lambda s: s.x.expand(5, -1), {"client": lambda s: s.w}),
        ("lga", lambda s: s.x.expand(5, -1), {"client": lambda s: s.w}),
        ("plga", lambda s: s.p, {"server": lambda s: s.x.expand(5, -1), "client": lambda s: s.w}),
    ):
        history = run(algorithm(name, stragglers=LATE), fed, 2, progress=False)
        assert history.accuracy[-1] == fed.evaluate(personal(history.state))[0].tolist()
        assert {n: rows[-1] for n, rows in history.extra_models.items()} == {
            n: fed.evaluate(model(history.state))[0].tolist() for n, model in also.items()
        }


@pytest.mark.parametrize("name", FAMILY)
def test_resumed_in_the_middle_of_an_absence_it_is_the_same_run(data, uneven, name, tmp_path):
    fed = plain_federation(data, uneven)
    method = algorithm(name, stragglers=(0, 1, 4, 2, (3, 1)))
    whole = run(method, fed, 7, progress=False)
    run(method, fed, 2, checkpoint=tmp_path, progress=False)  # three clients are away now
    resumed = run(method, fed, 7, checkpoint=tmp_path, progress=False)
    assert resumed.accuracy == whole.accuracy and resumed.extra_models == whole.extra_models
    assert resumed.sent == whole.sent
    assert all(torch.equal(resumed.state[n], whole.state[n]) for n in whole.state)


@pytest.mark.parametrize("name", FAMILY)
def test_the_timetable_says_who_takes_part(data, uneven, name):
    fed = plain_federation(data, uneven)
    with pytest.raises(ValueError, match="needs every client in every round"):
        run(algorithm(name), fed, 2, participation=0.5, progress=False)
    method = algorithm(name)
    with pytest.raises(ValueError, match="who must hold all 5 clients, got 2"):
        method.round(method.start(fed), fed, fed.everyone[:2])


def test_timetables_that_do_not_fit_the_federation():
    with pytest.raises(ValueError, match="one entry for each of the 3 clients, got 2"):
        algorithm("lga", stragglers=(0, 1)).start(LateToy(3))
    with pytest.raises(ValueError, match="stragglers must be at most 3, the clients; got 4"):
        algorithm("lga", stragglers=4).start(LateToy(3))
