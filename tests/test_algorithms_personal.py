"""FedALA, ALA on other methods, FedPHP, FedFomo, APPLE and PartialFed."""

import copy
from types import SimpleNamespace

import pytest
import torch
from known_answers import assert_known, known

import pfl_lib
from pfl_lib import Federation, algorithm, partition, run
from pfl_lib.algorithms import with_ala
from pfl_lib.algorithms.fedfomo import split
from pfl_lib.training import Samples, Settings

ENGINES = ("loop", "stacked")
FIRST = torch.tensor([0])
HOLD = 1e-300  # a learning rate too small to move anything


def go(method, fed, rounds):
    """The state after some rounds with everyone."""
    state = method.start(fed)
    for k in range(rounds):
        state = method.round(state, fed.at(k), fed.everyone)
    return state


def close(a, b, atol=1e-10):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def all_close(a, b):
    assert set(a) == set(b)
    for tensor in a:
        close(a[tensor], b[tensor])


class Quadratic(Federation):
    """Client i has F_i(w) = ½·Σ_q h_iq·(w_q − c_iq)² and ``sizes[i]`` samples that all say so; the
    engines, batches and weights are the real ones."""

    def __init__(self, h, c, start, sizes, engine, epochs=1):
        def loss(w, batch):
            h, c = batch.x.chunk(2, -1)
            each = 0.5 * (h * (w - c) ** 2).sum(-1)
            return (each * batch.weight).sum() / batch.weight.sum()

        self.settings = Settings(lr=0.1, optimizer="sgd", batch_size=10, epochs=epochs, seed=0)
        self.engine, self.device, self.dtype, self.k = engine, start.device, start.dtype, 0
        self.network = SimpleNamespace(
            loss=loss, logits=None, features=None, dense=None, d=len(start)
        )
        self.model_name, self._initial = "quadratic", start
        index = tuple(torch.full((n,), i) for i, n in enumerate(sizes))
        self.partition = SimpleNamespace(train=index)
        self.sizes = torch.tensor(sizes, dtype=self.dtype)
        samples = torch.cat([h, c], 1)
        self._train_samples = Samples(lambda i: samples[i], index, index)


# ---- K7: the weights of ALA on a quadratic, through the engines ---------------------------------

OWN, GLOBAL, CENTRE = (
    known("K7", key) for key in ("Theta_i (local)", "Theta (global)", "loss 0.5||Theta^-c||^2, c")
)


def k7(engine, layers=((0, 3),)):
    """One client, its own model Θ_i, the download Θ, and ½‖Θ̂ − c‖² as its loss."""
    fed = Quadratic(torch.ones_like(CENTRE)[None], CENTRE[None], GLOBAL, [1], engine)
    fed.layers = [(str(ends), slice(*ends)) for ends in layers]
    return fed


def passes(method, fed, count):
    """The states after 1, 2, … times that the client mixes, its first time behind it."""
    state = method.start(fed).set(ala_own=OWN[None], ala_started=torch.tensor([True]))
    states = []
    for _ in range(count):
        state = method.aggregate(state, GLOBAL[None], fed, FIRST)
        states.append(state)
    return states


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("eta", ["0.1", "1"])
def test_k7_ala_step(engine, eta):
    states = passes(algorithm("fedala", ala_lr=float(eta)), k7(engine), 3)
    weights = torch.cat([state.ala_weights for state in states])
    assert_known(weights, "K7", f"eta={eta}: W after steps 1,2,3 (clipped)")
    assert_known(states[-1].ala_begin[0], "K7", f"eta={eta}: Theta^ after step 3")


@pytest.mark.parametrize("engine", ENGINES)
def test_k7_below_the_top_layers_the_download_is_taken_whole(engine):
    fed = k7(engine, layers=((0, 1), (1, 3)))
    (state,) = passes(algorithm("fedala", ala_lr=0.1), fed, 1)
    key = "range: only coordinates 1,2 learnable, eta=.1: W^p after 1 step"
    assert_known(state.ala_weights[0], "K7", key)
    key = "range: Theta^ after 1 step (coordinate 0 overwritten by global)"
    assert_known(state.ala_begin[0], "K7", key)


