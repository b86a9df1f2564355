"""Data sets with natural clients: writers, people, hospitals, fields, households."""

import csv
import gzip
import zlib
from dataclasses import replace

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.data import idx
from pfl_lib.data.arrays import from_arrays
from pfl_lib.data.dataset import Column
from pfl_lib.data.own import read_arrays
from pfl_lib.data.places import NOT_OFFERED, locate

_AT_MOST = 20_000_000  # bytes of an unpacked table; the largest here has 0.2 MB


def mnist_writers(root=None, download=True):
    """MNIST, and who wrote each digit: the training part by 539 people, the test part by others.

    ``mnist_writers.npz`` holds ``writer``, ``hsf`` (0: census staff, 4: pupils) and ``label`` for
    each of MNIST's 70,000 images, training part first, as QMNIST publishes them.
    """
    wanted = "mnist_writers.npz with writer, hsf and label, one for each of MNIST's 70,000 images"
    path = _file("mnist_writers", root, "mnist_writers.npz", wanted)
    mnist = idx.load("mnist", root=root, download=download)
    arrays = read_arrays(path, ("writer", "hsf", "label"))
    if not np.array_equal(arrays["label"], mnist.y.numpy()):
        raise ValueError(f"{path}: its labels are not those of the MNIST files that were found")
    origin = {0: "staff", 4: "pupils"}
    columns = {
        "writer": _coded(path, "writer", arrays["writer"], len(mnist)),
        "hsf": _coded(path, "hsf", arrays["hsf"], len(mnist)),
    }
    hsf = columns["hsf"]
    columns["hsf"] = Column(hsf.values, tuple(origin.get(int(n), f"hsf_{n}") for n in hsf.names))
    return replace(mnist, name="mnist_writers", columns=columns, client="writer")


def har(root=None, download=True, split="bout", test=0.25, seed=0):
    """Human activity recognition with a smartphone (UCI): windows of 2.56 s of 30 people.

    Neighbouring windows overlap by half.  ``split="bout"`` keeps each bout of activity, a run of
    overlapping windows, on one side.  ``split="official"`` tests on nine other people.
    ``split="pfllib"`` is PFLlib's random split, which LEAKS: most of its test windows share half
    their moments with a training window; only to repeat published numbers.
    """
    _check.one_of("split", split, ("bout", "official", "pfllib"))
    wanted = (
        "uci_har.npz with X (n, 9, 128), y, subject, bout, official_test, pfllib_test and classes"
    )
    path = _file("har", root, "uci_har.npz", wanted)
    keys = ("X", "y", "subject", "bout", "official_test", "pfllib_test", "classes")
    arrays = read_arrays(path, keys)
    columns = {key: arrays[key] for key in ("subject", "bout")}
    common = {
        "name": "har",
        "columns": columns,
        "classes": [str(name).lower() for name in arrays["classes"]],
        "kind": "series",
    }
    note = {
        "bout": "split by bouts, by this library",
        "official": "the official split, which tests on other people",
        "pfllib": "LEAKS: PFLlib's random split of overlapping windows",
    }[split]
    own = {"test": test, "split": "group", "seed": seed}
    if split != "bout":
        own = {"test": arrays[f"{split}_test"]}
    return _made(
        path, arrays["X"], arrays["y"], "subject", **common, **own, group="bout", note=note
    )


def landmine(root=None, download=True, test=0.25, seed=0):
    """Radar images of 29 mine fields as nine features: is it a mine?

    Fields 0 to 14 are foliated, the others bare ground.  Only 6 % are mines: judge by AUC.
    """
    wanted = "landmine.npz with X (n, 9), y and field"
    path = _file("landmine", root, "landmine.npz", wanted)
    arrays = read_arrays(path, ("X", "y", "field"))
    terrain = np.where(arrays["field"] < 15, "foliated", "bare")
    return _made(
        path,
        arrays["X"],
        arrays["y"],
        "field",
        name="landmine",
        columns={"field": arrays["field"], "terrain": terrain},
        classes=("clutter", "mine"),
        kind="tabular",
        test=test,
        seed=seed,
        note="6 % are mines, so judge by AUC; the split is this library's own",
    )


def vehicle(root=None, download=True, test=0.25, seed=0):
    """Two kinds of vehicles heard and felt by 23 road-side sensors, 100 features."""
    wanted = "vehicle_ditto_train.npz with X (n, 100), y (-1 or 1) and sensor"
    path = _file("vehicle", root, "vehicle_ditto_train.npz", wanted)
    arrays = read_arrays(path, ("X", "y", "sensor"))
    return _made(
        path,
        arrays["X"],
        arrays["y"],
        "sensor",
        name="vehicle",
        columns={"sensor": arrays["sensor"]},
        kind="tabular",
        test=test,
        seed=seed,
        note="Ditto's training file only; the split is this library's own",
    )


_BRANDS = ("sunshine", "kleebler", "nabisco", "private")


