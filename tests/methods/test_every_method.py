"""What holds for every method: a new one is found here without being named.

``CASES`` says more about some: settings under which every part acts visibly, which parts of the
state must act, and which rows are a client's own.
"""

import math
from dataclasses import fields, replace
from functools import cache
from typing import NamedTuple

import pytest
import torch

import pfl_lib
from pfl_lib import Federation, algorithm, methods, partition, run
from pfl_lib.data import Dataset
from pfl_lib.methods import BY_NAME, Algorithm, with_ala
from tests.support.methods import (
    ENGINES,
    LATE,
    all_close,
    close,
    go,
    last,
    plain_federation,
    quick_ala,
    small_federation,
)
from tests.support.quadratics import C, H, optimum


class Case(NamedTuple):
    """What a method is known to do."""

    hyper: dict = {}  # settings under which every part of it acts visibly
    acts: tuple = ()  # state that the next round's tested models must depend on
    private: tuple = ()  # rows that depend on the client's own data and what it was sent
    base: str = ""  # the method, where the case has another name
    ala: bool = False  # with ALA in front


MESSAGES = {"self_weight": 0.5, "prox_beta": 2.0}
FEW = {"model_batches": 2, "strategy_batches": 1}
CASES = {
    "separate": Case(acts=("w",), private=("w",)),
    "fedavg": Case(acts=("x",)),
    "fedavg-2step": Case(acts=("x",)),
    "fedprox": Case({"mu": 0.5}, ("x",)),
    "scaffold": Case({}, ("x", "c", "c_local"), ("c_local",)),
    "label-prior": Case(acts=("x",)),
    "fedavg-ft": Case(acts=("x",)),
    "fedprox-ft": Case({"mu": 0.5}, ("x",)),
    "fedavg-c": Case({"ft_epochs": 2}, ("x",), ("w",)),
    "fedprox-c": Case({"mu": 0.5, "ft_epochs": 2}, ("x",), ("w",)),
    "fedupdate": Case(acts=("x",)),
    "per-fedavg": Case({"inner_lr": 0.2}, ("x",)),
    "per-fedavg hf": Case({"inner_lr": 0.2, "variant": "hf"}, ("x",), base="per-fedavg"),
    "per-fedavg exact": Case({"inner_lr": 0.2, "variant": "exact"}, ("x",), base="per-fedavg"),
    "pfedme": Case({"inner_steps": 2, "lr_personal": 0.02}, ("x",), ("theta",)),
    "ditto": Case({"lam": 0.5}, ("x", "v"), ("v",)),
    "apfl": Case({}, ("x", "v", "alpha"), ("v", "alpha")),
    "fedrep": Case({"head_epochs": 2}, ("x", "w"), ("w",)),
    "fedper": Case({}, ("x", "w"), ("w",)),
    "fedbabu": Case(acts=("x",)),
    "fedrod": Case({}, ("x", "p"), ("p",)),
    "feddbe": Case({"kappa": 1.0}, ("x", "shift"), ("shift",)),
    "fedproto": Case({}, ("w",), ("w",)),
    "fedproto samples": Case({"pull": "samples", "lam": 5.0}, ("w",), ("w",), "fedproto"),
    "fedpac": Case({}, ("x", "w")),
    "fedas": Case({"align_lr": 0.1}, ("x", "w"), ("w",)),
    "fedas batches": Case({"fisher": "batches"}, ("x", "w"), ("w",), "fedas"),
    "fedbabu all": Case({"part": "all", "ft_epochs": 2}, ("x",), base="fedbabu"),
    "fedala": Case(quick_ala(), ("x",), ("ala_own", "ala_begin", "ala_weights")),
    "fedala p=2": Case(
        {"ala_layers": 2, "tol": 0.02, "window": 2}, ("x",), ("ala_weights",), "fedala"
    ),
    "fedphp": Case({"lam": 0.5, "expected": 4}, ("x", "h"), ("h", "taken")),
    "fedphp kl": Case({"lam": 0.5, "transfer": "predictions"}, (), ("h", "taken"), "fedphp"),
    "fedfomo": Case({}, ("w", "begin"), ("w", "begin", "weights")),
    "apple": Case({"lr_p": 0.1}, ("core", "p"), ("core", "p")),
    "partialfed": Case(FEW, (), ("w", "logits", "batch")),
    "oracle-groups": Case({"groups": (0, 1, 0, 1, 1)}, ("x",)),
    "cfl": Case({"eps1": 9.0, "eps2": 0.01, "warmup": 1}, ("x",)),
    "ifca": Case({"clusters": 2}, ("x",)),
    "pfedgraph": Case({"lam": 1.0}, ("u", "direction"), ("w",)),
    "fedbuff": Case({"buffer": 3}, ("x",)),
    "fedamp": Case(MESSAGES, ("w",), ("w",)),
    "heurfedamp": Case(MESSAGES, ("w",), ("w",)),
    "fedacs": Case({"p": 0.1}, ("w",)),  # participants decide
    "spfl": Case({}, ("w", "S")),
    "spfl-w": Case({}, ("w", "S")),
    "fedprox+ala": Case({"mu": 0.5}, ("x",), ("ala_own", "ala_weights"), "fedprox", True),
    "ditto+ala": Case({"lam": 0.5}, ("x", "v"), ("v", "ala_weights"), "ditto", True),
    "per-fedavg+ala": Case({}, ("x",), ("ala_own", "ala_begin"), "per-fedavg", True),
    "pfedme+ala": Case({"inner_steps": 2}, (), ("theta", "ala_own"), "pfedme", True),
    "fedphp+ala": Case({"lam": 0.5}, (), ("h", "ala_own"), "fedphp", True),
    "fedamp+ala": Case(MESSAGES, ("w",), ("w", "ala_own", "ala_weights"), "fedamp", True),
    "fedacs+ala": Case({"p": 0.3}, ("w",), (), "fedacs", True),
    "fedrep+ala": Case({"head_epochs": 2}, ("x",), ("w", "ala_own", "ala_weights"), "fedrep", True),
    "partialfed+ala": Case(FEW, (), ("w", "logits", "ala_weights"), "partialfed", True),
}
CASES |= {name: Case(dict(BY_NAME[name].needs)) for name in BY_NAME if name not in CASES}
every_case = pytest.mark.parametrize("name", CASES)
every_method = pytest.mark.parametrize("name", methods.names())


