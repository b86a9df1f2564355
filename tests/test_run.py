"""Rounds, histories, checkpoints: nothing lost, nothing mixed up."""

import json
import math
from dataclasses import replace

import pytest
import torch

from pfl_lib import Federation, History, algorithm, example, partition, run
from pfl_lib.book.theory import QuadraticFederation
from pfl_lib.devices import OnDevices
from pfl_lib.faults import Faulty, FederationWrapper, OtherUploads
from pfl_lib.federation import missing_from
from pfl_lib.flower import RemoteFederation, in_process
from tests.support.runs import FEDAMP, same
from tests.support.runs import linear_federation as federation


def test_history_counts_and_measures(data):
    fed = federation(data)
    history = run(algorithm("fedavg"), fed, 5, evaluate_every=2, progress=False)
    assert history.rounds == [2, 4, 5]
    assert history.sent[-1] == 5 * 2 * fed.d * fed.m
    assert history.best == max(history.mean) >= history.last >= history.worst()
    accuracy, _ = fed.evaluate(history.state.x.expand(6, -1))
    torch.testing.assert_close(history.clients(), accuracy)
    assert 0.1 < history.last <= 1


def test_history_survives_a_file(data, tmp_path):
    history = run(algorithm("separate"), federation(data), 2, progress=False)
    history.save(tmp_path / "history.json")
    assert History.load(tmp_path / "history.json").record() == history.record()


def test_clients_that_nobody_measured_are_left_out():
    nan = math.nan
    accuracy = [[nan, nan], [0.5, nan], [0.2, 0.6]]
    also = {"global": [[nan, 0.3]] * 3}
    history = History("A", "w", {}, [1, 2, 3], accuracy, extra_models=also, seconds=[0.0], sent=[0])
    assert history.mean[0] != history.mean[0] and history.mean[1:] == [0.5, 0.4]
    assert (history.last, history.best, history.best_round) == (0.4, 0.5, 2)
    assert history.summary()["last (global)"] == 0.3 and "best 0.5000 in round 2" in repr(history)
    history.accuracy[-1] = [nan, 0.6]
    assert history.worst() == history.worst(1) == 0.6
    nobody = History("A", "w", {}, [1], [[nan, nan]], seconds=[0.0], sent=[0])
    assert math.isnan(nobody.best) and math.isnan(nobody.worst())
    assert nobody.best_round is nobody.summary()["best round"] is None and "nan" in repr(nobody)


def test_bad_questions_to_a_history():
    history = History("A", "w", {}, [2, 4], [[0.1, 0.2], [0.3, 0.4]])
    for share in (0, 2, -0.1, math.nan, "all"):
        with pytest.raises(ValueError, match="share must lie in"):
            history.worst(share)
    with pytest.raises(ValueError, match=r"round_ must be one that was recorded \(2, 4\), got 7"):
        history.clients(7)
    assert history.clients(4).tolist() == history.clients().tolist()


def test_rounds_may_be_a_whole_number_in_another_form(data):
    two = torch.tensor(2)
    history = run(FEDAMP, federation(data), two, evaluate_every=two, progress=False)
    assert history.rounds == [2] and history.settings["evaluate_every"] == 2
    with pytest.raises(ValueError, match=r"rounds must be a whole number >= 1, got 2\.0"):
        run(FEDAMP, federation(data), 2.0)  # other arguments that count could not be used so


def test_a_share_of_the_clients(data):
    fed = federation(data)
    history = run(algorithm("separate"), fed, 1, participation=0.5, progress=False)
    moved = (history.state.w != fed.initial()).any(1)
    assert int(moved.sum()) == 3
    again = run(algorithm("separate"), fed, 1, participation=0.5, progress=False)
    assert torch.equal(history.state.w, again.state.w)


def test_resumes_bit_identically(data, tmp_path):
    fed = federation(data)
    whole = run(FEDAMP, fed, 6, participation=0.5, progress=False)
    run(FEDAMP, fed, 3, participation=0.5, checkpoint=tmp_path, progress=False)
    resumed = run(FEDAMP, fed, 6, participation=0.5, checkpoint=tmp_path, progress=False)
    same(whole, resumed)


def test_rows_of_absent_clients_stay_on_the_disk(data, tmp_path):
    fed, method = federation(data), algorithm("ditto")
    inside = run(method, fed, 1, participation=0.5, progress=False)
    outside = run(method, fed, 1, participation=0.5, state_folder=tmp_path, progress=False)
    assert outside.state.v.untyped_storage().filename and torch.equal(
        outside.state.v, inside.state.v
    )
    # a state that is put into is another one, until the round is over
    before = outside.state
    after = before.put(torch.tensor([2]), v=torch.ones(1, fed.d))
    assert torch.equal(before.v, inside.state.v) and bool((after.v[2] == 1).all())
    swapped = before.set(v=before.v + 1, old=before.v).flushed()[0]  # one file read, then written
    assert torch.equal(swapped.old, inside.state.v) and torch.equal(swapped.v, inside.state.v + 1)


