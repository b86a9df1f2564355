"""Clients that come after training: each method serves them as it says, and all of them do."""

import math
from dataclasses import replace

import pytest
import torch

from pfl_lib import (
    Federation,
    Prox,
    algorithm,
    formulas,
    methods,
    partition,
    serve_newcomers,
    train,
)
from pfl_lib.methods import State, with_ala
from pfl_lib.newcomers import Served, compare_newcomers
from tests.support.methods import close, go, quick_ala, small_federation
from tests.support.runs import quick_method

every_method = pytest.mark.parametrize("name", methods.names())


@pytest.fixture(scope="module")
def parts(data):
    """Five members and two newcomers with 30 samples each."""
    clients = partition.dirichlet(data, clients=7, a=1.0, min_size=30)
    return partition.set_aside(partition.scarce(clients, samples=30), [1, 4])


@pytest.fixture(scope="module")
def feds(data, parts):
    return [small_federation(data, part) for part in parts]


def served(method, feds, rounds=2):
    fed, newcomers = feds
    state = go(method, fed, rounds)
    return state, serve_newcomers(method, state, fed.at(rounds), newcomers)


# ---- all of them --------------------------------------------------------------------------------
@every_method
def test_every_method_serves_newcomers_as_it_says(data, parts, feds, name):
    (fed, newcomers), method = feds, quick_method(name)
    state = go(method, fed, 2)
    before = {key: tensor.clone() for key, tensor in state.items()}
    found = serve_newcomers(method, state, fed.at(2), newcomers)
    assert found.models.shape == (newcomers.m, fed.d) and torch.isfinite(found.models).all()
    close(found.accuracy, newcomers.evaluate(found.models)[0])
    assert 0 <= found.worst <= found.mean <= 1 and method.newcomer in repr(found)
    _words_and_models_agree(method.newcomer, state, found.models)
    assert all(torch.equal(state[key], tensor) for key, tensor in before.items())  # of the members

    def again(which, **options):
        members, late = (small_federation(data, part, **options) for part in which)
        return method.newcomer_models(state, members.at(2), late)

    other_tests = replace(parts[1], test=[index.flip(0)[:5] for index in parts[1].test])
    assert torch.equal(found.models, again((parts[0], other_tests)))  # only tested on
    close(found.models, again(parts, engine="loop"))


def _words_and_models_agree(words, state, models):
    """Whoever says "the global model" gives exactly that; local work gives each its own."""
    assert words
    if "normalization" in words or "statistics" in words:  # this model has none: all is shared
        assert torch.equal(models, state.x.expand_as(models))
    elif "local" in words or "alone" in words:
        assert (models[0] - models[1]).norm() > 1e-4
    elif words.startswith(("the global model", "the server's model")):
        assert torch.equal(models, state.x.expand_as(models))


# ---- some, by hand ------------------------------------------------------------------------------
def test_alone_is_training_alone(feds):
    _, newcomers = feds
    _, found = served(algorithm("separate"), feds)
    alone = train(newcomers, newcomers.initial(), newcomers.everyone, tag="newcomer")
    assert torch.equal(found.models, alone)


def test_fine_tuning_methods_tune_the_global_model_on_the_newcomers_data(feds):
    _, newcomers = feds
    state, found = served(algorithm("fedavg-ft", ft_epochs=3), feds)
    x = state.x.expand(newcomers.m, -1)
    close(found.models, train(newcomers, x, newcomers.everyone, epochs=3, tag="fine-tune"))


def test_ditto_begins_at_the_global_model_and_stays_near_it(feds):
    _, newcomers = feds
    state, found = served(algorithm("ditto", lam=0.5, personal_epochs=3), feds)
    x = state.x.expand(newcomers.m, -1)
    tie = Prox(x, 0.5)
    close(
        found.models,
        train(newcomers, x, newcomers.everyone, prox=tie, epochs=3, tag="personal"),
    )


def test_fedrep_takes_the_body_and_trains_a_head(feds):
    fed, newcomers = feds
    state, found = served(algorithm("fedrep", head_epochs=2), feds)
    x, head = state.x.expand(newcomers.m, -1), fed.head_mask
    assert torch.equal(found.models[:, ~head], x[:, ~head])
    fresh = torch.where(head, newcomers.initial(), x)
    trained = train(newcomers, fresh, newcomers.everyone, mask=head, epochs=2, tag="head")
    close(found.models, trained)


