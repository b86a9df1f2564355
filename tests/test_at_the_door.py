"""Devices, modes, modules and settings that used to fail late or in silence, and their errors."""

import pytest
import torch
from torch import nn

import pfl_lib
from pfl_lib import Work, methods, partition, run, train
from pfl_lib.methods import State
from tests.support.calls import digits, in_groups, small

SPARSE = "dense, got torch.sparse_coo: use .*to_dense"
META = "on cpu as the federation is, got meta"


# ---- devices and layouts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [(lambda w: w.to("meta"), META), (lambda w: w.to_sparse(), SPARSE)],
)
def test_models_lie_where_the_federation_computes(changed, words):
    fed = small()
    wrong = changed(fed.initial())
    for call in (
        lambda: fed.evaluate(wrong),
        lambda: train(fed, wrong, fed.everyone),
        lambda: train(fed, fed.initial(), fed.everyone, correction=wrong),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            call()


def test_a_device_without_numbers_is_refused():
    with pytest.raises(ValueError, match=r"device must be one that this machine has.*'meta'"):
        small().replace(device="meta")


# ---- modes of autograd --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("engine", "model"),
    [("loop", "mlp"), ("stacked", "mlp"), ("threads", "fedala_cnn"), ("stacked", "fedala_cnn")],
)
def test_training_under_no_grad_is_training(engine, model, mode):
    fed = small().replace(engine=engine, model=model)
    known = run("fedavg", fed, 1, progress=False)
    with mode():
        inside = run("fedavg", fed, 1, progress=False)
        trained = train(fed, fed.initial(), fed.everyone)  # what is made here has no gradient
        assert not torch.is_grad_enabled()
    assert torch.equal(known.state.x, inside.state.x)
    assert torch.equal(trained, train(fed, fed.initial(), fed.everyone))


# ---- modules from elsewhere ---------------------------------------------------------------------


class Odd(nn.Module):
    """A linear layer whose output is spoiled."""

    def __init__(self, spoil, lazy=False):
        super().__init__()
        self.layer, self.spoil = (nn.LazyLinear(10) if lazy else nn.Linear(64, 10)), spoil

    def forward(self, x):
        return self.spoil(self, self.layer(x.flatten(1)))


