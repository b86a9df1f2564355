"""Measures of data and of models, against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import pfl_lib
from pfl_lib import metrics, partition
from pfl_lib.book.explore import Partitions


def numbers(values):
    return torch.tensor(values, dtype=torch.float64)


def history(accuracy):
    return pfl_lib.History("A", "", {}, rounds=[1], accuracy=[accuracy])


# ---- data ------------------------------------------------------------------------------------


def test_total_variation_is_a_distance_between_zero_and_one():
    counts = torch.tensor([[4, 0, 0], [2, 2, 0], [1, 1, 2], [0, 0, 9]])
    distance = metrics.total_variation(counts)
    torch.testing.assert_close(distance[0], numbers([0, 0.5, 0.75, 1]))
    assert torch.equal(distance, distance.T)
    via = distance[:, :, None] + distance[None]
    assert bool((distance[:, None] <= via.transpose(1, 2) + 1e-12).all())  # triangle


def test_effective_classes_agree_with_the_explorer():
    shown = Partitions(kind="dirichlet", a=0.3).compute()
    ours = metrics.effective_classes(torch.tensor(shown["counts"]))
    torch.testing.assert_close(ours, numbers(shown["effective"]))


def test_effective_samples_is_the_precision_of_a_stratified_mean():
    counts = torch.tensor([[30, 10], [10, 40]])
    worth = metrics.effective_samples(counts)
    # a mean with shares (3/4, 1/4) of class means with variances 1/10 and 1/40
    assert worth[0, 1].item() == pytest.approx(1 / (0.75**2 / 10 + 0.25**2 / 40))
    torch.testing.assert_close(worth.diagonal(), numbers([40, 50]))
    random = np.random.default_rng(0)
    means = [random.normal(size=(20_000, n)).mean(1) for n in (10, 40)]
    estimate = 0.75 * means[0] + 0.25 * means[1]
    assert 1 / estimate.var() == pytest.approx(worth[0, 1].item(), rel=0.05)


def test_effective_samples_of_a_client_that_lacks_a_needed_class():
    worth = metrics.effective_samples(torch.tensor([[5, 5], [8, 0]]))
    assert worth[0, 1] == 0 and worth[1, 0] == 5  # the other way round one class is enough


def test_effective_clients_is_the_variance_of_a_weighted_mean():
    sizes = torch.tensor([100.0, 300.0])
    share = sizes / sizes.sum()
    assert metrics.effective_clients(sizes) == pytest.approx(1 / float((share**2).sum()))
    assert metrics.effective_clients([7] * 5) == pytest.approx(5)


def test_majority_accuracy_guesses_from_training_and_is_tested_on_test(data):
    clients = partition.dirichlet(data, 10, 0.3)
    measured = metrics.majority_accuracy(clients, data)
    for i in range(10):
        guess = torch.bincount(data.y[clients.train[i]]).argmax()
        by_hand = (data.y[clients.test[i]] == guess).double().mean()
        assert measured[i].item() == pytest.approx(by_hand.item())
    noisy = partition.label_noise(clients, data, client_share=1.0, label_share=0.9)
    measured = metrics.majority_accuracy(noisy, data)  # by what the client believes
    for i in range(10):
        guess = torch.bincount(noisy.labels[i]).argmax()
        by_hand = (data.y[clients.test[i]] == guess).double().mean()
        assert measured[i].item() == pytest.approx(by_hand.item())


# ---- models ----------------------------------------------------------------------------------


def test_win_rate_counts_ties_as_half_and_takes_histories():
    ours, theirs = [0.5, 0.5, 1.0, 0.0], [0.5, 0.4, 0.9, 0.1]
    assert metrics.win_rate(ours, theirs) == pytest.approx(0.625)
    assert metrics.win_rate(theirs, ours) == pytest.approx(1 - 0.625)
    assert metrics.win_rate(history(ours), history(theirs)) == pytest.approx(0.625)


def test_wilcoxon_against_ranks_by_hand():
    # differences +0.1, −0.2, +0.3, +0.4, and a tie that is left out: W− = rank of −0.2 = 2
    found = metrics.wilcoxon([0.6, 0.3, 0.8, 0.9, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5])
    assert (found.smaller, found.pairs) == (2, 4)
    # 2 or less for one side: subsets of {1,2,3,4} with sum <= 2 are {}, {1}, {2}; two sides
    assert found.p == pytest.approx(2 * 3 / 16)


def test_wilcoxon_is_scipys_and_knows_its_direction():
    random = np.random.default_rng(1)
    theirs = random.uniform(0.2, 0.7, 30)
    ours = theirs + random.normal(0.03, 0.05, 30)
    for side in ("two-sided", "greater", "less"):
        expected = stats.wilcoxon(ours - theirs, alternative=side, method="exact").pvalue
        assert metrics.wilcoxon(ours, theirs, side).p == pytest.approx(expected)
    assert metrics.wilcoxon(ours, theirs, "greater").p < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_wilcoxon_is_exact_with_ties(seed):
    """Against all 2^n ways to choose the signs of the mean ranks."""
    difference = np.random.default_rng(seed).integers(-3, 5, 9)
    difference = difference[difference != 0]
    found = metrics.wilcoxon(0.5 + difference / 20, np.full(len(difference), 0.5))
    ranks = stats.rankdata(abs(difference))
    signs = np.array(np.meshgrid(*[(0, 1)] * len(ranks))).reshape(len(ranks), -1)
    sums, gained = ranks @ signs, ranks[difference > 0].sum()
    p = 2 * min((sums >= gained - 1e-9).mean(), (sums <= gained + 1e-9).mean())
    assert found.p == pytest.approx(min(1, p))
    assert found.smaller == min(gained, ranks.sum() - gained)


def test_wilcoxon_of_many_clients_is_nearly_normal():
    random = np.random.default_rng(2)
    theirs = random.binomial(50, 0.8, 300) / 50
    ours = (random.binomial(50, 0.81, 300) / 50).clip(0, 1)
    expected = stats.wilcoxon((ours - theirs).round(9)).pvalue
    assert metrics.wilcoxon(ours, theirs).p == pytest.approx(expected, rel=0.02)


def test_wilcoxon_of_equal_methods_says_nothing():
    assert metrics.wilcoxon([0.5, 0.6], [0.5, 0.6]) == (0.0, 0, 1.0)


def test_equal_gains_tie_though_their_last_bits_differ():
    ours, theirs = numbers([0.3, 0.8, 0.6]), numbers([0.2, 0.7, 0.5])
    assert len(set((ours - theirs).tolist())) > 1
    found = metrics.wilcoxon(ours, theirs)
    assert (found.smaller, found.pairs, found.p) == (0, 3, pytest.approx(0.25))


def test_accuracy_error_is_binomial():
    assert metrics.accuracy_error(0.5, 25) == pytest.approx(0.1)
    draws = np.random.default_rng(0).binomial(40, 0.9, 50_000) / 40
    assert draws.std() == pytest.approx(metrics.accuracy_error(0.9, 40), rel=0.02)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: metrics.win_rate([0.5], [0.5, 0.6]), "got 1 and 2"),
        (lambda: metrics.win_rate([1.5], [0.5]), "ours"),
        (lambda: metrics.win_rate([0.5], [math.nan]), "theirs"),
        (lambda: metrics.wilcoxon([0.5], [0.6], "more"), "alternative"),
        (lambda: metrics.total_variation(torch.zeros(2, 3)), "counts"),
        (lambda: metrics.effective_clients([3, 0]), "sizes"),
        (lambda: metrics.accuracy_error(0.5, 0), "samples"),
    ],
)
def test_bad_input_is_refused(call, names):
    with pytest.raises(ValueError, match=names):
        call()


# ---- a part of the training data to choose on ------------------------------------------------


def test_hold_out_moves_training_samples_to_a_second_test(data):
    clients = partition.label_noise(partition.iid(data, 6), data, client_share=0.5)
    tested, chosen = partition.hold_out(clients, share=0.25, seed=3)
    tested.check(data), chosen.check(data)
    for i in range(6):
        assert torch.equal(tested.train[i], chosen.train[i])
        assert torch.equal(tested.test[i], clients.test[i])
        both = torch.cat([tested.train[i], chosen.test[i]]).sort().values
        assert torch.equal(both, clients.train[i].sort().values)
        assert len(chosen.test[i]) == round(0.25 * len(clients.train[i]))
        believed = dict(zip(clients.train[i].tolist(), clients.labels[i].tolist()))
        assert [believed[k] for k in tested.train[i].tolist()] == tested.labels[i].tolist()


def test_hold_out_gives_the_same_models_to_test_and_to_choose_from(data):
    parts = partition.hold_out(partition.iid(data, 4))
    runs = [
        pfl_lib.run(
            pfl_lib.algorithm("fedavg-ft"),
            pfl_lib.Federation(data, part, "logistic_regression"),
            2,
            progress=False,
        )
        for part in parts
    ]
    assert torch.equal(runs[0].state.x, runs[1].state.x)
    assert runs[0].accuracy != runs[1].accuracy


def test_hold_out_keeps_together_what_belongs_together():
    n = 240
    bouts, who = np.arange(n) // 4, np.arange(n) // 60
    x, y = np.arange(n, dtype=float)[:, None], np.arange(n) // 4 % 3
    own = pfl_lib.data.from_arrays(x, y, who, group=bouts, test=0.25, split="group")
    clients = partition.natural(own)
    fed = pfl_lib.Federation(own, clients, "logistic_regression", device="cpu")
    tested, chosen = (one.partition for one in fed.hold_out(0.25))
    among = own.columns["group"].values
    for train, held, whole in zip(tested.train, chosen.test, clients.train):
        assert not set(among[train].tolist()) & set(among[held].tolist())
        assert torch.equal(torch.cat([train, held]).sort().values, whole.sort().values)
        assert set(own.y[held].tolist()) == {0, 1, 2}
    at_random = partition.hold_out(clients, 0.25)[1].test
    assert set(among[at_random[0]].tolist()) & set(among[clients.train[0]].tolist())


def test_hold_out_cuts_a_single_group_at_random():
    x, y = np.arange(40.0)[:, None], np.zeros(40, dtype=int)
    last = np.arange(40) % 20 >= 16
    own = pfl_lib.data.from_arrays(x, y, np.arange(40) // 20, group=np.arange(40) // 20, test=last)
    held = partition.hold_out(partition.natural(own), 0.25, data=own)[1].test
    assert [len(rows) for rows in held] == [4, 4]


def test_hold_out_refuses_to_empty_a_client(data):
    lonely = partition.scarce(partition.iid(data, 3), 1)
    with pytest.raises(ValueError, match="client 0 has 1"):
        partition.hold_out(lonely)
    with pytest.raises(ValueError, match="share"):
        partition.hold_out(partition.iid(data, 3), share=1.0)


# ---- weights and groups ----------------------------------------------------------------------


def blocks(inside, outside, sizes=(3, 4, 5)):
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    xi = torch.where(groups[:, None] == groups[None], inside, outside).fill_diagonal_(0)
    return xi / xi.sum(1, keepdim=True), groups


def test_groups_are_found_in_weights_however_faint():
    for inside in (1.0, 0.5002):
        xi, groups = blocks(inside, 0.5)
        order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))
        assert metrics.group_recovery(xi[order][:, order], groups[order]) == 1.0
    xi, groups = blocks(0.2, 1.0)  # everybody hears the strangers
    assert metrics.group_recovery(xi, groups) < 0.3


def test_random_weights_recover_nothing():
    _, groups = blocks(1.0, 0.5, sizes=(10, 10, 10))
    found = []
    for seed in range(20):
        xi = torch.rand(30, 30, generator=torch.Generator().manual_seed(seed))
        found.append(metrics.group_recovery(xi, groups))
    assert abs(sum(found) / 20) < 0.05


def test_chance_is_what_equal_weights_give():
    for sizes in ((3, 4, 5), (1, 1), (2, 9)):
        groups = blocks(1.0, 0.5, sizes)[1]
        equal = torch.ones(len(groups), len(groups))
        share = metrics.inside_share(equal, groups)
        assert metrics.inside_by_chance(groups) == pytest.approx(share)


def test_weights_of_other_clients_are_refused():
    with pytest.raises(ValueError, match="3 clients"):
        metrics.group_recovery(torch.eye(2), torch.tensor([0, 0, 1]))
    with pytest.raises(ValueError, match="groups"):
        metrics.inside_by_chance(torch.tensor([0]))
    with pytest.raises(ValueError, match="groups must be known for every client"):
        metrics.inside_by_chance(torch.tensor([0.0, math.nan]))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1])
@pytest.mark.parametrize("measure", [metrics.inside_share, metrics.group_recovery])
def test_weights_that_are_none_are_refused_except_on_oneself(measure, wrong):
    """A client may keep a negative part of its own model, as the theorems' form allows."""
    xi, groups = torch.full((3, 3), 0.3), torch.tensor([0, 0, 1])
    found = measure(xi, groups)
    xi[1, 1] = -0.1
    assert measure(xi, groups) == found
    xi[1, 2] = wrong
    with pytest.raises(ValueError, match="xi must hold finite weights of others"):
        measure(xi, groups)


def test_clients_that_were_not_measured_are_left_out_of_a_comparison():
    ours, theirs = [0.9, math.nan, 0.8, 0.7], [0.8, 0.1, math.nan, 0.9]
    assert metrics.win_rate(ours, theirs) == metrics.win_rate([0.9, 0.7], [0.8, 0.9])
    with pytest.raises(ValueError, match="must share a client"):
        metrics.win_rate([math.nan, 0.5], [0.5, math.nan])


def test_a_value_that_is_no_accuracy_is_named():
    with pytest.raises(ValueError, match="got 90 for client 1"):
        metrics.win_rate([0.5, 90], [0.8, 0.7])


def test_effective_clients_are_about_noise_per_client_not_per_sample():
    """With weights n_i/n: variance 1/m_eff for equal noise per client, 1/n for noise per sample."""
    sizes = torch.tensor([10.0, 20.0, 70.0])
    weights = sizes / sizes.sum()
    m_eff = metrics.effective_clients(sizes)
    assert (weights**2).sum().item() == pytest.approx(1 / float(m_eff))
    assert (weights**2 / sizes).sum().item() == pytest.approx(1 / sizes.sum().item())
