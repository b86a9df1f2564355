"""What the page on things that break says of a full disk, in its text and in its table."""

import json

from devtools.sphinxext.pfl_pages import soaked
from tests.support.paths import ROOT


def test_text_and_table_agree_that_a_run_on_a_full_disk_stops_and_can_go_on():
    record = json.loads((ROOT / "results" / "soak" / "disk.json").read_text(encoding="utf-8"))
    table = soaked(record["measured"])
    page = (ROOT / "book" / "reliability.md").read_text(encoding="utf-8")
    (text,) = (part for part in page.split("\n- ") if part.startswith("**A full disk.**"))
    for sentence in (table, text):
        assert sentence.index("stops") < sentence.index("goes on")
    assert "bit-identical" in table
