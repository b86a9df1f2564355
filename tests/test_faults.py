"""Faulty and masked uploads: what is sent, who is touched, and that every algorithm runs on it."""

import copy
import math
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import pfl_lib
from pfl_lib import Federation, algorithm, methods, partition, run, train
from pfl_lib.book.theory import DescentFederation, QuadraticFederation, iterate
from pfl_lib.faults import KINDS, Faulty, Guarded, Masked, OtherUploads
from pfl_lib.formulas import weighted_average
from pfl_lib.methods import with_ala
from tests.support.runs import quick_method

AT_HOME = ("fedproto",)  # no model travels, so there is none to spoil on the way: class means do


@pytest.fixture(scope="module")
def fed():
    data = pfl_lib.data.load("digits")
    clients = partition.scarce(partition.iid(data, clients=5), samples=20)
    return Federation(data, clients, "mlp", lr=0.05, batch_size=10)


@pytest.fixture
def toy():
    c = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], dtype=torch.float64)
    return QuadraticFederation(torch.ones_like(c), c, start=torch.full_like(c, 0.5))


def sent(toy, **fault):
    return train(Faulty(toy, clients=[2], **fault), toy.initial(), toy.everyone)


# --------------------------------------------------------------------------------- what is sent
@pytest.mark.parametrize(
    "kind, of, upload",
    [
        ("sign_flip", "model", [-6.0, -6.0]),
        ("sign_flip", "update", [-4.5, -4.5]),  # 0.5 − 2·(3 − 0.5)
        ("scale", "model", [6.0, 6.0]),
        ("scale", "update", [5.5, 5.5]),
    ],
)
def test_what_a_faulty_client_sends(toy, kind, of, upload):
    rows = sent(toy, kind=kind, of=of, strength=2.0)
    assert_close(rows[2], torch.tensor(upload, dtype=torch.float64))
    assert_close(rows[:2], toy.c[:2])


@pytest.mark.parametrize("of", ["model", "update"])
def test_a_stale_client_sends_what_it_began_with(toy, of):
    assert_close(sent(toy, kind="stale", of=of)[2], toy.initial()[2])


def test_noise_is_as_long_as_said():
    c = torch.ones(2, 40_000, dtype=torch.float64)
    toy = QuadraticFederation(torch.ones_like(c), c)
    for strength in (0.5, 3.0):
        noisy = train(Faulty(toy, [1], "noise", strength), toy.initial(), toy.everyone)
        ratio = (noisy - c)[1].norm() / c[1].norm()
        assert abs(ratio - strength) < 0.02 * strength


def test_noise_is_keyed(toy):
    """Another round, client or seed gives other noise; who else takes part changes nothing."""
    faulty = Faulty(toy, [1, 2], "noise")
    both = train(faulty, toy.initial(), toy.everyone)
    alone = train(faulty, toy.initial()[2:], torch.tensor([2]))
    assert_close(both[2:], alone, rtol=0, atol=0)
    for other in (faulty.at(1), Faulty(toy, [2], "noise", seed=1)):
        assert not torch.equal(train(other, toy.initial(), toy.everyone)[2], both[2])


def test_training_itself_is_untouched(toy):
    """What a faulty client was given is not changed in place."""
    start = toy.initial().clone()
    sent(toy, kind="scale")
    assert_close(toy.initial(), start, rtol=0, atol=0)
    assert_close(train(toy, start, toy.everyone), toy.c)


# ------------------------------------------------------------------------------- as a federation
def test_nobody_faulty_is_the_federation_itself(fed):
    for name in ("fedavg", "fedacs"):
        plain = run(algorithm(name), fed, 2, progress=False)
        same = run(algorithm(name), Faulty(fed, ()), 2, progress=False)
        assert plain.accuracy == same.accuracy


@pytest.mark.parametrize("kind", KINDS)
def test_separate_clients_do_not_notice(fed, kind):
    faulty = Faulty(fed, [0, 3], kind)
    plain = run(algorithm("separate"), fed, 2, progress=False).state.w
    among = run(algorithm("separate"), faulty, 2, progress=False).state.w
    assert_close(among[faulty.honest], plain[faulty.honest], rtol=0, atol=0)