def build(name):
    case = CASES[name]
    kind = BY_NAME[case.base or name]
    late = {"stragglers": LATE} if kind.family == "late clients" else {}
    method = kind(**{**late, **case.hyper})
    return with_ala(method, **quick_ala()) if case.ala else method


def rounds(method, fed, count):
    """The state after ``count`` rounds with everyone, and one with some where that is allowed."""
    some = torch.tensor([4, 1, 2]) if method.partial else fed.everyone
    return method.round(go(method, fed, count), fed.at(count), some)


# ---- rounds -------------------------------------------------------------------------------------


@every_case
def test_engines_agree(data, unequal, name):
    method, states, tested = build(name), [], []
    for engine in ENGINES:
        fed = small_federation(data, unequal, engine=engine)
        states.append(rounds(method, fed, 2))
        tested.append(method.personal(states[-1], fed))
    all_close(*states)
    close(*tested)


@pytest.mark.parametrize("name", ["fedacs", "spfl", "spfl-1step", "spfl-w", "spfl-w-1step"])
def test_engines_agree_on_a_model_of_one_layer(data, uneven, name):
    loop, stacked = (
        last(build(name), plain_federation(data, uneven, "logistic_regression", engine=engine), 3)
        for engine in ENGINES
    )
    all_close(loop, stacked)


@pytest.mark.parametrize("name", [n for n in BY_NAME if BY_NAME[n].family == "late clients"])
def test_engines_agree_on_late_clients_with_a_model_of_one_layer(data, uneven, name):
    loop, stacked = (
        last(build(name), plain_federation(data, uneven, "logistic_regression", engine=engine), 4)
        for engine in ENGINES
    )
    all_close(loop, stacked)


