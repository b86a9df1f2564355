"""No number changes by the way: what every method computed when the canary was written."""

import copy
import json

import pytest

from tests.support import canary

KEPT = json.loads(canary.FILE.read_text())
LABELS = [label for label, _ in canary.methods()]


def share(setting, engine):
    """A third of the methods: over the settings each method meets every engine once."""
    turn = canary.SETTINGS.index(setting) + canary.ENGINES.index(engine)
    return [label for i, label in enumerate(LABELS) if (i + turn) % len(canary.ENGINES) == 0]


def test_every_method_is_recorded_in_every_setting():
    assert tuple(KEPT) == canary.SETTINGS
    for setting, was in KEPT.items():
        assert sorted(was) == sorted(LABELS), f"{setting}: see tests/support/canary.py, add()"
        assert sum("refused" in numbers for numbers in was.values()) < 10


@pytest.mark.parametrize("engine", canary.ENGINES)
@pytest.mark.parametrize("setting", canary.SETTINGS)
def test_every_method_computes_what_it_did(setting, engine):
    assert canary.changed(setting, KEPT[setting], engine, share(setting, engine)) == []


def test_the_shares_make_a_latin_square():
    for engine in canary.ENGINES:
        met = [label for setting in canary.SETTINGS for label in share(setting, engine)]
        assert sorted(met) == sorted(LABELS)


def test_the_canary_sings():
    """A number that moved by a millionth is seen, on every engine."""
    setting = canary.SETTINGS[0]
    was = copy.deepcopy(KEPT[setting])
    was["fedavg"]["loss"][1][0] += 1e-6
    for engine in canary.ENGINES:
        (line,) = canary.changed(setting, was, engine, ["fedavg"])
        assert "fedavg differs by" in line