def test_apfl_mixes_the_global_model_with_a_copy(feds):
    state, found = served(algorithm("apfl", alpha=0.25, adapt="never"), feds)
    apart = (found.models - state.x).norm(dim=1)
    _, more = served(algorithm("apfl", alpha=0.75, adapt="never"), feds)
    assert (apart > 0).all()
    nothing, none = served(algorithm("apfl", alpha=0.0, adapt="never"), feds)
    close(none.models, nothing.x.expand_as(none.models))
    assert (more.models != found.models).any()


def test_fedala_mixes_a_trained_copy_into_the_top_layers_only(feds):
    fed, _ = feds
    method = algorithm("fedala", ala_layers=1, **quick_ala())
    state, found = served(method, feds)
    top = method.top(fed)
    assert torch.equal(found.models[:, : top.start], state.x[: top.start].expand(2, -1))
    assert (found.models[:, top] != state.x[top]).any(1).all()


def test_fedamp_newcomers_hear_their_own_message(feds):
    _, newcomers = feds
    method = algorithm("fedamp", self_weight=0.3, sigma=2.0, prox_beta=5.0)
    state, found = served(method, feds)
    everyone = newcomers.everyone
    own = train(newcomers, newcomers.initial(), everyone, tag="newcomer")
    messages = []
    for w in own:  # each alone with the members
        stack = torch.cat([state.w, w[None]])
        attention = method.attention_for(stack)
        messages.append(formulas.attention_weights(stack, attention, 0.3)[-1] @ stack)
    u = torch.stack(messages)
    close(found.models, train(newcomers, u, everyone, prox=Prox(u, 1 / 5.0)))


def test_pfedgraph_newcomers_get_their_row_of_the_graph(feds):
    fed, newcomers = feds
    state, found = served(algorithm("pfedgraph", lam=0.0), feds)
    everyone, start = newcomers.everyone, newcomers.initial()
    own = train(newcomers, start, everyone, tag="newcomer")
    mixtures = []
    for w, size in zip(own, newcomers.sizes):  # each alone with the members
        stack, sizes = torch.cat([state.w, w[None]]), torch.cat([fed.sizes, size[None]])
        similar = formulas.cosine_similarities(stack - start[0])
        mixtures.append(formulas.pfedgraph_weights(similar, sizes / sizes.sum(), 0.8)[-1] @ stack)
    close(found.models, train(newcomers, torch.stack(mixtures), everyone))
    _, turned = served(algorithm("pfedgraph", lam=1.0), feds)
    assert (turned.models - found.models).norm(dim=1).min() > 1e-4


def test_fedfomo_newcomers_move_to_models_that_help(feds):
    state, found = served(algorithm("fedfomo"), feds)
    mean = state.w.mean(0)
    assert not torch.equal(found.models[0], found.models[1]) and (found.models != mean).any()


def test_apple_newcomers_begin_at_the_mean_of_the_cores(feds):
    fed, newcomers = feds
    still = algorithm("apple", lr_p=1e-12, lr_core=1e-12)
    state, found = served(still, feds)
    mean = formulas.weighted_average(state.core, fed.sizes).expand(newcomers.m, -1)
    close(found.models, mean, atol=1e-8)
    _, learned = served(algorithm("apple", lr_p=0.1), feds)
    assert (learned.models - mean).norm(dim=1).min() > 1e-3


def test_without_a_global_model_it_is_the_mean_trained_at_home(feds):
    fed, newcomers = feds
    state, found = served(algorithm("spfl", period=2), feds)
    mean = formulas.weighted_average(state.w, fed.sizes).expand(newcomers.m, -1)
    close(found.models, train(newcomers, mean, newcomers.everyone, tag="newcomer"))


def test_ala_in_front_serves_as_the_method_behind_it(feds):
    method = with_ala(algorithm("ditto"), **quick_ala())
    state, found = served(method, feds)
    plain = algorithm("ditto").newcomer_models(state, *feds)
    assert torch.equal(found.models, plain) and found.received == algorithm("ditto").newcomer


