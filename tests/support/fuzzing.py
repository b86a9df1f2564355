"""Files that mean harm, thousands of them, read in bounded memory under a watch for foreign code.

    python -m tests.support.fuzzing EXAMPLES [SEED]

Each reader gets so many files: good ones cut, altered and spliced, lies about sizes, and programs
in the form of pickles.  It may read one or refuse it with a ValueError that names the file; it may
not do anything else, such as run a command, open another file, take long, or ask for much memory.
Prints what happened as JSON.  `tests/test_fuzz.py` reads it, and so does `make soak`.
"""

import gzip
import io
import json
import os
import pickle
import resource
import struct
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pfl_lib.data import ag_news, cifar, idx, own
from tests.support.data_files import idx_bytes, old_pickle, own_arrays

MEMORY = 600_000_000  # bytes a reader may ask for beyond what is in use when it begins
SECONDS = 5.0
HARM = {
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.remove"),
    *("os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.kill", "os.putenv", "shutil.rmtree"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "exec", "ctypes.dlopen"),
}

# ------------------------------------------------------------------------------ files to begin with
NUMBERS = (0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
NAMES = ("os system", "builtins eval", "builtins exec", "posix system", "subprocess Popen")
NAMES += ("builtins open", "builtins __import__", "numpy ndarray", "numpy dtype", "_codecs encode")
NAMES += ("numpy.core.multiarray _reconstruct", "builtins getattr", "copyreg _reconstructor")
NEWS = b'"1","Peace talks","The talks, they said"\n"4","A ""new"" chip","AT&amp;T #39;s"\n'


def npz(pack=zipfile.ZIP_STORED, **members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", pack) as archive:
        for name, raw in members.items():
            archive.writestr(f"{name}.npy", raw)
    return content.getvalue()


def npy(array):
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=True)
    return content.getvalue()


def npy_header(text):
    """An array file with any header."""
    raw = text.encode("latin1", "replace")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw) % 65536) + raw + b"x" * 40


GOOD = {key: npy(array) for key, array in own_arrays().items()}
BATCH = {"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2], "filenames": ["a", "b"]}
SEEDS = {
    "idx": [idx_bytes(np.ones((3, 2, 2))), idx_bytes(np.zeros((2, 28, 28)))],
    "idx.gz": [gzip.compress(idx_bytes(np.ones((3, 2, 2)))), gzip.compress(bytes(40_000))],
    "pickle": [old_pickle(BATCH), pickle.dumps(BATCH, 2), pickle.dumps(BATCH, 4)],
    "csv": [NEWS, NEWS * 5, b'"1","' + b"a" * 200_000 + b'","b"\n'],
    "csv.gz": [gzip.compress(NEWS), gzip.compress(bytes(1_000_000))],
    "npz": [npz(**GOOD), npz(zipfile.ZIP_DEFLATED, **GOOD), npz(zipfile.ZIP_LZMA, **GOOD)],
}

# -------------------------------------------------------------------------------- how to spoil them
places = st.floats(0, 1, exclude_max=True)


def number(n, order):
    size = 1 if n < 256 else 2 if n < 2**16 else 4 if n < 2**32 else 8
    return n.to_bytes(size, order)


edits = st.lists(
    st.one_of(
        st.tuples(st.just("cut"), places, st.just(b"")),
        st.tuples(st.just("put"), places, st.binary(min_size=1, max_size=8)),
        st.tuples(
            st.just("put"),
            places,
            st.builds(number, st.sampled_from(NUMBERS), st.sampled_from(["big", "little"])),
        ),
        st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=30)),
        st.tuples(st.just("drop"), places, st.binary(min_size=1, max_size=30)),
    ),
    min_size=0,
    max_size=4,
)


def spoiled(raw, changes):
    for kind, place, content in changes:
        at = int(place * (len(raw) + 1))
        if kind == "cut":
            raw = raw[:at]
        elif kind == "insert":
            raw = raw[:at] + content + raw[at:]
        else:
            raw = raw[:at] + (content if kind == "put" else b"") + raw[at + len(content) :]
    return raw


def mutated(reader):
    return st.builds(spoiled, st.sampled_from(SEEDS[reader]), edits)