BORROWED = ("separate", "fedavg", "fedbn", "fedavg-local-stats")  # here; see test_fedbn.py


@pytest.fixture(scope="module")
def neighbours(data, unequal):
    """What Separate and FedAvg have after some rounds."""
    fed = small_federation(data, unequal)

    @cache
    def after(count):
        both = algorithm("separate"), algorithm("fedavg")
        return [method.personal(go(method, fed, count), fed) for method in both]

    return after


@pytest.mark.parametrize("name", [name for name in CASES if name not in BORROWED])
def test_is_neither_separate_nor_fedavg(data, unequal, neighbours, name):
    fed, method = small_federation(data, unequal), build(name)
    count = 4 if method.family == "late clients" else 3
    mine = method.personal(go(method, fed, count), fed)
    assert mine.shape == (fed.m, fed.d) and torch.isfinite(mine).all()
    for theirs in neighbours(count):
        assert (mine - theirs).norm(dim=1).min() > 1e-3
    own_models = method.name != "scaffold" and method_of(method).private != "nothing"
    assert bool((mine[0] - mine[1:]).norm(dim=1).min() > 1e-4) == (own_models or CASES[name].ala)


def method_of(method):
    return getattr(method, "base", None) if "+ala" in method.name else method


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].acts])
def test_every_part_of_the_state_acts(data, unequal, name):
    """Moving the centre, a control, a private model or a mixture moves the tested models."""
    fed, method = small_federation(data, unequal), build(name)
    state = go(method, fed, 1)

    def after(state):
        return method.personal(method.round(state, fed.at(1), fed.everyone), fed.at(1))

    unmoved = after(state)
    for part in CASES[name].acts:
        shift = 0.1 * torch.randn(
            state[part].shape, generator=torch.Generator().manual_seed(0), dtype=fed.dtype
        )
        moved = after(state.set(**{part: state[part] + shift}))
        assert (moved - unmoved).norm(dim=1).min() > 1e-4, part


@pytest.mark.parametrize("name", [name for name in CASES if build(name).partial])
def test_private_state_is_the_clients_own(data, unequal, name):
    """Another order of the clients, or only some of them, changes nothing for the others."""
    fed, method = small_federation(data, unequal), build(name)
    state = go(method, fed, 1)
    here = fed.at(1)
    whole = method.round(state, here, here.everyone)
    all_close(method.round(state, here, here.everyone.flip(0)), whole)
    who, away = torch.tensor([3, 1]), torch.tensor([0, 2, 4])
    some = method.round(state, here, who)
    all_close(method.round(state, here, who.flip(0)), some)
    for rows in CASES[name].private:
        close(some[rows][who], whole[rows][who])
        assert torch.equal(some[rows][away], state[rows][away])
        assert not torch.equal(some[rows][who], state[rows][who]), rows


@every_case
def test_stopped_and_resumed_to_the_last_bit(data, unequal, name, tmp_path):
    """By way of checkpoints, with the states in memory, or on the disk, or now here, now there.

    Late clients come three rounds later, and both halves of the run must see some.
    """
    fed, method = small_federation(data, unequal), build(name)
    options = {"participation": 0.6 if method.partial else 1.0, "progress": False}
    rounds = 4 if method.family == "late clients" else 3
    straight = run(method, fed, rounds, **options)
    assert straight.tested == method.tested and 0 < straight.last <= 1

    def go_on(rounds, **where):
        return run(method, fed, rounds, checkpoint=tmp_path / "kept", **where, **options)

    go_on(rounds - 2)
    go_on(rounds - 1, state_folder=tmp_path / "rows")
    resumed = go_on(rounds)
    on_disk = run(method, fed, rounds, state_folder=tmp_path / "rows", **options)
    for other in (resumed, on_disk):
        assert other.accuracy == straight.accuracy and other.sent == straight.sent
        assert all(torch.equal(other.state[n], straight.state[n]) for n in straight.state)
    assert not list((tmp_path / "rows").glob("*"))  # nothing is left behind