def test_k7_the_first_time_lasts_until_convergence():
    method = algorithm("fedala", ala_lr=0.8, tol=1e-14, max_epochs=200)
    fed = k7("stacked")
    state = method.start(fed).set(ala_own=OWN[None])
    state = method.aggregate(state, GLOBAL[None], fed, FIRST)
    key = "limit weights clip((c-Theta_i)/(Theta-Theta_i),0,1)"
    close(state.ala_weights[0], known("K7", key), 1e-6)
    assert state.ala_started.all()


def test_nothing_is_learned_where_own_model_and_download_agree():
    fed, method = k7("loop"), algorithm("fedala")
    state = method.aggregate(method.start(fed), GLOBAL[None], fed, FIRST)
    assert torch.equal(state.ala_weights, torch.ones(1, 3, dtype=torch.float64))
    assert torch.equal(state.ala_begin[0], GLOBAL) and not state.ala_started.any()


# ---- K8 -----------------------------------------------------------------------------------------

H, C, START = (known("K8", key) for key in ("h", "c", "server model x"))
TRAINED = known("K8", "FedAvg: local models, 2 steps")


@pytest.fixture(params=ENGINES)
def k8(request):
    """A federation of K8's two clients; n = (100, 300) as (1, 3)."""
    return lambda **how: Quadratic(H, C, START, [1, 3], request.param, **how)


def test_k8_fedphp(k8):
    fed, method = k8(epochs=2), algorithm("fedphp", lam=0.0, transfer="predictions")
    fed.network.logits = lambda w, x: w.expand(len(x), -1)
    old = torch.tensor([[0.0, 1.0]], dtype=fed.dtype)
    state = method.start(fed).put(FIRST, h=old, taken=50 * fed.sizes[FIRST])
    new = method.round(state, fed, FIRST)
    key = "FedPHP mu_t=.45: HPM from old (0,1) and new local 0"
    assert_known(new.h[0], "K8", key)
    assert new.taken.tolist() == [51, 0]


def test_k8_fedfomo(k8):
    fed, method = k8(), algorithm("fedfomo")
    state = method.round(method.start(fed).set(w=TRAINED), fed, FIRST)
    assert_known(state.weights[0], "K8", "FedFomo: normalised weights")
    assert_known(state.begin[0], "K8", "FedFomo: new model")
    close(state.w[0], state.begin[0] - 0.1 * H[0] * (state.begin[0] - C[0]))


def test_k8_apple(k8):
    fed, method = k8(), algorithm("apple")
    half = torch.full((2, 2), 0.5, dtype=fed.dtype)
    state = method.start(fed).set(core=TRAINED, p=half)
    assert_known(method.personal(state, fed)[0], "K8", "APPLE client 0: mixture, p=(.5,.5)")
    new = method.round(state, fed, FIRST)
    assert_known(new.p[0], "K8", "APPLE: new p, eta2=.01, lambda(r)=1, mu=.1, p0=n/N")
    assert_known(new.core[0], "K8", "APPLE: new core model 0, eta1=.1")
    assert torch.equal(new.core[1], TRAINED[1]) and torch.equal(new.p[1], half[1])


def test_apple_goes_on_from_its_own_new_core_model(k8):
    """Second batch: the mix holds the core model as it is now, not as it was downloaded."""
    fed, method = k8(epochs=2), algorithm("apple", mu=0.0)
    state = method.start(fed).set(core=TRAINED)
    core, p = TRAINED.clone(), method.prior(fed)
    for _ in range(2):
        g = H[0] * (p @ core - C[0])
        p, change = p - 0.01 * core @ g, 0.1 * p[0] * g
        core[0] -= change
    new = method.round(state, fed, FIRST)
    close(new.core[0], core[0], 1e-12)
    close(new.p[0], p, 1e-12)


# ---- real clients of unequal sizes --------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    return pfl_lib.data.load("digits")


@pytest.fixture(scope="module")
def unequal(data):
    """Five clients with 7 to 50 samples, classes in order, so that no two are alike."""
    order = torch.argsort(data.y_train, stable=True)
    train = tuple(order[100 * i : 100 * i + n] for i, n in enumerate((7, 50, 20, 33, 12)))
    test = tuple(data.n_train + torch.arange(9 * i, 9 * i + 9) for i in range(5))
    return partition.Partition("unequal", train, test)


