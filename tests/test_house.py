"""The project as a whole: what is committed, what is installed, what the front page promises."""

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import devtools
import pfl_lib
from devtools import readme, release
from tests.support.pages import PAGES
from tests.support.paths import ROOT

MEGABYTE = 1_000_000
# Other people's repositories that a page may point at; the book's own address is in _config.yml.
OTHERS = ()


def tracked():
    """Every file of the project: what git knows, or would if it were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def texts(paths):
    """The readable ones of these files, our own only: {path from the root: text}."""
    found = {}
    for path in paths:
        if "vendor" in path.parts:
            continue
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


@pytest.fixture(scope="module")
def files():
    return tracked()


def lines_with(pattern, pages, but=()):
    return [
        f"{name}: {line.strip()[:100]}"
        for name, text in pages.items()
        if name not in but
        for line in text.splitlines()
        if re.search(pattern, line)
    ]


PATH = re.compile(
    r"(?<![\w/.*-])((?:tests|devtools|benchmarks|pfl_lib|book|notebooks|teaching|static|results)/"
    r"[\w./-]*\.(?:py|sh|md|js|css|json|ipynb))(?![\w*<{])"
)


def missing_paths(text):
    """Files that a text names and that are not there; "name" stands for a name of one's own."""
    named = [path for path in PATH.findall(text) if "name" not in Path(path).stem]
    return [
        path for path in named if not any((ROOT / top / path).exists() for top in ("", "results"))
    ]


def test_every_file_that_is_named_exists(files):
    """In the Makefile, scripts, workflows, comments, and what explains the project."""
    telling = ("Makefile", "README.md", "CONTRIBUTING.md", "pyproject.toml")
    folders = ("devtools/", "pfl_lib/", ".github/", "book/", "benchmarks/")
    read = {n: t for n, t in texts(files).items() if n in telling or n.startswith(folders)}
    assert len(PATH.findall(read["devtools/oldest.sh"])) > 8
    missing = {name: missing_paths(text) for name, text in read.items()}
    assert {name: paths for name, paths in missing.items() if paths} == {}


def test_the_search_for_missing_files_finds_one():
    assert missing_paths("run tests/test_formulas_fedamp.py \\") == [
        "tests/test_formulas_fedamp.py"
    ]
    assert missing_paths("pytest tests/test_run.py, tests/test_<name>.py") == []


def test_every_tool_is_on_the_map_of_tools():
    """What each file of devtools is for stands in one place."""
    there = {path.stem for path in (ROOT / "devtools").iterdir() if path.name[0] not in "_."}
    assert there - set(re.findall(r"\w+", devtools.__doc__)) == set()


# ---------------------------------------------------------------------------- what is committed
def test_no_large_file(files):
    large = [path.name for path in files if path.stat().st_size > 1.5 * MEGABYTE]
    assert large == []


def test_nothing_built_is_committed(files):
    built = {"_build", ".venv", ".jupyter_cache", "__pycache__", ".ipynb_checkpoints"}
    assert [str(path) for path in files if built & set(path.relative_to(ROOT).parts)] == []


def test_no_path_of_a_machine_and_no_package_index(files):
    """A file that names a folder of one machine, or the host of an index, works there only."""
    # written in pieces, so that this file does not find itself
    private = "|".join(["/wo" + "rk/", "/ro" + "ot/", r"/home/\w", r"/Use" + r"rs/\w"])
    hosts = "|".join(["pypi" + r"\.org", "pythonhosted" + r"\.org", r"registry\." + "npmjs"])
    hosts += "|" + r"download\." + r"pytorch\.org" + "|" + "index" + "-url"
    assert lines_with(f"{private}|{hosts}", texts(files)) == []


def test_address_of_the_repository_stands_in_one_place(files):
    configured = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    url = configured["repository"]["url"]
    assert url == "" or url.startswith("https://")
    pages = texts(files)
    if url:
        name = url.removeprefix("https://")
        assert lines_with(re.escape(name), pages, but=["_config.yml"]) == []
    other = "|".join(map(re.escape, OTHERS)) or "nothing at all"
    anywhere = lines_with("git" + r"(hub|lab)\.com/\w", pages, but=["_config.yml"])
    assert [line for line in anywhere if not re.search(other, line)] == []


# ------------------------------------------------------------------------------------- the book
def test_toc_names_every_page_once():
    assert len(PAGES) == len(set(PAGES))
    missing = [p for p in PAGES if not any((ROOT / f"{p}{e}").exists() for e in (".md", ".ipynb"))]
    assert missing == []


def test_toc_leaves_no_page_out():
    pages = [*(ROOT / "book").rglob("*.md"), *(ROOT / "book").rglob("*.ipynb")]
    pages += (ROOT / "notebooks").rglob("*.ipynb")
    names = {p.relative_to(ROOT).with_suffix("").as_posix() for p in pages}
    assert sorted(names - set(PAGES)) == []


# ------------------------------------------------------------------------- version and front page
def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, newest = re.findall(r"^## (\S+)", changes, flags=re.MULTILINE)[:2]
    assert first == "Unreleased", "changes that no version has yet are noted first"
    assert citation["version"] == pfl_lib.__version__ == newest


def test_readme_lists_the_algorithms_there_are():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.with_table(text) == text, "run `make format`"


def test_readme_pictures_and_links_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text) + re.findall(r'src="([^"]+)"', text)
    links = [link for link in links if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_readme_quick_start_prints_what_it_says(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, shown = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", text, re.DOTALL).groups()
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out

    def split(lines):
        words, number = re.sub(r"\d\.\d+", "#", lines), re.compile(r"\d\.\d+")
        return words, [float(n) for n in number.findall(lines)]

    (words, numbers), (said_words, said_numbers) = split(printed), split(shown)
    assert words == said_words
    assert numbers == pytest.approx(said_numbers, abs=0.021)  # another processor rounds elsewhere


# ------------------------------------------------------------------------------ what is installed
@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that one would publish, built with no network."""
    return release.build(tmp_path_factory.mktemp("wheel"))[1]


def test_wheel_holds_the_library_and_nothing_else(wheel):
    inside = zipfile.ZipFile(wheel).namelist()
    assert {Path(name).parts[0] for name in inside if ".dist-info" not in name} == {"pfl_lib"}
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pfl_lib").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours - set(inside) == set(), "add them to package-data in pyproject.toml"


def test_wheel_asks_for_no_book_or_test_tool(wheel):
    archive = zipfile.ZipFile(wheel)
    name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    needs = {
        re.split(r"[\s<>=!;\[]", need)[0].lower()
        for need in metadata.get_all("Requires-Dist")
        if "extra ==" not in need
    }
    tools = "jupyter sphinx pytest nbval papermill playwright ruff hypothesis ipykernel notebook"
    assert [need for need in needs if any(tool in need for tool in tools.split())] == []
    assert metadata["Version"] == pfl_lib.__version__


def test_wheel_imports_from_elsewhere(wheel, tmp_path):
    """Unpacked into an empty folder, it is this copy that gets imported, scripts and all."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import pathlib, pfl_lib.book.explore as e; where = pathlib.Path(e.__file__).parents[2];"
        "assert list((where / 'book/explore').glob('*.js')), 'no scripts'; print(where)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(run.stdout.strip()) == tmp_path / "pfl_lib"
