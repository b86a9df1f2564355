"""What `make scale` measures (benchmarks/scale.py): that its points run, not how long they take."""

import sys

import pytest

from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import scale


@pytest.mark.parametrize("kind", ["clients", "parameters", "server step"])
def test_a_point_of_each_kind_is_measured(kind):
    point = next(p for p in scale.points(quick=True) if p["by"] == kind)
    found = scale.measured(point | {"clients": 300})
    assert found["round"] > 0 and found["memory MB"] >= 0 and found["parameters"] >= 7850


def test_rows_of_the_absent_may_lie_on_the_disk():
    point = {"by": "clients", "method": "ditto", "clients": 300, "participants": 20, "disk": True}
    assert scale.measured(point)["build"] > 0


def test_a_point_that_fails_says_why():
    point = {"by": "clients", "method": "nobody", "clients": 10, "participants": 10}
    assert "nobody" in scale.in_a_child(point)["failed"]