@pytest.fixture
def federation(data, unequal):
    def make(clients=unequal, **how):
        how = {"lr": 0.1, "batch_size": 8, "engine": "stacked", "dtype": torch.float64, **how}
        model = pfl_lib.models.build("mlp", data, seed=3, hidden=(8,))
        return Federation(data, clients, model, device="cpu", **how)

    return make


QUICK = {"tol": 1e9, "window": 2}  # the first time is three passes
METHODS = {
    "fedala": (algorithm("fedala", **QUICK), ("ala_own", "ala_begin", "ala_weights")),
    "fedala p=2": (algorithm("fedala", ala_layers=2, tol=0.02, window=2), ("ala_weights",)),
    "fedphp": (algorithm("fedphp", lam=0.5, expected=4), ("h", "taken")),
    "fedphp kl": (algorithm("fedphp", lam=0.5, transfer="predictions"), ("h", "taken")),
    "fedfomo": (algorithm("fedfomo"), ("w", "begin", "weights")),
    "apple": (algorithm("apple", lr_p=0.1), ("core", "p")),
    "partialfed": (
        algorithm("partialfed", model_batches=2, strategy_batches=1),
        ("w", "logits", "batch"),
    ),
    "fedprox+ala": (with_ala(algorithm("fedprox", mu=0.5), **QUICK), ("ala_own", "ala_weights")),
    "ditto+ala": (with_ala(algorithm("ditto", lam=0.5), **QUICK), ("v", "ala_weights")),
    "per-fedavg+ala": (with_ala(algorithm("per-fedavg"), **QUICK), ("ala_own", "ala_begin")),
    "pfedme+ala": (with_ala(algorithm("pfedme", inner_steps=2), **QUICK), ("theta", "ala_own")),
    "fedphp+ala": (with_ala(algorithm("fedphp", lam=0.5), **QUICK), ("h", "ala_own")),
    "fedamp+ala": (
        with_ala(algorithm("fedamp", self_weight=0.5, prox_beta=2.0), **QUICK),
        ("w", "ala_own", "ala_weights"),
    ),
    "fedacs+ala": (with_ala(algorithm("fedacs", p=0.3), **QUICK), ()),  # participants decide
    "fedrep+ala": (
        with_ala(algorithm("fedrep", head_epochs=2), **QUICK),
        ("w", "ala_own", "ala_weights"),
    ),
    "partialfed+ala": (
        with_ala(algorithm("partialfed", model_batches=2, strategy_batches=1), **QUICK),
        ("w", "logits", "ala_weights"),
    ),
}
every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_loop_and_stacked_agree(federation, name):
    method, states, tested = METHODS[name][0], [], []
    for engine in ENGINES:
        fed = federation(engine=engine)
        state = go(method, fed, 2)
        states.append(method.round(state, fed.at(2), torch.tensor([4, 1, 2])))
        tested.append(method.personal(states[-1], fed))
    all_close(*states)
    close(*tested)


@every_method
def test_is_neither_separate_nor_fedavg(federation, name):
    fed, method = federation(), METHODS[name][0]
    mine = method.personal(go(method, fed, 3), fed)
    assert mine.shape == (fed.m, fed.d) and torch.isfinite(mine).all()
    assert (mine[0] - mine[1:]).norm(dim=1).min() > 1e-4
    for other in (algorithm("separate"), algorithm("fedavg")):
        theirs = other.personal(go(other, fed, 3), fed)
        assert (mine - theirs).norm(dim=1).min() > 1e-3


@every_method
def test_private_state_is_the_clients_own(federation, name):
    """Another order of the clients, or only some of them, changes nothing for the others."""
    fed, (method, private) = federation(), METHODS[name]
    state = go(method, fed, 1)
    here = fed.at(1)
    whole = method.round(state, here, here.everyone)
    all_close(method.round(state, here, here.everyone.flip(0)), whole)
    who, away = torch.tensor([3, 1]), torch.tensor([0, 2, 4])
    some = method.round(state, here, who)
    all_close(method.round(state, here, who.flip(0)), some)
    for rows in private:
        close(some[rows][who], whole[rows][who])
        assert torch.equal(some[rows][away], state[rows][away])
        assert not torch.equal(some[rows][who], state[rows][who]), rows