# programs: any sequence of a pickle's instructions, and functions one would not want called
instructions = st.one_of(
    st.sampled_from([b"(", b"t", b"R", b"b", b"o", b"}", b"]", b"l", b"d", b"s", b"u", b"a", b"e"]),
    st.sampled_from([b"0", b"1", b"2", b"N", b")", b"\x85", b"\x86", b"\x87", b"\x81", b"\x94"]),
    st.sampled_from([f"c{a}\n{b}\n".encode() for a, b in (n.split() for n in NAMES)]),
    st.sampled_from([f"i{a}\n{b}\n".encode() for a, b in (n.split() for n in NAMES)]),
    st.sampled_from([b"\x93", b"\x92", b"Q", b"\x82\x01", b"\x84\xff\xff\xff\x7f", b"\x97"]),
    st.builds(lambda t: b"\x8c" + bytes([len(t)]) + t, st.sampled_from([b"os", b"system", b"id"])),
    st.builds(lambda n: b"K" + bytes([n % 256]), st.integers(0, 255)),
    st.builds(lambda n: b"r" + struct.pack("<I", n % 2**32), st.sampled_from(NUMBERS)),
    st.builds(lambda n: b"B" + struct.pack("<I", n % 2**32), st.sampled_from(NUMBERS)),
    st.builds(lambda n: b"\x8e" + struct.pack("<Q", n), st.sampled_from(NUMBERS)),
    st.builds(lambda n: b"p%d\n" % n, st.sampled_from(NUMBERS)),
    st.builds(lambda n: b"I%d\n" % n, st.sampled_from(NUMBERS)),
    st.just(b"S'touch ran'\n"),
)
programs = st.builds(lambda some: b"\x80\x04" + b"".join(some) + b".", st.lists(instructions))

shapes = st.lists(st.sampled_from([-1, 0, 1, 3, 2**31, 2**62, 10**30]), max_size=4).map(tuple)
kinds = st.sampled_from(["|u1", "<f8", "|O", "<U99999999", "|V9", "bad", [("a", "|O")], None, 7])
headers = st.one_of(
    st.builds(lambda s, k: repr({"descr": k, "fortran_order": False, "shape": s}), shapes, kinds),
    st.sampled_from(["(" * 9000, "[" * 5000 + "]" * 5000, "__import__('os').system('id')", "{}"]),
    st.text(max_size=60),
)
archives = st.builds(
    lambda header, pack: npz(pack, **{**GOOD, "x_train": npy_header(header + "\n")}),
    headers,
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)

FILES = {
    "idx": mutated("idx"),
    "idx.gz": mutated("idx.gz"),
    "pickle": st.one_of(mutated("pickle"), programs),
    "csv": st.one_of(mutated("csv"), st.binary(max_size=300)),
    "csv.gz": mutated("csv.gz"),
    "npz": st.one_of(mutated("npz"), archives),
}
READ = {
    "idx": lambda path: idx.read_idx(path, 3),
    "idx.gz": lambda path: idx.read_idx(path, 3),
    "pickle": lambda path: cifar.plain_unpickle(path.read_bytes(), str(path)),
    "csv": lambda path: ag_news._read(path, ""),
    "csv.gz": lambda path: ag_news._read(path, ""),
    "npz": own.load,
}

# -------------------------------------------------------------------------------------- the watch
watched = None  # the only file that may be opened while a reader is at work; None: nobody is


def watch(event, arguments):
    if watched is None:
        return
    other = event == "open" and str(arguments[0]) != watched
    if event in HARM or other or (event == "import" and arguments[0] in ("os", "subprocess")):
        print(json.dumps({"harm": [event, repr(arguments)[:200]]}), flush=True)
        os._exit(3)


def attempt(reader, path, counts, raw):
    """Have one file read, and count what came of it."""
    global watched
    path.write_bytes(raw)
    watched, began = str(path), time.process_time()  # a busy machine is not its fault
    try:
        READ[reader](path)
        counts["read"] += 1
    except ValueError as error:
        counts["refused"] += 1
        assert str(path) in str(error), f"the refusal does not name the file: {error}"
    finally:
        watched = None
        counts["slowest"] = max(counts["slowest"], time.process_time() - began)
        counts["tried"] += 1


def trier(reader, path, counts):
    def one(raw):
        attempt(reader, path, counts, raw)

    return one


def bounded():
    """From here on no more than MEMORY bytes beyond what is in use now."""
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, resource.RLIM_INFINITY))


def main(examples, number=0):
    counts = {reader: {"tried": 0, "read": 0, "refused": 0, "slowest": 0.0} for reader in FILES}
    folder = Path(tempfile.mkdtemp())
    for reader in FILES:  # once in peace: what is imported late is imported now
        path = folder / f"good.{reader}"
        attempt(reader, path, counts[reader], SEEDS[reader][0])
    for reader in FILES:
        assert counts[reader]["read"] == 1, f"{reader} cannot read a good file"
    bounded()
    sys.addaudithook(watch)
    how = settings(
        max_examples=int(examples),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for reader, files in FILES.items():
        path = folder / f"file.{reader}"
        seed(int(number))(how(given(files)(trier(reader, path, counts[reader]))))()
        path.unlink()
        assert counts[reader]["slowest"] < SECONDS, f"{reader}: {counts[reader]}"
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
