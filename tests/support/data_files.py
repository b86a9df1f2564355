"""Contents of data files in the official layouts, made here in small."""

import struct

import numpy as np


def idx_bytes(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + b"".join(struct.pack(">I", n) for n in array.shape)
        + array.astype(np.uint8).tobytes()
    )


def old_pickle(content):
    """A pickle as Python 2 and numpy 1 wrote it: the form of the official files."""

    def string(text):
        raw = text if isinstance(text, bytes) else text.encode("latin1")
        return b"T" + struct.pack("<I", len(raw)) + raw

    def write(value):
        if isinstance(value, dict):
            inside = b"".join(write(key) + write(item) for key, item in value.items())
            return b"}(" + inside + b"u"
        if isinstance(value, list):
            return b"](" + b"".join(write(item) for item in value) + b"e"
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, np.ndarray):
            shape = b"(" + b"".join(write(int(n)) for n in value.shape) + b"t"
            kind = b"cnumpy\ndtype\n(" + string("u1") + b"K\x00K\x01tR(K\x03" + string("|")
            kind += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t"
            start += string("b") + b"tR"
            return start + b"(K\x01" + shape + kind + b"\x89" + string(value.tobytes()) + b"tb"
        return string(value)

    return b"\x80\x02" + write(content) + b"."


def own_arrays(**changes):
    random = np.random.default_rng(0)
    arrays = {
        "x_train": random.integers(0, 256, (12, 3, 5, 5), dtype=np.uint8),
        "y_train": np.arange(12) % 3,
        "x_test": random.integers(0, 256, (6, 3, 5, 5), dtype=np.uint8),
        "y_test": np.arange(6) % 3,
    }
    return {key: value for key, value in (arrays | changes).items() if value is not None}
