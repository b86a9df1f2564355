"""Every public callable against wrong input: an exception names the argument and its value.

A public name without a row in ``TABLE`` fails the test, unless ``NO_ROW`` says why it needs none.
The chosen values of the table are followed by the hostile ones of ``api_fuzz``, which knows nothing
of the arguments.
"""

import re

import pytest

from tests.support import api_fuzz
from tests.support.calls import NO_ROW, TABLE, TRIED, call, public


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """A folder of one's own, with good files in it."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", TABLE)
def test_the_good_call_works(name):
    call(name, {})


def complaint(name, argument, value):
    """What is wrong with how this value is refused, or "" if nothing is."""
    try:
        call(name, {argument: value})
    except (ValueError, TypeError, FileNotFoundError) as error:
        wanted = TABLE[name].says.get(argument, argument)
        if re.search(wanted, str(error)):
            return ""
        if argument in TABLE[name].by_torch:
            return ""
        return f"does not name it: {error}"
    except Exception as error:
        if argument in TABLE[name].by_torch:
            return ""
        return f"{type(error).__name__}: {error}"
    return "was taken"


@pytest.mark.parametrize("name", TABLE)
def test_wrong_input_is_refused_by_name(name):
    found = {
        f"{argument}={value!r}": complaint(name, argument, value)
        for argument, values in TABLE[name].bad.items()
        for value in values
    }
    assert {value: words for value, words in found.items() if words} == {}


@pytest.mark.parametrize("name", api_fuzz.FUZZED)
def test_hostile_values_are_refused_by_name_or_make_sense(name):
    """A sixth of the values, other ones for each name; `make soak` tries all."""
    labels = list(api_fuzz.VALUES)[len(name) % 6 :: 6]
    assert api_fuzz.attack(name, labels)["wrong"] == {}


def test_every_public_name_has_a_row():
    assert sorted(public() - set(TABLE) - set(NO_ROW)) == []
    assert sorted(set(NO_ROW) - public()) == [] and TRIED > 1500
