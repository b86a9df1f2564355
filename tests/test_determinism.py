"""Same seeds, same numbers: in another process, with other engines, threads, company or order."""

import json
import os
import subprocess
import sys
import warnings

import plain
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_faults import small

import pfl_lib
from pfl_lib import Federation, algorithm, algorithms, formulas, partition, random, run, training
from pfl_lib.experiments import code

CODE = """
import hashlib, json, torch
import pfl_lib
from test_determinism import federation
from test_faults import small
torch.set_num_threads(1)
told = {}
for name in ("fedavg", "fedamp", "scaffold", "fedala", "fedphp", "spfl", "plga"):
    history = pfl_lib.run(small(name), federation(), 2, progress=False)
    digest = hashlib.sha256()
    for key in sorted(history.state):
        digest.update(history.state[key].contiguous().numpy().tobytes())
    told[name] = [digest.hexdigest(), history.loss]
print(json.dumps(told))
"""


def federation(model="mlp", clients=4, split=0, **how):
    data = pfl_lib.data.load("digits")
    some = partition.scarce(partition.iid(data, clients=clients, seed=split), samples=20)
    how = {"lr": 0.05, "batch_size": 8, "device": "cpu", **how}
    return Federation(data, some, model, **how)


def elsewhere(hashseed):
    """The same runs in a process of their own."""
    environment = {**os.environ, "PYTHONHASHSEED": hashseed}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=os.path.dirname(__file__),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_a_fresh_process_gives_the_same_bits():
    assert elsewhere("1") == elsewhere("2")


@pytest.mark.parametrize("model", ["mlp", "mcmahan_cnn"])
def test_the_number_of_threads_changes_rounding_only(model):
    """torch cuts products among its threads and then adds in another order: the same bits are
    promised for one number of threads, the same numbers to float32's precision for others."""
    told, before = [], torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            told.append(run(algorithm("fedavg"), federation(model), 2, progress=False).loss)
        finally:
            torch.set_num_threads(before)
    one, two = map(torch.tensor, told)
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", algorithms.names())
def test_engines_agree(name):
    """In float64 to ten digits: what is left is the order of additions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop, stacked = (
            run(small(name), federation(engine=e, dtype=torch.float64), 2, progress=False)
            for e in ("loop", "stacked")
        )
    for key in loop.state:
        torch.testing.assert_close(stacked.state[key], loop.state[key], rtol=1e-9, atol=1e-10)


def test_neither_order_nor_company_changes_what_a_client_trains():
    fed = federation(engine="loop")
    start = fed.initial()
    all_of_them = fed.train(start, fed.everyone)
    for who in ([3, 1, 0, 2], [2], [1, 3]):
        assert torch.equal(fed.train(start[who], torch.tensor(who)), all_of_them[who])
    stacked = federation(engine="stacked", dtype=torch.float64)
    start = stacked.initial()
    all_of_them = stacked.train(start, stacked.everyone)
    for who in ([3, 1, 0, 2], [2], [1, 3]):
        here = stacked.train(start[who], torch.tensor(who))
        torch.testing.assert_close(here, all_of_them[who], rtol=1e-10, atol=1e-12)


def test_global_random_state_is_neither_used_nor_changed():
    fed = federation()
    torch.manual_seed(1)
    first = run(algorithm("fedavg"), fed, 2, participation=0.5, progress=False)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn)
    torch.manual_seed(2)
    second = run(algorithm("fedavg"), fed, 2, participation=0.5, progress=False)
    assert first.loss == second.loss


# ----------------------------------------------------------------------------------- three seeds
def parts(fed):
    """What each seed decides: who holds what, the initial model, the first client's batches."""
    other = federation(seed=9, init_seed=9)  # all train from one model on the same clients
    batches = Federation(
        fed.data, other.partition, "mlp", lr=0.05, batch_size=8, seed=fed.settings.seed
    ).train(other.initial()[:1], torch.tensor([0]))
    return torch.cat(fed.partition.train), fed.initial()[0], batches


@pytest.mark.parametrize(
    "changed, which", [({"split": 1}, 0), ({"init_seed": 1, "seed": 0}, 1), ({"seed": 1}, 2)]
)
def test_each_of_the_three_seeds_decides_one_thing(changed, which):
    before = parts(federation(**{"split": 0, "init_seed": 0, "seed": 0}))
    after = parts(federation(**{"split": 0, "init_seed": 0, "seed": 0, **changed}))
    same = [torch.equal(a, b) for a, b in zip(before, after)]
    assert same == [k != which for k in range(3)]


def test_one_seed_serves_for_initial_model_and_batches():
    assert torch.equal(federation(seed=3).initial(), federation(init_seed=3).initial())
    for wrong in (-1, 0.5, "a"):
        with pytest.raises(ValueError, match="init_seed must be a whole number >= 0"):
            federation(init_seed=wrong)


def test_rewritten_functions_are_those_that_the_list_names(monkeypatch):
    monkeypatch.setattr(code, "REWRITTEN", {})  # the fingerprints as they are
    fast = (training.batch_table, random.keyed_number, random._written, formulas.fedamp_weights)
    slow = (plain.batch_table, plain.keyed_number, plain._written, plain.fedamp_weights)
    pairs = {code._fingerprint(new): code._fingerprint(old) for new, old in zip(fast, slow)}
    monkeypatch.undo()
    assert pairs == code.REWRITTEN


PARTS = st.integers(-(2**70), 2**70) | st.text() | st.integers(0, 9).map(torch.tensor)


@given(st.lists(PARTS, min_size=1, max_size=5))
def test_keys_are_what_they_were(key):
    assert random.keyed_number(*key) == plain.keyed_number(*key)


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    length=st.sampled_from(["epochs", "steps"]).flatmap(
        lambda name: st.builds(lambda n: {name: n}, st.integers(name == "steps", 5))
    ),
    share=st.sampled_from([1, 0.5, 0.03]),
    group=st.integers(1, 3),
    batch_size=st.integers(1, 70),
    round_=st.integers(0, 3),
)
def test_batches_are_what_they_were(sizes, length, share, group, batch_size, round_):
    work = training.Work(rows={"w": torch.zeros(len(sizes), 1)}, share=share, group=group, **length)
    settings = training.Settings(0.1, "sgd", batch_size, epochs=1, seed=5)
    who = list(range(3, 3 + len(sizes)))
    now = training.batch_table(work, settings, sizes, who, round_)
    then = plain.batch_table(work, settings, sizes, who, round_)
    assert len(now) == len(then)
    assert all(torch.equal(a, b) for a, b in zip(now, then))


@given(m=st.integers(1, 6), alpha=st.floats(0, 10), factor=st.sampled_from([1, 2]))
def test_fedamp_weights_are_what_they_were(m, alpha, factor):
    W = torch.randn(m, 5, generator=torch.Generator().manual_seed(m), dtype=torch.float64)
    attention = pfl_lib.attention.negative_exponential(sigma=2.0)
    now = formulas.fedamp_weights(W, attention, alpha, factor)
    assert torch.equal(now, plain.fedamp_weights(W, attention, alpha, factor))
