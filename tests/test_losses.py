"""Other losses than cross-entropy, other metrics than accuracy, and which way is better."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score, mean_absolute_error, roc_auc_score

import pfl_lib
from pfl_lib import data, methods, metrics, partition
from pfl_lib.callbacks import EarlyStopping
from pfl_lib.history import History
from pfl_lib.local.batches import batch_table
from pfl_lib.work import Work

ENGINES = ("loop", "stacked", "threads")
#: Methods that count or average by class; the others must run with any loss.
BY_CLASS = {"fedas", "feddbe", "fedpac", "fedproto", "fedrod", "label-prior"}


def toy(kind="mse", columns=2, clients=4, n=88):
    """Features with linear targets and noise, natural clients of unequal sizes."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, 3))
    y = x @ rng.normal(size=(3, columns)) + 0.3 * rng.normal(size=(n, columns))
    y = (y > 0).astype(float) if kind == "bce" else y
    whose = np.minimum(np.arange(n) % (clients + 1), clients - 1)  # the last one has twice as many
    return data.from_arrays(x, y[:, 0] if columns == 1 else y, whose, name="toy")


def federation(kind="mse", columns=2, **options):
    made = toy(kind, columns)
    options = {
        "lr": 0.1, "batch_size": 7, "dtype": torch.float64, "device": "cpu", "loss": kind, **options
    }  # fmt: skip
    model = pfl_lib.models.build("mlp", made, seed=3, hidden=(5,))
    clients = partition.natural(made)
    groups = torch.arange(clients.m) % 2
    clients = partition.Partition(
        clients.name, clients.train, clients.test, groups, source=clients.source
    )
    return pfl_lib.Federation(made, clients, model, **options)


# --------------------------------------------------------------------------------- the functions
def random_labels(classes, n=60):
    generator = torch.Generator().manual_seed(classes)
    return torch.randint(classes, (n,), generator=generator), torch.rand(
        n, classes, generator=generator
    ).double()


def test_auc_of_two_classes_with_ties():
    y, scores = random_labels(2)
    scores = (5 * scores[:, 0]).round()  # many ties
    assert metrics.auc(scores, y) == pytest.approx(roc_auc_score(y, scores), abs=1e-12)


@pytest.mark.parametrize("classes", [3, 7])
def test_auc_of_several_classes(classes):
    y, scores = random_labels(classes)
    share = scores / scores.sum(1, keepdim=True)
    known = roc_auc_score(y, share, multi_class="ovr", average="macro")
    assert metrics.auc(share, y) == pytest.approx(known, abs=1e-12)


def test_auc_of_several_labels_at_once():
    _, scores = random_labels(4)
    y = (random_labels(4, n=60)[1].flip(0) > 0.6).double()
    known = roc_auc_score(y, scores, average="macro")
    assert metrics.auc(scores, y) == pytest.approx(known, abs=1e-12)


def test_auc_by_hand_and_where_there_is_none():
    assert metrics.auc([3.0, 2.0, 2.0, 1.0], [1, 0, 1, 0]) == (1 + 1 + 0.5 + 1) / 4
    assert math.isnan(metrics.auc([0.1, 0.2], [1, 1]))
    assert math.isnan(metrics.auc([0.1, math.nan], [0, 1]))  # a broken model ranks nothing
    # class 2 has no sample: the two others count
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.1, 0.3, 0.6]])
    assert metrics.auc(scores, [0, 1, 1]) == 1.0


@pytest.mark.parametrize("classes", [2, 5])
def test_f1(classes):
    y, scores = random_labels(classes)
    predicted = scores.argmax(1)
    assert metrics.f1(predicted, y) == pytest.approx(
        f1_score(y, predicted, average="macro"), abs=1e-12
    )


def test_f1_of_several_labels_leaves_out_what_is_not_there():
    y = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    predicted = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 0]])
    known = f1_score(y[:, :2], predicted[:, :2], average="macro")
    assert metrics.f1(predicted, y) == pytest.approx(known, abs=1e-12)
    assert math.isnan(metrics.f1(predicted[:, 2:], y[:, 2:]))


