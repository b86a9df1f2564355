"""Squared distances, cosines and the median width."""

import pytest
import torch
from hypothesis import assume, given
from torch.utils.flop_counter import FlopCounterMode

from pfl_lib.formulas import cosine_similarities, median_sigma, squared_distances
from tests.support.known_answers import assert_known, known
from tests.support.strategies import models, quick, shuffled_models

W1 = known("FedAMP weights", "W rows")


def test_squared_distances_known_answer():
    assert_known(squared_distances(W1), "FedAMP weights", "squared distances")


def test_cosine_similarity_known_answers():
    assert_known(cosine_similarities(W1), "HeurFedAMP weights", "cosine matrix of W")
    assert_known(cosine_similarities(known("FedACS", "W rows")), "FedACS", "cosine matrix S")
    g = known("SPFL", "g rows (g = w_before - w_after)")
    assert_known(cosine_similarities(g), "SPFL", "S whole model")
    assert_known(cosine_similarities(g[:, 0:2]), "SPFL", "S_s stage 0")
    assert_known(cosine_similarities(g[:, 2:4]), "SPFL", "S_s stage 1")


@quick
@given(models())
def test_squared_distances_are_the_sum_of_squares(W):
    direct = ((W[:, None] - W[None]) ** 2).sum(-1)
    t = squared_distances(W)
    torch.testing.assert_close(t, direct, rtol=1e-9, atol=1e-10)
    assert bool((t >= 0).all()) and bool((t == t.T).all()) and bool((t.diagonal() == 0).all())


@quick
@given(models())
def test_cosines_in_the_unit_interval_with_an_exact_diagonal(W):
    S = cosine_similarities(W)
    assert bool((S.abs() <= 1).all()) and bool((S == S.T).all())
    assert S.diagonal().tolist() == [1.0 if row.any() else 0.0 for row in W]


@quick
@given(shuffled_models())
def test_similarities_are_permutation_equivariant(drawn):
    W, order = drawn
    for f in (squared_distances, cosine_similarities):
        torch.testing.assert_close(f(W[order]), f(W)[order][:, order], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(median_sigma(W[order]), median_sigma(W))


def test_float32_distances_of_close_models_far_from_zero():
    """Two groups far apart, differences of 1e-4 inside: every distance is good to 1e-5."""
    generator = torch.Generator().manual_seed(0)
    center = 100 * torch.randn(2, 1, 9000, generator=generator)
    W = (center + 1e-3 * torch.randn(2, 3, 9000, generator=generator)).reshape(6, -1)
    exact = ((W[:, None].double() - W[None].double()) ** 2).sum(-1)
    t = squared_distances(W)
    assert t.dtype == torch.float32
    torch.testing.assert_close(t, exact.float(), rtol=1e-5, atol=0)
    plain = W @ W.T
    lost = plain.diagonal()[:, None] + plain.diagonal() - 2 * plain
    assert (lost - exact.float()).abs().max() > 1e-2  # what a plain Gram matrix does


def test_blocks_of_columns_add_up():
    W = torch.randn(3, 2 * 4096 + 17, dtype=torch.float64)
    direct = ((W[:, None] - W[None]) ** 2).sum(-1)
    torch.testing.assert_close(squared_distances(W), direct)


def test_float32_cosines_of_tiny_and_huge_vectors():
    W = torch.tensor([[1e-30, 1e-30], [1e30, 0.0], [3.0, 3.0]])
    torch.testing.assert_close(cosine_similarities(W)[0], torch.tensor([1.0, 0.5**0.5, 1.0]))


def test_zero_vector_has_cosine_zero_with_all():
    W = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    assert cosine_similarities(W).tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_one_client():
    W = torch.tensor([[3.0, 4.0]])
    assert squared_distances(W).tolist() == [[0.0]]
    assert cosine_similarities(W).tolist() == [[1.0]]
    assert median_sigma(W) == 1


def test_gradients_flow_and_stay_finite_for_equal_and_zero_rows():
    W = torch.zeros(3, 2, dtype=torch.float64)
    W[2] = 1
    for f in (squared_distances, cosine_similarities):
        (grad,) = torch.autograd.grad(f(W.requires_grad_()).sum(), W)
        assert bool(grad.isfinite().all())


@quick
@given(models(clients=(2, 6)))
def test_median_sigma_is_the_median(W):
    t = squared_distances(W)
    pairs = torch.stack([t[i, j] for i in range(len(W)) for j in range(i)])
    middle = torch.quantile(pairs, 0.5)
    assume(middle > 1e-6)
    torch.testing.assert_close(median_sigma(W), middle)
    torch.testing.assert_close(median_sigma(W, multiple=0.25), middle / 4)


def test_median_sigma_is_positive_when_models_coincide():
    assert median_sigma(torch.ones(4, 3)) == 1
    one_apart = torch.ones(5, 3)
    one_apart[0] = 2  # six of ten pairs coincide; the mean of the ten is 4·3/10
    assert float(median_sigma(one_apart)) == pytest.approx(1.2)


def test_many_federations_at_once_where_there_are_several_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    generator = torch.Generator().manual_seed(0)
    many = torch.randn(3, 4, 5000, dtype=torch.float64, generator=generator)  # more than one block
    at_once = torch.func.vmap(squared_distances)(many)
    torch.testing.assert_close(at_once, torch.stack([squared_distances(W) for W in many]))


def test_threads_keep_what_holds_for_the_caller_alone(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    W = torch.randn(4, 9000, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        assert not squared_distances(W).requires_grad
    with FlopCounterMode(display=False) as counter:
        squared_distances(W.detach())
    assert counter.get_total_flops() > 0


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="W must be a tensor with one row per client, got list"):
        squared_distances([[1.0]])
    with pytest.raises(ValueError, match=r"W must be a floating \(m, d\) matrix"):
        cosine_similarities(torch.ones(3))
    with pytest.raises(ValueError, match=r"W must be a floating \(m, d\) matrix"):
        squared_distances(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="multiple must be a positive finite number, got 0"):
        median_sigma(torch.ones(2, 2), multiple=0)
