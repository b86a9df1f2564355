"""Callbacks: notified of every step, in order; logs without doubled rows; stopping that resumes."""

import csv
import json
import sys
from dataclasses import replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import pytest
import torch

import pfl_lib
from pfl_lib import algorithm, checkpoints, run
from pfl_lib.callbacks import Callback, CSVLog, EarlyStopping, MLflow, TensorBoard, WandB
from tests.support.runs import FEDAMP, same
from tests.support.runs import linear_federation as federation

FEDAVG = algorithm("fedavg")


class Diary(Callback):
    """Everything it is notified of, in order."""

    def __init__(self):
        self.seen = []

    def on_start(self, now):
        self.seen.append(("start", now.round, now.rounds))

    def on_round_end(self, now):
        self.seen.append(("round", now.round, now.sent))

    def on_evaluate(self, now):
        self.seen.append(("evaluate", now.round, now.newest["accuracy"] == now.history.last))

    def on_checkpoint(self, now):
        self.seen.append(("checkpoint", now.round, len(list(now.checkpoint.glob("*.json")))))

    def on_end(self, now):
        self.seen.append(("end", now.round, now.history.state is not None))


class Fails(Callback):
    """Raises at one step of one round."""

    def __init__(self, where, at):
        self.where, self.at = where, at

    def __getattribute__(self, name):
        if name == object.__getattribute__(self, "where"):
            return self._fail
        return object.__getattribute__(self, name)

    def _fail(self, now):
        if now.round == self.at:
            raise RuntimeError("the logger's disk is full")


def test_a_callback_is_told_of_every_step(data, tmp_path):
    fed, diary = federation(data), Diary()
    options = {"evaluate_every": 2, "checkpoint_every": 2, "checkpoint": tmp_path}
    run(FEDAVG, fed, 3, callbacks=[diary], progress=False, **options)
    each = 2 * fed.d * fed.m
    assert diary.seen == [
        ("start", 0, 3),
        ("round", 1, each),
        ("round", 2, 2 * each),
        ("evaluate", 2, True),
        ("checkpoint", 2, 1),
        ("round", 3, 3 * each),
        ("evaluate", 3, True),
        ("checkpoint", 3, 2),
        ("end", 3, True),
    ]


def test_callbacks_change_nothing(data):
    fed = federation(data)
    with_one = run(FEDAMP, fed, 3, callbacks=[Diary(), Diary()], progress=False)
    same(with_one, run(FEDAMP, fed, 3, progress=False))


def test_bad_callbacks_are_refused(data):
    for bad in ([3], "abc", Diary(), 3, [Diary], None):
        with pytest.raises(TypeError, match="callbacks must"):
            run(FEDAVG, federation(data), 1, callbacks=bad, progress=False)


@pytest.mark.parametrize("where", ["on_round_end", "on_evaluate", "on_checkpoint"])
def test_a_callback_that_raises_leaves_good_checkpoints(data, tmp_path, where):
    fed, diary = federation(data), Diary()
    with pytest.raises(RuntimeError, match="the logger's disk is full"):
        run(FEDAMP, fed, 5, checkpoint=tmp_path, callbacks=[diary, Fails(where, 3)], progress=False)
    assert diary.seen[-1][0] == "end"  # the others may tidy up
    resumed = run(FEDAMP, fed, 5, checkpoint=tmp_path, progress=False)
    same(resumed, run(FEDAMP, fed, 5, progress=False))