def test_mae():
    y, predicted = torch.randn(2, 30, 2, generator=torch.Generator().manual_seed(1))
    assert metrics.mae(predicted, y) == pytest.approx(mean_absolute_error(y, predicted), abs=1e-6)


# ------------------------------------------------------------------------- training and evaluation
def plain_loop(fed, rows):
    """One epoch per client, with torch's own layers, losses and optimizer."""
    loss = {"mse": F.mse_loss, "bce": F.binary_cross_entropy_with_logits}[fed.loss]
    counts = [len(i) for i in fed.partition.train]
    tables = batch_table(Work({"w": rows}), fed.settings, counts, range(fed.m), 0)
    results = []
    for i, own in enumerate(fed.partition.train):
        module = fed.network.filled(rows[i])
        optimizer = torch.optim.SGD(module.parameters(), fed.settings.lr)
        x = fed.data.normalized(fed.data.x[own], torch.float64)
        y = fed.data.y[own].double().reshape(len(own), -1)
        for table in tables[i]:
            here = table[table >= 0]
            optimizer.zero_grad()
            loss(module(x[here]), y[here]).backward()
            optimizer.step()
        results.append(torch.cat([p.detach().reshape(-1) for p in module.parameters()]))
    return torch.stack(results)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "columns"), [("mse", 1), ("mse", 2), ("bce", 1), ("bce", 3)])
def test_every_engine_trains_as_plain_torch_does(kind, columns, engine):
    fed = federation(kind, columns, engine=engine)
    trained = pfl_lib.train(fed, fed.initial(), fed.everyone)
    known = plain_loop(fed, fed.initial())
    assert (trained - fed.initial()).abs().max() > 1e-3
    torch.testing.assert_close(trained, known, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "metric"), [("mse", "mae"), ("bce", "accuracy"), ("bce", "auc"), ("bce", "f1")]
)
def test_every_engine_measures_as_scikit_learn_does(kind, metric, engine, monkeypatch):
    monkeypatch.setattr("pfl_lib.local.evaluation.BLOCK", 3)  # several blocks
    fed = federation(kind, metric=metric, engine=engine)
    models = pfl_lib.train(fed, fed.initial(), fed.everyone, epochs=4)
    value, loss = fed.evaluate(models, split="train")
    for i, own in enumerate(fed.partition.train):
        x = fed.data.normalized(fed.data.x[own], torch.float64)
        out = fed.network.filled(models[i])(x).detach()
        y = fed.data.y[own].double()
        if kind == "mse":
            known = mean_absolute_error(y, out), F.mse_loss(out, y)
        else:
            predicted = (out > 0).double()
            measures = {
                "accuracy": lambda: (predicted == y).double().mean(),  # noqa: B023
                "auc": lambda: roc_auc_score(y, out, average="macro"),  # noqa: B023
                "f1": lambda: f1_score(y, predicted, average="macro"),  # noqa: B023
            }
            known = measures[metric](), F.binary_cross_entropy_with_logits(out, y)
        assert value[i].item() == pytest.approx(float(known[0]), abs=1e-10)
        assert loss[i].item() == pytest.approx(known[1].item(), abs=1e-10)


