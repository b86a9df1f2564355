"""FedRep: the head first, then the body; only the body is shared."""

import pytest
import torch

from pfl_lib import Federation, algorithm, run, train
from tests.support.known_answers import ANSWERS, assert_known
from tests.support.methods import (
    ENGINES,
    go,
    refused,
    small_federation,
)
from tests.support.quadratics import (
    Toy,
)


def test_fedrep_head_first_then_body():
    """FedRep has no formula of its own: plain gradient steps, one part frozen at a time."""

    def scalar_loss(head, body):
        return 0.5 * (head * body - 2) ** 2

    head, body = torch.tensor([1.5, 0.8], dtype=torch.float64)
    head = head - 0.1 * torch.func.grad(scalar_loss, argnums=0)(head, body)
    body = body - 0.1 * torch.func.grad(scalar_loss, argnums=1)(head, body)
    assert_known(
        torch.stack([head, body]),
        "baselines",
        "FedRep scalar loss .5(h phi-y)^2, h=1.5, phi=.8, y=2, eta=.1: "
        "head after 1 step, then phi after 1 step with new head",
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_known_answers_of_fedrep(engine):
    """½(h·φ − y)²: the head first, then the body with the new head."""
    start = torch.tensor([0.8, 1.5], dtype=torch.float64)  # φ, h
    samples = torch.tensor([[2.0]], dtype=torch.float64)  # y
    product = lambda w, sample: 0.5 * (w[0] * w[1] - sample[..., 0]) ** 2  # noqa: E731
    fed = Toy(samples, start, product, engine=engine)
    fed.head_mask = torch.tensor([False, True])
    method = algorithm("fedrep", head_epochs=1)
    phi, h = method.personal(go(method, fed, 1), fed)[0]
    key = next(key for key in ANSWERS["baselines"] if key.startswith("FedRep scalar loss"))
    assert_known(torch.stack([h, phi]), "baselines", key)


def test_fedrep_averages_bodies_and_keeps_heads(data, unequal):
    fed, method = small_federation(data, unequal), algorithm("fedrep")
    w = method.personal(go(method, fed, 2), fed)
    head = fed.head_mask
    assert (w[:, ~head] == w[0, ~head]).all()
    assert (w[1:, head] - w[0, head]).norm(dim=1).min() > 1e-2
    state = method.start(fed)
    first = train(fed, fed.initial(), fed.everyone, mask=head, epochs=5, tag="head")
    new = method.round(state, fed, fed.everyone)
    assert torch.equal(method.personal(new, fed)[:, head], first[:, head])  # the body comes second
    by_steps = algorithm("fedrep", head_steps=1).round(state, fed, fed.everyone)
    one = train(fed, fed.initial(), fed.everyone, mask=head, steps=1, tag="head")
    assert torch.equal(by_steps.w[:, head], one[:, head])


def test_fedrep_needs_a_body_and_a_head(data, unequal):
    fed = Federation(data, unequal, "logistic_regression", device="cpu")
    with pytest.raises(ValueError, match=r"body .* 650 of 650 parameters .* no body to share"):
        run(algorithm("fedrep"), fed, 1, progress=False)


BAD = [
    ("fedrep", {"head_epochs": 0}, "head_epochs must be a whole number >= 1, got 0"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