def test_a_broken_client_is_dropped_on_the_disk_too(data, tmp_path):
    class Breaking(OtherUploads):
        def sends(self, began, trained, who, tag):
            bad = torch.tensor([i == 1 for i in who])
            return torch.where(bad[:, None], torch.nan, trained)

    fed = Breaking(federation(data))
    options = {"broken": "drop", "progress": False}
    inside = run(algorithm("separate"), fed, 2, **options)
    outside = run(algorithm("separate"), fed, 2, state_folder=tmp_path, **options)
    assert torch.equal(outside.state.w, inside.state.w) and outside.broken == inside.broken


@pytest.mark.parametrize("name", ["fedavg", "fedavg-ft", "ditto"])
def test_only_those_who_are_asked_are_tested(data, name):
    class Counting(FederationWrapper):
        seen = []

        def on_result(self, work, done, who):
            self.seen.append(("trained", work.tag, sorted(who.tolist())))
            return done

        def evaluate(self, w, who=None, split="test"):
            self.seen.append(("tested", "", sorted(who.tolist())))
            return self.fed.evaluate(w, who, split)

    fed = federation(data)
    whole = run(algorithm(name), fed, 2, progress=False)
    some = run(algorithm(name), Counting(fed), 2, test_clients=[4, 1], progress=False)
    assert {tuple(who) for what, _, who in Counting.seen if what == "tested"} == {(1, 4)}
    assert all(who == [1, 4] for _, tag, who in Counting.seen if tag == "fine-tune")
    for mine, theirs in zip(some.accuracy, whole.accuracy):
        assert [i for i, a in enumerate(mine) if a == a] == [1, 4]
        assert (mine[1], mine[4]) == (theirs[1], theirs[4])
    assert some.last == pytest.approx((whole.accuracy[-1][1] + whole.accuracy[-1][4]) / 2)
    assert not some.broken and some.settings["test_clients"] == [4, 1]


def test_other_settings_are_refused_by_name(data, tmp_path):
    run(FEDAMP, federation(data), 1, checkpoint=tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"other settings \(lr was 0.1, now 0.2\)"):
        run(FEDAMP, federation(data, lr=0.2), 2, checkpoint=tmp_path, progress=False)
    other = algorithm("fedamp", self_weight=0.4)
    with pytest.raises(ValueError, match=r"fedamp.self_weight was 0.3, now 0.4"):
        run(other, federation(data), 2, checkpoint=tmp_path, progress=False)


def test_only_two_checkpoints_are_kept(data, tmp_path):
    run(FEDAMP, federation(data), 5, checkpoint=tmp_path, progress=False)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [f"round-00000{k}.{end}" for k in (4, 5) for end in ("json", "safetensors")]
    assert json.loads((tmp_path / "round-000005.json").read_text())["round"] == 5


def test_a_diverging_client_is_named_in_its_round(data):
    fed = federation(data, lr=3e38)
    with pytest.raises(FloatingPointError, match=r"Separate, round \d+: w of clients? 0"):
        run(algorithm("separate"), fed, 20, progress=False)


def test_a_method_by_its_name_has_its_usual_hyper_parameters(data):
    fed = federation(data)
    by_name = run("fedprox", fed, 2, progress=False)
    as_such = run(algorithm("fedprox"), fed, 2, progress=False)
    assert torch.equal(by_name.state.x, as_such.state.x)
    assert by_name.settings == as_such.settings


def test_bad_calls(data, tmp_path):
    fed = federation(data)
    with pytest.raises(TypeError, match=r"algorithm must be a method such as .*, got None"):
        run(None, fed, 1)
    with pytest.raises(ValueError, match=r"algorithm must be one of .* got 'fedavgg'. Did"):
        run("fedavgg", fed, 1)
    with pytest.raises(ValueError, match="rounds must be a whole number >= 1, got 0"):
        run(FEDAMP, fed, 0)
    with pytest.raises(ValueError, match=r"participation must lie in \(0, 1\], got 0"):
        run(FEDAMP, fed, 1, participation=0)
    with pytest.raises(ValueError, match=r"test_clients must hold different client numbers from 0"):
        run(FEDAMP, fed, 1, test_clients=[99])
    with pytest.raises(TypeError, match="state_folder must be the path of a folder, got 3"):
        run(FEDAMP, fed, 1, state_folder=3)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"state_folder must be .*, which is below the file"):
        run(FEDAMP, fed, 1, state_folder=tmp_path / "file" / "rows", progress=False)
    with pytest.raises(OSError, match="state_folder must be a folder that can be written to, got"):
        run(FEDAMP, fed, 1, state_folder="/proc/rows", progress=False)
    with pytest.raises(ValueError, match=r"got 'fedampp'. Did you mean 'fedamp'\?"):
        algorithm("fedampp")
    with pytest.raises(ValueError, match=r"got 'sgima'. Did you mean 'sigma'\?"):
        algorithm("fedamp", sgima=1.0)


