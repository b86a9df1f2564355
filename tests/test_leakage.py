"""What gradients give away: the identities of the chapter on privacy."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

import pfl_lib
from pfl_lib.book.leakage import gradient, quotient, quotients, whole_pictures


@pytest.fixture(scope="module")
def inputs(data):
    return data.normalized(data.x, torch.float64)


def build(name, data):
    torch.manual_seed(0)
    return pfl_lib.models.build(name, data).double()


def test_leak_ratio_one_sample(data, inputs):
    """eq-leak-ratio: every row of the last layer gives the input of logistic regression."""
    sent = gradient(build("logistic_regression", data), inputs[3:4], data.y[3:4])
    rows = quotients(sent["output.weight"], sent["output.bias"])
    assert_close(rows, inputs[3].flatten().expand(10, -1))
    assert_close(quotient(sent["output.weight"], sent["output.bias"]), inputs[3].flatten())
    assert_close(whole_pictures(rows, data), data.x[3:4])  # ten times the same, given once
    assert int(sent["output.bias"].argmin()) == int(data.y[3])


def test_leak_batch(data, inputs):
    """eq-leak-batch: (1/n)·RᵀX and (1/n)·Rᵀ1."""
    model = build("logistic_regression", data)
    x, y = inputs[:7], data.y[:7]
    sent = gradient(model, x, y)
    R = model(x).softmax(1) - torch.nn.functional.one_hot(y, 10)
    assert_close(sent["output.weight"], R.T @ x.flatten(1) / 7)
    assert_close(sent["output.bias"], R.mean(0))


def test_a_unit_that_fires_once_gives_its_sample(data, inputs):
    model = build("mlp", data)
    batch = torch.arange(8)
    sent = gradient(model, inputs[batch], data.y[batch])
    fires = model.hidden[0](inputs[batch].flatten(1)) > 0  # (8, units)
    alone = fires[:, fires.sum(0) == 1].any(1)
    found = whole_pictures(quotients(sent["hidden.0.weight"], sent["hidden.0.bias"]), data)
    assert {tuple(p.flatten().tolist()) for p in found} == {
        tuple(data.x[i].flatten().tolist()) for i in batch[alone]
    }


def test_units_that_never_fire_are_left_out(data, inputs):
    model = build("mlp", data)
    with torch.no_grad():
        model.hidden[0].bias[:40] = -1e3
    sent = gradient(model, inputs[:1], data.y[:1])
    rows = quotients(sent["hidden.0.weight"], sent["hidden.0.bias"])
    assert 0 < len(rows) <= 60 and torch.isfinite(rows).all()


def test_mixtures_are_no_pictures(data, inputs):
    rows = torch.stack([inputs[0] * 0.3 + inputs[1] * 0.7, inputs[2], 30 * inputs[3]]).flatten(1)
    assert_close(whole_pictures(rows, data), data.x[2:3])


def test_text_has_no_pictures(data):
    text = dataclasses.replace(data, kind="text", x=data.x.flatten(1).long(), mean=(), std=())
    with pytest.raises(ValueError, match="images"):
        whole_pictures(torch.zeros(1, 64), text)


def test_pictures_leave_places_empty(data):
    from pfl_lib.book import plots

    axes = plots.pictures({"all": data.x[:3, 0], "some": [data.x[0, 0], None]}, ["a", "b", "c"])
    assert [[len(ax.images) for ax in line] for line in axes] == [[1, 1, 1], [1, 0, 0]]
    plots.plt.close("all")