# ---- measured -----------------------------------------------------------------------------------
def test_in_hidden_groups_a_message_serves_newcomers_better_than_one_model(data):
    """Fifteen clients in three groups that name the classes differently; one of each comes late."""
    thirds = [(0, 1, 2), (3, 4, 5), (6, 7, 8, 9)]
    sizes = {"group_clients": [5] * 3, "group_sizes": [40] * 3, "test_size": 20}
    clients = partition.grouped(data, group_classes=thirds, **sizes)
    named = partition.conflicting_labels(clients, data)
    options = {"lr": 0.1, "batch_size": 10, "epochs": 2, "device": "cpu"}
    fed, newcomers = (
        Federation(named, part, "mlp", **options)
        for part in partition.set_aside(clients, [4, 9, 14])
    )
    some = {n: algorithm(n, **methods.BY_NAME[n].needs) for n in ("separate", "fedavg", "fedamp")}
    table = compare_newcomers(fed, newcomers, rounds=10, algorithms=some, progress=False)
    mean = {row[0]: float(row[2]) for row in table.rows}
    assert mean["fedamp"] > mean["fedavg"] + 0.1 and mean["fedamp"] > mean["separate"] + 0.1
    assert "a newcomer gets" in table._repr_html_()


# ---- who is set aside, and what is refused ------------------------------------------------------
def test_set_aside_keeps_every_client_once(data):
    clients = partition.grouped(
        data, group_clients=[2] * 5, group_sizes=[20] * 5, test_size=10, seed=3
    )
    noisy = partition.label_noise(clients, data)
    members, late = partition.set_aside(noisy, [7, 2])
    for part in ("train", "test", "labels"):
        rows = getattr(noisy, part)
        assert all(torch.equal(a, rows[i]) for a, i in zip(getattr(late, part), (2, 7)))
        rest = [i for i in range(10) if i not in (2, 7)]
        assert all(torch.equal(a, rows[i]) for a, i in zip(getattr(members, part), rest))
    assert late.groups.tolist() == noisy.groups[[2, 7]].tolist() and members.m == 8


def test_what_does_not_fit_is_refused(data, parts, feds):
    (fed, newcomers), method = feds, algorithm("fedavg")
    state = go(method, fed, 1)
    other = Federation(data, parts[1], "logistic_regression", device="cpu")
    with pytest.raises(ValueError, match=r"newcomers must have the model of fed, .* got 'logistic"):
        serve_newcomers(method, state, fed, other)
    with pytest.raises(ValueError, match=r"state must be that of a run of Ditto on fed with v of"):
        serve_newcomers(algorithm("ditto"), state, fed, newcomers)
    with pytest.raises(ValueError, match=r"state must be that of a run of FedAMP.*got State\(w"):
        fedamp = algorithm("fedamp", self_weight=0.3)
        serve_newcomers(fedamp, go(fedamp, newcomers, 1), fed, newcomers)
    with pytest.raises(TypeError, match=r"state must be the State that a run ended in"):
        serve_newcomers(method, None, fed, newcomers)
    with pytest.raises(ValueError, match="state must be that of a run of FedAvg"):
        serve_newcomers(method, State(), fed, newcomers)


def test_members_are_no_newcomers(data, feds, parts):
    """Whoever has trained the models, or whose test samples somebody has trained on."""
    fed, late = feds
    state = go(algorithm("fedavg"), fed, 1)
    leaked = replace(parts[1], test=[parts[0].train[0], parts[1].test[1]])
    for wrong, count in ((fed, 150), (small_federation(data, leaked), 30)):
        with pytest.raises(ValueError, match=f"newcomers must hold no sample .* got {count}"):
            serve_newcomers("fedavg", state, fed, wrong)
        with pytest.raises(ValueError, match="newcomers must hold no sample"):
            compare_newcomers(fed, wrong, 1, {"one": "fedavg"}, progress=False)
    assert serve_newcomers("fedavg", state, fed, late).mean > 0


def test_newcomers_without_a_measured_test_have_no_worst():
    lost = torch.full((2,), math.nan)
    assert math.isnan(Served("FedAvg", "the global model", lost, lost).worst)
