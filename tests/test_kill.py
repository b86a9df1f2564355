"""SIGKILL at moments nobody chose, a full disk, damaged files: every run ends as if in peace."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pfl_lib
from pfl_lib import checkpoints, methods, run
from tests.support.paths import ROOT
from tests.support.runs import FEDAMP, linear_federation, same


@pytest.fixture(scope="module")
def fed():
    return linear_federation(pfl_lib.data.load("digits"))


@pytest.fixture(scope="module")
def peace(fed):
    return run(FEDAMP, fed, 6, progress=False)


def test_every_algorithm_survives_being_killed(tmp_path):
    """At a random moment, and inside the writing of a checkpoint: bit-identical all the same."""
    command = [sys.executable, "-m", "tests.support.killing", tmp_path, "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout.splitlines()[-1])
    assert [t["name"] for t in records] == methods.names()
    assert {t["name"]: t["wrong"] for t in records if t["wrong"]} == {}
    assert all(t["in writing"] == 1 for t in records)
    assert sum(t["kills"] for t in records) >= len(records) + 20


# ------------------------------------------------------------------------ damaged checkpoints
def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def embellish(path):
    """A better accuracy than was measured, in a file that is otherwise whole."""
    record = json.loads(path.read_text())
    record["history"]["accuracy"][0][0] = 1.0
    path.write_text(json.dumps(record))


def other_json(path):
    path.write_text("[1, 2]")


DAMAGE = [
    ("safetensors", cut),
    ("safetensors", empty),
    ("safetensors", flip),
    ("safetensors", Path.unlink),
    ("json", cut),
    ("json", empty),
    ("json", embellish),
    ("json", other_json),
]


@pytest.mark.parametrize("end, damage", DAMAGE, ids=lambda v: getattr(v, "__name__", v))
def test_a_damaged_checkpoint_gives_way_to_the_one_before(fed, peace, tmp_path, end, damage):
    run(FEDAMP, fed, 4, checkpoint=tmp_path, progress=False)
    damage(tmp_path / f"round-000004.{end}")
    message = r"round-000004\.json is damaged .*trying the one before it"
    with pytest.warns(UserWarning, match=message):
        same(peace, run(FEDAMP, fed, 6, checkpoint=tmp_path, progress=False))


def test_where_none_is_sound_the_run_begins_anew_and_says_so(fed, peace, tmp_path):
    run(FEDAMP, fed, 4, checkpoint=tmp_path, progress=False)
    for path in tmp_path.glob("*.safetensors"):
        cut(path)
    with pytest.warns(UserWarning, match=r"round-000003.json is damaged .*starting from round 1"):
        run(FEDAMP, fed, 2, checkpoint=tmp_path, progress=False)
    assert [p.name for p in sorted(tmp_path.glob("*.json"))] == [
        "round-000001.json",
        "round-000002.json",
    ]  # the damaged ones of later rounds did not push them out
    same(peace, run(FEDAMP, fed, 6, checkpoint=tmp_path, progress=False))


def test_fewer_rounds_than_the_checkpoint_has_are_refused(fed, tmp_path):
    run(FEDAMP, fed, 3, checkpoint=tmp_path, progress=False)
    with pytest.raises(ValueError, match="holds 3 rounds already; rounds must be at least that"):
        run(FEDAMP, fed, 2, checkpoint=tmp_path, progress=False)


# -------------------------------------------------------------------------------- a full disk
def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("which", ["save_file", "write_text"])
def test_a_full_disk_leaves_the_last_good_checkpoint(fed, peace, tmp_path, monkeypatch, which):
    """The disk fills up while the tensors, or while the record, are written."""
    run(FEDAMP, fed, 3, checkpoint=tmp_path, progress=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*arguments):
        path = next(a for a in arguments if isinstance(a, Path))
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints if which == "save_file" else Path, which, full)
        message = r"round 4 could not be written to .*No space left.*last good one is round-000003"
        with pytest.raises(OSError, match=message):
            run(FEDAMP, fed, 6, checkpoint=tmp_path, progress=False)
    kept = {name: content for name, content in before.items() if "000003" in name}
    assert all((tmp_path / name).read_bytes() == content for name, content in kept.items())
    assert not [n for n in files(tmp_path) if n.startswith(".part")]
    same(peace, run(FEDAMP, fed, 6, checkpoint=tmp_path, progress=False))
    assert len(files(tmp_path)) == 4


def test_a_real_limit_of_the_system_is_a_full_disk_too(tmp_path):
    """No file of this process may grow beyond 5,000 bytes: the system itself refuses the write."""
    code = """
import resource, signal, sys
import pfl_lib
from tests.support.runs import FEDAMP, linear_federation
fed = linear_federation(pfl_lib.data.load("digits"))
pfl_lib.run(FEDAMP, fed, 2, checkpoint=sys.argv[1], progress=False)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    pfl_lib.run(FEDAMP, fed, 4, checkpoint=sys.argv[1], progress=False)
except OSError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert "the last good one is round-000002.json" in done.stdout
    assert files(tmp_path) == [
        f"round-00000{k}.{e}" for k in (1, 2) for e in ("json", "safetensors")
    ]


def test_state_in_a_checkpoint_shares_no_memory_with_its_file(fed, tmp_path):
    """A file that is written anew must not change the tensors of a run that has resumed from it."""
    history = run(FEDAMP, fed, 2, checkpoint=tmp_path, progress=False)
    again = run(FEDAMP, fed, 2, checkpoint=tmp_path, progress=False)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(history.state.w, again.state.w)
