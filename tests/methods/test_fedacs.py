"""FedACS: the quantile, the selection, its guards, and who hears whom."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_lib import algorithm, partition, run, train
from pfl_lib import formulas as f
from pfl_lib.book.theory import iterate
from tests.support.known_answers import assert_known, key, known
from tests.support.methods import (
    close,
    last,
    plain_federation,
    refused,
)
from tests.support.quadratics import (
    ETA,
    LOCAL,
    OneStep,
    gradient,
)
from tests.support.strategies import models, quick, shuffled_models

W4 = known("FedACS", "W rows")
levels = st.floats(0, 1)


@pytest.mark.parametrize("p", [0, 0.25, 0.5, 0.75])
def test_eq_fedacs_weights_keeping_negative_cosines(p):
    weights, delta = f.fedacs_weights(W4, p, negatives="keep")
    assert_known(delta, "FedACS", f"p={p}: delta")
    assert_known(weights, "FedACS", f"p={p}: weights")
    assert_known(f.mix(weights, W4), "FedACS", f"p={p}: u")


def test_eq_fedacs_weights_dropping_negative_cosines():
    weights, _ = f.fedacs_weights(W4, 0)
    assert_known(weights, "FedACS", "p=0 with negatives dropped (recommended default): weights")
    assert_known(f.mix(weights, W4), "FedACS", "p=0 with negatives dropped: u")


def test_eq_fedacs_weights_at_p_one_hear_only_themselves():
    for negatives in ("keep", "drop"):
        weights, delta = f.fedacs_weights(W4, 1, negatives)
        assert_known(delta, "FedACS", "p=1: delta")
        assert_known(f.mix(weights, W4), "FedACS", "p=1 guarded: u equals W")


def test_eq_fedacs_select_without_a_threshold():
    S = f.cosine_similarities(W4)
    weights = f.fedacs_select(S, -torch.inf, negatives="keep")
    assert_known(weights, "FedACS", "delta=-inf: weights (some negative)")


def test_eq_fedacs_local():
    weights, _ = f.fedacs_weights(W4, 0.5)
    centers = known("FedACS", "p=0.5 then Eq.(5), beta=0.1, F_i=0.5||w-c_i||^2: centres")
    u = f.mix(weights, W4)
    assert_known(f.fedacs_local(u, u - centers, lr=0.1), "FedACS", "p=0.5 then Eq.(5): w")


@quick
@given(models(), levels)
def test_fedacs_rows_are_convex_combinations(W, p):
    weights, delta = f.fedacs_weights(W, p)
    assert delta.ndim == 0
    assert weights.min() >= 0
    torch.testing.assert_close(weights.sum(1), torch.ones(len(W), dtype=W.dtype))


@quick
@given(models(), levels)
def test_fedacs_rows_sum_to_one_with_negatives_kept(W, p):
    weights, _ = f.fedacs_weights(W, p, negatives="keep")
    scale = weights.abs().sum(1).clamp(min=1)
    assert bool(((weights.sum(1) - 1).abs() <= 1e-12 * scale).all())


@quick
@given(shuffled_models(), levels)
def test_fedacs_select_is_permutation_equivariant(drawn, p):
    # On the matrix of cosines: between equal models the last digit decides what is above δ.
    W, order = drawn
    S = f.cosine_similarities(W)
    moved = S[order][:, order]
    delta = f.fedacs_threshold(S, p)
    assert f.fedacs_threshold(moved, p) == delta
    torch.testing.assert_close(
        f.fedacs_select(moved, delta), f.fedacs_select(S, delta)[order][:, order]
    )


@quick
@given(models(), levels)
def test_fedacs_threshold_is_the_linear_quantile(W, p):
    S = f.cosine_similarities(W)
    torch.testing.assert_close(f.fedacs_threshold(S, p), torch.quantile(S.flatten(), p))


@quick
@given(models(clients=(1, 1)), st.integers(1, 6), levels)
def test_fedacs_equal_models_give_the_message_back(row, m, p):
    W = row.expand(m, -1)
    weights, _ = f.fedacs_weights(W, p)
    torch.testing.assert_close(f.mix(weights, W), W)


@pytest.mark.parametrize("m", [2, 5, 10])
def test_fedacs_quantile_from_which_only_the_self_is_left(m):
    """p ≥ m/(m + 1) puts δ = 1: the printed strict test would select nobody."""
    S = torch.full((m, m), 0.3, dtype=torch.float64).fill_diagonal_(1.0)
    p = m / (m + 1)
    assert float(f.fedacs_threshold(S, p)) == pytest.approx(1.0)
    assert torch.equal(f.fedacs_select(S, 1.0), torch.eye(m, dtype=torch.float64))


def test_fedacs_opposing_clients_with_a_row_sum_below_zero():
    W = torch.tensor([[1, 0.1], [-1, 0.2], [-1, -0.3], [0.2, 1.0]], dtype=torch.float64)
    S = f.cosine_similarities(W)
    assert S[0].sum() < 0  # the printed weights of row 0 would be −1.55, 1.48, 1.52, −0.45
    kept = f.fedacs_select(S, -torch.inf, negatives="keep")
    dropped = f.fedacs_select(S, -torch.inf, negatives="drop")
    torch.testing.assert_close(kept[0], dropped[0])
    assert dropped.min() >= 0


def test_fedacs_zero_model_hears_itself():
    W = torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]])
    weights, _ = f.fedacs_weights(W, 0.2)
    assert weights[0].tolist() == [1.0, 0.0, 0.0]


def test_fedacs_one_client():
    weights, delta = f.fedacs_weights(torch.tensor([[1.0, 2.0]]), 0.5)
    assert weights.tolist() == [[1.0]] and delta == 1


def test_fedacs_frozen_gradient_is_four_times_the_claimed_one():
    """For symmetric scores with unit row sums ∇Σ s_ij‖w_i − w_j‖² = 4(W − SW), not W − SW."""
    generator = torch.Generator().manual_seed(1)
    W = torch.randn(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    S = torch.rand(4, 4, dtype=torch.float64, generator=generator) + 0.1
    S = S + S.T
    for _ in range(300):
        scale = S.sum(1).rsqrt()
        S = scale[:, None] * S * scale
    (grad,) = torch.autograd.grad((S * f.squared_distances(W)).sum(), W)
    torch.testing.assert_close(grad, 4 * (W - f.mix(S, W)).detach())


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\], got 1\.2"):
        f.fedacs_weights(W4, 1.2)
    with pytest.raises(ValueError, match="negatives must be one of 'drop', 'keep'; got 'dorp'"):
        f.fedacs_weights(W4, 0.5, negatives="dorp")
    with pytest.raises(ValueError, match="lr must be a positive finite number, got 0"):
        f.fedacs_local(W4, W4, 0)


@pytest.fixture
def four():
    """The four models of the known answers, whose cosines have both signs."""
    centers = known("FedACS", key("FedACS", "p=0.5 then Eq.(5), beta=0.1"))
    return OneStep(h=torch.ones_like(centers), c=centers, start=known("FedACS", "W rows"))


def test_fedacs_eq4_and_eq5(four):
    state = iterate(algorithm("fedacs", p=0.5), four, 1)[-1]
    torch.testing.assert_close(state.xi, known("FedACS", "p=0.5: weights"))
    torch.testing.assert_close(state.delta, known("FedACS", "p=0.5: delta"))
    torch.testing.assert_close(state.u, known("FedACS", "p=0.5: u"))
    torch.testing.assert_close(state.w, known("FedACS", "p=0.5 then Eq.(5): w"))


def test_fedacs_negative_cosines_are_dropped_or_kept_and_said(four):
    with pytest.warns(UserWarning, match="negative cosines pass; they are left out"):
        dropped = iterate(algorithm("fedacs", p=0.0), four, 1)[-1]
    with pytest.warns(UserWarning, match="negative cosines pass; their weights are negative"):
        kept = iterate(algorithm("fedacs", p=0.0, negatives="keep"), four, 1)[-1]
    torch.testing.assert_close(dropped.u, known("FedACS", "p=0 with negatives dropped: u"))
    torch.testing.assert_close(kept.xi, known("FedACS", "p=0: weights"))
    assert dropped.xi.min() >= 0 > kept.xi.min()


def test_fedacs_at_p_one_is_separate_training_and_says_so(data, groups):
    fed = plain_federation(data, groups)
    with pytest.warns(UserWarning, match=r"this is Separate training; take p < 0.9091"):
        alone = last(algorithm("fedacs", p=1.0), fed, 3)
    assert torch.equal(alone.w, last(algorithm("separate"), fed, 3).w)
    with pytest.warns(UserWarning, match="Separate training"):  # n/(n+1) is enough
        last(algorithm("fedacs", p=10 / 11), fed, 2)


def test_fedacs_at_p_zero_leaves_out_the_farthest_pair_only(data, groups):
    fed = plain_federation(data, groups)
    method = algorithm("fedacs", p=0.0)
    before = last(method, fed, 2)
    state = method.round(before, fed.at(2), fed.everyone)
    S = f.cosine_similarities(before.w)
    assert ((state.xi == 0) == (S.min() == S)).all() and (state.xi == 0).sum() == 2
    heard = torch.where(state.xi > 0, S, 0)
    torch.testing.assert_close(state.xi, heard / heard.sum(1, keepdim=True))


def test_fedacs_hears_fewer_and_nearer_as_p_grows(data, groups):
    fed = plain_federation(data, groups)
    w = last(algorithm("fedacs"), fed, 3)
    heard = []
    for p in (0.0, 0.3, 0.6, 0.8, 0.9):
        xi = algorithm("fedacs", p=p).round(w, fed.at(3), fed.everyone).xi
        heard.append(int((xi > 0).sum()))
        torch.testing.assert_close(xi.sum(1), torch.ones(10, dtype=torch.float64))
    assert heard == sorted(heard, reverse=True) and len(set(heard)) == len(heard)


def test_fedacs_from_a_common_start_has_messages_equal_to_the_models(data, groups):
    """All cosines are 1: the printed strict test would divide 0 by 0."""
    fed = plain_federation(data, groups)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = last(algorithm("fedacs", p=0.5), fed, 1)
    assert torch.equal(state.u, fed.initial())
    assert torch.equal(state.w, train(fed, fed.initial(), fed.everyone))


def test_fedacs_participants_hear_each_other_only(data, groups):
    fed = plain_federation(data, groups)
    method = algorithm("fedacs", p=0.3)
    before = last(method, fed, 2)
    there = torch.tensor([0, 2, 3, 7])
    after = method.round(before, fed.at(2), there)
    away = torch.tensor([1, 4, 5, 6, 8, 9])
    assert torch.equal(after.w[away], before.w[away])
    assert after.xi[there][:, away].count_nonzero() == 0
    assert torch.equal(after.xi[away], torch.eye(10, dtype=torch.float64)[away])
    part = run(method, fed, 3, participation=0.4, progress=False)
    assert part.sent[-1] == 3 * 4 * 2 * fed.d


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fedacs_keeps_to_the_groups(data, seed):
    """p = 0.8 leaves a fifth of the pairs: with 5 groups of 4, just those inside a group."""
    clients = partition.grouped(data, group_clients=4, seed=seed)
    fed = plain_federation(data, clients, seed=seed)
    xi = last(algorithm("fedacs", p=0.8), fed, 3).xi
    same = clients.groups[:, None] == clients.groups[None, :]
    assert float((xi * same).sum(1).mean()) > 0.95  # chance is 0.2


def test_one_step_of_training_is_the_printed_local_step(quadratics):
    """What runs after the message is Eq. (5) when a client takes a single step."""
    fed, method = quadratics(), algorithm("fedacs", p=0.5)
    state = method.round(method.start(fed).set(w=LOCAL), fed, fed.everyone)
    for i in (0, 1):
        close(state.w[i], f.fedacs_local(state.u[i], gradient(i)(state.u[i]), ETA), 1e-12)


BAD = [
    ("fedacs", {"p": 1.2}, r"p must lie in \[0, 1\], got 1.2"),
    ("fedacs", {"negatives": "dropp"}, "Did you mean 'drop'"),
]


@refused(BAD)
def test_bad_hyper_parameters(check):
    check()