@pytest.mark.parametrize("name", methods.names())
def test_every_algorithm_runs_among_faulty_clients(fed, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FedACS speaks of negative cosines
        faulty = run(quick_method(name), Faulty(fed, [1], "sign_flip"), 2, progress=False)
        plain = run(quick_method(name), fed, 2, progress=False)
    if name not in ("separate", *AT_HOME):
        assert faulty.loss != plain.loss


def test_ala_runs_among_faulty_clients(fed):
    method = with_ala(algorithm("fedamp", self_weight=0.2), max_epochs=2)
    assert len(run(method, Faulty(fed, [1], "scale"), 2, progress=False).rounds) == 2


def test_what_stays_at_home_is_not_spoiled(fed):
    """FedRep's heads and Ditto's personal models are never sent: only the shared part suffers."""
    start = fed.initial()
    faulty = Faulty(fed, [0], "scale")
    for tag in ("head", "personal", "fine-tune", "adapt", "ala"):
        here = train(faulty, start, fed.everyone, tag=tag, uploaded=False)
        assert_close(here, train(fed, start, fed.everyone, tag=tag), rtol=0, atol=0)
    probe = train(faulty, start, fed.everyone, tag="probe")
    assert not torch.equal(probe, train(fed, start, fed.everyone, tag="probe"))


def test_a_checkpoint_knows_of_the_faults(fed, tmp_path):
    run(algorithm("fedavg"), Faulty(fed, [0]), 1, checkpoint=tmp_path, progress=False)
    with pytest.raises(ValueError):
        run(algorithm("fedavg"), Faulty(fed, [1]), 2, checkpoint=tmp_path, progress=False)
    resumed = run(algorithm("fedavg"), Faulty(fed, [0]), 2, checkpoint=tmp_path, progress=False)
    straight = run(algorithm("fedavg"), Faulty(fed, [0]), 2, progress=False)
    assert resumed.accuracy == straight.accuracy


def test_two_kinds_of_faults_at_once(fed):
    start = fed.initial()
    both = train(Faulty(Faulty(fed, [0], "sign_flip"), [1], "scale"), start, fed.everyone)
    plain = train(fed, start, fed.everyone)
    assert_close(both[0], -plain[0])
    assert_close(both[1], 10 * plain[1])
    assert_close(both[2:], plain[2:], rtol=0, atol=0)


def test_two_kinds_of_faults_on_quadratic_clients(toy):
    """Their local training has an answer, so nobody performs work there."""
    plain = train(toy, toy.initial(), toy.everyone)
    both = Guarded(Faulty(Faulty(toy, [0], "sign_flip"), [1], "scale"))
    sent = train(both, toy.initial(), toy.everyone)
    assert_close(sent, plain * torch.tensor([[-1.0], [10.0], [1.0]], dtype=torch.float64))


def test_faults_on_clients_that_descend(toy):
    descent = DescentFederation(toy.h, toy.c, toy.start, lr=0.5, steps=2)
    plain = train(descent, toy.initial(), toy.everyone)
    for fed in (Faulty(descent, [2], "scale"), Guarded(Faulty(descent, [2], "scale"))):
        sent = train(fed, toy.initial(), toy.everyone)
        assert_close(sent, plain * torch.tensor([[1.0], [1.0], [10.0]], dtype=torch.float64))


def test_a_checkpoint_knows_of_every_fault(fed, tmp_path):
    """Of two faults of one kind, the inner one counts too."""
    run(algorithm("fedavg"), Faulty(Faulty(fed, [0]), [1]), 1, checkpoint=tmp_path, progress=False)
    with pytest.raises(ValueError, match="Faulty was"):
        other = Faulty(Faulty(fed, [2]), [1])
        run(algorithm("fedavg"), other, 2, checkpoint=tmp_path, progress=False)
    three = Faulty(Masked(Faulty(Faulty(fed, [0]), [1])), [2]).describe()
    found = {name: three[name]["clients"] for name in ("Faulty", "Faulty 2", "Faulty 3")}
    assert found == {"Faulty": [0], "Faulty 2": [1], "Faulty 3": [2]} and "Masked" in three


def test_can_be_copied(toy):
    assert copy.copy(Faulty(toy, [0])).m == 3 and copy.deepcopy(Masked(toy)).m == 3


# ------------------------------------------------------------------------------ who listens to whom
def test_heard_is_the_share_of_the_faulty_among_others():
    toy = QuadraticFederation(torch.ones(4, 1), torch.zeros(4, 1))
    faulty = Faulty(toy, [3])
    assert faulty.honest.tolist() == [0, 1, 2]
    uniform = torch.full((4, 4), 0.25)
    assert faulty.heard(uniform) == pytest.approx(1 / 3)
    deaf = uniform.clone()
    deaf[:, 3] = 0
    assert faulty.heard(deaf) == 0


def test_distance_sees_a_scaled_client_and_angle_does_not():
    """The contrast of the chapter, in two dimensions."""
    c = torch.tensor([[1.0, 0.1], [1.0, 0.0], [0.9, 0.1], [1.0, 0.05]], dtype=torch.float64)
    toy = QuadraticFederation(torch.ones_like(c), c, start=c)
    by_distance = algorithm("fedamp", sigma=1.0, self_weight=0.2)
    by_angle = algorithm("heurfedamp", sigma=25.0, self_weight=0.2)
    heard = {
        (kind, method.label): Faulty(toy, [3], kind).heard(
            iterate(method, Faulty(toy, [3], kind), 2)[-1].xi
        )
        for kind in ("scale", "sign_flip")
        for method in (by_distance, by_angle)
    }
    assert heard["scale", "HeurFedAMP"] > 0.3  # a third would be its share
    assert heard["scale", "FedAMP"] < 1e-6
    assert max(heard["sign_flip", "FedAMP"], heard["sign_flip", "HeurFedAMP"]) < 0.05


# -------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    "fault, words",
    [
        ({"clients": [3]}, "0 to 2"),
        ({"clients": [0, 0]}, "different"),
        ({"clients": [0, 1, 2]}, "honest"),
        ({"clients": [0], "kind": "scaled"}, "Did you mean 'scale'"),
        ({"clients": [0], "of": "gradient"}, "'update'"),
        ({"clients": [0], "strength": 0.0}, "strength"),
        ({"clients": [0], "kind": "stale", "strength": 1.0}, "no strength"),
        ({"clients": [0], "seed": -1}, "seed"),
    ],
)
def test_bad_faults_are_refused(toy, fault, words):
    with pytest.raises(ValueError, match=words):
        Faulty(toy, **fault)


