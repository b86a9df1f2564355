"""Files that mean harm: refused by name, quickly, in bounded memory, and nothing in them is run."""

import io
import json
import os
import struct
import subprocess
import sys
import tarfile

import pytest

from pfl_lib import data
from pfl_lib.data import cifar
from tests.support.paths import ROOT


def fuzzing(*arguments, code=None):
    command = [
        sys.executable,
        *(["-c", code] if code else ["-m", "tests.support.fuzzing"]),
        *arguments,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )


def test_readers_read_or_refuse_and_do_nothing_else():
    """`make soak` tries many more."""
    done = fuzzing("200")
    assert done.returncode == 0, done.stdout + done.stderr
    for reader, counts in json.loads(done.stdout.splitlines()[-1]).items():
        assert counts["tried"] >= 200 and counts["read"] > 0 and counts["refused"] > 60, reader


WATCHED = """
import os, pickle, sys
from pathlib import Path
from tests.support import fuzzing

__file__ = "Makefile"
HARMFUL = b"cos\\nsystem\\n(S'true'\\ntR."


def reads(reader):
    fuzzing.READ["pickle"] = reader
    sys.addaudithook(fuzzing.watch)
    counts = {"tried": 0, "read": 0, "refused": 0, "slowest": 0}
    fuzzing.attempt("pickle", Path(sys.argv[1]), counts, HARMFUL)


def fills():
    fuzzing.bounded()
    try:
        bytearray(fuzzing.MEMORY + 10**8)
    except MemoryError:
        print("MemoryError", flush=True)


for work in (
    lambda: reads(lambda path: pickle.loads(path.read_bytes())),
    lambda: reads(lambda path: print(open(__file__))),
    fills,
):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_the_watch_sees_readers_that_do_harm_and_the_memory_is_really_bounded(tmp_path):
    """One that runs what it reads, one that opens another file; and one that asks for too much."""
    done = fuzzing(tmp_path / "file", code=WATCHED)
    output = done.stdout + done.stderr
    first, second, third, rest = done.stdout.split("ended with ")
    assert "harm" in first and second.startswith("3\n") and "harm" in second, output
    assert third.startswith("3\n") and "MemoryError" in third and rest == "0\n", output


def test_a_pickle_cannot_make_python_fill_the_memory():
    """Python's own reader would make a table of 2,000,000,000 places for this one."""
    raw = b"\x80\x02]r" + struct.pack("<I", 2_000_000_000) + b"."
    with pytest.raises(ValueError, match="numbers its parts up to 2,000,000,000"):
        cifar.plain_unpickle(raw, "file")


def archive(folder, *members):
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def test_an_archive_is_read_where_it_is_and_writes_nothing(tmp_path, monkeypatch):
    """Members that point outside, and links that lead out or round in circles."""
    monkeypatch.setenv("PFL_CACHE", str(tmp_path / "cache"))
    inside, outside = tmp_path / "in", tmp_path / "secret"
    inside.mkdir()
    outside.write_bytes(b"secret")
    first = "cifar-10-batches-py/data_batch_1"
    for members in (
        [("../ran", b"x"), (str(tmp_path / "ran"), b"x")],
        [(first, str(outside))],
        [(first, "../../secret")],
        [(first, "data_batch_1")],
    ):
        archive(inside, *members)
        with pytest.raises(ValueError, match="damaged, or not the official archive"):
            data.load("cifar10", root=inside, download=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "secret"]


def test_a_member_of_an_archive_may_not_be_longer_than_the_official_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "_AT_MOST", 1000)
    archive(tmp_path, ("cifar-10-batches-py/data_batch_1", bytes(1001)))
    with pytest.raises(ValueError, match="longer than 1,000 bytes"):
        data.load("cifar10", root=tmp_path, download=False)
