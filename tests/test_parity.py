"""Same batches, same numbers: ``pfl_lib.book.parity`` against the methods, and against itself."""

import pytest
import torch

from pfl_lib.book import parity


@pytest.fixture(scope="module")
def differences():
    return parity.compare()


@pytest.mark.parametrize("label", parity._PAIRS)
def test_the_library_computes_what_the_second_writing_does(differences, label):
    assert differences[label] < 1e-10


def test_the_comparison_would_notice():
    """Two readings of pFedMe, APPLE and SPFL differ by far more than rounding; so do settings."""
    clients = parity._Clients(parity._federation())
    going_on, again = (parity._pfedme(clients, restart=word) for word in (False, True))
    assert (going_on - again).abs().max() > 1e-3
    by_tensor, true = (parity._apple(clients, rate=0.001, by_tensor=w) for w in (True, False))
    assert (by_tensor - true).abs().max() > 1e-6
    assert (parity._fedphp(clients) - parity._fedphp(clients, expected=100)).abs().max() > 1e-3
    assert (parity._fedala(clients) - parity._fedala(clients, eta=10.0)).abs().max() > 1e-3
    spfl = parity._spfl(clients)
    for other in ({"own_head": True}, {"period": 3}):
        assert (spfl - parity._spfl(clients, **other)).abs().max() > 1e-3


def test_every_model_has_left_its_start():
    fed = parity._federation()
    for label, (ours, _) in parity._PAIRS.items():
        assert (ours(fed) - fed.initial()).norm(dim=1).min() > 1e-3, label
    assert torch.equal(fed.initial()[0], fed.initial()[1])
