"""The page of deviations: its table of choices is measured, its words hold no number of a run."""

import re

from devtools.sphinxext.pfl_pages import chosen
from pfl_lib.book.experiments import readings
from pfl_lib.methods import BY_NAME
from tests.support.claims import laptop
from tests.support.paths import ROOT


def test_the_table_shows_every_reading_with_its_interval():
    found = laptop("own_readings")
    lines = chosen(readings.effects(found))
    for name, others in readings.READINGS.items():
        for words in others:
            row = f"| {BY_NAME[name].label} | {words} |"
            (line,) = (line for line in lines if line.startswith(row))
            assert all(readings.effect(found, name, words, case) in line for case in found.cases)


def test_the_words_of_the_page_hold_no_accuracy():
    page = (ROOT / "book" / "deviations.md").read_text(encoding="utf-8")
    assert not re.search(r"\d\d\.\d *(%|per cent)", page) and "```{choices}" in page


def test_what_the_page_says_of_kappa_is_what_tuning_found():
    trials = laptop("natural").record["more"]["trials"]
    said = []
    for kappa in (1.0, 50.0):
        for case in ("people", "writers", "watch"):
            some = [t for t in trials[case]["FedDBE"] if t["kappa"] == kappa]
            said.append(f"{min(some, key=lambda t: t['lr'])['validation']:.2f}")
    page = (ROOT / "book" / "deviations.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| FedDBE: is"))
    assert re.findall(r"0\.\d\d", row) == said