def test_a_state_that_is_no_plain_data_is_named_and_nothing_is_written(data, tmp_path):
    class Odd(Callback):
        def state(self):
            return {"model": torch.ones(2)}

    with pytest.raises(TypeError, match=r"state of callback 0 Odd must be plain data"):
        run(FEDAVG, federation(data), 1, checkpoint=tmp_path, callbacks=[Odd()], progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_callback_may_stop_the_run_and_the_last_round_is_measured(data, tmp_path):
    class Stop(Callback):
        def on_round_end(self, now):
            if now.round == 3:
                now.stop("seen enough")

    fed = federation(data)
    options = {"evaluate_every": 2, "progress": False, "checkpoint": tmp_path}
    history = run(FEDAVG, fed, 9, callbacks=[Stop()], checkpoint_every=5, **options)
    assert history.rounds == [2, 3] and history.stopped == "seen enough"
    assert "stopped: seen enough" in repr(history)
    history.save(tmp_path / "history.json")
    assert pfl_lib.History.load(tmp_path / "history.json").stopped == "seen enough"
    longer = run(FEDAVG, fed, 6, **options)  # nobody stops it now: it goes on, and forgets round 3
    assert longer.rounds == [2, 4, 6] and longer.stopped == ""
    same(longer, run(FEDAVG, fed, 6, evaluate_every=2, progress=False))


# ---- CSV ----------------------------------------------------------------------------------------
def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_log_has_a_line_for_each_measured_round(data, tmp_path):
    path = tmp_path / "logs" / "log.csv"
    history = run(FEDAMP, federation(data), 3, callbacks=[CSVLog(path)], progress=False)
    found = rows(path)
    assert [int(row["round"]) for row in found] == [1, 2, 3]
    assert [float(row["accuracy"]) for row in found] == history.mean
    assert [int(row["sent"]) for row in found] == history.sent
    assert float(found[-1]["worst 10 %"]) == history.worst()
    assert float(found[0]["accuracy (u)"]) == sum(history.extra_models["u"][0]) / 6
    assert [p.name for p in path.parent.iterdir()] == ["log.csv"]  # nothing left at the side


def test_csv_log_of_a_killed_and_resumed_run_is_that_of_one_run(data, tmp_path):
    fed, path, straight = federation(data), tmp_path / "log.csv", tmp_path / "straight.csv"
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 2, "progress": False}
    with pytest.raises(RuntimeError):  # round 3 is in the log, the checkpoint is of round 2
        run(FEDAMP, fed, 6, callbacks=[CSVLog(path), Fails("on_evaluate", 3)], **options)
    assert [row["round"] for row in rows(path)] == ["1", "2", "3"]
    run(FEDAMP, fed, 6, callbacks=[CSVLog(path)], **options)
    run(FEDAMP, fed, 6, callbacks=[CSVLog(straight)], progress=False)
    without = [{k: v for k, v in row.items() if k != "seconds"} for row in rows(path)]
    assert without == [{k: v for k, v in r.items() if k != "seconds"} for r in rows(straight)]


def test_csv_log_refuses_what_is_no_file(tmp_path):
    for bad in (tmp_path, 3, None):
        with pytest.raises((TypeError, ValueError), match="path must be the path of a file"):
            CSVLog(bad)


# ---- trackers, with modules that stand in for them ----------------------------------------------
@pytest.fixture
def standin(monkeypatch):
    """A tracker's module that records every call."""
    log = []

    def note(name, result=None):
        return lambda *given, **named: (log.append((name, given, named)), result)[1]

    board = ModuleType("torch.utils.tensorboard")
    writer = SimpleNamespace(add_scalar=note("scalar"), add_text=note("text"), close=note("close"))
    board.SummaryWriter = note("writer", writer)
    flow = ModuleType("mlflow")
    flow.start_run = note("start_run", SimpleNamespace(info=SimpleNamespace(run_id="r1")))
    for name in ("log_params", "log_metrics", "end_run"):
        setattr(flow, name, note(name))

    def get_metric_history(run_id, key):
        steps = [named["step"] for name, _, named in log if name == "log_metrics"]
        return [SimpleNamespace(step=step) for step in steps]

    flow.MlflowClient = lambda: SimpleNamespace(get_metric_history=get_metric_history)
    band = ModuleType("wandb")
    one = SimpleNamespace(id="w1", log=note("log"), summary={}, finish=note("finish"))
    band.init = note("init", one)
    for module in (board, flow, band):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return log


def steps(log, name):
    return [named["step"] for called, _, named in log if called == name]


def broken_then_resumed(data, tmp_path, make):
    """A run that fails in round 3 after logging it, resumed from its checkpoint of round 2."""
    fed = federation(data)
    options = {"checkpoint": tmp_path, "checkpoint_every": 2, "progress": False}
    with pytest.raises(RuntimeError):
        run(FEDAVG, fed, 4, callbacks=[make(), Fails("on_evaluate", 3)], **options)
    return run(FEDAVG, fed, 4, callbacks=[make()], **options)


def test_tensorboard_gets_scalars_and_cuts_off_what_was_ahead(data, tmp_path, standin):
    history = broken_then_resumed(data, tmp_path, lambda: TensorBoard(tmp_path / "board"))
    scalars = [given for name, given, _ in standin if name == "scalar"]
    assert ("accuracy", history.last, 4) in scalars
    assert [named["purge_step"] for n, _, named in standin if n == "writer"] == [1, 3]
    assert sum(name == "close" for name, _, _ in standin) == 2


def test_mlflow_goes_on_in_its_run_and_logs_no_round_twice(data, tmp_path, standin):
    history = broken_then_resumed(data, tmp_path, lambda: MLflow(run_name="mine"))
    starts = [named for name, _, named in standin if name == "start_run"]
    assert starts == [{"run_name": "mine"}, {"run_name": "mine", "run_id": "r1"}]
    assert steps(standin, "log_metrics") == [1, 2, 3, 4]
    metrics = [given[0] for name, given, _ in standin if name == "log_metrics"][-1]
    assert metrics["accuracy"] == history.last and "worst 10 pct" in metrics
    (params,) = (given[0] for name, given, _ in standin if name == "log_params")
    assert params["algorithm"] == "fedavg" and params["lr"] == "0.1"