COSTS = {"0": "0", "2Σ": "2 * d", "4Σ": "4 * d", "2·body": "2 * body", "(1+M)Σ": "(1 + m) * d"}
COSTS |= {"(1+k)Σ": "(1 + k) * d", "3Σ": "3 * d", "2(Σ−norm)": "2 * d"}
COSTS |= {"2·body+1": "2 * body + 1", "2·class means": "2 * means"}
COSTS["2Σ+3·class means"] = "2 * d + 3 * means + 1"  # and one number, the variance


@pytest.mark.parametrize("name", [name for name in CASES if build(name).partial])
def test_what_is_sent_is_what_the_comparison_says(data, unequal, name):
    fed, method = small_federation(data, unequal), build(name)
    numbers = {"d": fed.d, "m": fed.m, "body": int((~fed.head_mask).sum()), "means": 10 * 8}
    numbers["k"] = getattr(method, "clusters", None)
    each = eval(COSTS[method_of(method).cost], numbers)
    assert method.sent(fed, torch.tensor([4, 1, 2]), 0) == 3 * each


@pytest.mark.parametrize("name", [n for n in BY_NAME if BY_NAME[n].handed == "global model"])
def test_the_global_model_may_be_each_clients_own(data, unequal, name):
    """What ``personal`` promises where a global model is handed out; ALA relies on it."""
    fed, method = small_federation(data, unequal), build(name)
    state = go(method, fed, 1)
    spread = state.set(x=state.x.repeat(fed.m, 1))
    assert torch.equal(method.personal(spread, fed), method.personal(state, fed))


CHANGES = [
    ("fedacs", {"p": 0.8}),
    ("spfl", {"period": 1}),
    ("spfl", {"stages": 1}),
    ("spfl", {"temperature": 0.1}),
    ("spfl", {"local_head": True}),
    ("spfl", {"local_head": "reset"}),
    ("spfl", {"layer_weights": (0.5,)}),
    ("spfl", {"rule": "size_renorm"}),
    ("spfl", {"lr_server": 0.5}),
    ("spfl-w", {"period": 1}),
    ("spfl-w", {"temperature": 0.1}),
    ("spfl-w", {"local_head": True}),
    ("fedavg-async", {"stragglers": 0}),
    ("fedavg-async", {"cached": True}),
    ("fedavg-async", {"repeats": 2}),
    ("fedasync", {"staleness": "updates"}),
    ("fedasync", {"mixing": "late"}),
    ("fedavg-async", {"weighting": "equal"}),
    ("fedavg-async", {"local_steps": 1}),
    ("fedavg-sync", {"weighting": "equal"}),
    ("fedasync", {"alpha": 0.4}),
    ("fedasync", {"staleness_power": 2.0}),
    ("fedasync", {"rho": 1.0}),
    ("fedbuff", {"buffer": 2}),
    ("fedbuff", {"lr_server": 0.5}),
    ("lga", {"base": "pull"}),
    ("lga", {"rule": "none"}),
    ("lga", {"rule": "delay_compensated"}),
    ("lga", {"weighting": "sizes"}),
    ("plga", {"stages": 1}),
    ("plga", {"base": "pull"}),
    ("plga", {"mixes": "trained"}),
]


@pytest.mark.parametrize("name, change", CHANGES, ids=str)
def test_each_hyper_parameter_acts(data, uneven, name, change):
    fed = plain_federation(data, uneven)
    late = BY_NAME[name].family == "late clients"
    usual = {"stragglers": LATE} if late else {}
    plain, other = algorithm(name, **usual), algorithm(name, **{**usual, **change})
    a, b = (method.personal(last(method, fed, 5 if late else 3), fed) for method in (plain, other))
    if not late:
        least = 1e-2
    else:
        least = 1e-5 if "rule" in change else 1e-3  # the leap term is that small
    assert (a - b).norm(dim=1).mean() > least