def rare(n=120, clients=3):
    """Landmine-like: two classes, of which one is rare; the last client has none of it."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 4))
    whose = np.arange(n) % clients
    y = ((x[:, 0] > 0.6) & (whose < clients - 1)).astype(int)
    made = data.from_arrays(x, y, whose, name="rare")
    return made, partition.natural(made)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("metric", ["auc", "f1"])
def test_rare_classes(metric, engine):
    made, clients = rare()
    fed = pfl_lib.Federation(
        made, clients, "logistic_regression", lr=0.3, dtype=torch.float64, metric=metric,
        engine=engine, device="cpu",
    )  # fmt: skip
    models = pfl_lib.train(fed, fed.initial(), fed.everyone, epochs=3)
    value, loss = fed.evaluate(models)
    for i, own in enumerate(clients.test):
        out = fed.network.logits(models[i], made.normalized(made.x[own], torch.float64)).detach()
        y = made.y[own]
        if metric == "f1":
            known = f1_score(y, out.argmax(1), average="macro")
        else:
            known = roc_auc_score(y, out.softmax(1)[:, 1]) if y.any() else math.nan
        assert value[i].item() == pytest.approx(known, abs=1e-10, nan_ok=True)
    assert value[2].isnan() == (metric == "auc") and bool(torch.isfinite(loss).all())
    torch.testing.assert_close(loss, fed.replace(metric="accuracy").evaluate(models)[1])


def test_a_client_without_auc_is_left_out_of_the_mean():
    made, clients = rare()
    fed = pfl_lib.Federation(made, clients, "logistic_regression", lr=0.3, metric="auc")
    history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 2, progress=False)
    first, second, third = history.accuracy[-1]
    assert math.isnan(third) and history.last == pytest.approx((first + second) / 2)
    assert history.metric == "auc" and "auc 0." in repr(history)
    assert next(iter(history.measurements()[0])) == "auc"
    assert history.broken == []


def test_several_classes_are_ranked_by_their_probability():
    fed = pfl_lib.example("logistic_regression").replace(metric="auc", dtype=torch.float64)
    models = pfl_lib.train(fed, fed.initial(), fed.everyone)
    value, _ = fed.evaluate(models, split="train")
    own = fed.partition.train[0]
    out = fed.network.logits(models[0], fed.data.normalized(fed.data.x[own], torch.float64))
    share, y = out.detach().softmax(1), fed.data.y[own]
    each = [roc_auc_score(y == c, share[:, c]) for c in y.unique().tolist()]
    assert value[0].item() == pytest.approx(sum(each) / len(each), abs=1e-10)


# ------------------------------------------------------------------------------------ every method
@pytest.mark.parametrize("kind", ["mse", "bce"])
@pytest.mark.parametrize("name", methods.names())
def test_every_method_runs_or_says_why_not(name, kind):
    method, fed = methods.BY_NAME[name](**methods.BY_NAME[name].needs), federation(kind)
    if name in BY_CLASS:
        with pytest.raises(ValueError, match=f"{method.label} works with class labels .*{kind}"):
            pfl_lib.run(method, fed, 1, progress=False)
        return
    history = pfl_lib.run(method, fed, 1, progress=False)
    assert history.metric == ("mae" if kind == "mse" else "accuracy")
    assert all(math.isfinite(value) for value in [*history.accuracy[0], *history.loss[0]])


def test_a_run_learns():
    fed = federation("mse", columns=1, lr=0.05)
    history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 30, progress=False)
    assert history.last < 0.6 * history.mean[0]
    targets = torch.cat([fed.data.y[i] for i in fed.partition.test])
    assert history.last < 0.6 * float((targets - fed.data.y_train.mean()).abs().mean())


def test_over_flower_in_one_process():
    flower = pytest.importorskip("pfl_lib.flower.federation")
    near = federation("mse")
    module = near.network.filled(near.initial()[0])
    far = flower.RemoteFederation(
        flower.in_process(near), module, clients=near.m, lr=0.1, batch_size=7,
        dtype=torch.float64, loss="mse",
    )  # fmt: skip
    fedavg = pfl_lib.algorithm("fedavg")
    here, there = (pfl_lib.run(fedavg, fed, 2, progress=False) for fed in (near, far))
    torch.testing.assert_close(here.state.x, there.state.x, rtol=0, atol=1e-10)
    assert there.metric == "mae" and there.last == pytest.approx(here.last, abs=1e-10)


# ------------------------------------------------------------------------------ which way is better
def record(metric, rows):
    settings = {} if metric == "accuracy" else {"metric": metric}
    return History("x", "", settings, list(range(1, 1 + len(rows))), rows)


def test_the_best_error_is_the_smallest():
    history = record("mae", [[3.0, 1.0], [1.0, 0.5], [2.0, 9.0]])
    assert (history.best, history.best_round, history.worst()) == (0.75, 2, 9.0)
    history = record("auc", [[0.3, 0.1], [0.9, 0.5], [0.2, 0.1]])
    assert (history.best, history.best_round, history.worst()) == (0.7, 2, 0.1)


def test_wins_are_counted_the_right_way_round():
    good, bad = record("mae", [[1.0, 2.0, 30.0]]), record("mae", [[2.0, 3.0, 20.0]])
    assert metrics.win_rate(good, bad) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="same metric"):
        metrics.win_rate(good, record("accuracy", [[0.1, 0.2, 0.3]]))


def test_tune_takes_the_smallest_error():
    fed = federation("mse", columns=1)
    found = pfl_lib.tune("fedavg", {"lr": [1e-5, 0.05]}, fed, rounds=5, progress=False)
    means = [trial.mean for trial in found.trials]
    assert found.settings == {"lr": 0.05} and means[1] < means[0]
    assert [row[1] for row in found.table().rows] == ["0.05", "1e-05"]
    assert "mae on samples" in found.table().note


def test_early_stopping_waits_for_the_error_to_fall():
    fed, validation = federation("mse", columns=1, lr=0.05).hold_out(0.3)
    stopping = EarlyStopping(validation, patience=2)
    options = {"callbacks": [stopping], "progress": False}
    history = pfl_lib.run(pfl_lib.algorithm("separate"), fed, rounds=200, **options)
    assert stopping.metric == "mae" and len(history.rounds) > 3
    values = dict(stopping.validation_curve)
    assert values[stopping.best_round] == min(values.values())
    assert "mae did not fall" in history.stopped


def test_newcomers_are_judged_the_same_way():
    everyone = federation("mse")
    fed, late = (everyone.replace(partition=part)
                 for part in partition.set_aside(everyone.partition, [0]))  # fmt: skip
    state = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 1, progress=False).state
    served = pfl_lib.serve_newcomers(pfl_lib.algorithm("fedavg"), state, fed, late)
    assert served.worst == served.accuracy.max() and ", mae " in repr(served)


def test_a_run_can_be_resumed_and_knows_its_loss(tmp_path):
    method, fed = pfl_lib.algorithm("fedavg"), federation("mse")
    whole = pfl_lib.run(method, fed, 4, progress=False)
    pfl_lib.run(method, fed, 2, checkpoint=tmp_path, progress=False)
    resumed = pfl_lib.run(method, fed, 4, checkpoint=tmp_path, progress=False)
    assert torch.equal(whole.state.x, resumed.state.x) and resumed.metric == "mae"
    assert (fed.describe()["loss"], fed.describe()["metric"]) == ("mse", "mae")
    assert not {"loss", "metric"} & set(pfl_lib.example().describe())


# --------------------------------------------------------------------------------- what is refused
def test_targets_are_kept_as_they_are():
    made = toy(columns=1)
    assert (made.y.dtype, made.y.shape, made.labeled) == (torch.float32, (88,), False)
    assert made.classes == ("0",) and "1 targets" in repr(made)
    assert toy(columns=3).y.shape == (88, 3)
    assert partition.iid(made, clients=3).describe(made).startswith("3 clients")
    assert partition.natural(made, test_share=0.5).m == 4


def wide():
    return pfl_lib.Federation(toy(columns=2), partition.iid(toy(), 3), loss="mse", model=_Wide())


class _Wide(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 5)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: federation("mse", loss="cross_entropy"), "must be 'mse' or 'bce' for toy.*astype"),
        (lambda: federation("mse", loss="bce"), "targets that are 0 or 1"),
        (lambda: federation("mse", metric="accuracy"), "metric .*mae.*got 'accuracy'"),
        (lambda: federation("bce", metric="mae"), "metric .*got 'mae'"),
        (lambda: pfl_lib.example().replace(loss="mse"), "loss must be 'cross_entropy' for digits"),
        (wide, "one number for each target"),
        (lambda: partition.dirichlet(toy(), 3, a=0.5), "class labels"),
        (lambda: partition.iid(toy(), 3).counts(toy()), "class labels"),
        (lambda: data.from_arrays(np.ones((4, 2)), np.full(4, np.inf)), "y must be finite"),
        (lambda: data.from_arrays(np.ones((4, 2)), np.ones((4, 2)), classes=["a"]), "2 columns"),
        (lambda: data.from_arrays(np.ones((4, 2)), np.ones((4, 2), int)), "targets of type"),
    ],
)
def test_refused(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()
