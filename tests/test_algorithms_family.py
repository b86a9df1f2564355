"""The baselines: each against K8, against its limiting cases, and against the mistakes others made.

To add a method: one line in ``CASES``.  The tests that take ``name`` then run for it too.
"""

import itertools
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from known_answers import ANSWERS, assert_known, known

import pfl_lib
from pfl_lib import Federation, Prox, algorithm, partition, run
from pfl_lib.algorithms import per_fedavg
from pfl_lib.data import Dataset
from pfl_lib.training import Network, Samples, Settings

ENGINES = ("loop", "stacked")


class Case(NamedTuple):
    """What a method is known to do."""

    hyper: dict = {}  # settings under which every part of it acts visibly
    acts: tuple = ("x",)  # state that the next round's tested models must depend on
    private: tuple = ()  # rows that depend on the client's own data and what it was sent
    personal: bool = True  # does it give each client a model of its own?
    sent: str = "2 * d"  # parameters a client and round
    method: str = ""  # the method's name, where the case has another


CASES = {
    "fedavg-2step": Case(personal=False),
    "fedprox": Case({"mu": 0.5}, personal=False),
    "scaffold": Case(
        acts=("x", "c", "c_local"), private=("c_local",), personal=False, sent="4 * d"
    ),
    "fedavg-ft": Case(),
    "fedprox-ft": Case({"mu": 0.5}),
    "fedavg-c": Case({"ft_epochs": 2}, private=("w",)),
    "fedprox-c": Case({"mu": 0.5, "ft_epochs": 2}, private=("w",)),
    "fedupdate": Case(),
    "per-fedavg": Case({"lr_inner": 0.2}),
    "per-fedavg hf": Case({"lr_inner": 0.2, "variant": "hf"}, method="per-fedavg"),
    "per-fedavg exact": Case({"lr_inner": 0.2, "variant": "exact"}, method="per-fedavg"),
    "pfedme": Case({"inner_steps": 2, "lr_personal": 0.02}, private=("theta",)),
    "ditto": Case({"lam": 0.5}, acts=("x", "v"), private=("v",)),
    "apfl": Case(acts=("x", "v", "alpha"), private=("v", "alpha")),
    "fedrep": Case({"head_epochs": 2}, acts=("x", "w"), private=("w",), sent="2 * body"),
}
every_method = pytest.mark.parametrize("name", CASES)


def build(name):
    return algorithm(CASES[name].method or name, **CASES[name].hyper)


def go(method, fed, rounds, who=None):
    """The state after some rounds."""
    state = method.start(fed)
    for k in range(rounds):
        state = method.round(state, fed.at(k), fed.everyone if who is None else who)
    return state


def close(a, b, atol=1e-10):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def all_close(a, b, atol=1e-10):
    assert set(a) == set(b)
    for tensor in a:
        close(a[tensor], b[tensor], atol)


# ---- K8: quadratic clients, one sample a client, so that a batch is the whole of F_i -----------


def quadratic(w, sample):
    h, c = sample.chunk(2, -1)
    return 0.5 * (h * (w - c) ** 2).sum(-1)


class WrittenLoss(Network):
    """A "network" of a few numbers whose loss is ``each(w, samples)``, averaged over a batch."""

    def __init__(self, each, start):
        super().__init__(torch.nn.ParameterList([start]))
        self.each = each

    def loss(self, w, batch):
        return (self.each(w, batch.x) * batch.weight).sum() / batch.weight.sum()


class Toy(Federation):
    """Client i has ``sizes[i]`` times the same sample.  Engines, batches and weights are real."""

    def __init__(self, samples, start, loss=quadratic, sizes=None, engine="loop", lr=0.1, epochs=1):
        sizes = [1] * len(samples) if sizes is None else sizes
        self.settings = Settings(lr=lr, optimizer="sgd", batch_size=10, epochs=epochs, seed=0)
        self.engine, self.device, self.dtype, self.k = engine, start.device, start.dtype, 0
        self.network, self._initial = WrittenLoss(loss, start), start
        index = tuple(torch.full((n,), i) for i, n in enumerate(sizes))
        self.partition = SimpleNamespace(train=index)
        self.sizes = torch.tensor(sizes, dtype=self.dtype)
        self._train_samples = Samples(lambda i: samples[i], index, index)