def test_a_misspelt_hyper_parameter_is_answered_with_hyper_parameters_alone():
    with pytest.raises(ValueError, match="hyper-parameter of ditto") as refused:
        algorithm("ditto", paper="mine")
    listed = str(refused.value).split("must be one of ")[1].split(";")[0]
    assert listed == "'lam', 'personal_epochs'"


def test_half_a_federation_is_told_what_it_lacks(data, tmp_path):
    class Half:
        m, d, k = 3, 4, 0

        def describe(self):
            return {}

    with pytest.raises(
        TypeError, match=r"fed must be a Federation, got .*it lacks at, buffer_mask, device, dtype"
    ):
        run(FEDAMP, Half(), 1, progress=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="checkpoint must be the path of a folder, got the file"):
        run(FEDAMP, federation(data), 1, checkpoint=tmp_path / "file", progress=False)
    with pytest.raises(ValueError, match=r"checkpoint must be .* which is below the file"):
        run(FEDAMP, federation(data), 1, checkpoint=tmp_path / "file" / "inside", progress=False)
    with pytest.raises(
        ValueError, match=r"checkpoint must be the path of a folder, got .*too long"
    ):
        run(FEDAMP, federation(data), 1, checkpoint="x" * 5000, progress=False)
    with pytest.raises(
        ValueError, match=r"device must be one that this machine has, 'cpu'.*cuda:7"
    ):
        federation(data, device="cuda:7")


def test_every_kind_of_federation_implements_the_whole_interface():
    near = example()
    far = RemoteFederation(in_process(near), clients=near.m, lr=0.1)
    toy = QuadraticFederation(h=torch.ones(2, 1), c=torch.ones(2, 1))
    plain = (near, far, toy, OnDevices(near, ["cpu"]))
    for fed in (*plain, *(Faulty(fed, clients=[1]) for fed in plain)):
        assert missing_from(fed) == [], fed
    assert near._found == {}, "to ask what a federation has must not compute any of it"


def test_other_samples_under_the_same_name_are_refused(data, tmp_path):
    run(FEDAMP, federation(data), 1, checkpoint=tmp_path, progress=False)
    x = data.x.clone()
    x[0, 0, 0, 0] += 1
    with pytest.raises(ValueError, match="samples was"):
        other = federation(replace(data, x=x))
        run(FEDAMP, other, 2, checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_a_run_that_is_extended_is_the_run_in_one_go(data, tmp_path, first):
    fed, method = federation(data), algorithm("fedavg")
    options = {"evaluate_every": 2, "checkpoint_every": 1, "progress": False}
    run(method, fed, first, checkpoint=tmp_path, **options)
    longer = run(method, fed, 6, checkpoint=tmp_path, **options)
    same(longer, run(method, fed, 6, evaluate_every=2, progress=False))
    assert longer.rounds == [2, 4, 6]


def test_fedamp_with_a_safe_step_and_one_client_is_training_alone(data):
    fed = Federation(data, partition.iid(data, 1), "logistic_regression", lr=0.1, batch_size=16)
    alone = run(algorithm("separate"), fed, 2, progress=False)
    history = run(algorithm("fedamp", alpha="safe"), fed, 2, progress=False)
    torch.testing.assert_close(history.state.w, alone.state.w, rtol=0, atol=1e-6)


def test_a_state_names_what_it_holds():
    state = algorithm("fedavg").start(example())
    with pytest.raises(AttributeError, match=r"the state holds \['x'.*\], not 'nothing'"):
        _ = state.nothing
    assert (
        repr(History("FedAvg", "the global model", {})) == "History(FedAvg: nothing measured yet)"
    )


def test_a_server_step_that_breaks_the_models_is_named(data):
    class Breaks(type(algorithm("fedavg"))):
        def upload(self, state, done, fed, who):
            return state.set(x=state.x * math.inf)

    with pytest.raises(FloatingPointError, match="round 1: the server's step left x no longer"):
        run(Breaks(), federation(data), 1, progress=False)
