"""Local training in bfloat16: what it computes, where it is refused, what it says."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import pfl_lib
from pfl_lib.local import precision
from pfl_lib.local.network import loss_of_each


@pytest.fixture(scope="module", autouse=True)
def works():
    """Skips where the processor cannot do it, in its own words."""
    found = precision.bf16_trial()
    if "why not" in found:
        pytest.skip(found["why not"])


@pytest.fixture(scope="module")
def clients():
    data = pfl_lib.data.load("digits")
    return data, pfl_lib.partition.scarce(pfl_lib.partition.iid(data, 4), 24)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.output = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 10)

    def forward(self, x):
        return self.output(self.lstm(x.squeeze(1))[0][:, -1])


def normalized():
    parts = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*parts, nn.Linear(8 * 36, 10))


MODELS = {"fedala_cnn": "fedala_cnn", "mlp": "mlp", "BatchNorm": normalized, "LSTM": Recurrent}


def trained(clients, model, **options):
    if callable(model):
        torch.manual_seed(0)
        model = model()
    fed = pfl_lib.Federation(*clients, model, lr=0.05, batch_size=8, **options)
    return pfl_lib.train(fed, fed.initial(), fed.everyone), fed


@pytest.mark.parametrize("name", MODELS)
def test_near_full_precision_but_not_the_same(clients, name):
    low, fed = trained(clients, MODELS[name], precision="bf16")
    full, _ = trained(clients, MODELS[name])
    moved = (full - fed.initial()).norm()
    assert low.dtype == torch.float32 and torch.isfinite(low).all()
    assert 0 < (low - full).norm() < 0.1 * moved


@pytest.mark.parametrize("name", MODELS)
def test_engines_agree(clients, name):
    """To bfloat16's digits: sums are rounded in another order, and a maximum may move."""
    loop, fed = trained(clients, MODELS[name], precision="bf16", engine="loop")
    moved = (loop - fed.initial()).norm()
    engines = ["threads"] if name in ("BatchNorm", "LSTM") else ["threads", "stacked"]
    for engine in engines:
        other, _ = trained(clients, MODELS[name], precision="bf16", engine=engine)
        assert (other - loop).norm() < 0.1 * moved, engine


def test_tests_are_in_full_precision(clients):
    w, low = trained(clients, "fedala_cnn", precision="bf16")
    for a, b in zip(low.evaluate(w), low.replace(precision="full").evaluate(w)):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["fedala", "per-fedavg", "apfl", "fedproto"])
def test_methods_with_steps_of_their_own(clients, name):
    fed = pfl_lib.Federation(*clients, "fedala_cnn", batch_size=8, precision="bf16")
    full = fed.replace(precision="full")
    low, high = (
        pfl_lib.run(pfl_lib.algorithm(name), f, rounds=2, progress=False) for f in (fed, full)
    )
    assert low.settings["precision"] == "bf16" and "precision" not in high.settings
    assert abs(low.last - high.last) < 0.15
    assert any(not torch.equal(low.state[n], high.state[n]) for n in low.state)


def test_the_loss_of_each_sample_is_cross_entropy():
    out, y = torch.randn(7, 5, dtype=torch.float64), torch.arange(7) % 5
    expected = nn.functional.cross_entropy(out, y, reduction="none")
    assert torch.equal(loss_of_each("cross_entropy", out, y), expected)


def test_words(clients, monkeypatch):
    fed = pfl_lib.Federation(*clients, "fedala_cnn", precision="bf16")
    dense = fed.replace(model="mlp")
    for faster, words, dense_words in (
        (2.1, "2.1 times as fast when tried)", "precision='full' is often faster"),
        (0.48, "precision='full' is faster here", "precision='full' is faster here"),
    ):
        monkeypatch.setattr(precision, "bf16_trial", lambda faster=faster: {"faster": faster})
        assert fed.plan().endswith(words) and dense.plan().endswith(dense_words)
        assert "in bfloat16" in fed.plan()
    claimed = "precision='bf16' may be faster" in fed.replace(precision="full").plan()
    assert claimed == precision.bf16_claimed()


def test_bad_input(clients):
    with pytest.raises(ValueError, match=r"precision must be .*'full'.*'bf16'.*got 'half'"):
        pfl_lib.Federation(*clients, "mlp", precision="half")
    with pytest.raises(ValueError, match=r"precision must be 'full' with dtype=torch\.float64"):
        pfl_lib.Federation(*clients, "mlp", precision="bf16", dtype=torch.float64)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", r"ends a process .*signal 4"),
        ("raise SystemExit('no such kernel')", "failed: no such kernel"),
        ('print(\'{"error": 0.7, "faster": 2.0}\')', "wrong by 70%"),
    ],
)
def test_a_processor_that_only_claims_it_is_found_out(clients, monkeypatch, program, words):
    monkeypatch.setattr(precision, "TRIAL", program)
    monkeypatch.setattr(precision, "bf16_trial", precision.bf16_trial.__wrapped__)
    with pytest.raises(ValueError, match=f"precision must be 'full' on this machine.*{words}"):
        pfl_lib.Federation(*clients, "fedala_cnn", precision="bf16")


def test_no_trial_unless_asked_for(clients, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: sys.exit("a process was started"))
    pfl_lib.Federation(*clients, "fedala_cnn").plan()
