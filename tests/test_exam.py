"""The key of the exam, computed by the library."""

import math

import pytest
import torch

from pfl_lib import attention, metrics
from pfl_lib.formulas import ala_step, attention_weights, safe_alpha, sngs, weighted_average
from tests.support.paths import ROOT

KEY = (ROOT / "book" / "exam.md").read_text(encoding="utf-8").split("## Key")[1]


def test_averaging():
    models = torch.tensor([[0.0, 10.0], [10.0, 0.0], [5.0, 5.0]])
    assert weighted_average(models, torch.tensor([10.0, 30.0, 60.0])).tolist() == [6, 4]
    assert weighted_average(models).tolist() == [5, 5]
    assert "(6, 4)" in KEY and "(5, 5)" in KEY and f"1{{,}}{50 * 3 * 2 * 4 - 1000}" in KEY


def fedavg_end(epochs):
    h, c, x = torch.tensor([1.0, 3.0]), torch.tensor([-1.0, 1.0]), torch.tensor(0.3)
    for _ in range(200):
        w = x.expand(2)
        for _ in range(epochs):
            w = w - 0.2 * h * (w - c)
        x = w.mean()
    return x.item()


def test_drift():
    assert fedavg_end(1) == pytest.approx(0.5) and fedavg_end(200) == pytest.approx(0, abs=1e-6)


def test_how_alike():
    counts = torch.tensor([[80, 20], [20, 80]])
    assert metrics.total_variation(counts)[0, 1] == pytest.approx(0.6)
    assert round(metrics.effective_samples(counts)[0, 1].item()) == 31


def test_in_between():
    v, tau2 = 9 / 3, 1.0
    best = v / (v + tau2)
    assert v - v**2 / (v + tau2) == 0.75 and round(0.1 / 1.1, 2) == 0.09
    assert abs(1 - best) == abs(0.5 - best) == 0.25  # no step and one step


def test_attention():
    A = attention.by_name("negative_exponential", 4.0)
    models = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    row = attention_weights(models, A, self_weight=0.4)[1]
    assert [round(value, 4) for value in row.tolist()] == [0.4075, 0.4, 0.1925]
    assert (row @ models).item() == pytest.approx(0.9775, abs=1e-4)
    assert safe_alpha(A, m=3) == pytest.approx(4 / 2)
    assert math.exp(-0.25) == pytest.approx(0.779, abs=1e-3)


def test_updates():
    g = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.75**0.5, 0.0], [0.0, 0.0, 1.0]])
    row = sngs(g)[0]
    assert ", ".join(f"{weight:.3f}" for weight in row) in KEY
    assert f"{1 / (row**2).sum():.1f}" == "2.6" and f"{0.5 / math.log(10):.2f}" == "0.22"
    sharp = sngs(g, temperature=0.5 / math.log(10))[0]
    assert (sharp[1] / sharp[0]).item() == pytest.approx(0.1)
    late = sum(1 / (delay + 1) for delay in range(1, 6))
    assert f"{late:.2f}/{5 + late:.2f}" in KEY and round(100 * late / (5 + late)) == 22


def test_inside_the_box():
    own, common, c = torch.zeros(2), torch.tensor([2.0, 0.5]), torch.tensor([1.0, 0.5])

    def steps(count, lr, goal):
        weights = torch.ones(2)
        for _ in range(count):
            mix = own + (common - own) * weights
            weights = ala_step(weights, own, common, mix - goal, lr)
        return weights

    assert steps(1, 0.1, c).tolist() == pytest.approx([0.8, 1.0])
    assert steps(500, 0.49, c)[0].item() == pytest.approx(0.5, abs=1e-4)
    assert abs(steps(501, 0.51, c)[0] - 0.5) > 0.1  # beyond the bound it jumps
    assert steps(2000, 0.1, own).max() < 1e-6
    first, second = 1 - steps(1, 0.1, own)
    assert (first / second).item() == pytest.approx(16)


def test_points_and_minutes():
    rows = [
        line.split("|")[2:-1] for line in KEY.splitlines() if line.startswith(("| points", "| min"))
    ]
    points, minutes = ([int(cell) for cell in row] for row in rows)
    assert sum(points) == 100 and sum(minutes) == 90
