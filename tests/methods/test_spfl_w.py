"""SPFL-w: the trained models, mixed by the similarity of updates."""

import torch

from pfl_lib import algorithm
from pfl_lib import formulas as f
from pfl_lib.book.theory import QuadraticFederation
from tests.support.known_answers import assert_known, key, known
from tests.support.methods import (
    refused,
)


def test_eq_spfl_w_step():
    G, W = known("SPFL", "g rows (g = w_before - w_after)"), known("SPFL", "w rows")
    stages = [slice(0, 2), slice(2, 4)]
    new = f.spfl_w_step(W - G, f.sngs(G, stages), stages)
    assert_known(new, "SPFL", "SPFL-w: sum_j S~_s(i,j) w_j with w_j the locally trained models w-g")


def test_a_round_mixes_the_trained_models():
    G, W = known("SPFL", "g rows (g = w_before - w_after)"), known("SPFL", "w rows")
    method, fed = algorithm("spfl-w"), QuadraticFederation(torch.ones_like(W), W - G, start=W)
    fed.layers = [("body", slice(0, 2)), ("output", slice(2, 4))]
    state = method.start(fed).set(S=f.sngs(G, method.parts(fed)))
    mixed = method.round(state, fed.at(1), fed.everyone).w  # no reset: round 2 of the period
    torch.testing.assert_close(mixed, known("SPFL", key("SPFL", "SPFL-w: sum_j")))


BAD = [
    ("spfl-w", {"rule": "softmax"}, "hyper-parameter of spfl-w must be one of"),
    ("spfl-w", {"local_head": "yes"}, "local_head must be one of False, True, 'reset'; got 'yes'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