@every_method
def test_stopped_and_resumed_to_the_last_bit(federation, name, tmp_path):
    fed, method = federation(), METHODS[name][0]
    how = {"participation": 0.6, "progress": False}
    straight = run(method, fed, 4, **how)
    run(method, fed, 2, checkpoint=tmp_path, **how)
    resumed = run(method, fed, 4, checkpoint=tmp_path, **how)
    assert resumed.accuracy == straight.accuracy and resumed.sent == straight.sent
    assert all(torch.equal(resumed.state[n], straight.state[n]) for n in straight.state)
    models = 1 + fed.m if method.name in ("fedfomo", "apple") else 2
    size = int((~fed.head_mask).sum()) if "fedrep" in method.name else fed.d
    assert straight.sent[-1] == 4 * 3 * models * size


# ---- FedALA -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hyper", [{"ala_layers": 0}, {"ala_lr": HOLD, **QUICK}], ids=["p=0", "W=1"]
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
    state = go(algorithm("fedala", ala_layers=2, ala_lr=100.0, **QUICK), federation(), 3)
    assert state.ala_weights.min() == 0 and state.ala_weights.max() == 1
    assert ((state.ala_weights > 0) & (state.ala_weights < 1)).any()


def watched(fed):
    """The federation, and a list of all (work, clients) it is asked for."""
    asked, here = [], copy.copy(fed)

    def perform(work, who):
        asked.append((work, who.tolist()))
        return fed.perform(work, who)

    here.perform = perform
    return here, asked


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
        how = {"lr": 0.1, "batch_size": 10, "dtype": torch.float64, "seed": seed}
        fed = Federation(data, clients, "logistic_regression", device="cpu", **how)
        adaptive, average = (
            run(algorithm(name), fed, 6, evaluate_every=6, progress=False).last
            for name in ("fedala", "fedavg")
        )
        assert adaptive > average + 0.03


# ---- ALA on other methods -----------------------------------------------------------------------


def test_fedavg_with_ala_is_fedala(federation):
    fed = federation()
    one, other = algorithm("fedala", **QUICK), with_ala(algorithm("fedavg"), **QUICK)
    how = {"participation": 0.8, "progress": False}
    first, second = (run(method, fed, 3, **how) for method in (one, other))
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
    mixed = go(with_ala(base, ala_layers=1, **QUICK), fed, 3)
    model = "w" if "w" in plain else "x"
    assert (mixed[model] - plain[model]).norm() > 1e-3
    assert (mixed.ala_weights < 1).any()


def test_every_row_of_the_applicability_table_can_be_had():
    table = pfl_lib.papers.table("fedala", 4)
    names = {method.label: method.name for method in pfl_lib.algorithms.ALL}
    lent = [row for row in table.rows if table[row, "Tiny-ImageNet, with ALA"].mean is not None]
    assert len(lent) == 9
    for label in lent:
        name = names[label]
        assert with_ala(algorithm(name, **LENT.get(name, {}))).label == f"{label}+ALA"


def test_with_ala_fedamp_starts_at_the_mix_and_is_pulled_to_the_message(federation):
    fed, method = federation(), with_ala(algorithm("fedamp", self_weight=0.5), **QUICK)
    here, asked = watched(fed.at(1))
    state = method.round(go(method, fed, 1), here, fed.everyone)
    (rows,) = (work.rows for work, _ in asked if work.step == "descend")
    assert torch.equal(rows["w"], state.ala_begin)
    assert torch.equal(rows["centre"], state.u)
    assert not torch.equal(state.ala_begin, state.u)
    assert torch.equal(state.ala_own, state.w) and torch.equal(method.personal(state, fed), state.w)


def test_with_ala_fedreps_head_is_the_clients_own(federation):
    fed, method = federation(), with_ala(algorithm("fedrep", head_epochs=2), **QUICK)
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
    fed, method = federation(), with_ala(algorithm("ditto", lam=0.5), **QUICK)
    state = go(method, fed, 1)
    assert not torch.equal(state.ala_own, state.v)
    first = fed.train(state.ala_begin, fed.everyone)
    assert torch.equal(state.ala_own, first)


