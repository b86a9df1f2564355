"""What the page on readings says."""

from pfl_lib.book.experiments import readings
from pfl_lib.book.experiments.standings import lead
from pfl_lib.methods import BY_NAME
from tests.support.claims import gains, laptop

FOUND = laptop("own_readings")
EVERY = [(name, words) for name, others in readings.READINGS.items() for words in others]


def apart(name, words, case):
    label = BY_NAME[name].label
    return lead(FOUND, f"{label}, {words}", case, label)


def test_most_readings_cannot_be_told_apart():
    spans = [apart(*reading, case) for reading in EVERY for case in FOUND.cases]
    assert len(EVERY) == 17
    assert len(spans) == 34 and sum(low <= 0 <= high for _, low, high in spans) == 27
    for words in ("pushed away", "pulled with λ = 1"):
        assert all(apart("pfedgraph", words, case) == (0, 0, 0) for case in FOUND.cases)


def test_four_stand_out():
    assert all(apart("fedproto", "sum of squares (λ = 32)", c)[2] < -50 for c in FOUND.cases)
    assert apart("fedbuff", "a step for every 4", "mixes")[1] > 10
    assert apart("feddbe", "momentum 0.1", "mixes")[1] > 3
    assert 0 < apart("fedbabu", "all layers fine-tuned", "mixes")[1] < 1


def test_cfl_s_thresholds_part_somebody_in_mixes_alone():
    mixes, names = (gains(FOUND, "CFL, thresholds that split", "CFL", c) for c in FOUND.cases)
    assert min(mixes) < 0 < max(mixes) and set(names) == {0}
