"""AG News: titles and first sentences of four kinds of articles, as token ids."""

import csv
import gzip
import hashlib
import html
import re
import zlib
from collections import Counter
from pathlib import Path

import torch

from pfl_lib import _check
from pfl_lib.data.dataset import Dataset
from pfl_lib.data.places import about_counts, fetch_file, locate

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
PAD, UNKNOWN = 0, 1
_FOLDERS = ("AG_NEWS", "ag_news_csv", "ag_news")
_URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
_MD5 = {
    "train": "b1a00f826fdfbd249f79597b59e1dc12",
    "test": "d52ea96a97a2d943681189a97654912d",
}
_COUNTS = (120_000, 7_600)
_AT_MOST = 60_000_000  # bytes of text, twice the official file


def load(root=None, download=True, length=64, words=None):
    """Texts cut or padded to ``length`` tokens, of the ``words`` commonest words (None: of all).

    The vocabulary is made from the training part alone: 0 pads, 1 is an unknown word.
    """
    length = _check.whole("length", length)
    words = None if words is None else _check.whole("words", words)
    files = locate(
        "ag_news",
        root,
        _find,
        "AG_NEWS/train.csv and test.csv (or .csv.gz) of the official release",
        _fetch if download else None,
    )
    (train, y_train, same_train), (test, y_test, same_test) = (
        _read(files[part], _MD5[part]) for part in ("train", "test")
    )
    count = Counter(token for text in train for token in text)
    ranked = sorted(count, key=lambda token: (-count[token], token))[:words]
    number = {token: i for i, token in enumerate(ranked, 2)}
    x = torch.zeros((len(train) + len(test), length), dtype=torch.int64)
    for row, text in enumerate([*train, *test]):
        ids = [number.get(token, UNKNOWN) for token in text[:length]]
        x[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    notes = [
        about_counts((len(train), len(test)), _COUNTS, same_train and same_test),
        f"texts cut or padded to {length} tokens, vocabulary of {len(number) + 2:,}",
    ]
    return Dataset(
        name="ag_news",
        x=x,
        y=torch.tensor(y_train + y_test, dtype=torch.int64),
        n_train=len(train),
        classes=CLASSES,
        kind="text",
        note="; ".join(note for note in notes if note),
        vocabulary=len(number) + 2,
    )


def tokens(text):
    """Lower-case words and numbers; entities such as ``&lt;`` and stray backslashes are undone."""
    text = html.unescape(re.sub(r"(?<!&)#(\d+);", r"&#\1;", text)).replace("\\", " ")
    text = re.sub(r"<[^<>]*>", " ", text.lower())
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text)


def _find(base):
    for folder in [base / name for name in _FOLDERS] + [base] * (base.name in _FOLDERS):
        found: dict[str, Path] = {}
        for part in ("train", "test"):
            for name in (f"{part}.csv", f"{part}.csv.gz"):
                if (folder / name).is_file():
                    found.setdefault(part, folder / name)
        if len(found) == 2:
            return found
    return None


def _read(path, md5):
    """Tokens, labels, and whether this is the official file."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            raw = file.read(_AT_MOST + 1)
        if len(raw) > _AT_MOST:
            raise ValueError(f"{path}: longer than {_AT_MOST:,} bytes; the official file has 30 MB")
        lines = raw.decode("utf-8").splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: damaged ({error})") from error
    texts, labels = [], []
    try:
        for number, row in enumerate(csv.reader(lines), 1):
            if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
                raise ValueError(
                    f"{path}, row {number}: should be class 1..4, title, description; got "
                    f"{len(row)} fields starting with {row[0][:20] if row else ''!r}"
                )
            texts.append(tokens(f"{row[1]} {row[2]}"))
            labels.append(int(row[0]) - 1)
    except csv.Error as error:
        raise ValueError(f"{path}: not a csv file ({error})") from error
    if not texts:
        raise ValueError(f"{path}: holds no article")
    return texts, labels, hashlib.md5(raw, usedforsecurity=False).hexdigest() == md5


def _fetch(folder):
    for part, md5 in _MD5.items():
        fetch_file(f"{_URL}{part}.csv", folder / "AG_NEWS", md5)