H, C, START = (known("K8", key) for key in ("h", "c", "server model x"))
FIRST = torch.tensor([0])


@pytest.fixture(params=ENGINES)
def k8(request):
    """A federation of K8's two clients; n = (100, 300) as (1, 3)."""

    def make(**how):
        how = {"sizes": [1, 3], **how}
        return Toy(torch.cat([H, C], 1), START, engine=request.param, **how)

    return make


def test_k8_fedavg_and_fedprox(k8):
    fed = k8(epochs=2)
    assert_known(go(algorithm("fedavg"), fed, 1).x, "K8", "FedAvg: aggregate (n-weighted)")
    local = known("K8", "FedProx mu=0.5: local models, 2 steps")
    for i in (0, 1):
        alone = go(algorithm("fedprox", mu=0.5), fed, 1, who=torch.tensor([i]))
        close(alone.x, local[i], 1e-12)
    both = go(algorithm("fedprox", mu=0.5), fed, 1)
    close(both.x, (local[0] + 3 * local[1]) / 4, 1e-12)


def test_k8_scaffold(k8):
    fed, method = k8(epochs=2), algorithm("scaffold")
    c_local = known("K8", "SCAFFOLD: initial c_i")
    state = method.start(fed).set(c_local=c_local, c=c_local.mean(0))
    new = method.round(state, fed, fed.everyone)
    assert_known(new.c_local, "K8", "SCAFFOLD: new c_i (option II)")
    assert_known(new.x, "K8", "SCAFFOLD: x, eta_g=1, all clients")
    assert_known(new.c, "K8", "SCAFFOLD: new c")
    alone = method.round(state, fed, FIRST)
    close(alone.x, known("K8", "SCAFFOLD: y_i after 2 steps")[0], 1e-12)
    close(alone.c, alone.c_local.mean(0), 1e-12)  # one of two took part: half its change


def test_k8_apfl(k8):
    fed, method = k8(), algorithm("apfl", alpha=0.25)
    state = method.start(fed)
    state = state.put(FIRST, v=torch.tensor([[0.0, 1.0]], dtype=fed.dtype))
    mixed = "APFL client 0, alpha=.25, v=(0,1), w=x: mixed model"
    assert_known(method.personal(state, fed)[0], "K8", mixed)
    new = method.round(state, fed, FIRST)
    assert_known(new.v[0], "K8", "APFL: new v (chain rule, v - eta*alpha*grad F(mixed))")
    assert_known(new.x, "K8", "APFL: new w")
    assert_known(new.alpha[0], "K8", "APFL: new alpha = alpha - eta <v-w, grad F(mixed)>")
    close(method.personal(new, fed)[0], new.alpha[0] * new.v[0] + (1 - new.alpha[0]) * new.x)


def test_k8_per_fedavg(k8):
    fed = k8()
    for variant in ("fo", "hf", "exact"):
        method = algorithm("per-fedavg", variant=variant, lr_inner=0.2)
        first_order = "Per-FedAvg client 0, inner .2, outer .1: FO step"
        key = first_order if variant == "fo" else "Per-FedAvg: exact/HF step (I - a H) applied"
        assert_known(go(method, fed, 1, who=FIRST).x, "K8", key)
        adapted = method.personal(method.start(fed), fed)
        assert_known(adapted[0], "K8", "Per-FedAvg: adapted model from x")


def test_k8_pfedme(k8):
    fed = k8(lr=0.005)
    state = go(algorithm("pfedme"), fed, 1, who=FIRST)
    assert_known(state.theta[0], "K8", "pFedMe: theta after K=5 steps lr .01")
    assert_known(state.x, "K8", "pFedMe: local w after one local round, eta=.005")
    exact = go(algorithm("pfedme", inner_steps=300), fed, 1, who=FIRST)
    assert_known(exact.theta[0], "K8", "pFedMe client 0, lambda=15: exact theta")


def test_k8_ditto(k8):
    fed, method = k8(), algorithm("ditto", personal_epochs=1)
    state = method.start(fed).put(FIRST, v=torch.tensor([[0.0, 1.0]], dtype=fed.dtype))
    new = method.round(state, fed, FIRST)
    assert_known(new.v[0], "K8", "Ditto client 0, v=(0,1), lambda=.1: one step")


