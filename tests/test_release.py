"""A release one could publish today: archives, workflows, and the words that go with them."""

import json
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
import yaml

import pfl_lib
from devtools import lock, release
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
    expected = ["make lint", "make unit", "make coverage", "make flower PARTS=tls", "make test"]
    assert ran["test"] == expected
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


#: Put into every Python that a test starts: whatever asks for another machine is an error.
NO_NETWORK = """
import sys

def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        raise OSError(f"no network: {event} {arguments[-1]}")

sys.addaudithook(hook)
"""


@pytest.fixture
def no_network(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("no_network")
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    code = "import socket; socket.create_connection(('127.0.0.1', 9))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "no network: socket." in done.stderr  # it would be noticed


def test_importing_asks_nobody(no_network):
    """Every module of the library, and a first run, without a question to the network."""
    code = """
import importlib, pkgutil
import pfl_lib
for module in pkgutil.walk_packages(pfl_lib.__path__, "pfl_lib."):
    if not module.name.startswith(("pfl_lib.flower.app", "pfl_lib.flower.worker")):  # need Flower
        importlib.import_module(module.name)
pfl_lib.run(pfl_lib.algorithm("fedavg"), pfl_lib.example(), 1, progress=False)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


# ----------------------------------------------------------------------------------- what is locked
def pinned():
    """{name: version} of constraints.txt."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pairs = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_lock_and_constraints_agree():
    everything = lock.read(lock.CUDA) | lock.read(lock.LOCK)
    locked = {name: what for name, (what, _) in everything.items()}
    assert lock.read(lock.CPU)["torch"][0] == f"{locked['torch']}+cpu"
    versions = {name: what.split(";")[0].strip() for name, what in locked.items()}
    assert {n: versions.get(n) for n in pinned()} == pinned(), "run python -m devtools.lock"
    # what else is locked is for other systems, or was here before
    more = {n for n in set(locked) - set(pinned()) if ";" not in locked[n]}
    assert more <= {"wheel"}


@pytest.mark.parametrize("path", [lock.LOCK, lock.CPU, lock.CUDA], ids=lambda path: path.stem)
def test_every_package_is_locked_by_hash(path):
    for name, (version, hashes) in lock.read(path).items():
        assert hashes, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), name
        assert re.fullmatch(r"[\w.+]+( ; .+)?", version), name
    assert len(lock.read(path)) == path.read_text(encoding="utf-8").count("==") - sum(
        version.count("==") for version, _ in lock.read(path).values()
    )


def test_what_the_project_asks_for_is_locked():
    """Nothing was added to pyproject.toml since the lock was written."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.findall(
        r"^(?:dependencies|book|test) = \[\n(.+?)^\]", text, re.MULTILINE | re.DOTALL
    )
    names = {name.lower() for part in lists for name in re.findall(r'"([\w-]+)[><=]', part)}
    assert len(names) > 30 and names - set(lock.read(lock.LOCK)) == {"torch"}
    assert "torch" in lock.read(lock.CUDA)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the locked versions are for 3.11 and newer")
def test_the_bill_of_materials_names_what_the_library_needs(tmp_path):
    path = release.bill_of_materials(tmp_path)
    bill = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == f"pfl_lib-{pfl_lib.__version__}.cdx.json"
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    parts = {part["name"]: part for part in bill["components"]}
    assert {"torch", "numpy", "safetensors"} <= set(parts) and "pytest" not in parts
    assert parts["numpy"]["version"] == pinned()["numpy"]
    marks = {part["bom-ref"] for part in parts.values()}
    for entry in bill["dependencies"]:
        assert set(entry["dependsOn"]) <= marks
    reached, todo = set(), [bill["metadata"]["component"]["bom-ref"]]
    tree = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    while todo:
        one = todo.pop()
        todo += [other for other in tree[one] if other not in reached]
        reached |= {one}
    assert reached - {bill["metadata"]["component"]["bom-ref"]} == marks


def test_the_source_archive_holds_what_a_packager_needs(tmp_path, no_network):
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