def test_with_ala_partialfed_chooses_between_the_mix_and_the_own_model(federation):
    fed, method = federation(), with_ala(algorithm("partialfed"), **QUICK)
    before = go(method, fed, 1)
    here, asked = watched(fed.at(1))
    after = method.round(before, here, fed.everyone)
    (rows,) = (work.rows for work, _ in asked if work.step == "partialfed")
    assert torch.equal(rows["w"], after.ala_begin) and torch.equal(rows["own"], before.w)


def test_with_ala_dittos_personal_model_is_tied_to_the_mix(federation):
    fed, method = federation(), with_ala(algorithm("ditto"), **QUICK)
    here, asked = watched(fed.at(1))
    state = method.round(go(method, fed, 1), here, fed.everyone)
    shared, personal = (work.rows for work, _ in asked if work.step == "descend")
    assert torch.equal(shared["w"], state.ala_begin)
    assert torch.equal(personal["centre"], state.ala_begin)
    assert not torch.equal(state.ala_begin[0], state.ala_begin[1])
    assert torch.equal(method.personal(state, fed), state.v)


def test_with_ala_fine_tuning_and_adaptation_start_at_the_mix(federation):
    fed = federation()
    for name in ("fedavg-ft", "per-fedavg"):
        method = with_ala(algorithm(name), **QUICK)
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
    with pytest.raises(TypeError, match="algorithm must be an Algorithm, got 'fedavg'"):
        with_ala("fedavg")


# ---- FedPHP -------------------------------------------------------------------------------------


def test_fedphp_without_transfer_is_fedavg_and_the_inherited_model_a_moving_average(federation):
    fed, method = federation(), algorithm("fedphp", lam=0.0, mu=0.8, expected=4)
    states = [go(method, fed, k) for k in range(4)]
    close(states[3].x, go(algorithm("fedavg"), fed, 3).x)
    h = fed.initial()
    for k in range(3):
        trained = fed.at(k).train(states[k].x.expand(fed.m, -1), fed.everyone)
        share = 0.8 * k / 4
        h = share * h + (1 - share) * trained
        close(states[k + 1].h, h)


@pytest.mark.parametrize("transfer", ["features", "predictions"])
def test_fedphp_is_drawn_to_what_it_inherited(federation, transfer):
    fed = federation()
    method = algorithm("fedphp", lam=1.0, transfer=transfer)
    state = go(algorithm("fedphp", lam=0.0), fed, 2)
    h = state.h[FIRST]
    rows = {"w": state.x[None], "h": h, "lam": fed.sizes[FIRST] ** 0}
    numbers = {"features": transfer == "features"}
    work = pfl_lib.Work(rows, "fedphp", numbers=numbers, lr=0.05, epochs=40)
    new = fed.perform(work, FIRST)["w"]
    x = fed._train_samples.inputs(fed._train_samples.index[0])
    see = fed.network.features if transfer == "features" else fed.network.logits
    before, after = ((see(w, x) - see(h[0], x)).norm() for w in (state.x, new[0]))
    assert after < before
    first = method.round(method.start(fed), fed, fed.everyone)  # nothing to inherit yet
    close(first.x, go(algorithm("fedavg"), fed, 1).x)


# ---- FedFomo ------------------------------------------------------------------------------------


def test_fedfomo_holds_a_part_back_for_good(federation):
    fed = federation()
    (learn, held), (again, _) = split(fed, 0.2), split(fed.at(7), 0.2)
    for i, index in enumerate(fed.partition.train):
        mine, apart = learn._train_samples.index[i], held._train_samples.index[i]
        assert len(apart) == max(1, round(0.2 * len(index)))
        assert sorted(torch.cat([mine, apart]).tolist()) == sorted(index.tolist())
        assert torch.equal(mine, again._train_samples.index[i])
        assert torch.equal(learn._train_samples.labels[i], fed.data.y[mine])