@pytest.mark.parametrize("engine", ENGINES)
def test_k8_fedrep(engine):
    """½(h·φ − y)²: the head first, then the body with the new head."""
    start = torch.tensor([0.8, 1.5], dtype=torch.float64)  # φ, h
    samples = torch.tensor([[2.0]], dtype=torch.float64)  # y
    product = lambda w, sample: 0.5 * (w[0] * w[1] - sample[..., 0]) ** 2  # noqa: E731
    fed = Toy(samples, start, product, engine=engine)
    fed.head_mask = torch.tensor([False, True])
    method = algorithm("fedrep", head_epochs=1)
    phi, h = method.personal(go(method, fed, 1), fed)[0]
    key = next(key for key in ANSWERS["K8"] if key.startswith("FedRep scalar loss"))
    assert_known(torch.stack([h, phi]), "K8", key)


# ---- what each method solves, on quadratics where the answer is known ---------------------------


def optimum(weights):
    """argmin Σ_i ½·weights_i·(x − c_i)²."""
    return (weights * C).sum(0) / weights.sum(0)


ADAPTED = {"lr_inner": 0.2}
ENVELOPE = {"lam": 5.0, "lr_personal": 0.1, "inner_steps": 60}
SOLVES = {  # method, hyper-parameters, local steps, curvature of its own objective at client i
    "scaffold": ("scaffold", {}, 3, H),
    "per-fedavg fo": ("per-fedavg", ADAPTED, 1, H * (1 - 0.2 * H)),
    "per-fedavg hf": ("per-fedavg", {**ADAPTED, "variant": "hf"}, 1, H * (1 - 0.2 * H) ** 2),
    "per-fedavg exact": ("per-fedavg", {**ADAPTED, "variant": "exact"}, 1, H * (1 - 0.2 * H) ** 2),
    "pfedme": ("pfedme", ENVELOPE, 1, 5 * H / (5 + H)),
}


@pytest.mark.parametrize("name", SOLVES)
def test_rests_at_the_optimum_of_its_own_objective_only(k8, name):
    name, hyper, epochs, curvature = SOLVES[name]
    fed, method = k8(sizes=[2, 2], epochs=epochs), algorithm(name, **hyper)
    best = optimum(curvature)
    state = method.start(fed)
    if name == "scaffold":
        controls = H * (best - C)
        state = state.set(c_local=controls, c=controls.mean(0))
    close(method.round(state.set(x=best), fed, fed.everyone).x, best, 1e-9)
    moved = method.round(state.set(x=best + 0.1), fed, fed.everyone).x
    assert ((moved - best).abs() < 0.0999).all()  # and from elsewhere it comes nearer


def test_scaffold_gets_there_and_fedavg_does_not(k8):
    fed = k8(sizes=[2, 2], epochs=3)
    best = optimum(H)
    assert (go(algorithm("scaffold"), fed, 30).x - best).abs().max() < 1e-3
    assert (go(algorithm("fedavg"), fed, 30).x - best).abs().max() > 0.02


def test_ditto_and_pfedme_rest_between_the_global_and_the_own_optimum(k8):
    fed, best = k8(sizes=[2, 2]), optimum(H)
    between = (H * C + 2 * best) / (H + 2)
    method = algorithm("ditto", lam=2.0)
    state = method.round(method.start(fed).set(x=best, v=between), fed, fed.everyone)
    close(state.v, between, 1e-12)
    best = optimum(5 * H / (5 + H))
    method = algorithm("pfedme", **ENVELOPE)
    state = method.round(method.start(fed).set(x=best), fed, fed.everyone)
    close(state.theta, (H * C + 5 * best) / (H + 5), 1e-9)


# ---- every method, on real clients of unequal sizes ---------------------------------------------


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


def small(data):
    return pfl_lib.models.build("mlp", data, seed=3, hidden=(8,))


def federation(data, clients, **how):
    how = {"lr": 0.1, "batch_size": 8, "engine": "stacked", "dtype": torch.float64, **how}
    return Federation(data, clients, small(data), device="cpu", **how)


@every_method
def test_loop_and_stacked_agree(data, unequal, name):
    method, states, tested = build(name), [], []
    for engine in ENGINES:
        fed = federation(data, unequal, engine=engine)
        state = go(method, fed, 1)
        state = method.round(state, fed.at(1), torch.tensor([4, 1, 2]))
        states.append(state)
        tested.append(method.personal(state, fed))
    all_close(*states)
    close(*tested)


