"""The page on data sets says what the loaders and the files say."""

import os
import re

import pytest

from pfl_lib import data, methods, partition
from pfl_lib.data import ag_news, cifar, idx, tiny_imagenet
from pfl_lib.partition.published import PUBLISHED
from tests.support.paths import ROOT

PAGE = (ROOT / "book" / "datasets.md").read_text(encoding="utf-8")
REAL = os.environ.get("PFL_DATA")
real_files = pytest.mark.skipif(not REAL, reason="PFL_DATA names no folder with real data")


def tables():
    """The tables of the page, each {first word of a row: its other cells}."""
    found, rows = [], {}
    for line in [*PAGE.splitlines(), ""]:
        if line.startswith("| `") and not line.startswith(("| `load", "| `published")):
            first, *others = (cell.strip() for cell in line.strip("|").split("|"))
            rows[first.strip("`")] = others
        elif rows and not line.startswith("|"):
            found.append(rows)
            rows = {}
    return found


SETS, SPLITS, FILES = tables()


def row(loaded):
    """What the page should say about a data set."""
    natural = "–"
    if loaded.client:
        natural = f"{len(loaded.columns[loaded.client].names)} by {loaded.client}"
    form = "×".join(map(str, loaded.shape))
    counts = f"{loaded.n_train:,} + {loaded.n_test:,}"
    return [natural, counts, f"{form} ({loaded.kind})", str(len(loaded.classes))]


def test_the_page_names_every_data_set_and_no_other():
    assert tuple(SETS) == tuple(FILES) == data.names()
    assert tuple(SPLITS) == tuple(PUBLISHED)


@pytest.mark.parametrize("name", ["digits", "mnist5k", "watch"])
def test_data_sets_of_packages_are_as_the_page_says(name):
    assert row(data.load(name)) == SETS[name]


def test_official_counts_are_as_the_page_says():
    counts = {name: about["counts"] for name, about in idx._SETS.items()}
    counts |= {"cifar10": cifar._COUNTS, "cifar100": cifar._COUNTS}
    counts |= {"ag_news": ag_news._COUNTS, "tiny_imagenet": tiny_imagenet._COUNTS}
    printed = {name: SETS[name][1] for name in counts}
    assert printed == {name: f"{train:,} + {test:,}" for name, (train, test) in counts.items()}
    assert len(idx._SETS["emnist_balanced"]["classes"]) == int(SETS["emnist_balanced"][3])


@real_files
@pytest.mark.parametrize("name", [n for n in data.names() if n in data._FROM_FILES])
def test_files_are_as_the_page_says(name):
    try:
        loaded = data.load(name, download=False)
    except FileNotFoundError:
        pytest.skip(f"no {name} in PFL_DATA")
    printed = [cell for i, cell in enumerate(SETS[name]) if i != 1 or "SUBSET" not in loaded.note]
    found = [cell for i, cell in enumerate(row(loaded)) if i != 1 or "SUBSET" not in loaded.note]
    assert found == printed


@pytest.mark.parametrize("name", [n for n in data.names() if n in data._FROM_FILES])
def test_the_page_names_the_file_that_is_looked_for(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PFL_DATA", "")
    monkeypatch.setenv("PFL_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        data.load(name, root=tmp_path, download=False)
    for file in re.findall(r"`([^`]+)`", FILES[name][0]):
        if file not in data.names():
            assert file in str(caught.value)
    fetched = "does not download" not in str(caught.value)
    assert fetched == ("fetched" in FILES[name][0])


def test_published_splits_are_as_the_page_says():
    for name, (file, sets, _) in PUBLISHED.items():
        assert SPLITS[name][0] == f"`{sets[0]}`" and SPLITS[name][3] == f"`{file}`"


@real_files
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_as_the_page_says(name):
    try:
        loaded = data.load(PUBLISHED[name][1][0], download=False)
        clients = partition.published(name, loaded)
    except FileNotFoundError:
        pytest.skip(f"no {name} in PFL_DATA")
    sizes = [sum(map(len, part)) for part in (clients.train, clients.test)]
    assert SPLITS[name][1:3] == [str(clients.m), f"{sizes[0]:,} + {sizes[1]:,}"]


@real_files
def test_what_the_page_says_in_words():
    words = " ".join(PAGE.split())
    try:
        writers = data.load("mnist_writers", download=False)
        mines = data.load("landmine", download=False)
        hearts = data.load("heart_disease", download=False)
        vehicles = data.load("vehicle", download=False)
    except FileNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])
    who, n = writers.columns["writer"].values, writers.n_train
    early, late = set(who[:n].tolist()), set(who[n:].tolist())
    assert not early & late
    assert f"{len(early)} people wrote the training part and {len(late)} others" in words
    share = 100 * float(mines.y.double().mean())
    assert f"Only {share:.0f} % are mines" in words and f"right {100 - share:.0f} times" in words
    terrain = partition.natural(mines, groups="terrain").groups
    assert "15 of them foliated and 14 bare" in words and int((terrain == 1).sum()) == 15
    hospital = hearts.columns["hospital"].values
    ill = sorted(100 * float(hearts.y[hospital == h].double().mean()) for h in range(4))
    assert f"from {ill[0]:.0f} % to {ill[-1]:.0f} % ill" in words
    fewest = min(map(len, partition.natural(vehicles).train))
    assert fewest == 5 and "some sensors have five samples to train on" in words


def test_the_yardstick_is_there():
    assert '"label-prior"' in PAGE and "label-prior" in methods.names()