SAME_AS_FEDAVG = [
    ("fedprox", {"mu": 0.0}),
    ("fedavg-2step", {"repeats": 1}),
    ("fedavg-c", {"ft_epochs": 0}),
    ("fedprox-c", {"ft_epochs": 0, "mu": 0.0}),
    ("label-prior", {}),  # x never sees the shifts
    ("fedavg-ft", {}),  # x never sees the fine-tuned copies
    ("fedprox-ft", {"mu": 0.0}),
    ("fedupdate", {}),
    ("ditto", {}),  # x never sees the personal models
    ("apfl", {}),
    ("fedper", {"personal_layers": 0}),
    ("fedrod", {"gamma": 0.0}),
    ("feddbe", {"kappa": 0.0, "memory": False}),
]


@pytest.mark.parametrize("name, hyper", SAME_AS_FEDAVG, ids=lambda v: str(v))
def test_the_global_model_is_fedavgs(data, unequal, name, hyper):
    fed = small_federation(data, unequal)
    close(go(algorithm(name, **hyper), fed, 3).x, go(algorithm("fedavg"), fed, 3).x, 1e-12)


ADAPTED = {"inner_lr": 0.2}
ENVELOPE = {"lam": 5.0, "lr_personal": 0.1, "inner_steps": 60}
SOLVES = {  # method, hyper-parameters, local steps, curvature of its own objective at client i
    "scaffold": ("scaffold", {}, 3, H),
    "per-fedavg fo": ("per-fedavg", ADAPTED, 1, H * (1 - 0.2 * H)),
    "per-fedavg hf": ("per-fedavg", {**ADAPTED, "variant": "hf"}, 1, H * (1 - 0.2 * H) ** 2),
    "per-fedavg exact": ("per-fedavg", {**ADAPTED, "variant": "exact"}, 1, H * (1 - 0.2 * H) ** 2),
    "pfedme": ("pfedme", ENVELOPE, 1, 5 * H / (5 + H)),
}


@pytest.mark.parametrize("name", SOLVES)
def test_rests_at_the_optimum_of_its_own_objective_only(quadratics, name):
    name, hyper, epochs, curvature = SOLVES[name]
    fed, method = quadratics(sizes=[2, 2], epochs=epochs), algorithm(name, **hyper)
    best = optimum(curvature)
    state = method.start(fed)
    if name == "scaffold":
        controls = H * (best - C)
        state = state.set(c_local=controls, c=controls.mean(0))
    close(method.round(state.set(x=best), fed, fed.everyone).x, best, 1e-9)
    moved = method.round(state.set(x=best + 0.1), fed, fed.everyone).x
    assert ((moved - best).abs() < 0.0999).all()  # and from elsewhere it comes nearer


# ---- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scaffold", "apfl", "pfedme", "per-fedavg"])
def test_methods_made_of_sgd_steps_refuse_adam(data, unequal, name):
    fed = small_federation(data, unequal, optimizer="adam", lr=1e-3)
    with pytest.raises(ValueError, match=f"plain SGD .* 'adam': .*algorithm.'{name}', lr=0.01"):
        run(algorithm(name), fed, 1, progress=False)
    by_adam = go(algorithm(name, lr=0.1), fed, 2)
    all_close(by_adam, go(algorithm(name), small_federation(data, unequal), 2), 1e-12)


@every_method
def test_every_hyper_parameter_refuses_bad_values_by_name(name):
    """The values come from the fields themselves, so a new hyper-parameter is tried too."""
    method = BY_NAME[name]
    for one in fields(method):
        assert "check" in one.metadata, f"{one.name} takes anything: see methods/_hyper.py"
        for value in one.metadata["bad"]:
            with pytest.raises((ValueError, TypeError), match=one.name):
                algorithm(name, **{**method.needs, one.name: value})


@every_method
def test_a_misspelt_hyper_parameter_is_answered_with_the_real_ones(name):
    real = [one.name for one in fields(BY_NAME[name])]
    with pytest.raises(ValueError) as refusal:
        algorithm(name, label="x")
    message = str(refusal.value)
    if not real:
        assert message == f"{name} has no hyper-parameters; got 'label'"
        return
    assert message.startswith(
        f"hyper-parameter of {name} must be one of {', '.join(map(repr, real))}"
    )
    with pytest.raises(ValueError, match=rf"Did you mean '{real[0]}'\?"):
        algorithm(name, **{real[0] + "s": 1})