def test_wandb_goes_on_in_its_run(data, tmp_path, standin):
    broken_then_resumed(data, tmp_path, lambda: WandB(project="mine"))
    starts = [named for name, _, named in standin if name == "init"]
    assert starts[0]["project"] == "mine" and "id" not in starts[0]
    assert (starts[1]["id"], starts[1]["resume"]) == ("w1", "allow")
    assert steps(standin, "log") == [1, 2, 3, 3, 4]  # a step that is known is ignored there
    assert starts[0]["config"]["algorithm"] == "fedavg"


@pytest.mark.parametrize(
    "make, module, package",
    [
        (lambda: TensorBoard("board"), "torch.utils.tensorboard", "tensorboard"),
        (MLflow, "mlflow", "mlflow"),
        (WandB, "wandb", "wandb"),
    ],
)
def test_a_package_that_is_missing_is_named(monkeypatch, make, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"needs the package {package}: pip install {package}"):
        make()


# ---- early stopping -----------------------------------------------------------------------------
def small(data, **options):
    return federation(data, lr=0.5, **options).hold_out(share=0.3)


def test_it_stops_after_patience_and_says_why(data):
    fed, validation = small(data)
    stopping = EarlyStopping(validation, patience=3)
    history = run(FEDAVG, fed, 80, callbacks=[stopping], progress=False)
    rounds, values = zip(*stopping.validation_curve)
    best = rounds[values.index(max(values))]
    assert stopping.best_round == best and history.rounds[-1] == best + 3 < 80
    assert history.stopped == (
        f"validation accuracy did not rise in 3 measurements: highest {max(values):.4f} in "
        f"round {best}"
    )
    x = run(FEDAVG, fed, best, progress=False).state.x
    accuracy, _ = validation.evaluate(x.expand(fed.m, -1))
    assert max(values) == accuracy.double().mean().item()


def test_loss_and_a_least_improvement(data):
    fed, validation = small(data)
    picky = EarlyStopping(validation, patience=1, metric="loss", min_delta=0.05)
    history = run(FEDAVG, fed, 80, callbacks=[picky], progress=False)
    values = [value for _, value in picky.validation_curve]
    fell = [a - b for a, b in pairwise(values)]
    assert all(step > 0.05 for step in fell[:-1]) and fell[-1] <= 0.05
    assert history.stopped.startswith("validation loss did not fall in 1 measurements: lowest")


@pytest.mark.parametrize("when", ["early", "while it waits"])
def test_interrupted_and_resumed_it_stops_in_the_same_round(data, tmp_path, when):
    fed, validation = small(data)
    straight = EarlyStopping(validation, patience=3)
    whole = run(FEDAVG, fed, 80, callbacks=[straight], progress=False)
    options = {"checkpoint": tmp_path, "checkpoint_every": 2, "progress": False}
    with pytest.raises(RuntimeError):
        failing = 3 if when == "early" else whole.rounds[-1] - 1
        broken = [EarlyStopping(validation, patience=3), Fails("on_evaluate", failing)]
        run(FEDAVG, fed, 80, callbacks=broken, **options)
    again = EarlyStopping(validation, patience=3)
    resumed = run(FEDAVG, fed, 80, callbacks=[again], **options)
    same(resumed, whole)
    assert resumed.stopped == whole.stopped != ""
    assert again.validation_curve == straight.validation_curve
    once_more = run(FEDAVG, fed, 80, callbacks=[EarlyStopping(validation, patience=3)], **options)
    same(once_more, whole)  # a run that has stopped stays so
    assert once_more.stopped == whole.stopped


def test_the_test_part_plays_no_role(data):
    """With other test samples the run stops in the same round, with the same models."""
    fed, validation = small(data)
    other = fed.replace(
        partition=replace(fed.partition, test=[t.flip(0)[:3] for t in fed.partition.test])
    )
    one, two = (
        run(FEDAVG, f, 80, callbacks=[EarlyStopping(validation, patience=2)], progress=False)
        for f in (fed, other)
    )
    assert one.rounds == two.rounds and one.stopped == two.stopped
    assert torch.equal(one.state.x, two.state.x) and one.accuracy != two.accuracy
    tests = torch.cat(list(fed.partition.test))
    assert not torch.isin(torch.cat(list(validation.partition.test)), tests).any()


