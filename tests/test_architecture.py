"""The architecture: which module may import which, and which extra installs what."""

import ast
import io
import re
import sys
import tokenize
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from pfl_lib.book.draw import rooms
from tests.support.paths import ROOT

OWN = ("pfl_lib", "devtools", "tests", "benchmarks")
#: Of code, without docstrings, in the library without pfl_lib.book.  The rebuilt house had 9,000;
#: since then came models and data that people have, fourteen methods, privacy, and several devices;
#: the last two hundred check what would flatter a result in silence, or fail late: leaks, shuffled
#: rows, newcomers who are members, modules without a gradient; a hundred more refuse what leaks in
#: silence, tests that nobody can have made, and plans that fail only when a network is up; another
#: hundred refuse what a fuzz of the whole interface found, and bring careful averages into plans.
#: Names that are kept for one more version are not counted: they leave with it.
MOST_LINES = 12_920


def module_name(path):
    """``pfl_lib.data.idx`` of that file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path):
    """Every module that a file imports, at its top or later, each with its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            yield module, node.lineno
            for name in node.names:  # each may be a module
                yield f"{module}.{name.name}", node.lineno


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def inside(name, rooms):
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


# ------------------------------------------------------------------------------- who imports whom
METHODS, LOCAL = ("pfl_lib.methods",), ("pfl_lib.local",)
FEDERATIONS = (*LOCAL, "pfl_lib.flower")
LOOP = ("pfl_lib.rounds", "pfl_lib.checkpoints", "pfl_lib.faults")
MATERIAL = tuple(f"pfl_lib.{name}" for name in ("data", "partition", "models", "attention"))
#: Those on the left import nothing of what is on the right.
CONTRACTS = {
    "the library does not know the book": (("pfl_lib",), ("pfl_lib.book",)),
    "methods know no engine": (METHODS, FEDERATIONS),
    "methods do not run themselves": (METHODS, LOOP),
    "the local federation knows no method": (LOCAL, METHODS),
    "data and models know neither methods nor federations": (
        MATERIAL,
        (*METHODS, *FEDERATIONS, *LOOP, "pfl_lib.federation", "pfl_lib.work"),
    ),
    "formulas come from the methods' files": (
        ("pfl_lib.formulas",),
        (*FEDERATIONS, *LOOP, *MATERIAL[:3], "pfl_lib.federation", "pfl_lib.work"),
    ),
    "nothing published leans on our tools": (("pfl_lib",), ("devtools", "tests", "benchmarks")),
}


def broken(contract, paths):
    """Where one of these files breaks that contract."""
    those, forbidden = CONTRACTS[contract]
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in paths
        if inside(module_name(path), those) and not inside(module_name(path), forbidden)
        for name, line in imports(path)
        if inside(name, forbidden)
    ]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_contract(contract):
    assert broken(contract, sources("pfl_lib")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pfl_lib.book",
        "from pfl_lib import book",
        "from pfl_lib.book.plots import partition_bubbles",
        "from ..book import plots",
        "def late():\n    from pfl_lib.book import papers",
    ],
)
def test_the_contract_sees_every_way_to_import(source, monkeypatch, tmp_path):
    path = tmp_path / "pfl_lib" / "data" / "new.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert broken("the library does not know the book", [path])


def lines_of_code(text):
    """How many lines hold code: without blank lines, comments and docstrings.

    >>> lines_of_code("x = 1  # one\\n\\n# two\\n")
    1
    """
    held = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            held |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            held -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(held)


def test_the_core_stays_small():
    lines = {
        path.relative_to(ROOT).as_posix(): lines_of_code(path.read_text(encoding="utf-8"))
        for path in sources("pfl_lib")
        if not inside(module_name(path), ("pfl_lib.book", "pfl_lib._deprecated"))
    }
    total = sum(lines.values())
    print(f"pfl_lib without pfl_lib.book: {total:,} lines of code in {len(lines)} files")
    longest = sorted(lines.items(), key=lambda item: -item[1])[:5]
    assert total <= MOST_LINES, f"{total:,} lines; the longest files: {longest}"
    page = (ROOT / "book" / "architecture.md").read_text(encoding="utf-8")
    assert f"{MOST_LINES:,} lines" in page, "the page on the architecture says the limit"


def test_no_test_imports_a_test():
    """What several tests need lives in tests/support or in a fixture."""
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources("tests")
        for name, line in imports(path)
        if re.search(r"(^|\.)(test_\w+|conftest)$", name.removesuffix(".*"))
        and (ROOT / "tests" / name.split(".")[-1]).with_suffix(".py").name
        in {other.name for other in sources("tests")}
    ]
    assert found == []


# ------------------------------------------------------------------------------ what is installed
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Benchmarks against other libraries ask for these themselves, and say so where they are missing.
GUESTS = {"fluke", "flwr", "fedjax", "jax", "blazefl", "pfl", "omegaconf", "tomli"}
GUESTS |= {"flcore", "src", "data"}  # of checkouts of PFLlib and FL-bench that the user names


def plain(name):
    """A package's name in the one spelling that compares."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!;\[~]", name)[0]).lower()


def declared(*extras):
    needs = [*PROJECT["dependencies"]]
    for extra in extras:
        needs += PROJECT["optional-dependencies"][extra]
    return {plain(need) for need in needs}


def outside(folder):
    """Packages of others that the files of a folder import: {package: file}."""
    tools = ROOT / "devtools"  # Flower and Sphinx import these by their bare names
    by_name = (*tools.glob("*_app/*.py"), *tools.glob("sphinxext/*.py"))
    neighbours = {path.stem for path in (*sources("benchmarks"), *by_name)}
    packages = packages_distributions()
    found = {}
    for path in sources(folder):
        for name, _ in imports(path):
            top = name.split(".")[0]
            if top and top not in (*sys.stdlib_module_names, *OWN, *GUESTS, *neighbours):
                for package in packages.get(top, [top]):
                    found.setdefault(plain(package), path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize(
    "folder, extras",
    [
        ("pfl_lib", ()),
        ("devtools", ("book", "test")),
        ("tests", ("book", "test")),
        ("benchmarks", ("test",)),
    ],
)
def test_what_is_imported_is_declared(folder, extras):
    missing = {p: f for p, f in outside(folder).items() if p not in declared(*extras)}
    assert missing == {}, "declare them in pyproject.toml"


def test_requirements_repeat_nothing():
    """One list, in pyproject.toml; requirements.txt points to it, constraints.txt pins it."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and line[0] != "#"] == ["-e .[book,test]"]
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {plain(line) for line in text.splitlines() if "==" in line}
    assert declared("book", "test") - pinned == set(), "add their versions to constraints.txt"


def test_typed_package_says_so():
    assert Path(ROOT / "pfl_lib" / "py.typed").exists()


def test_the_map_shows_every_room():
    """The figure of book/architecture.md has a place for each module of the library."""
    placed = [name for _, modules, _, _ in rooms.LIBRARY for name in modules] + rooms.EVERYWHERE
    here = {
        module_name(path).split(".")[1]
        for path in sources("pfl_lib")
        if path.parent != ROOT / "pfl_lib" or path.stem != "__init__"
    }
    assert here - {"book"} - set(placed) == set(), "give it a room in pfl_lib/book/draw/rooms.py"
    assert len(set(placed)) == len(placed)
