"""Nothing a user opens can run code: what sources call, what downloads bring, what is shown."""

import ast
import hashlib
import zipfile
from dataclasses import replace

import pytest

import pfl_lib
from devtools.browser import serve
from pfl_lib._show import Shown
from pfl_lib.data import places
from pfl_lib.data.dataset import Dataset
from tests.support.paths import ROOT

#: Calls that run what a file or a string says, or write where an archive says.
FORBIDDEN = {
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "joblib.load", "np.load"),
    *("numpy.load", "yaml.load", "yaml.unsafe_load", "marshal.load", "marshal.loads"),
    *("shelve.open", "dill.load", "cloudpickle.load", "cloudpickle.loads", "os.system", "os.popen"),
    *("eval", "exec", "tempfile.mktemp", "pd.read_pickle", "pandas.read_pickle"),
}
FORBIDDEN_ENDS = (".extractall", ".extract", ".from_pickle", ".read_pickle")
SOURCES = sorted(
    path
    for folder in ("pfl_lib", "devtools", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)


def dotted(node):
    """`a.b.c` of such an expression, "" of any other."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(source):
    """The calls in ``source`` that may run what a file says."""
    tree, names, found = ast.parse(source), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        first, _, rest = dotted(node.func).partition(".")
        # what an expression has, as module().eval(), is no name of a module
        called = f"{names.get(first, first)}.{rest}".rstrip(".")
        words = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        if (
            called in FORBIDDEN
            or (called.endswith(FORBIDDEN_ENDS) and words.get("filter") != "data")
            or words.get("allow_pickle")
            or words.get("shell")
        ):
            found.append(f"line {node.lineno}: {called}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_source_runs_what_a_file_says(path):
    assert unsafe(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle; pickle.load(f)",
        "from pickle import loads; loads(b)",
        "import pickle as p; p.Unpickler(f)",
        "import torch; torch.load(path)",
        "from torch import load as read; read(path)",
        "import numpy as np; np.load(path)",
        "read_array(f, allow_pickle=True)",
        "tar.extractall(folder)",
        "eval(text)",
        "archive().extractall(folder)",
        "subprocess.run(command, shell=True)",
    ],
)
def test_the_check_itself_sees(source):
    assert len(unsafe(source)) == 1


def test_unpacking_within_a_folder_is_allowed():
    assert unsafe('tar.extractall(folder, filter="data")') == []


# ----------------------------------------------------------------------------------- downloads
@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Makes an archive on a server of this machine; its address and its md5."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def make(*names):
        path = tmp_path / "set.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "x")
        digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        return f"{address}/set.zip", digest

    with serve(tmp_path) as address:
        yield make


def test_a_download_is_checked_before_it_is_unpacked(packed, tmp_path):
    url, right = packed("set/file")
    cache = tmp_path / "cache"
    wrong = "0" * 32
    for fetch in (places.fetch_archive, places.fetch_file):
        with pytest.raises(RuntimeError, match="corrupted"):
            places.download(lambda aside, f=fetch: f(url, aside, wrong), cache)
        assert list(cache.iterdir()) == []
    places.download(lambda aside: places.fetch_archive(url, aside, right), cache)
    assert [path.relative_to(cache).as_posix() for path in cache.rglob("*")] == ["set", "set/file"]


def test_an_archive_cannot_write_outside_its_folder(packed, tmp_path):
    url, right = packed("../../out", str(tmp_path / "out"), "set/../../../out")
    cache = tmp_path / "deep" / "cache"
    places.download(lambda aside: places.fetch_archive(url, aside, right), cache)
    outside = [p for p in tmp_path.rglob("out") if cache not in p.parents]
    assert outside == []


# ------------------------------------------------------------------------------- what is shown
HOSTILE = ("<script>boom()</script>", '"><img src=x onerror=boom()>', "$\\frac{$", "&lt;", "__a__")


def test_tables_escape_what_they_show():
    page = Shown(HOSTILE, [HOSTILE, HOSTILE], note=HOSTILE[0])._repr_html_()
    assert "<script" not in page and "<img" not in page and "&amp;lt;" in page


def test_figures_show_any_name_of_a_class_as_it_is():
    import matplotlib.pyplot as plt

    from pfl_lib.book import plots

    digits = pfl_lib.data.load("digits")
    names = (*(name[:23] for name in HOSTILE), *"56789")
    data = Dataset(**{**vars(replace(digits)), "classes": names})
    figure = plots.partition_bubbles(pfl_lib.partition.iid(data, clients=3), data).figure
    with plt.rc_context({"svg.fonttype": "none"}):
        from io import StringIO

        page = StringIO()
        figure.savefig(page, format="svg")
    plt.close(figure)
    assert "<script" not in page.getvalue() and "<img" not in page.getvalue()
    assert "&lt;script&gt;boom()" in page.getvalue() and "frac{" in page.getvalue()