def test_wrong_validation_is_refused(data):
    fed, validation = small(data)
    for wrong in (fed, pfl_lib.example()):
        with pytest.raises(ValueError, match="validation must be the second federation"):
            run(FEDAVG, fed, 1, callbacks=[EarlyStopping(wrong)], progress=False)
    with pytest.raises(ValueError, match="validation must train on the samples"):
        run(FEDAVG, federation(data), 1, callbacks=[EarlyStopping(validation)], progress=False)
    for bad in (0, -1, 1.5, "a", True, None):
        with pytest.raises(ValueError, match="patience must be a whole number"):
            EarlyStopping(validation, patience=bad)
    with pytest.raises(ValueError, match="metric must be one of"):
        EarlyStopping(validation, metric="f1")
    with pytest.raises(ValueError, match="min_delta must be"):
        EarlyStopping(validation, min_delta=-1)
    with pytest.raises(TypeError, match="validation must be a Federation"):
        EarlyStopping(3)


# ---- pandas, and federations like another -------------------------------------------------------
def test_a_history_is_a_tidy_table(data):
    history = run(FEDAMP, federation(data), 4, evaluate_every=2, progress=False)
    table = history.to_pandas()
    assert list(table.columns) == [
        "method", "round", "client", "accuracy", "loss", "accuracy (u)", "seconds", "sent"
    ]  # fmt: skip
    assert len(table) == 2 * 6 and set(table["method"]) == {"FedAMP"}
    assert history.ids == [] and table["client"].tolist() == 2 * [*range(6)]  # no names known
    last = table[table["round"] == 4].sort_values("client")
    assert last["accuracy"].tolist() == history.accuracy[-1]
    assert last["accuracy (u)"].tolist() == history.extra_models["u"][-1]
    means = table.groupby("round")["accuracy"].mean()
    assert means.tolist() == pytest.approx(history.mean)
    assert table.groupby("round")["sent"].first().tolist() == history.sent


def test_clients_with_names_stand_under_their_names(tmp_path):
    """Also in wrapped federations, in saved records, and in runs that go on from older ones."""
    who = [name for name in ("north", "south", "east") for _ in range(12)]
    y = torch.arange(36) % 2
    x = torch.randn(36, 4, generator=torch.Generator().manual_seed(0))
    pool = pfl_lib.data.from_arrays(x.numpy(), y.numpy(), who, test=0.25)
    hospitals = pfl_lib.partition.natural(pool)
    fed = pfl_lib.Federation(pool, hospitals, "logistic_regression", lr=0.1, batch_size=4)
    names = list(hospitals.ids)
    assert set(names) == {"north", "south", "east"}
    history = run(FEDAVG, fed, 2, checkpoint=tmp_path / "run", progress=False)
    assert history.ids == names and history.settings == run(FEDAVG, fed, 2, progress=False).settings
    table = history.to_pandas()
    assert table["client"].tolist() == names + names
    east = table[(table["round"] == 2) & (table["client"] == "east")]
    assert east["accuracy"].item() == history.accuracy[-1][names.index("east")]
    history.save(tmp_path / "history.json")
    kept = pfl_lib.History.load(tmp_path / "history.json")
    assert kept.to_pandas().equals(table)
    wrapped = pfl_lib.faults.Masked(fed)
    assert run(FEDAVG, wrapped, 1, progress=False).ids == names

    for file in (tmp_path / "run").glob("*.json"):  # as written before names were kept
        record = json.loads(file.read_text())
        del record["history"]["ids"], record["checksum"]
        record["checksum"] = checkpoints._checksum(file, record)
        file.write_text(json.dumps(record))
    assert run(FEDAVG, fed, 3, checkpoint=tmp_path / "run", progress=False).ids == names


def test_without_pandas_it_says_what_to_install(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    history = run(FEDAVG, federation(data), 1, progress=False)
    with pytest.raises(ImportError, match=r"History.to_pandas needs the package pandas: pip"):
        history.to_pandas()


def test_replace_makes_the_federation_one_would_have_built(data):
    fed = federation(data, dtype=torch.float64, engine="loop")
    other = fed.replace(lr=0.3, batch_size=8)
    built = federation(data, dtype=torch.float64, engine="loop", lr=0.3, batch_size=8)
    assert other.describe() == built.describe() and other.engine == "loop"
    same(*(run(FEDAVG, f, 2, progress=False) for f in (other, built)))
    assert fed.settings.lr == 0.1
    with pytest.raises(ValueError, match=r"argument of a Federation must be one of .*got 'lrr'"):
        fed.replace(lrr=0.1)
    with pytest.raises(ValueError, match="lr must be a positive finite number, got -1"):
        fed.replace(lr=-1)


def test_checkpoints_of_runs_without_callbacks_are_as_before(data, tmp_path):
    run(FEDAVG, federation(data), 1, checkpoint=tmp_path, progress=False)
    record = json.loads((tmp_path / "round-000001.json").read_text())
    assert record["callbacks"] == {} and record["history"]["stopped"] == ""
