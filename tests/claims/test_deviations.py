"""The page of deviations: its table of choices is measured, its words hold no number of a run."""

import json
import re

from devtools import choices
from devtools.sphinxext.pfl_pages import chosen
from pfl_lib.methods import algorithm
from tests.support.paths import ROOT

RECORD = json.loads(choices.RESULT.read_text(encoding="utf-8"))


def test_every_choice_was_measured_over_the_seeds_that_the_page_names():
    assert RECORD["command"] == "python -m devtools.choices" and RECORD["seeds"] == choices.SEEDS
    for name, (_, _, rows, rounds) in choices.WORLDS.items():
        found = RECORD["worlds"][name]
        assert found["rounds"] == rounds
        assert [row["choice"] for row in found["rows"]] == [what for _, what, _, _ in rows]
        for row in found["rows"]:
            assert len(row["here"]) == len(row["there"]) == choices.SEEDS


def test_a_run_of_today_gives_the_stored_numbers():
    _, make, rows, rounds = choices.WORLDS["grouped"]
    found = RECORD["worlds"]["grouped"]
    base = choices.accuracies(algorithm("fedavg"), make, rounds)
    assert all(abs(a - b) < 1.5 for a, b in zip(base, found["beside"]["fedavg"]))
    place = next(k for k, (name, *_) in enumerate(rows) if name == "fedbuff")
    name, _, _, there = rows[place]
    again = choices.accuracies(algorithm(name, **there), make, rounds)
    assert all(abs(a - b) < 1.5 for a, b in zip(again, found["rows"][place]["there"]))


def test_the_table_shows_means_and_differences_in_pairs():
    row = RECORD["worlds"]["dealt"]["rows"][0]
    (line,) = (line for line in chosen(RECORD) if row["choice"] in line)
    assert f"{sum(row['here']) / 3:.1f} | {sum(row['there']) / 3:.1f}" in line
    assert line.count("+") + line.count("-") >= 3


def test_the_words_of_the_page_hold_no_accuracy():
    page = (ROOT / "book" / "deviations.md").read_text(encoding="utf-8")
    assert not re.search(r"\d\d\.\d *(%|per cent)", page) and "```{choices}" in page
