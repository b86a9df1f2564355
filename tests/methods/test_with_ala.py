"""ALA on other methods: each client begins at its own mix, and all else is the method's."""

import pytest
import torch

import pfl_lib
from pfl_lib import algorithm, run, train
from pfl_lib.methods import with_ala
from tests.support.methods import (
    go,
    quick_ala,
    watched,
)


def test_fedavg_with_ala_is_fedala(federation):
    fed = federation()
    one, other = algorithm("fedala", **quick_ala()), with_ala(algorithm("fedavg"), **quick_ala())
    options = {"participation": 0.8, "progress": False}
    first, second = (run(method, fed, 3, **options) for method in (one, other))
    assert all(torch.equal(first.state[n], second.state[n]) for n in first.state)
    assert first.accuracy == second.accuracy and first.sent == second.sent
    assert (other.label, other.name) == ("FedAvg+ALA", "fedavg+ala")


LENT = {  # every method of the paper's table, and those that pass messages
    "fedprox": {},
    "per-fedavg": {},
    "pfedme": {},
    "ditto": {},
    "fedphp": {},
    "fedrep": {"head_epochs": 2},
    "partialfed": {},
    "fedamp": {"self_weight": 0.5},
    "heurfedamp": {},
    "fedacs": {},
}


@pytest.mark.parametrize("name", LENT)
def test_without_layers_the_method_is_what_it_was_and_with_one_it_is_not(federation, name):
    fed, base = federation(), algorithm(name, **LENT[name])
    plain = go(base, fed, 3)
    mixed = go(with_ala(base, ala_layers=0), fed, 3)
    assert all(torch.equal(mixed[tensor], plain[tensor]) for tensor in plain)
    mixed = go(with_ala(base, ala_layers=1, **quick_ala()), fed, 3)
    model = "w" if "w" in plain else "x"
    assert (mixed[model] - plain[model]).norm() > 1e-3
    assert (mixed.ala_weights < 1).any()


def test_every_row_of_the_applicability_table_can_be_had():
    table = pfl_lib.book.papers.table("fedala", 4)
    names = {method.label: method.name for method in pfl_lib.methods.ALL}
    lent = [row for row in table.rows if table[row, "Tiny-ImageNet, with ALA"].mean is not None]
    assert len(lent) == 9
    for label in lent:
        name = names[label]
        assert with_ala(algorithm(name, **LENT.get(name, {}))).label == f"{label}+ALA"


def test_with_ala_fedamp_starts_at_the_mix_and_is_pulled_to_the_message(federation):
    fed, method = federation(), with_ala(algorithm("fedamp", self_weight=0.5), **quick_ala())
    here, asked = watched(fed.at(1))
    state = method.round(go(method, fed, 1), here, fed.everyone)
    (rows,) = (work.rows for work, _ in asked if work.step == "descend")
    assert torch.equal(rows["w"], state.ala_begin)
    assert torch.equal(rows["center"], state.u)
    assert not torch.equal(state.ala_begin, state.u)
    assert torch.equal(state.ala_own, state.w) and torch.equal(method.personal(state, fed), state.w)


def test_with_ala_fedreps_head_is_the_clients_own(federation):
    fed, method = federation(), with_ala(algorithm("fedrep", head_epochs=2), **quick_ala())
    before = go(method, fed, 1)
    after = method.round(before, fed.at(1), fed.everyone)
    head = fed.head_mask
    assert torch.equal(after.ala_begin[:, head], before.w[:, head])
    assert (after.ala_weights[:, head[method.top(fed)]] == 1).all()
    assert (after.ala_weights[:, ~head[method.top(fed)]] < 1).any()
    assert torch.equal(after.ala_own, after.w)
    tested = method.personal(after, fed)  # the mixed body with the head of today
    assert torch.equal(tested[:, head], after.w[:, head])
    assert torch.equal(tested[:, ~head], after.ala_begin[:, ~head])
    with pytest.raises(ValueError, match=r"ala_layers must be at most 1, .* got 2"):
        with_ala(algorithm("fedrep"), ala_layers=2).start(fed)


def test_with_ala_dittos_own_model_is_what_it_trained_from_the_mix(federation):
    """In the first round v equals the download too, and is trained after it."""
    fed, method = federation(), with_ala(algorithm("ditto", lam=0.5), **quick_ala())
    state = go(method, fed, 1)
    assert not torch.equal(state.ala_own, state.v)
    first = train(fed, state.ala_begin, fed.everyone)
    assert torch.equal(state.ala_own, first)


def test_with_ala_partialfed_chooses_between_the_mix_and_the_own_model(federation):
    fed, method = federation(), with_ala(algorithm("partialfed"), **quick_ala())
    before = go(method, fed, 1)
    here, asked = watched(fed.at(1))
    after = method.round(before, here, fed.everyone)
    (rows,) = (work.rows for work, _ in asked if work.step == "partialfed")
    assert torch.equal(rows["w"], after.ala_begin) and torch.equal(rows["own"], before.w)


def test_with_ala_dittos_personal_model_is_tied_to_the_mix(federation):
    fed, method = federation(), with_ala(algorithm("ditto"), **quick_ala())
    here, asked = watched(fed.at(1))
    state = method.round(go(method, fed, 1), here, fed.everyone)
    shared, personal = (work.rows for work, _ in asked if work.step == "descend")
    assert torch.equal(shared["w"], state.ala_begin)
    assert torch.equal(personal["center"], state.ala_begin)
    assert not torch.equal(state.ala_begin[0], state.ala_begin[1])
    assert torch.equal(method.personal(state, fed), state.v)


def test_with_ala_fine_tuning_and_adaptation_start_at_the_mix(federation):
    fed = federation()
    for name in ("fedavg-ft", "per-fedavg"):
        method = with_ala(algorithm(name), **quick_ala())
        here, asked = watched(fed.at(2))
        state = go(method, fed, 2)
        method.personal(state, here)
        assert torch.equal(asked[-1][0].rows["w"], state.ala_begin)


REFUSED = ("separate", "fedfomo", "apple", "scaffold", "fedala", "fedavg-c")


@pytest.mark.parametrize("name", REFUSED)
def test_methods_without_one_model_to_begin_from_are_refused(name):
    with pytest.raises(ValueError, match=r"must hand every client one model .* does not"):
        with_ala(algorithm(name))


def test_with_ala_wants_messages_that_are_begun_from():
    with pytest.raises(ValueError, match=r"FedAMP with begin='w' .* allowed is begin='u'"):
        with_ala(algorithm("fedamp", self_weight=0.5, begin="w"))


def test_with_ala_wants_a_method():
    assert with_ala("fedavg").settings() == with_ala(algorithm("fedavg")).settings()
    with pytest.raises(TypeError, match=r"algorithm must be a method such as .*, got 3"):
        with_ala(3)


def test_fedbabu_mixes_the_top_of_the_body_since_its_head_never_moves(federation):
    fed, method = federation(), with_ala(algorithm("fedbabu"), ala_layers=1, **quick_ala())
    first = method.top(fed).start
    starts = [place.start for _, place in fed.layers]
    assert first == max(start for start in starts if not fed.head_mask[start])
    assert algorithm("fedala").top(fed).start == max(starts)  # FedALA's head does move
    state = go(method, fed, 2)
    assert torch.equal(state.x[fed.head_mask], fed.initial()[0][fed.head_mask])
    assert (state.ala_weights < 1).any()