@every_method
def test_is_neither_separate_nor_fedavg(data, unequal, name):
    fed = federation(data, unequal)
    there = {}
    for method in (build(name), algorithm("separate"), algorithm("fedavg")):
        there[method.name] = method.personal(go(method, fed, 2), fed)
    mine = there.pop(build(name).name)
    assert mine.shape == (fed.m, fed.d)
    for other in there.values():
        assert (mine - other).norm(dim=1).min() > 1e-3
    rows_differ = bool((mine[0] - mine[1:]).norm(dim=1).min() > 1e-4)
    assert rows_differ == CASES[name].personal


@every_method
def test_every_part_of_the_state_acts(data, unequal, name):
    """Moving the centre, a control, a private model or a mixture moves the tested models."""
    fed, method = federation(data, unequal), build(name)
    state = go(method, fed, 1)

    def after(state):
        return method.personal(method.round(state, fed.at(1), fed.everyone), fed.at(1))

    for part in CASES[name].acts:
        shift = 0.1 * torch.randn(
            state[part].shape, generator=torch.Generator().manual_seed(0), dtype=fed.dtype
        )
        moved = after(state.set(**{part: state[part] + shift}))
        assert (moved - after(state)).norm(dim=1).min() > 1e-4, part


@every_method
def test_private_state_is_the_clients_own(data, unequal, name):
    """Another order of the clients, or only some of them, changes nothing for the others."""
    fed, method = federation(data, unequal), build(name)
    state = go(method, fed, 1)
    here = fed.at(1)
    whole = method.round(state, here, here.everyone)
    all_close(method.round(state, here, here.everyone.flip(0)), whole, 1e-12)
    who, away = torch.tensor([3, 1]), torch.tensor([0, 2, 4])
    some = method.round(state, here, who)
    all_close(method.round(state, here, who.flip(0)), some, 1e-12)
    for rows in CASES[name].private:
        close(some[rows][who], whole[rows][who], 1e-12)
        assert torch.equal(some[rows][away], state[rows][away])
        assert not torch.equal(some[rows][who], state[rows][who])


@every_method
def test_sent_and_partial_participation(data, unequal, name):
    fed, method = federation(data, unequal), build(name)
    history = run(method, fed, 3, participation=0.6, evaluate_every=3, progress=False)
    body = int((~fed.head_mask).sum())
    each = eval(CASES[name].sent, {"d": fed.d, "body": body})
    assert history.sent == [3 * 3 * each] and 0 < history.last <= 1
    assert history.tested == method.tested and method.paper


def test_scaffolds_control_is_the_mean_of_the_clients(data, unequal):
    """c moves by participants/m of the mean change, which keeps c = mean of all c_i."""
    fed = federation(data, unequal)
    state = run(algorithm("scaffold"), fed, 5, participation=0.4, progress=False).state
    close(state.c, state.c_local.mean(0), 1e-12)
    assert state.c.norm() > 1e-2


# ---- limiting cases ------------------------------------------------------------------------------

SAME_AS_FEDAVG = [
    ("fedprox", {"mu": 0.0}),
    ("fedavg-2step", {"repeats": 1}),
    ("fedavg-c", {"ft_epochs": 0}),
    ("fedprox-c", {"ft_epochs": 0, "mu": 0.0}),
    ("fedavg-ft", {}),  # x never sees the fine-tuned copies
    ("fedprox-ft", {"mu": 0.0}),
    ("fedupdate", {}),
    ("ditto", {}),  # x never sees the personal models
    ("apfl", {}),
]


@pytest.mark.parametrize("name, hyper", SAME_AS_FEDAVG, ids=lambda v: str(v))
def test_the_global_model_is_fedavgs(data, unequal, name, hyper):
    fed = federation(data, unequal)
    close(go(algorithm(name, **hyper), fed, 3).x, go(algorithm("fedavg"), fed, 3).x, 1e-12)


