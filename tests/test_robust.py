"""Robust averages: known answers, what they stand, and where they may be put."""

import pytest
import torch

import pfl_lib
from pfl_lib import methods
from pfl_lib.faults import Faulty
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.privacy import private
from pfl_lib.robust import RULES, coordinate_median, krum, krum_scores, robust, trimmed_mean

W = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 9.0], [3.0, 0.0], [1000.0, -1000.0]])


def test_known_answers():
    torch.testing.assert_close(coordinate_median(W), torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(coordinate_median(W[:4]), torch.tensor([1.5, 1.5]))
    torch.testing.assert_close(trimmed_mean(W, 1), torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(trimmed_mean(W, 0), W.mean(0))
    # to the two nearest others: (0,1): 2 + 10; (1,2): 2 + 8; (2,9): 50 + 68; (3,0): 8 + 10
    assert krum_scores(W, 1)[:4].tolist() == [12.0, 10.0, 118.0, 18.0]
    torch.testing.assert_close(krum(W, 1, keep=1), W[1])
    torch.testing.assert_close(krum(W, 1), W[:4].mean(0))


@pytest.mark.parametrize("rule", RULES)
def test_a_model_however_wrong_moves_the_result_by_no_more_than_the_honest_differ(rule):
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(7, 20, generator=generator)
    spread = torch.cdist(honest, honest).max()
    for size in (1e2, 1e6):
        spoiled = torch.cat([honest, -size * torch.ones(2, 20)])
        assert (RULES[rule](spoiled, 2) - honest.mean(0)).norm() < spread
    assert (spoiled.mean(0) - honest.mean(0)).norm() > 1e5


@pytest.mark.parametrize("rule", RULES)
def test_equal_models_stay_what_they_are(rule):
    same = torch.arange(4.0).expand(5, 4)
    torch.testing.assert_close(RULES[rule](same, 1), same[0])


AVERAGING = [n for n in methods.names() if issubclass(methods.BY_NAME[n], GlobalModel)]


@pytest.mark.parametrize("name", AVERAGING)
def test_scaled_clients_ruin_the_mean_and_not_the_median(name):
    """Of every method that averages, or else it says that it does not."""
    fed = Faulty(pfl_lib.example("mlp"), clients=[1, 6], kind="scale", strength=1e6)
    method = pfl_lib.algorithm(name)
    if not method.averages:
        with pytest.raises(TypeError, match="method must be one that averages"):
            robust(method)
        return
    sizes = []
    for one in (method, robust(method, "median")):
        state = one.round(one.start(fed.at(0)), fed.at(0), fed.everyone)
        sizes.append(state.x.abs().max())
    assert sizes[0] > 1e4 > 100 > sizes[1]


def test_a_robust_method_keeps_its_hyper_parameters_and_can_be_told_apart():
    method = robust(pfl_lib.algorithm("fedprox", mu=0.5), "multi-krum", faulty=2)
    assert method.mu == 0.5 and method.label == "FedProx, multi-krum"
    assert method.name == "fedprox-multi-krum-2"


def one_round(method):
    return pfl_lib.run(method, pfl_lib.example(), 1, progress=False)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: robust(pfl_lib.algorithm("fedamp", self_weight=0.2)), "method must be one that"),
        (lambda: robust("separate"), "method must be one that averages"),
        (lambda: robust(private("fedavg", 1.0, 1.0)), r"already has another one \(private\)"),
        (lambda: private(robust("fedavg"), 1.0, 1.0), r"already has another one \(median\)"),
        (lambda: one_round(robust("fedavg", "trimmed mean", 4)), "faulty must be below half of"),
        (lambda: one_round(robust("fedavg", "krum", 6)), "faulty must be at most 5 for 8"),
        (lambda: robust(pfl_lib.algorithm("fedavg"), "mean"), "rule must be one of"),
        (lambda: robust(pfl_lib.algorithm("fedavg"), faulty=-1), "faulty must be"),
        (lambda: trimmed_mean(W, 3), "faulty must be below half of the 5"),
        (lambda: krum(W, 3), "faulty must be at most 2 for 5"),
        (lambda: krum(W, 1, keep=9), "keep must be at most 5"),
        (lambda: coordinate_median([1.0]), "W must be a tensor"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