# ------------------------------------------------------------------------------------------ masks
def test_masks_cancel_in_the_weighted_average(fed):
    data = pfl_lib.data.load("digits")
    sizes = partition.dirichlet(data, clients=4, a=1.0)
    unequal = Federation(data, sizes, "logistic_regression", dtype=torch.float64)
    start, who = unequal.initial(), torch.tensor([0, 2, 3])
    plain = train(unequal, start[who], who)
    masked = train(Masked(unequal), start[who], who)
    assert (masked - plain).norm(dim=1).min() > plain.norm(dim=1).max()
    assert_close(
        weighted_average(masked, unequal.sizes[who]), weighted_average(plain, unequal.sizes[who])
    )


def test_fedavg_does_not_notice_masks_and_attention_does(fed):
    for name, same in (("fedavg", True), ("per-fedavg", True), ("heurfedamp", False)):
        plain = run(algorithm(name), fed, 2, progress=False).loss[-1]
        masked = run(algorithm(name), Masked(fed), 2, progress=False).loss[-1]
        close = torch.allclose(torch.tensor(plain), torch.tensor(masked), rtol=1e-3)
        assert close == same, name


@pytest.mark.parametrize("wrong", [{"scale": 0.0}, {"seed": 0.5}])
def test_bad_masks_are_refused(toy, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Masked(toy, **wrong)


# --------------------------------------------------------------------------------- broken clients
@dataclass(eq=False)
class Breaks(OtherUploads):
    """In round ``when`` (from 0) client ``client`` sends ``what`` wherever its model should be."""

    client: int = 2
    when: int = 1
    what: float = math.nan

    def sends(self, began, trained, who, tag):
        trained = trained.clone()
        if self.fed.k == self.when and self.client in who:
            trained[who.index(self.client)] = self.what
        return trained


SENDING = [name for name in methods.names() if name not in AT_HOME]
PARTIAL = [name for name in methods.names() if methods.BY_NAME[name].partial]
quiet = pytest.mark.filterwarnings("ignore:.*cosine.*")


def finite(state):
    return all(bool(torch.isfinite(t).all()) for t in state.values() if t.is_floating_point())


@quiet
@pytest.mark.parametrize("what", [math.nan, -math.inf])
@pytest.mark.parametrize("name", SENDING)
def test_a_broken_client_is_named_before_anybody_hears_of_it(fed, name, what):
    """NaN in one client's upload would be in everybody's model after the first mix."""
    with pytest.raises(FloatingPointError, match=r"round 2: w of client 2 is no longer finite"):
        run(quick_method(name), Breaks(fed, what=what), 3, progress=False)


@quiet
@pytest.mark.parametrize("name", SENDING)
def test_restore_goes_on_with_the_last_good_model(fed, name):
    history = run(quick_method(name), Breaks(fed), 4, broken="restore", progress=False)
    assert finite(history.state) and torch.isfinite(torch.tensor(history.loss)).all()
    named = {(entry["round"], entry["client"], entry["then"]) for entry in history.broken}
    assert named == {(2, 2, "restored")}


@quiet
@pytest.mark.parametrize("name", [name for name in PARTIAL if name in SENDING])
def test_drop_is_the_round_in_which_the_client_stayed_away(fed, name):
    history = run(quick_method(name), Breaks(fed), 4, broken="drop", progress=False)
    named = [(entry["round"], entry["client"], entry["then"]) for entry in history.broken]
    assert named == [(2, 2, "dropped")]
    method = quick_method(name)
    state = method.start(fed.at(0))
    for k in range(4):
        who = fed.everyone if k != 1 else torch.tensor([0, 1, 3, 4])
        state = method.round(state, fed.at(k), who)
    assert all(torch.equal(state[key], history.state[key]) for key in state)
    first, second = history.sent[0], history.sent[1] - history.sent[0]
    assert second < first or name == "separate"


@pytest.mark.parametrize("name", sorted(set(methods.names()) - set(PARTIAL)))
def test_drop_is_refused_where_everybody_is_needed(fed, name):
    with pytest.raises(ValueError, match="broken must be 'stop' or 'restore', got 'drop'"):
        run(quick_method(name), fed, 1, broken="drop", progress=False)


def test_nobody_left_stops_the_run(fed):
    everyone = fed
    for client in range(fed.m):
        everyone = Breaks(everyone, client=client, when=0)
    with pytest.raises(FloatingPointError, match=r"clients 0, 1, 2, 3, 4 .*no client is left"):
        run(algorithm("fedavg"), everyone, 1, broken="drop", progress=False)


def test_a_finite_model_with_an_infinite_loss_is_broken_too(fed):
    """Parameters of 1e30 are finite, but the logits they make are not."""
    with pytest.raises(FloatingPointError, match="round 2: loss of client 2 is no longer finite"):
        run(algorithm("fedavg"), Breaks(fed, what=1e30), 3, progress=False)
    history = run(algorithm("fedamp", self_weight=0.2), Breaks(fed, what=1e30), 3, broken="drop",
                  progress=False)  # fmt: skip
    assert history.broken == [{"round": 2, "client": 2, "what": "loss", "then": "dropped"}]
    assert float(history.state.w.abs().max()) < 100


def test_large_models_that_still_work_are_left_alone(fed):
    history = run(algorithm("fedavg"), Breaks(fed, what=2e4), 2, progress=False)
    assert history.broken == [] and finite(history.state)


def test_a_round_without_broken_clients_is_untouched_by_the_watch(fed):
    start = fed.initial()
    watch = Guarded(fed)
    assert torch.equal(train(watch, start, fed.everyone), train(fed, start, fed.everyone))
    assert watch.found == []


def test_what_was_broken_survives_a_resume(fed, tmp_path):
    options = {"broken": "restore", "progress": False}
    whole = run(algorithm("fedavg"), Breaks(fed), 4, **options)
    run(algorithm("fedavg"), Breaks(fed), 3, checkpoint=tmp_path, **options)
    resumed = run(algorithm("fedavg"), Breaks(fed), 4, checkpoint=tmp_path, **options)
    assert resumed.broken == whole.broken and resumed.loss == whole.loss
    with pytest.raises(ValueError, match="broken was 'restore', now None"):
        run(algorithm("fedavg"), Breaks(fed), 4, checkpoint=tmp_path, progress=False)