def test_proximal_variants_without_the_penalty(data, unequal):
    fed = federation(data, unequal)
    for end in ("ft", "c"):
        with_mu = algorithm(f"fedprox-{end}", mu=0.0, ft_epochs=2)
        without = algorithm(f"fedavg-{end}", ft_epochs=2)
        a, b = go(with_mu, fed, 2), go(without, fed, 2)
        close(with_mu.personal(a, fed), without.personal(b, fed), 1e-12)


def test_a_larger_mu_keeps_clients_nearer(data, unequal):
    fed = federation(data, unequal, epochs=4)
    x = fed.initial()[0]
    moved = [(go(algorithm("fedprox", mu=mu), fed, 1).x - x).norm() for mu in (0.0, 0.5, 2.0)]
    assert moved[0] > 1.1 * moved[1] > 1.2 * moved[2]


def whole_batches(data, unequal, **how):
    """One batch a client: the order of the samples no longer matters."""
    return federation(data, unequal, batch_size=50, **how)


def test_two_steps_on_the_whole_data_are_two_epochs(data, unequal):
    twice = go(algorithm("fedavg-2step"), whole_batches(data, unequal), 2)
    close(twice.x, go(algorithm("fedavg"), whole_batches(data, unequal, epochs=2), 2).x)


def test_customised_training_goes_on_from_the_fine_tuned_model(data, unequal):
    """FedAvg-C is FedAvg with more epochs; FedProx-C adds a penalty about the global model."""
    fed = whole_batches(data, unequal)
    state = go(algorithm("fedavg-c", ft_epochs=2), fed, 2)
    longer = whole_batches(data, unequal, epochs=3)
    close(state.x, go(algorithm("fedavg"), longer, 2).x)
    method = algorithm("fedprox-c", ft_epochs=2, mu=0.5)
    state = go(method, fed, 1)
    x, who = fed.initial(), fed.everyone
    tuned = fed.train(x, who, epochs=2)
    close(method.personal(state, fed), tuned)
    trained = fed.train(tuned, who, prox=Prox(x, 0.5))
    close(state.x, (fed.sizes @ trained) / fed.sizes.sum())


def test_fedupdate_is_one_step_from_the_global_model(data, unequal):
    fed, method = whole_batches(data, unequal), algorithm("fedupdate")
    state = go(method, fed, 2)
    close(method.personal(state, fed), fed.train(state.x.expand(fed.m, -1), fed.everyone))
    none = algorithm("fedupdate", ft_steps=0)
    assert torch.equal(none.personal(state, fed), state.x.expand(fed.m, -1))


