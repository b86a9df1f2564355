"""The toys behind the chapters on SPFL and on LGA, named after their equations."""

import pytest
import torch
from torch.testing import assert_close

from pfl_lib import algorithm, stragglers, train
from pfl_lib.book import plots
from pfl_lib.book.theory import DescentFederation, iterate, leap_errors, logistic_straggler


def doubles(*rows):
    return torch.tensor(rows, dtype=torch.float64)


# --- eq-lga-leap, eq-lga-leap-term --------------------------------------------------------------


@pytest.fixture(scope="module")
def errors():
    return leap_errors()


def test_leap_errors_are_those_of_an_independent_computation(errors):
    expected = {
        "stale": 6.40,
        "Eq. (10)": 6.40,
        "Eq. (11)": 0.265,
        "no leap": 0.262,
        "compensated": 0.244,
        "true diagonal": 0.065,
    }
    for name, error in expected.items():
        assert errors[name] == pytest.approx(error, abs=0.005), name


def test_printed_leap_is_no_help_and_its_repair_is_some(errors):
    assert errors["Eq. (11)"] > errors["no leap"] > errors["compensated"]
    assert errors["compensated"] > 2 * errors["true diagonal"] > 2 * errors["true Hessian"]


def test_one_round_late_the_printed_leap_is_zero():
    late = logistic_straggler(staleness=1)
    assert_close(late.guesses()["Eq. (11)"], late.guesses()["no leap"])


def test_hessian_and_slope_are_those_of_the_loss_at_the_pull():
    late = logistic_straggler(lr=1e-6, local_steps=1)
    assert_close((late.w_pull - late.w_local) / late.lr, late.slope, rtol=1e-6, atol=1e-8)
    assert_close(late.hessian, late.hessian.T)
    assert torch.linalg.eigvalsh(late.hessian).min() > 0


def test_taylor_is_exact_to_first_order():
    # the error of the full Hessian falls with the square of the step, that of none with the step
    small, large = leap_errors(3, lr=1e-3), leap_errors(3, lr=2e-3)
    assert large["no leap"] / small["no leap"] == pytest.approx(2, rel=0.1)
    assert large["true Hessian"] / small["true Hessian"] == pytest.approx(4, rel=0.15)


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"local_steps": 0}, {"staleness": 0}])
def test_bad_toys_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        logistic_straggler(**wrong)


# --- the toy federation runs SPFL and the asynchronous methods ----------------------------------


def toy(lr=0.1, steps=1):
    c = doubles([2.0, 1.0], [2.0, 0.0], [-1.0, 1.0], [-1.0, 2.0])
    return DescentFederation(torch.ones_like(c), c, lr=lr, steps=steps)


def test_spfl_with_equal_weights_is_fedavg_with_two_steps():
    fed = toy()
    spfl = iterate(algorithm("spfl", period=3, temperature=1e12), fed, 7)[-1].w
    fedavg = iterate(algorithm("fedavg-2step"), fed, 7)[-1].x
    assert_close(spfl, fedavg.expand(4, 2))


def test_repeats_and_steps_multiply():
    fed = toy(lr=0.5)
    twice = train(fed, fed.initial(), fed.everyone, repeats=2, tag="probe")
    assert_close(twice, 0.75 * fed.c)
    assert_close(train(fed, fed.initial(), fed.everyone, steps=2), twice)


@pytest.mark.parametrize("name", ["fedavg-async", "fedasync", "lga", "plga"])
def test_asynchronous_methods_run_on_the_toy(name):
    last = iterate(algorithm(name, stragglers=(0, 0, 1, 2)), toy(), 40)[-1]
    assert torch.isfinite(last.x).all() and (last.x - toy().c.mean(0)).norm() < 2


# --- the figure of the timetable ------------------------------------------------------------------


def test_timeline_draws_a_bar_for_every_arrival():
    table = stragglers.timetable([0, 2, (1, 0)], clients=3)
    ax = plots.timeline(table, rounds=6)
    assert len(ax.patches) == sum(len(table.arrivals(k)) for k in range(6))
    assert sorted(text.get_text() for text in ax.texts) == ["1", "1", "2", "2"]
