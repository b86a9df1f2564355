"""A release one could publish today: archives, workflows, and the words that go with them."""

import re
import tarfile
import zipfile

import pytest
import yaml

import pfl_lib
from devtools import release
from tests.support.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def targets():
    """What `make` knows."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):", text, re.MULTILINE))


def steps(path):
    """Every step of every job of a workflow."""
    flow = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [step for job in flow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_one_can_run_here(path):
    """A step is an action, or one `make` command with a target that exists."""
    for step in steps(path):
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./-]+", step["uses"]), step
            continue
        words = step["run"].split()
        assert words[0] == "make" and words[1] in targets(), step["run"]
        assert all(re.fullmatch(r"[A-Z]+=\w+", word) for word in words[2:]), step["run"]


def test_the_workflows_test_publish_and_watch():
    ran = {path.stem: [s["run"] for s in steps(path) if "run" in s] for path in WORKFLOWS}
    assert ran["test"] == ["make lint", "make unit", "make test"]
    assert "make book" in ran["site"]
    assert {"make colab", "make links ONLINE=1"} <= set(ran["weekly"])
    assert "make dist" in ran["release"]


def test_every_supported_python_is_tried():
    """The matrix begins with the oldest that pyproject.toml allows, and the classifiers agree."""
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    tried = flow["jobs"]["unit"]["strategy"]["matrix"]["python"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={tried[0]}"' in text
    assert re.findall(r"Programming Language :: Python :: (3\.\d+)", text) == tried
    assert all(flow["jobs"][job]["needs"] == "lint" for job in ("unit", "everything"))


def test_phony_targets_are_all_named():
    """A file of that name would otherwise keep a target from running."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE).group(1).split())
    assert targets() == phony


def test_the_source_archive_holds_what_a_packager_needs(tmp_path):
    archive, wheel = release.build(tmp_path)
    version = pfl_lib.__version__
    assert wheel.name == f"pfl_lib-{version}-py3-none-any.whl"
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"} <= names
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pfl_lib").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours - names == set()
    tops = {name.split("/")[0] for name in names}
    assert tops & {"tests", "notebooks", "book", "_build"} == set()
    with zipfile.ZipFile(wheel) as packed:
        inside = set(packed.namelist())
    assert {name for name in ours if name not in inside} == set()
    shown = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results").glob("*/*.json")}
    assert {f"pfl_lib/book/{name}" for name in shown} <= inside  # what the pages show
    assert not [name for name in inside if "done-" in name or "round-" in name]


def test_the_version_stands_in_one_place():
    """pyproject.toml takes it from the library; CITATION.cff and CHANGELOG.md are compared."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in text and not re.search(r"^version = \"", text, re.MULTILINE)