def cracker(root=None, download=True, test=0.25):
    """Which brand of crackers a household buys: displays, features and prices of four brands.

    The last quarter of each household's purchases is for testing.
    """
    path = _file("cracker", root, ("cracker.csv.gz", "cracker.csv"), "cracker.csv(.gz) of Ecdat")
    rows = list(csv.DictReader(_lines(path)))
    features = [f"{what}.{brand}" for what in ("disp", "feat", "price") for brand in _BRANDS]
    missing = [key for key in (*features, "choice", "id") if not rows or key not in rows[0]]
    if missing:
        raise ValueError(f"{path}: should have the columns {', '.join(missing)}")
    return _made(
        path,
        _numbers(path, [[row[key] for key in features] for row in rows]),
        np.array([row["choice"] for row in rows]),
        "household",
        name="cracker",
        columns={"household": _numbers(path, [row["id"] for row in rows]).astype(int)},
        classes=_BRANDS,
        kind="tabular",
        test=test,
        split="time",
        note="tested on each household's last purchases, in the order of the file",
    )


_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
_NUMBERS = {"age": 0, "sex": 1, "trestbps": 3, "chol": 4, "fbs": 5, "thalach": 7, "exang": 8}
_NUMBERS |= {"oldpeak": 9, "ca": 11}
_KINDS = {"cp": (2, (1, 2, 3, 4)), "restecg": (6, (0, 1, 2)), "slope": (10, (1, 2, 3))}
_KINDS |= {"thal": (12, (3, 6, 7))}


def heart_disease(root=None, download=True, test=0.25, missing="mean", seed=0):
    """Heart disease in four hospitals (UCI): nine measurements and four kinds of findings.

    A kind of finding becomes one feature for each of its values, all 0 where it is missing.
    Missing measurements (``?``, and cholesterol or blood pressure 0) take the mean of the training
    part, or also a feature that says so: ``missing="flag"``.  What is missing differs by hospital.
    """
    _check.one_of("missing", missing, ("mean", "flag"))
    names = [f"processed.{hospital}.data" for hospital in _HOSPITALS]
    paths = locate(
        "heart_disease",
        root,
        lambda base: _all_of(base / "heart_disease", names),
        f"heart_disease/ with {', '.join(names)} of the UCI repository",
        why_not=NOT_OFFERED,
    )
    tables = []
    for path in paths:
        rows = list(csv.reader(_lines(path)))
        if not rows or any(len(row) != 14 for row in rows):
            raise ValueError(f"{path}: every line should have 14 fields")
        tables.append(_numbers(path, rows))
    table = np.concatenate(tables)
    for name in ("trestbps", "chol"):  # 0 means missing: no patient has 0
        table[table[:, _NUMBERS[name]] == 0, _NUMBERS[name]] = np.nan
    parts = [table[:, list(_NUMBERS.values())]]
    parts += [table[:, at, None] == np.array(values) for at, values in _KINDS.values()]
    return _made(
        paths[0].parent,
        np.concatenate(parts, axis=1).astype(float),
        (table[:, 13] > 0).astype(int),
        "hospital",
        name="heart_disease",
        columns={"hospital": np.repeat(_HOSPITALS, [len(t) for t in tables])},
        classes=("healthy", "ill"),
        kind="tabular",
        test=test,
        missing=missing,
        seed=seed,
        note="missing measurements filled in; the split is this library's own",
    )


# ---- inside -------------------------------------------------------------------------------------


def _made(path, x, y, client, **given):
    """The data set, or what is wrong with the file."""
    try:
        return from_arrays(x, y, client, **given)
    except (ValueError, TypeError) as error:
        own = {"test", "seed", "split"}
        if any(str(error).startswith(f"{name} must") for name in own):
            raise  # a wrong argument, not a wrong file
        raise ValueError(f"{path}: {error}") from None


def _file(name, root, files, wanted):
    """The first of these files that is in a folder we look in."""
    files = (files,) if isinstance(files, str) else files

    def find(base):
        return next((base / file for file in files if (base / file).is_file()), None)

    return locate(name, root, find, wanted, why_not=NOT_OFFERED)


def _all_of(folder, names):
    paths = [folder / name for name in names]
    return paths if all(path.is_file() for path in paths) else None


def _lines(path):
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            raw = file.read(_AT_MOST + 1)
        if len(raw) > _AT_MOST:
            raise ValueError(f"{path}: longer than {_AT_MOST:,} bytes")
        return raw.decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: damaged ({error})") from error


def _numbers(path, rows):
    """Numbers, NaN for ``?``."""
    try:
        if rows and isinstance(rows[0], str):
            return np.array([float(value) for value in rows])
        return np.array([[np.nan if v.strip() == "?" else float(v) for v in row] for row in rows])
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: should hold numbers ({error})") from error


def _coded(path, key, values, n):
    if values.shape != (n,) or values.dtype.kind not in "iu":
        raise ValueError(f"{path}: {key} must be {n:,} whole numbers, got shape {values.shape}")
    found, codes = np.unique(values, return_inverse=True)
    return Column(torch.from_numpy(codes.astype(np.int64)), tuple(map(str, found)))