class Parallel(nn.DataParallel):
    """Built without a look at the devices that are there."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module


def only_in_training(module, out):
    return (out, out) if module.training else out


SPOILED = {
    "tuple": (lambda _, out: (out, out), "return the logits alone"),
    "tuple in training": (only_in_training, "return the logits alone"),
    "dictionary": (lambda _, out: {"logits": out}, "it gives dict"),
    "one row": (lambda _, out: out.mean(0, keepdim=True), r"\(1, 10\) for 3 samples"),
    "too few": (lambda _, out: out[:, :9], r"\(3, 9\)"),
    "whole": (lambda _, out: out.argmax(1, keepdim=True).expand(-1, 10), "torch.int64"),
    "complex": (lambda _, out: torch.complex(out, out), "torch.complex64"),
    "detached": (lambda _, out: out.detach(), "must not use detach"),
    "constant": (
        lambda _, out: torch.zeros_like(out).requires_grad_(), "uses none of its parameters"
    ),
    "missing": (lambda module, out: module.nowhere(out), "no attribute 'nowhere'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILED)
def test_a_module_that_cannot_learn_is_refused_with_what_would_be_right(kind):
    spoil, words = SPOILED[kind]
    with pytest.raises((ValueError, TypeError), match=words):
        small().replace(model=Odd(spoil))


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (Parallel, "give model.module"),
        (lambda module: torch.jit.trace(module, torch.ones(2, 1, 8, 8)), "plain nn.Module"),
        (lambda _: Odd(lambda _, out: out, lazy=True), "call it once on a batch"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_module_in_a_wrapper_is_refused(wrap, words):
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(ValueError, match=words):
        small().replace(model=wrap(plain))


def test_a_module_may_leave_some_parameters_unused_and_draw_dropout():
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    module.spare = nn.Identity()
    module.spare.weight = nn.Parameter(torch.ones(3))
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    fed = small().replace(model=module)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(p.grad is None for p in module.parameters()) and module.training
    assert not torch.equal(train(fed, fed.initial(), fed.everyone), fed.initial())


# ---- what was said, or not said -----------------------------------------------------------------


def test_a_keyword_of_another_library_is_translated():
    known = {"learning_rate": "lr", "local_epochs": "epochs", "batchsize": "batch_size"}
    for name, meant in known.items():
        with pytest.raises(TypeError, match=f"'{name}'; did you mean '{meant}'"):
            pfl_lib.Federation(digits(), small().partition, **{name: 1})
    with pytest.raises(TypeError, match="'lr'; known are algorithm, fed, rounds"):
        run("fedavg", small(), 1, lr=0.1)
    with pytest.raises(TypeError, match="'threads'; known are data, partition"):
        pfl_lib.Federation(digits(), small().partition, threads=3)


@pytest.mark.parametrize("step", ["ala", "apple", "apfl"])
def test_a_step_without_its_rows_says_which(step):
    fed = small()
    for engine in ("loop", "stacked"):
        here = fed.replace(engine=engine)
        with pytest.raises(ValueError, match=f"step '{step}' asks for '.*it has the rows .'w'."):
            here.perform(Work({"w": here.initial()}, step), here.everyone)


def test_numbers_that_nobody_reads_are_refused():
    with pytest.raises(ValueError, match=r"numbers must be empty.*\{'zzz': 3\}"):
        Work({"w": small().initial()}, numbers={"zzz": 3})


@pytest.mark.parametrize("value", [0.5, float("nan")])
def test_a_mask_says_yes_or_no(value):
    fed = small()
    with pytest.raises(ValueError, match="mask must be True or False"):
        train(fed, fed.initial(), fed.everyone, mask=torch.full((fed.d,), value))
    still = train(fed, fed.initial(), fed.everyone, mask=torch.zeros(fed.d))
    assert torch.equal(still, fed.initial())


def test_labels_are_renamed_or_refused():
    clients = in_groups()
    with pytest.raises(ValueError, match="20 is a multiple of all 10"):
        partition.conflicting_labels(clients, digits(), shift=20)


def test_no_more_groups_than_clients():
    with pytest.raises(ValueError, match="groups must be at most 4, got 9"):
        run(pfl_lib.algorithm("oracle-groups", groups=9), small(), 1, progress=False)


def test_nobody_is_not_tested():
    with pytest.raises(ValueError, match="test_clients must hold at least one"):
        run("fedavg", small(), 1, test_clients=[], progress=False)


def test_a_history_in_which_nothing_was_measured():
    empty = pfl_lib.History("a", "b", {})
    assert empty.last != empty.last and empty.worst() != empty.worst()
    assert empty.best_round is None and empty.summary()["sent"] == 0
    with pytest.raises(ValueError, match="nothing was measured"):
        empty.clients()


def test_a_folder_is_no_file(tmp_path):
    for thing in (pfl_lib.History("a", "b", {}), small().partition):
        with pytest.raises(ValueError, match="path must be the path of a file, got the folder"):
            thing.save(tmp_path)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"v": torch.ones(1, 2)}, "name of rows must be one of 'w'; got 'v'"),
        ({"w": torch.ones(2, 2)}, r"shape \(1, 2\).*got torch.float32 of \(2, 2\)"),
        ({"w": torch.ones(1, 2).double()}, "got torch.float64"),
        ({"w": 3}, "got 3"),
    ],
)
def test_rows_of_a_state_have_their_form(rows, words):
    with pytest.raises(ValueError, match=words):
        State(w=torch.ones(3, 2)).put(torch.tensor([1]), **rows)


def test_a_state_between_rounds_holds_tensors():
    class Wrong(methods.Separate):
        name = "wrong"

        def upload(self, state, done, fed, who):
            return super().upload(state, done, fed, who).set(x="a")

    with pytest.raises(TypeError, match="round 1: x of the state must be a tensor, got 'a'"):
        run(Wrong(), small(), 1, progress=False)
    fed = small()
    with pytest.raises(TypeError, match="state must be the State of the round before, got None"):
        methods.Separate().round(None, fed, fed.everyone)


def test_a_learning_rate_that_grows_says_when_it_is_too_large():
    fed = small().replace(lr=(0.1, 10.0, 1))
    assert fed.at(3).settings.lr == pytest.approx(100)
    with pytest.raises(ValueError, match=r"lr grows without bound.*infinite in round 400"):
        fed.at(400)


def test_a_method_that_needs_a_value_gives_one_to_try():
    with pytest.raises((TypeError, ValueError), match=r"for example .*="):
        pfl_lib.algorithm("fedamp")
