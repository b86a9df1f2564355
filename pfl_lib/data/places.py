"""Where data sets are looked for, and how they are fetched."""

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

from pfl_lib._torchvision import import_torchvision


def cache_folder():
    """Where downloads go: the variable PFL_CACHE, or ~/.cache/pfl_lib."""
    return Path(os.environ.get("PFL_CACHE") or Path.home() / ".cache" / "pfl_lib")


def bases(root=None):
    """Folders to look in, in order: ``root``, the variable PFL_DATA, the cache."""
    given = [root, os.environ.get("PFL_DATA"), cache_folder()]
    return [Path(base).expanduser() for base in given if base]


NOT_OFFERED = "this library does not download it"


def locate(
    name, root, find, wanted, fetch=None, why_not="downloading was not allowed (download=False)"
):
    """What ``find(base)`` finds in the first folder that has it; fetched if it may be.

    ``look`` gives None where there is nothing.  ``wanted`` says in words what was looked for.
    ``fetch(folder)`` puts the files into a folder, in the layout that ``look`` knows; without it
    ``why_not`` says why.
    """
    for base in bases(root):
        found = find(base)
        if found is not None:
            return found
    reason = why_not
    if fetch is not None:
        try:
            download(fetch, cache_folder())
        except (
            Exception
        ) as error:  # no network, a refused connection, a wrong checksum, a full disk
            first = (str(error).strip() or type(error).__name__).splitlines()
            reason = f"the download failed: {' '.join(first)[:300]}"
        else:
            found = find(cache_folder())
            if found is not None:
                return found
            reason = "the download did not bring the files"
    places = "\n".join(f"  - {base}" for base in bases(root))
    raise FileNotFoundError(
        f"{name} is not here, and {reason}.\n"
        f"Looked for {wanted}, in\n{places}\n"
        f"Put it there, or say where it is: root=..., or the environment variable PFL_DATA.\n"
        "'digits' and 'mnist5k' need no download."
    )


def download(fetch, cache):
    """Run ``fetch`` in a folder at the side, then move what it brought into the cache.

    A download that is cut off leaves nothing behind that could be taken for data.
    """
    cache.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".part-", dir=cache))
    try:
        with _patience(30):
            fetch(aside)
        for item in sorted(aside.iterdir()):
            _move(item, cache / item.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _move(item, target):
    """Rename into place, file by file where a folder of that name is already there."""
    if item.is_dir() and target.is_dir():
        for child in sorted(item.iterdir()):
            _move(child, target / child.name)
    else:
        os.replace(item, target)


@contextlib.contextmanager
def _patience(seconds):
    """Give up on a server that is silent for so long."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def fetch_file(url, folder, md5):
    """One file, its checksum verified."""
    utils = import_torchvision().datasets.utils
    utils.download_url(url, str(folder), md5=md5)


def fetch_archive(url, folder, md5):
    """One archive, its checksum verified, unpacked and removed."""
    utils = import_torchvision().datasets.utils
    utils.download_and_extract_archive(url, str(folder), md5=md5, remove_finished=True)


def about_counts(found, official, alike=True):
    """The note of a data set: "" where the counts (and contents) are the official ones."""
    if found != official:
        return (
            f"SUBSET: {found[0]:,} + {found[1]:,} samples of the official "
            f"{official[0]:,} + {official[1]:,}"
        )
    return "" if alike else "the files are not the official ones (their checksums differ)"