def test_true_is_no_number():
    for name, hyper in (
        ("fedamp", {"sigma": True, "self_weight": 0.2}),
        ("fedamp", {"self_weight": True}),
        ("fedamp", {"self_weight": 0.2, "grad_factor": True}),
        ("spfl", {"steps_per_batch": True}),
        ("fedprox", {"mu": False}),
    ):
        with pytest.raises(ValueError, match=r"got (True|False)"):
            algorithm(name, **hyper)


# ---- what it says about itself ------------------------------------------------------------------


@every_method
def test_facts_are_given(name):
    method = BY_NAME[name]
    assert method.label and method.idea and method.__doc__ and ">>>" in method.__doc__
    assert method.family in methods.FAMILIES
    assert method.shared and method.private and method.weights_by and method.cost and method.tested
    assert method.paper or name == "separate"
    assert method.equations or method.note


def test_names_and_labels_are_unique():
    assert len({method.label for method in BY_NAME.values()}) == len(BY_NAME)
    assert list(BY_NAME) == [method.name for method in BY_NAME.values()] == methods.names()


def test_presets_differ_from_their_parent_by_values_only():
    """A variant with code of its own is a method, and has a file of its own."""
    files = {}
    for method in BY_NAME.values():
        files.setdefault(method.__module__, []).append(method)
    for module, found in files.items():
        parents = [m for m in found if any("def " in line for line in own_code(m))]
        assert len(parents) <= 1, module
        for method in found:
            if method not in parents and len(found) > 1:
                assert all(issubclass(method, parent) for parent in parents), method


def own_code(method):
    return [
        f"def {name}"
        for name, thing in vars(method).items()
        if callable(thing) and not name.startswith("__")
    ]


def test_the_comparison_table_knows_every_method():
    table = pfl_lib.compare(here="fedamp")
    assert [row[0] for row in table.rows] == [method.label for method in BY_NAME.values()]
    assert table._repr_html_().count("<strong>") == 1


def test_settings_are_plain_data():
    for name in methods.names():
        for value in build(name).settings().values():
            assert isinstance(value, (int, float, str, list, type(None))), (name, value)


def test_the_base_class_is_separate_training(data, unequal):
    fed = small_federation(data, unequal)
    assert torch.equal(go(Algorithm(), fed, 2).w, go(algorithm("separate"), fed, 2).w)


# ---- the direction: two worlds that contradict each other ---------------------------------------


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
            options = {"lr": 0.5, "batch_size": 100, "epochs": 8, "device": "cpu"}
            found[name] = []
            for seed in range(3):
                model = pfl_lib.models.build("mlp", data, seed=seed, hidden=(20,))
                fed = Federation(data, clients, model, seed=seed, **options)
                history = run(method, fed, 4, evaluate_every=4, progress=False)
                found[name].append(history.last)
        return found[name]

    return measure


ONE_MODEL = ("fedavg-2step", "fedprox", "scaffold")
OWN_MODEL = (
    "fedavg-ft", "fedprox-ft", "fedavg-c", "fedprox-c", "fedupdate", "per-fedavg",
    "per-fedavg hf", "per-fedavg exact", "pfedme", "ditto", "apfl", "fedrep",
)  # fmt: skip


@pytest.mark.parametrize("name", ONE_MODEL + OWN_MODEL)
def test_personal_models_beat_one_model_for_two_worlds(in_two_worlds, name):
    average = in_two_worlds("fedavg", algorithm("fedavg"))
    assert max(average) < 0.5  # one model cannot be right in both
    method = build(name)
    if name == "pfedme":  # lr·λ = 7.5: with a θ that goes on from batch to batch w overshoots
        method = replace(method, restart=True)
    for mine, fedavg in zip(in_two_worlds(name, method), average):
        if name in OWN_MODEL:
            assert mine > fedavg + 0.04
        else:
            assert mine < 0.5 and not math.isnan(mine)
