"""What the page on readings says."""

import pytest

from pfl_lib.book.experiments import readings
from pfl_lib.book.experiments.standings import lead
from pfl_lib.methods import BY_NAME
from tests.support.claims import gains, laptop

FOUND = laptop("own_readings")
EVERY = [(name, words) for name, others in readings.READINGS.items() for words in others]


def apart(name, words, case):
    label = BY_NAME[name].label
    return lead(FOUND, f"{label}, {words}", case, label)


def differs(name, words, case):
    return not apart(name, words, case)[1] <= 0 <= apart(name, words, case)[2]


def test_most_readings_cannot_be_told_apart():
    spans = [apart(*reading, case) for reading in EVERY for case in FOUND.cases]
    assert len(EVERY) == 33
    assert len(spans) == 66 and sum(low <= 0 <= high for _, low, high in spans) == 44
    for words in ("pushed away", "pulled with λ = 1"):
        assert all(apart("pfedgraph", words, case) == (0, 0, 0) for case in FOUND.cases)


def test_a_factor_is_no_detail():
    assert all(apart("fedproto", "sum of squares (λ = 32)", c)[2] < -50 for c in FOUND.cases)
    mixes, names = (apart("apple", "mean over each tensor", c) for c in FOUND.cases)
    assert mixes[0] == pytest.approx(-56, abs=0.5) and mixes[2] < -40
    assert names[0] == pytest.approx(-13, abs=0.5) and names[2] < 0


def test_late_clients_are_where_it_shows_most():
    for name, words in (
        ("fedavg-sync", "late every other time"),
        ("fedasync", "staleness in updates"),
        ("fedasync", "late models alone are mixed"),
    ):
        assert all(4.5 < apart(name, words, case)[0] < 12.5 for case in FOUND.cases)
        assert differs(name, words, "names")
    assert apart("fedbuff", "a step for every 4", "mixes")[1] > 10
    assert apart("lga", "added to the model pulled", "mixes")[0] == pytest.approx(-7.6, abs=0.4)
    assert apart("lga", "added to the model pulled", "mixes")[2] < 0
    mean, _, high = apart("plga", "the trained model is mixed", "mixes")
    assert mean == pytest.approx(-2.8, abs=0.3) and high < 0
    assert not differs("plga", "the trained model is mixed", "names")


def test_fedala_s_step_is_its_most_telling_number():
    assert apart("fedala", "η = 10", "names")[0] == pytest.approx(4.2, abs=0.3)
    assert apart("fedala", "mixed once more before the test", "names")[0] > 1.3
    for words in ("η = 10", "mixed once more before the test"):
        assert differs("fedala", words, "names") and not differs("fedala", words, "mixes")
    assert not any(differs("fedala", "threshold 0.01", case) for case in FOUND.cases)


def test_four_more_each_in_one_federation():
    for name, words, case, other in (
        ("feddbe", "momentum 0.1", "mixes", "names"),
        ("fedbabu", "all layers fine-tuned", "mixes", "names"),
        ("spfl", "head at home", "names", "mixes"),
        ("pfedme", "θ starts at w on every batch", "names", "mixes"),
    ):
        assert apart(name, words, case)[1] > 0 and not differs(name, words, other)
    assert apart("spfl", "head at home", "names")[0] == pytest.approx(2.2, abs=0.3)
    assert apart("pfedme", "θ starts at w on every batch", "names")[0] == pytest.approx(
        2.6, abs=0.3
    )
    for case in FOUND.cases:
        same = apart("spfl", "head at home but for resets", case)
        assert same == apart("spfl", "head at home", case)


def test_fedbabu_lives_by_its_fine_tuning():
    words = "all layers fine-tuned, five epochs"
    for case, gain in zip(FOUND.cases, (8.5, 3.5)):
        mean, low, _ = apart("fedbabu", words, case)
        assert mean == pytest.approx(gain, abs=0.5) and low > 0
    epochs = [FOUND.of("FedBABU", case)[0]["settings"]["epochs"] for case in FOUND.cases]
    assert epochs == [1, 2]


def test_cfl_s_weights_cannot_be_told_apart():
    thresholds = "CFL, thresholds that split"
    for case in FOUND.cases:
        _, low, high = lead(FOUND, f"{thresholds}, weighted by samples", case, thresholds)
        assert low <= 0 <= high


def test_two_more_lie_just_above_zero():
    near = [(n, w, c) for n, w in EVERY for c in FOUND.cases if 0 < apart(n, w, c)[1] < 0.2]
    assert [name for name, _, _ in near] == ["pfedgraph", "fedbuff"]


def test_cfl_s_thresholds_part_somebody_in_mixes_alone():
    mixes, names = (gains(FOUND, "CFL, thresholds that split", "CFL", c) for c in FOUND.cases)
    assert min(mixes) < 0 < max(mixes) and set(names) == {0}
