"""Tiny-ImageNet: the official folder tiny-imagenet-200, its validation part as the test part."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from pfl_lib.data.dataset import Dataset
from pfl_lib.data.places import about_counts, fetch_archive, locate

_FOLDER = "tiny-imagenet-200"
_COUNTS = (100_000, 10_000)
_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"  # no https there; the md5 decides
_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


def load(root=None, download=True):
    """200 classes of 64×64 colour images; the unlabelled official test part is left out."""
    folder = locate(
        "tiny_imagenet",
        root,
        _find,
        f"the folder {_FOLDER}/ with wnids.txt, train/ and val/ of the official archive",
        (lambda aside: fetch_archive(_URL, aside, _MD5)) if download else None,
    )
    codes = (folder / "wnids.txt").read_text().split()
    if not codes or len(set(codes)) != len(codes):
        raise ValueError(f"{folder / 'wnids.txt'}: should list each class once")
    number = {code: c for c, code in enumerate(codes)}
    train = [
        (path, number[code])
        for code in codes
        for path in sorted((folder / "train" / code / "images").glob("*.JPEG"))
    ]
    test = _validation(folder, number)
    if not train or not test:
        raise ValueError(f"{folder}: no images in train/*/images/*.JPEG or val/images/*.JPEG")
    paths, labels = zip(*train, *test)
    return Dataset(
        name="tiny_imagenet",
        x=_decode(paths),
        y=torch.tensor(labels, dtype=torch.int64),
        n_train=len(train),
        classes=_words(folder, codes),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        note=about_counts((len(train), len(test)), _COUNTS),
    )


def _find(base):
    for folder in (base / _FOLDER, base):
        if (folder / "wnids.txt").is_file() and (folder / "val" / "val_annotations.txt").is_file():
            return folder
    return None


def _validation(folder, number):
    file = folder / "val" / "val_annotations.txt"
    found = []
    for line_number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.strip():
            continue
        name, code = (line.split("\t") + [""])[:2]
        if code not in number or not name or "/" in name or "\\" in name:
            raise ValueError(f"{file}, line {line_number}: not a file name and a known class")
        found.append((folder / "val" / "images" / name, number[code]))
    return sorted(found)


def _words(folder, codes):
    """The first word for each class, or its code where words.txt has none."""
    file, words = folder / "words.txt", {}
    if file.is_file():
        lines = (line.partition("\t") for line in file.read_text().splitlines())
        words = {code: text.split(",")[0].strip() for code, _, text in lines}
    return tuple(words.get(code) or code for code in codes)


def _decode(paths):
    x = torch.empty((len(paths), 3, 64, 64), dtype=torch.uint8)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for i, image in enumerate(pool.map(_image, paths)):
            x[i] = torch.from_numpy(image)
    return x


def _image(path):
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.size != (64, 64):
                raise ValueError(f"it is {image.size[0]}×{image.size[1]}, should be 64×64")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1).copy()
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path}: not a usable image ({error})") from error
