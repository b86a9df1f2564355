"""What the papers print about their runs, as data.  One rule: for whom, and which values.

Rules are read from top to bottom and a later one replaces what an earlier one gave.  ``given``,
``ours`` and ``changed`` say what kind of value it is; a plain value takes the rule's own source.
"""

from typing import Any, NamedTuple

DATA = ("mnist", "fashion_mnist", "emnist", "cifar10", "cifar100", "tiny_imagenet", "ag_news")
PARTITIONS = ("iid", "pathological", "grouped", "class_subset", "dirichlet", "scarce")

#: Which data each paper ran under which partition.
RUNS: dict[str, dict[str, tuple[str, ...]]] = {
    "fedamp": dict.fromkeys(
        ("iid", "pathological", "grouped"), ("mnist", "fashion_mnist", "emnist", "cifar100")
    ),
    "spfl": {"class_subset": ("mnist", "cifar10", "emnist", "cifar100")},
    "fedala": {
        "dirichlet": ("mnist", "cifar10", "cifar100", "tiny_imagenet", "ag_news"),
        "pathological": ("mnist", "cifar10", "cifar100"),
    },
    "fedacs": dict.fromkeys(("pathological", "dirichlet", "scarce"), ("cifar10", "fashion_mnist")),
}

SPFL_FAMILY = ("spfl", "spfl-1step", "spfl-w", "spfl-w-1step")
ASYNCHRONOUS = ("fedavg-async", "fedavg-sync", "fedasync", "lga", "plga")
#: Which methods each paper ran ("separate" is called local or independent training elsewhere).
#: FedACS comes last: it ran most of them and says nothing about how.
METHODS = {
    "fedamp": (
        *("separate", "fedavg", "fedprox", "fedavg-ft", "fedprox-ft", "scaffold", "apfl"),
        *("fedamp", "heurfedamp"),
    ),
    "spfl": (
        *("separate", "fedavg", "fedupdate", "per-fedavg", "fedavg-2step", "pfedme"),
        *SPFL_FAMILY,
        *ASYNCHRONOUS,
    ),
    "fedala": (
        *("fedavg", "fedprox", "fedavg-c", "fedprox-c", "per-fedavg", "fedrep", "pfedme"),
        *("ditto", "fedamp", "fedphp", "fedfomo", "apple", "partialfed", "fedala"),
    ),
    "fedacs": (
        *("separate", "fedavg", "ditto", "per-fedavg", "pfedme", "apfl", "fedamp", "fedacs"),
    ),
}
#: The paper one means when no other is named: the method's own, else the one that says most.
HOME = {
    **dict.fromkeys(METHODS["fedala"], "fedala"),
    **dict.fromkeys(METHODS["spfl"], "spfl"),
    **dict.fromkeys(METHODS["fedamp"], "fedamp"),
    **dict.fromkeys(("fedprox", "per-fedavg", "pfedme", "ditto"), "fedala"),
    "fedacs": "fedacs",
}


class Value(NamedTuple):
    value: Any
    source: str