def test_fedfomo_never_trains_on_what_it_holds_back(federation):
    fed, method = federation(), algorithm("fedfomo")
    labels = [y.clone() for y in fed._train_samples.labels]
    for i, index in enumerate(split(fed, 0.2)[1]._train_samples.index):
        apart = torch.isin(fed.partition.train[i], index)
        labels[i][apart] = 9 - labels[i][apart]
    other = federation()
    other._train_samples = fed._train_samples._replace(labels=tuple(labels))
    assert torch.equal(go(method, fed, 1).w, go(method, other, 1).w)
    assert not torch.equal(go(method, fed, 2).weights, go(method, other, 2).weights)


def test_fedfomo_listens_to_its_own_group(data):
    clients = partition.grouped(data, group_clients=3, share=0.95, test_size=20)
    fed = Federation(data, clients, "logistic_regression", lr=0.1, dtype=torch.float64)
    weights = go(algorithm("fedfomo"), fed, 4).weights
    same = clients.groups[:, None] == clients.groups[None, :]
    others = ~torch.eye(fed.m, dtype=torch.bool)
    assert weights[same & others].mean() > 3 * weights[~same].mean()
    assert weights.min() >= 0 and weights.sum(1).max() <= 1 + 1e-12


# ---- APPLE --------------------------------------------------------------------------------------


def test_apple_with_only_oneself_in_the_mix_is_separate(federation):
    fed, method = federation(), algorithm("apple", lr_p=HOLD)
    state = method.start(fed)
    state = state.set(p=torch.eye(fed.m, dtype=fed.dtype))
    for k in range(2):
        state = method.round(state, fed.at(k), fed.everyone)
    close(method.personal(state, fed), go(algorithm("separate"), fed, 2).w)


def test_apples_prior_holds_the_proportions_and_then_lets_go(federation):
    fed = federation()
    state = go(algorithm("apple"), fed, 1)
    spread = []
    for mu, k in ((0.0, 1), (50.0, 1), (50.0, 20)):
        method = algorithm("apple", lr_p=0.01, mu=mu, horizon=20)
        p = method.round(state, fed.at(k), fed.everyone).p
        spread.append(float((p - method.prior(fed)).norm()))
    assert spread[1] < 0.5 * spread[0] and spread[1] < 0.5 * spread[2]


# ---- PartialFed ---------------------------------------------------------------------------------


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


# ---- at the door --------------------------------------------------------------------------------

BAD = [
    ("fedala", {"ala_layers": -1}, "ala_layers must be a whole number >= 0, got -1"),
    ("fedala", {"ala_percent": 0}, r"ala_percent must lie in \(0, 100\], got 0"),
    ("fedala", {"ala_percent": 101}, r"ala_percent must lie in \[0, 100\], got 101"),
    ("fedala", {"ala_lr": 0.0}, "ala_lr must be a positive finite number, got 0"),
    ("fedala", {"window": 0}, "window must be a whole number >= 1, got 0"),
    ("fedala", {"max_epochs": 1.5}, "max_epochs must be a whole number >= 1, got 1.5"),
    ("fedphp", {"mu": 1.1}, r"mu must lie in \[0, 1\], got 1.1"),
    ("fedphp", {"expected": 0}, "expected must be a whole number >= 1, got 0"),
    ("fedphp", {"transfer": "feature"}, "Did you mean 'features'"),
    ("fedfomo", {"validation": 1.0}, r"validation must lie in \(0, 1\), got 1.0"),
    ("apple", {"lr_p": -1.0}, "lr_p must be a positive finite number, got -1.0"),
    ("apple", {"horizon": 0.2}, "horizon must be a whole number >= 1, got 0.2"),
    ("apple", {"lr_core": 0.0}, "lr_core must be a positive finite number, got 0.0"),
    ("partialfed", {"model_batches": 0}, "model_batches must be a whole number >= 1, got 0"),
    ("partialfed", {"decay": 1.5}, r"decay must lie in \[0, 1\], got 1.5"),
]


@pytest.mark.parametrize("name, hyper, message", BAD, ids=lambda v: str(v)[:30])
def test_bad_hyper_parameters(name, hyper, message):
    with pytest.raises(ValueError, match=message):
        algorithm(name, **hyper)


def test_more_layers_than_the_model_has(federation):
    with pytest.raises(ValueError, match=r"ala_layers must be at most 2, .* 'MLP', got 3"):
        algorithm("fedala", ala_layers=3).start(federation())
