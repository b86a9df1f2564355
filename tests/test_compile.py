"""``compile=True``: the same models, and refused where nothing would be compiled."""

import pytest
import torch
from torch import nn

import pfl_lib


def cnn():
    parts = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)]
    return nn.Sequential(*parts)


@pytest.fixture
def modes(monkeypatch):
    """What is asked of torch.compile, here without its code generator, which wants minutes and a
    C++ compiler: functions are traced as ever."""
    asked, real = [], torch.compile

    def traced(function, mode):
        asked.append(mode)
        return real(function, backend="eager")

    monkeypatch.setattr(torch, "compile", traced)
    return asked


@pytest.fixture(scope="module")
def clients():
    data = pfl_lib.data.load("digits")
    return data, pfl_lib.partition.scarce(pfl_lib.partition.iid(data, 4), 24)


@pytest.mark.parametrize("model", ["mlp", cnn])
def test_the_same_models(modes, clients, model):
    plain = pfl_lib.Federation(
        *clients,
        model() if callable(model) else model,
        batch_size=8,
        engine="stacked",
        dtype=torch.float64,
    )
    compiled = plain.replace(compile=True)
    assert "compiled" in compiled.plan() and "compiled" not in plain.plan()
    ends = [
        pfl_lib.run(
            pfl_lib.algorithm("fedamp", self_weight=0.2), fed, rounds=2, progress=False
        ).state["w"]
        for fed in (plain, compiled)
    ]
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-10, atol=1e-12)
    assert modes == ["default"]  # once for all rounds


def test_needs_a_stack(clients):
    with pytest.raises(ValueError, match=r"compile must be False .* engine='stacked' makes one"):
        pfl_lib.Federation(*clients, cnn(), compile=True)
    with pytest.raises(ValueError, match=r"compile must be False with engine 'loop'"):
        pfl_lib.Federation(*clients, "mlp", engine="loop", compile=True)
    with pytest.raises(ValueError, match="compile must be True or False"):
        pfl_lib.Federation(*clients, "mlp", compile="yes")
