"""Contents of data files in the official layouts, made here in small."""

import gzip
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


def natural_files(folder):
    """Every file of the data sets with natural clients, small, in its own layout."""
    random = np.random.default_rng(1)
    writer = np.repeat([7, 3, 9], [8, 12, 6]).astype(np.int16)
    label = (np.arange(26) % 10).astype(np.uint8)
    images = random.integers(0, 256, (26, 28, 28), dtype=np.uint8)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, array in (
        ("train-images-idx3-ubyte", images[:20]),
        ("train-labels-idx1-ubyte", label[:20]),
        ("t10k-images-idx3-ubyte", images[20:]),
        ("t10k-labels-idx1-ubyte", label[20:]),
    ):
        (raw / name).write_bytes(idx_bytes(array))
    hsf = np.where(writer == 3, 4, 0).astype(np.uint8)
    np.savez(folder / "mnist_writers.npz", writer=writer, hsf=hsf, label=label)

    n = 2 * 2 * 4 * 3  # people, activities, bouts of each, windows of a bout
    bout = np.arange(n) // 3
    np.savez(
        folder / "uci_har.npz",
        X=random.normal(size=(n, 9, 16)).astype(np.float32),
        y=(bout // 4 % 2).astype(np.uint8),
        subject=(bout // 8 + 1).astype(np.uint8),
        bout=bout.astype(np.int16),
        official_test=bout >= 8,
        pfllib_test=np.arange(n) % 4 == 0,
        classes=np.array(["WALKING", "SITTING"]),
    )
    field = np.repeat([0, 14, 15], 20).astype(np.uint8)
    mines = (np.arange(60) % 5 == 0).astype(np.uint8)
    np.savez(folder / "landmine.npz", X=random.normal(size=(60, 9)), y=mines, field=field)
    np.savez(
        folder / "vehicle_ditto_train.npz",
        X=random.normal(size=(30, 5)).astype(np.float32),
        y=np.where(np.arange(30) % 2, 1, -1).astype(np.int8),
        sensor=np.repeat([0, 4], [20, 10]).astype(np.uint8),
    )
    brands = ("sunshine", "kleebler", "nabisco", "private")
    head = ["rownames", "id"]
    head += [f"{what}.{brand}" for what in ("disp", "feat", "price") for brand in brands]
    lines = [",".join([*head, "choice"])]
    for row in range(16):
        numbers = ",".join(str(round(float(v), 2)) for v in random.random(12))
        lines.append(f"{row + 1},{1 + row // 8},{numbers},{brands[row % 4]}")
    (folder / "cracker.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    heart = folder / "heart_disease"
    heart.mkdir(exist_ok=True)
    for k, hospital in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [
            f"{40 + i}.0,{i % 2},{1 + i % 4},{120 + i},{0 if k == 2 else 200 + i},0,{i % 3},150,"
            f"{i % 2},1.5,{'?' if k else 1 + i % 3},{'?' if k else 0},{(3, 6, 7)[i % 3]},{i % 5}"
            for i in range(8 + k)
        ]
        (heart / f"processed.{hospital}.data").write_text("\n".join(rows) + "\n")
    part = {
        f"{key}_{part}": value
        for part, n in (("train", 94), ("test", 47))
        for key, value in (
            ("x", random.integers(0, 256, (n, 28, 28), dtype=np.uint8)),
            ("y", (np.arange(n) % 47).astype(np.uint8)),
        )
    }
    np.savez(folder / "emnist_balanced_subset.npz", **part)
    order = random.permutation(26).astype(np.int32)
    parts = {"train_0": order[:8], "test_0": order[8:12], "train_1": order[12:20]}
    np.savez(folder / "fedala_mnist_dir01.npz", **parts, test_1=order[20:])