@pytest.mark.parametrize("variant", ["fo", "hf", "exact"])
def test_per_fedavg_without_an_inner_step_is_fedavg(data, unequal, variant):
    fed = whole_batches(data, unequal)
    method = algorithm("per-fedavg", variant=variant, lr_inner=0.0)
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
    fed = federation(data, unequal, engine="loop")
    go(algorithm("per-fedavg", variant=variant, lr_inner=0.3), fed, 1, who=torch.tensor([1]))
    assert len(seen) == -(-7 // count)  # 50 samples in batches of 8
    for gradients in seen:
        for a, b in itertools.combinations(gradients, 2):
            assert (a - b).norm() > 1e-3


def test_per_fedavg_is_tested_after_exactly_one_step(data, unequal):
    fed = whole_batches(data, unequal)
    method = algorithm("per-fedavg", lr_inner=0.3)
    state = go(method, fed, 1)
    x = state.x.expand(fed.m, -1)
    close(method.personal(state, fed), fed.train(x, fed.everyone, epochs=1, lr=0.3))


@pytest.fixture(scope="module")
def twins(data):
    """Four clients with the same samples."""
    same = torch.arange(40)
    test = data.n_train + torch.arange(10)
    return partition.Partition("twins", (same,) * 4, (test,) * 4)


def test_scaffold_with_identical_clients_is_fedavg(data, twins):
    """Then every c_i is c, and nothing is left to correct."""
    fed = whole_batches(data, twins, epochs=3)
    state = go(algorithm("scaffold"), fed, 4)
    close(state.x, go(algorithm("fedavg"), fed, 4).x)
    close(state.c_local, state.c.expand_as(state.c_local))


def test_pfedme_with_identical_clients_is_one_client(data, twins):
    fed = whole_batches(data, twins, epochs=3)
    state = go(algorithm("pfedme"), fed, 3)
    alone = go(algorithm("pfedme"), fed, 3, who=FIRST)
    close(state.x, alone.x)
    close(state.theta, alone.theta[:1].expand_as(state.theta))


def test_pfedme_without_lambda_is_separate_from_a_model_that_rests(data, unequal):
    fed = whole_batches(data, unequal)
    state = go(algorithm("pfedme", lam=0.0, inner_steps=3, lr_personal=0.1), fed, 2)
    close(state.x, fed.initial()[0], 1e-14)
    close(state.theta, fed.train(fed.initial(), fed.everyone, epochs=3))


def test_pfedmes_server_step(data, unequal):
    fed = federation(data, unequal)
    x = fed.initial()[0]
    whole, half = (go(algorithm("pfedme", beta=b), fed, 1).x - x for b in (1.0, 0.5))
    close(half, whole / 2)


def test_ditto_without_lambda_is_separate(data, unequal):
    state = go(algorithm("ditto", lam=0.0), whole_batches(data, unequal), 3)
    alone = go(algorithm("separate"), whole_batches(data, unequal, epochs=2), 3)
    close(state.v, alone.w)


def test_apfl_with_a_fixed_mixture(data, unequal):
    fed = federation(data, unequal)
    for alpha, other in ((0.0, "fedavg"), (1.0, "separate")):
        method, limit = algorithm("apfl", alpha=alpha, adapt="never"), algorithm(other)
        state = go(method, fed, 3)
        close(method.personal(state, fed), limit.personal(go(limit, fed, 3), fed), 1e-12)
        assert (state.alpha == alpha).all()


def test_apfls_mixture_moves_when_it_is_told_to(data, unequal):
    """Once a round: not in the first, where v and w are the same, but in the second."""
    fed = federation(data, unequal)
    assert (go(algorithm("apfl"), fed, 1).alpha == 0.5).all()
    moved = go(algorithm("apfl"), fed, 2).alpha - 0.5
    assert moved.abs().min() > 1e-6 and moved.abs().max() < 0.5
    assert (go(algorithm("apfl", adapt="step"), fed, 1).alpha != 0.5).sum() == 4  # one has a batch


def test_fedrep_averages_bodies_and_keeps_heads(data, unequal):
    fed, method = federation(data, unequal), algorithm("fedrep")
    w = method.personal(go(method, fed, 2), fed)
    head = fed.head_mask
    assert (w[:, ~head] == w[0, ~head]).all()
    assert (w[1:, head] - w[0, head]).norm(dim=1).min() > 1e-2
    state = method.start(fed)
    first = fed.train(fed.initial(), fed.everyone, mask=head, epochs=5, tag="head")
    new = method.round(state, fed, fed.everyone)
    assert torch.equal(method.personal(new, fed)[:, head], first[:, head])  # the body comes second
    by_steps = algorithm("fedrep", head_steps=1).round(state, fed, fed.everyone)
    one = fed.train(fed.initial(), fed.everyone, mask=head, steps=1, tag="head")
    assert torch.equal(by_steps.w[:, head], one[:, head])


def test_fedrep_needs_a_body_and_a_head(data, unequal):
    fed = Federation(data, unequal, "logistic_regression", device="cpu")
    with pytest.raises(ValueError, match=r"body and a head; .* 650 of 650 parameters"):
        run(algorithm("fedrep"), fed, 1, progress=False)


# ---- at the door ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scaffold", "apfl", "pfedme", "per-fedavg"])
def test_methods_made_of_sgd_steps_refuse_adam(data, unequal, name):
    fed = federation(data, unequal, optimizer="adam", lr=1e-3)
    with pytest.raises(ValueError, match=f"plain SGD .* 'adam': .*algorithm.'{name}', lr=0.01"):
        run(algorithm(name), fed, 1, progress=False)
    by_adam = go(algorithm(name, lr=0.1), fed, 2)
    all_close(by_adam, go(algorithm(name), federation(data, unequal), 2), 1e-12)


BAD = [
    ("fedprox", {"mu": -1.0}, "mu must be a non-negative finite number, got -1.0"),
    ("fedprox-ft", {"mu": -1.0}, "mu must be a non-negative"),
    ("fedprox-ft", {"ft_epochs": 1.5}, "ft_epochs must be a whole number >= 0, got 1.5"),
    ("fedprox-c", {"mu": float("nan")}, "mu must be a non-negative"),
    ("fedprox-c", {"ft_epochs": None}, "ft_epochs must be a whole number"),
    ("fedavg-ft", {"ft_steps": -1}, "ft_steps must be a whole number >= 0, got -1"),
    ("fedupdate", {"ft_steps": 0.5}, "ft_steps must be a whole number"),
    ("fedavg-2step", {"repeats": 0}, "repeats must be a whole number >= 1, got 0"),
    ("scaffold", {"lr_server": 0.0}, "lr_server must be a positive finite number, got 0.0"),
    ("scaffold", {"lr": 0.0}, "lr must be a positive"),
    ("per-fedavg", {"variant": "fi"}, "variant must be one of 'fo', 'hf', 'exact'; got 'fi'"),
    ("per-fedavg", {"lr_inner": -0.1}, "lr_inner must be a non-negative"),
    ("per-fedavg", {"delta": 0.0}, "delta must be a positive"),
    ("pfedme", {"lam": -1.0}, "lam must be a non-negative"),
    ("pfedme", {"inner_steps": 0}, "inner_steps must be a whole number >= 1, got 0"),
    ("pfedme", {"lr_personal": 0.0}, "lr_personal must be a positive"),
    ("pfedme", {"beta": 0.0}, "beta must be a positive"),
    ("ditto", {"lam": -0.1}, "lam must be a non-negative"),
    ("ditto", {"personal_epochs": 0}, "personal_epochs must be a whole number >= 1, got 0"),
    ("apfl", {"alpha": 1.5}, r"alpha must lie in \[0, 1\], got 1.5"),
    ("apfl", {"adapt": "epoch"}, "adapt must be one of 'never', 'round', 'step'; got 'epoch'"),
    ("apfl", {"lr": -1.0}, "lr must be a positive"),
    ("fedrep", {"head_epochs": 0}, "head_epochs must be a whole number >= 1, got 0"),
]


@pytest.mark.parametrize("name, hyper, message", BAD, ids=lambda v: str(v)[:30])
def test_bad_hyper_parameters(name, hyper, message):
    with pytest.raises(ValueError, match=message):
        algorithm(name, **hyper)


# ---- the direction: two worlds that contradict each other --------------------------------------


@pytest.fixture(scope="module")
def two_worlds(data):
    """Every digit twice; in the second world digit y is called 9 − y.  Four clients in each."""
    train, test = data.x_train, data.x_test
    world = Dataset(
        name="two worlds",
        x=torch.cat([train, train, test, test]),
        y=torch.cat([data.y_train, 9 - data.y_train, data.y_test, 9 - data.y_test]),
        n_train=2 * data.n_train,
        classes=data.classes,
        mean=data.mean,
        std=data.std,
    )

    def dealt(begin, count, size):
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        return [begin + part for part in order.split(size)[:4]]

    n, t = data.n_train, data.n_test
    trains = dealt(0, n, 100) + dealt(n, n, 100)
    tests = dealt(2 * n, t, 80) + dealt(2 * n + t, t, 80)
    groups = torch.arange(8) // 4
    return world, partition.Partition("two worlds", tuple(trains), tuple(tests), groups=groups)


@pytest.fixture(scope="module")
def in_two_worlds(two_worlds):
    """Mean accuracy of a method after four rounds, for three seeds."""
    data, clients = two_worlds
    found = {}

    def measure(name, method):
        if name not in found:
            how = {"lr": 0.5, "batch_size": 100, "epochs": 8, "device": "cpu"}
            found[name] = []
            for seed in range(3):
                model = pfl_lib.models.build("mlp", data, seed=seed, hidden=(20,))
                fed = Federation(data, clients, model, seed=seed, **how)
                history = run(method, fed, 4, evaluate_every=4, progress=False)
                found[name].append(history.last)
        return found[name]

    return measure


@every_method
def test_personal_models_beat_one_model_for_two_worlds(in_two_worlds, name):
    average = in_two_worlds("fedavg", algorithm("fedavg"))
    assert max(average) < 0.5  # one model cannot be right in both
    for mine, fedavg in zip(in_two_worlds(name, build(name)), average):
        if CASES[name].personal:
            assert mine > fedavg + 0.04
        else:
            assert mine < 0.5
