"""What the page on layers and SPFL's Table 6 says."""

import statistics

import pytest

from tests.support.claims import laptop, percent

FOUND = laptop("spfl_layers")
DATA = pytest.mark.parametrize("data", ["MNIST", "CIFAR10"])


def gain(data, word):
    here = percent(FOUND, f"{data}, {word}")
    return here["FedAvg"] - here["Separate"]


def cosines(case):
    """Layer: mean cosine of the updates over the seeds."""
    runs = [r["extra"]["layers"] for r in FOUND.of("FedAvg", case)]
    return {layer: statistics.fmean(r[layer] for r in runs) for layer in runs[0]}


@DATA
def test_fedavg_beats_training_alone_by_far_on_iid_data(data):
    assert gain(data, "IID") > 5


@DATA
def test_on_non_iid_data_the_gain_shrinks(data):
    assert gain(data, "non-IID") < gain(data, "IID") - 3


def test_on_cifar10_it_is_gone():
    assert -3 < gain("CIFAR10", "non-IID") < 0


def test_on_mnist_three_points_of_it_remain():
    assert 2 < gain("MNIST", "non-IID") < 4


def test_early_the_first_layers_cosine_is_a_half_whether_clients_share_classes_or_not():
    same, own = cosines("MNIST, IID (CNN)"), cosines("MNIST, non-IID (CNN)")
    assert 0.4 < own["conv1"] < 0.6 and abs(same["conv1"] - own["conv1"]) < 0.05


def test_early_own_classes_make_a_difference_in_the_last_layer():
    same, own = cosines("MNIST, IID (CNN)"), cosines("MNIST, non-IID (CNN)")
    assert own["output"] < same["output"] - 0.1


@DATA
@pytest.mark.parametrize("word", ["IID", "non-IID"])
def test_late_there_is_no_common_direction_left_in_any_layer(data, word):
    assert max(map(abs, cosines(f"{data}, {word}").values())) < 0.1


def test_nearly_the_same_direction_is_seen_nowhere():
    assert max(max(cosines(case).values()) for case in FOUND.cases) < 0.6
