"""Same seeds, same numbers: in another process, with other engines, threads, company or order."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
import torch

from pfl_lib import Federation, algorithm, run, train
from tests.support.paths import ROOT
from tests.support.runs import quick_method
from tests.support.runs import scarce_federation as federation

NAMES = ("fedavg", "fedamp", "scaffold", "fedala", "fedphp", "spfl", "plga")


def fingerprints():
    """Of every bit that two rounds of some methods end in, on one thread."""
    found, before = {}, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in NAMES:
            history = run(quick_method(name), federation(), 2, progress=False)
            digest = hashlib.sha256()
            for key in sorted(history.state):
                digest.update(history.state[key].contiguous().numpy().tobytes())
            found[name] = [digest.hexdigest(), history.loss]
    finally:
        torch.set_num_threads(before)
    return found


def test_a_fresh_process_gives_the_same_bits():
    code = "import json, runpy; this = runpy.run_path('tests/test_determinism.py'); "
    code += "print(json.dumps(this['fingerprints']()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == fingerprints()


@pytest.mark.parametrize("model", ["mlp", "fedala_cnn"])
def test_the_number_of_threads_changes_rounding_only(model):
    """torch cuts products among its threads and then adds in another order: the same bits are
    promised for one number of threads, the same numbers to float32's precision for others."""
    found, before = [], torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(run(algorithm("fedavg"), federation(model), 2, progress=False).loss)
        finally:
            torch.set_num_threads(before)
    one, two = map(torch.tensor, found)
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_neither_order_nor_company_changes_what_a_client_trains():
    fed = federation(engine="loop")
    start = fed.initial()
    all_of_them = train(fed, start, fed.everyone)
    for who in ([3, 1, 0, 2], [2], [1, 3]):
        assert torch.equal(train(fed, start[who], torch.tensor(who)), all_of_them[who])
    stacked = federation(engine="stacked", dtype=torch.float64)
    start = stacked.initial()
    all_of_them = train(stacked, start, stacked.everyone)
    for who in ([3, 1, 0, 2], [2], [1, 3]):
        here = train(stacked, start[who], torch.tensor(who))
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
    batches = train(
        Federation(fed.data, other.partition, "mlp", lr=0.05, batch_size=8, seed=fed.settings.seed),
        other.initial()[:1],
        torch.tensor([0]),
    )
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