class Schedule(NamedTuple):
    """start·factor^⌊k/every⌋ in round k: data to look at, and a function to call.

    >>> halve = Schedule(start=0.1, factor=0.5, every=10)
    >>> halve(0), halve(10), halve(25)
    (0.1, 0.05, 0.025)
    """

    start: float
    factor: float
    every: int

    def __call__(self, k):
        return self.start * self.factor ** (k // self.every)


class Rule(NamedTuple):
    paper: str
    methods: tuple  # empty: all methods of the paper
    data: tuple  # empty: any, even none
    partitions: tuple  # empty: any, even none
    values: dict


def given(value, source):
    return Value(value, source)


def ours(value, why):
    return Value(value, f"not given: our choice ({why})")


def changed(value, printed, source, why):
    return Value(value, f"changed: {source} prints {printed}; {why}")


RULES: list[Rule] = []


def rule(paper, source, methods=(), data=(), partitions=(), **values):
    named = {n: v if isinstance(v, Value) else Value(v, source) for n, v in values.items()}
    methods = methods or METHODS[paper]
    RULES.append(Rule(paper, _words(methods), _words(data), _words(partitions), named))


def _words(names):
    return (names,) if isinstance(names, str) else tuple(names)


# --- What a baseline needs and most papers do not give; a paper's own value replaces it below.
TUNED = "the value Zhang et al. tuned"
USUAL = "a usual value"
NEEDS = {
    "fedprox": {"mu": ours(0.001, TUNED)},
    "fedprox-ft": {"mu": ours(0.001, TUNED)},
    "fedprox-c": {"mu": ours(0.001, TUNED)},
    "scaffold": {"lr_server": ours(1.0, USUAL)},
    "apfl": {"alpha": ours(0.5, "starts half personal, half shared")},
    "per-fedavg": {"inner_lr": ours(0.01, "as the local learning rate")},
    "pfedme": {
        "lam": ours(15.0, TUNED),
        "inner_steps": ours(5, TUNED),
        "lr_personal": ours(0.01, TUNED),
        "beta": ours(1.0, TUNED),
    },
    "ditto": {"lam": ours(0.1, TUNED), "personal_epochs": ours(2, TUNED)},
}
for _paper, _methods in METHODS.items():
    for _method in _methods:
        if _method in NEEDS:
            rule(_paper, "", _method, **NEEDS[_method])

# --- FedAMP, arXiv v1 and AAAI 2021 ----------------------------------------------------------
V1 = "Huang et al. v1"
SET_UP, APPENDIX = f"{V1}, Sec. 4.1", f"{V1}, Sec. C.1"
CNN_DATA = ("mnist", "fashion_mnist", "emnist")
HUNDRED = ("mnist", "fashion_mnist", "cifar100")

rule("fedamp", SET_UP, optimizer="adam", lr=1e-3, batch_size=100, epochs=10)
rule(
    "fedamp",
    "",
    rounds=ours(100, "the text speaks of more than 60, and beta falls every 30"),
    participation=ours(1.0, "clients drop out in Sec. C.3 only"),
)
rule(
    *("fedamp", "", (), CNN_DATA),
    model=given("mcmahan_cnn", f"{SET_UP} (the CNN of McMahan et al.: 1,663,370 parameters)"),
)
rule("fedamp", SET_UP, data="cifar100", model="resnet18")
rule("fedamp", APPENDIX, data=HUNDRED, partitions="grouped", clients=100)
rule("fedamp", SET_UP, data="emnist", partitions="grouped", clients=62)
rule("fedamp", f"{V1}, Table 3 (its tau = 0.99 is 1 - 1/100)", (), HUNDRED, "iid", clients=100)
rule("fedamp", f"{V1}, Table 3 (its tau is 1 - 1/62)", (), "emnist", "iid", clients=62)
rule("fedamp", "", (), HUNDRED, "pathological", clients=ours(100, "as in the other settings"))
rule("fedamp", "", (), "emnist", "pathological", clients=ours(62, "as in the other settings"))
rule("fedamp", APPENDIX, partitions="pathological", classes_per_client=2)
rule("fedamp", APPENDIX, partitions="grouped", share=0.8, test_size=100)
rule("fedamp", APPENDIX, (), ("mnist", "fashion_mnist"), "grouped", group_clients=(20,) * 5)
rule("fedamp", APPENDIX, (), "mnist", "grouped", group_sizes=(500, 400, 300, 200, 100))
rule("fedamp", APPENDIX, (), "fashion_mnist", "grouped", group_sizes=(600, 500, 400, 300, 200))
rule(
    *("fedamp", SET_UP, (), "emnist", "grouped"),
    group_clients=(10, 26, 26),
    group_sizes=(1000, 700, 400),
)
rule(
    *("fedamp", APPENDIX, (), "cifar100", "grouped"),
    group_clients=(5,) * 20,
    group_sizes=tuple(size for size in (500, 400, 300, 200, 100) for _ in range(4)),
)
rule(
    *("fedamp", "", ("fedavg-ft", "fedprox-ft")),
    ft_epochs=ours(10, "as many as in a round of training"),
)
rule(
    *("fedamp", "", ("scaffold", "apfl")),
    optimizer=ours("sgd", "the method is defined for SGD"),
    lr=ours(0.1, "v1's 0.001 is for Adam; near the best of the experiment own_steps"),
    batch_size=given(100, f"{SET_UP} (same for all methods)"),
    epochs=given(10, f"{SET_UP} (same for all methods)"),
)

MESSAGES = ("fedamp", "heurfedamp")
rule(
    *("fedamp", APPENDIX, MESSAGES),
    prox_beta=Schedule(1e4, 0.1, 30),
    begin=ours("u", "from w the printed beta would mean no collaboration for 90 rounds"),
)
rule("fedamp", "Huang et al., Sec. 3", "fedamp", attention="negative_exponential")
# partition: table, then for each data set sigma of FedAMP, sigma of HeurFedAMP, printed tau
TABLES_2_TO_4 = {
    "grouped": ("2", (100.0, 25.0, 0.95), (10.0, 100.0, 0.95), (10.0, 50.0, 0.9), (1e6, 10.0, 0.8)),
    "iid": ("3", (100.0, 25.0, 0.99), (100.0, 50.0, 0.99), (10.0, 50.0, 0.084), (1e6, 10.0, 0.99)),
    "pathological": (
        *("4", (100.0, 25.0, 0.5), (10.0, 100.0, 0.5), (10.0, 50.0, 0.5), (1e6, 10.0, 0.5)),
    ),
}
for _partition, (_number, *_columns) in TABLES_2_TO_4.items():
    for _data, (_amp, _heur, _tau) in zip((*CNN_DATA, "cifar100"), _columns):
        _at = f"{V1}, Table {_number}"
        rule("fedamp", _at, "fedamp", _data, _partition, sigma=_amp)
        rule("fedamp", _at, "heurfedamp", _data, _partition, sigma=_heur)
        _true = Value(_tau, _at)
        if _tau == 0.084:
            _true = changed(0.984, _tau, _at, "the rule 1 - 1/(N + 1) of Sec. C.1 gives 1 - 1/62")
        rule(
            *("fedamp", _at, MESSAGES, _data, _partition),
            tau_printed=_tau,
            tau=_true,
            self_weight=given(
                round(1 - _true.value, 3), f"1 - tau by v1's Eq. (11); tau: {_true.source}"
            ),
        )

# --- SPFL, LGA and PLGA ------------------------------------------------------------------------
S = "the SPFL paper"
SYNCHRONOUS = tuple(name for name in METHODS["spfl"] if name not in ASYNCHRONOUS)
CODE = "the authors' public code"
rule("spfl", f"{S}, Sec. 4", clients=10, runs=10, test_share=0.2)
rule("spfl", f"{S}, Table 4", model="spfl_cnn")
rule("spfl", f"{S}, Sec. 3.1 and Algorithm 2", optimizer="sgd")
rule("spfl", "", participation=ours(1.0, "stragglers in Sec. 4.2 only"))
for _data, _classes in {"mnist": 6, "cifar10": 6, "emnist": 32, "cifar100": 60}.items():
    rule("spfl", f"{S}, Sec. 4", (), _data, "class_subset", classes_per_client=_classes)
rule("spfl", f"{S}, Table 5 (32·240 samples) and {CODE}", (), "emnist", edition="balanced")
rule("spfl", f"{S}, Sec. 4.1", SYNCHRONOUS, batch_size=128, lr=0.01, epochs=1)
rule("spfl", CODE, SYNCHRONOUS, weight_decay=1e-4)
rule("spfl", "", SYNCHRONOUS, rounds=ours(100, f"the default of {CODE}"))
rule("spfl", f"{S}, Sec. 4.1", SPFL_FAMILY, period=10, stages=2)
rule(
    *("spfl", f"{S}, Sec. 4.1", ("spfl", "spfl-1step")),
    lr_server=changed(
        1.0, 0.01, f"{S}, Sec. 4.1", "with the weights of Eq. (7) a model would move by 0.001"
    ),
    rule=ours("softmax", "Eq. (7)'s weights sum to 1/N for equal sizes"),
)
rule("spfl", f"{S}, Sec. 4.1", ("spfl", "spfl-w"), steps_per_batch=2)
rule("spfl", f"{S}, Sec. 4.1", ("spfl-1step", "spfl-w-1step"), steps_per_batch=1)
rule("spfl", "", "fedavg-2step", repeats=ours(2, f"{CODE} runs this as Per-FedAvg"))
rule("spfl", "", "fedupdate", ft_steps=ours(1, f"the default of {CODE}"))
rule("spfl", "", "pfedme", inner_steps=ours(2, CODE), lam=ours(15.0, CODE))
rule("spfl", f"{S}, Sec. 4.2", ASYNCHRONOUS, batch_size=64, lr=0.001, rounds=800)
rule(
    *("spfl", f"{S}, Sec. 4.2", ASYNCHRONOUS),
    epochs=given(20, f"{S}, Sec. 4.2 (E; Algorithm 2 and {CODE} count steps, not epochs)"),
    local_steps=given(20, f"{S}, Algorithm 2 and {CODE}; Sec. 4.2 calls E epochs"),
    stragglers=given("alternating", f"{S}, Sec. 4.2: five, with periods 1 to 5; in turn: {CODE}"),
    periods=(1, 2, 3, 4, 5),
    shuffle=given(False, f"{CODE}, which lists a client's samples class by class"),
)
rule(
    *("spfl", "", "fedasync"),
    alpha=ours(0.8, CODE),
    staleness_power=ours(0.5, CODE),
    mixing=ours("late", f"{CODE} mixes late models only, then averages"),
)
rule(
    *("spfl", "", ("lga", "plga")),
    base=given("now", f"{S}, Sec. 4.2: Eq. (11) is better than Eq. (10)"),
    rule=given("printed", f"{S}, Eq. (11)"),
)
rule("spfl", "", "plga", stages=ours(2, "as for SPFL"))

#: What a paper searched before it settled on a value: {paper: {method: {name: candidates}}}.
TENTHS = tuple(n / 10 for n in range(11))
RATES = (0.1, 0.01, 0.001, 0.0001)
GRIDS: dict[str, dict[str, dict[str, tuple]]] = {
    "fedala": {
        "fedprox": {"mu": RATES},
        "fedrep": {"head_epochs": tuple(range(1, 11))},
        "pfedme": {
            "lr_personal": RATES,
            "beta": (0.1, 0.5, 0.9, 1.0),
            "lam": (0, 0.1, 1, 5, 10, 15, 20, 50),
            "inner_steps": (1, 5, 10, 20),
        },
        "ditto": {
            "personal_epochs": tuple(range(1, 11)),
            "lam": (0.0001, 0.001, 0.01, 0.1, 1, 10),
        },
        "fedamp": {
            "alpha": (10000, 1000, 100, 10, 1, 0.1),
            "lam": (100, 10, 1, 0.1, 0.01),
            "sigma": (1, 0.5, 0.1, 0.05, 0.01),
        },
        "fedphp": {"mu": TENTHS, "lam": (0.1, 0.05, 0.01, 0.005, 0.001)},
        "apple": {
            "lr_p": (0.1, 0.05, 0.01, 0.005, 0.001),
            "mu": (1, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001),
            "horizon": TENTHS,  # times the rounds
        },
        "partialfed": {
            "model_batches": tuple(range(9, 0, -1)),  # of ten; the others learn the strategy
        },
        "fedala": {
            "ala_lr": (0.1, 1.0, 10.0),
            "ala_percent": (5, 10, 20, 40, 60, 80, 100),
            "ala_layers": (1, 2, 3, 4, 5, 6),  # 1, 2, …: as many as the network has
        },
    },
}

# --- FedACS: the paper names its data and nothing else ------------------------------------------
A = "Chen et al., Sec. 3.1"
rule(
    *("fedacs", A),
    runs=5,
    model=ours("mcmahan_cnn", "the network is not named"),
    optimizer=ours("sgd", "Eq. (5) shows a gradient step"),
    lr=ours(0.01, USUAL),
    batch_size=ours(32, USUAL),
    epochs=ours(5, "the text says several steps"),
    rounds=ours(100, USUAL),
    participation=ours(1.0, "some clients join in the 500-client setting, share not stated"),
    clients=100,
)
rule("fedacs", A, partitions="pathological", classes_per_client=2)
rule("fedacs", A, partitions=("dirichlet", "scarce"), a=0.5)
rule("fedacs", "", (), (), ("dirichlet", "scarce"), form=ours("fedacs", "the test part alike"))
rule("fedacs", A, partitions="scarce", samples=50)
rule("fedacs", "", "fedacs", p=ours(0.5, "half of the pairs are heard"))
rule(
    *("fedacs", "", "fedacs"),
    negatives=ours("drop", "a negative cosine would give a weight outside [0, 1]"),
)
rule(
    *("fedacs", "", "fedamp"),
    sigma=ours("median", "follows the scale of the models"),
    self_weight=ours(0.5, "that of FedAMP's own tables for clients without groups"),
)

# --- FedALA --------------------------------------------------------------------------------------
Z, TUNING = "Zhang et al., Experimental Setup", "Zhang et al., Hyperparameter Settings"
PUBLIC = "the first author's public library"
rule(
    *("fedala", Z),
    batch_size=10,
    epochs=1,
    rounds=2000,
    clients=20,
    participation=1.0,
    runs=5,
    test_share=0.25,
    optimizer=given("sgd", "Zhang et al., Algorithm 1, line 16"),
)
rule("fedala", Z, data="mnist", model="fedala_cnn", lr=0.1)
rule("fedala", Z, data=("cifar10", "cifar100"), model="fedala_cnn", lr=0.005)
rule(
    *("fedala", Z, (), "tiny_imagenet"),
    model=given("fedala_cnn", f"{Z} (ResNet-18 in the columns TINY*, then lr 0.1)"),
    lr=0.005,
)
rule("fedala", Z, data="ag_news", model="fasttext", lr=0.1)
rule(
    *("fedala", "", (), "ag_news"),
    length=given(200, "the authors' public code: texts cut or padded to 200 tokens"),
)
rule("fedala", Z, partitions="dirichlet", a=0.1, form="fedala")
rule("fedala", Z, (), ("mnist", "cifar10"), "pathological", classes_per_client=2)
rule("fedala", Z, (), "cifar100", "pathological", classes_per_client=10)
rule("fedala", TUNING, ("fedprox", "fedprox-c"), mu=0.001)
rule(
    *("fedala", "", ("fedavg-c", "fedprox-c")),
    ft_epochs=ours(15, "the times of Table 3 say about 14 extra epochs"),
)
# "same as the local learning rate", which depends on the data
for _data, _lr in {
    **{"mnist": 0.1, "cifar10": 0.005, "cifar100": 0.005},
    **{"tiny_imagenet": 0.005, "ag_news": 0.1},
}.items():
    rule("fedala", f"{TUNING} (the local learning rate)", "per-fedavg", _data, inner_lr=_lr)
rule("fedala", "", "fedrep", head_epochs=given(5, f"{TUNING} (tau local updates)"))
rule("fedala", TUNING, "pfedme", lr_personal=0.01, beta=1.0, lam=15.0, inner_steps=5)
rule("fedala", TUNING, "ditto", personal_epochs=2, lam=0.1)
rule(
    *("fedala", TUNING, "fedamp"),
    alpha=1000.0,
    lam=1.0,
    sigma=0.1,
    begin=ours("w", "with a start at u these weights are far from convex (own weight below -1000)"),
)
rule(
    *("fedala", TUNING, "fedphp"),
    mu=0.9,
    lam=0.01,
    expected=given(2000, f"{PUBLIC}: mu grows over all rounds (share of clients times rounds)"),
)
rule(
    *("fedala", TUNING, "fedfomo"),
    received=given("all", f"{TUNING} (M = number of clients)"),
    if_nobody_helps=given("trained", f"{PUBLIC}; the paper is silent"),
)
rule(
    *("fedala", TUNING, "apple"),
    lr_p=0.01,
    mu=0.1,
    horizon=given(400, f"{TUNING} (L = 0.2 of the 2000 rounds)"),
    scheduler="cos",
    received=given("all", f"{TUNING} (M = number of clients)"),
    p_gradient=given("tensor mean", f"{PUBLIC}, to which the rate belongs"),
)
rule(
    *("fedala", TUNING, "partialfed"),
    temperature=5.0,
    decay=0.965,
    model_batches=8,
    strategy_batches=2,
)
rule("fedala", TUNING, "fedala", ala_lr=1.0, ala_percent=80, ala_layers=1)
rule(
    *("fedala", "", "fedala"),
    tol=given(0.01, "the read-me of the authors' repository (its module's default is 0.1)"),
    window=given(10, "the authors' public module; no test of convergence is printed"),
    remix_before_test=given(True, "the authors' public code: all clients mix, then are tested"),
    max_epochs=ours(50, "a bound on the first stage"),
)
