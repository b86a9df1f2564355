"""The reference of the library: every public name stands in it, with an example that runs."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import warnings
from pathlib import Path

import matplotlib
import pytest

import pfl_lib
from pfl_lib.work import STEPS
from tests.support.paths import ROOT

matplotlib.use("Agg")
PAGES = sorted((ROOT / "book" / "api").glob("*.md"))
# Workings that no reader calls; what of them is public is offered by `pfl_lib` itself.
INSIDE = {f"pfl_lib.{name}" for name in ("federation", "local", "work", "checkpoints")}


def rooms():
    """The modules a reader imports: `pfl_lib` and what lies in it, packages as a whole."""
    found = [f"pfl_lib.{room.name}" for room in pkgutil.iter_modules(pfl_lib.__path__)]
    return ["pfl_lib", *(name for name in found if "._" not in name)]


def loaded(name):
    """The module, or None where what it builds on is an extra that is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if "pip install 'pfl_lib[" in str(error):
            return None
        raise


def public(name):
    """The public names of a room: those it lists, or those it defines."""
    module = loaded(name)
    if module is None:
        return []
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [n for n in listed if not inspect.ismodule(getattr(module, n)) and n[0] != "_"]
    defined = vars(module).items()
    return [
        n
        for n, thing in defined
        if n[0] != "_"
        and getattr(thing, "__module__", None) == name
        and (inspect.isfunction(thing) or inspect.isclass(thing))
    ]


ROOMS = [name for name in rooms() if name not in INSIDE]
NAMES = [(room, name) for room in ROOMS for name in public(room)]


def documented():
    """Modules and names that the pages of the reference show."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    modules = re.findall(r"^\.\. automodule:: (\S+)\n(?:   :.*\n)*?   :members:$", text, re.M)
    single = re.findall(r"^\.\. auto(?:function|class|data):: (\S+)$", text, re.M)
    return modules, single


MODULES, SINGLE = documented()


@pytest.mark.parametrize("room, name", NAMES, ids=lambda v: v)
def test_every_public_name_stands_in_the_reference(room, name):
    if getattr(pfl_lib, name, None) is getattr(importlib.import_module(room), name):
        room = "pfl_lib"  # where readers take it from
    assert room in MODULES or f"{room}.{name}" in SINGLE, "name it in a page of book/api"


def test_the_reference_names_nothing_twice_and_nothing_that_is_not():
    assert len(set(MODULES)) == len(MODULES) and len(set(SINGLE)) == len(SINGLE)
    for name in MODULES:
        assert importlib.import_module(name).__doc__, name
    for name in SINGLE:
        room, _, short = name.rpartition(".")
        assert hasattr(importlib.import_module(room), short), name
        assert room not in MODULES, f"{name} is shown with the whole of {room}"


@pytest.mark.parametrize("room, name", NAMES, ids=lambda v: v)
def test_every_public_name_has_an_example(room, name):
    thing = getattr(importlib.import_module(room), name)
    if not callable(thing):
        pytest.skip("a table, not something to call")
    assert ">>>" in (thing.__doc__ or ""), f"write an example into the docstring of {room}.{name}"


def files_with_examples():
    """Every module of the library in which a docstring holds an example."""
    for path in sorted(Path(pfl_lib.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ">>>" in text and not path.name.startswith("__main__"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("name", list(files_with_examples()))
def test_the_examples_print_what_they_say(name):
    module = loaded(name)
    if module is None:
        pytest.skip("needs an extra that is not installed")
    import matplotlib.pyplot as plt

    steps = set(STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # many figures at once
        result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    plt.close("all")
    for own in set(STEPS) - steps:  # a step that an example registered is not for later tests
        del STEPS[own]
    assert result.attempted > 0
    assert result.failed == 0, "see what was printed above"


def test_examples_use_what_a_reader_could_import():
    """An example that leans on a private name cannot be copied from the page."""
    bad = []
    for room, name in NAMES:
        doc = inspect.getdoc(getattr(importlib.import_module(room), name)) or ""
        for example in doctest.DocTestParser().get_examples(doc):
            for node in ast.walk(ast.parse(example.source)):
                if isinstance(node, ast.Name) and re.match(r"_\w", node.id):
                    bad.append(f"{room}.{name}: {node.id}")
    assert bad == []


# ----------------------------------------------------------------- parameters, examples by task
def test_examples_by_task_run():
    page = str(ROOT / "book" / "api" / "tasks.md")
    done = doctest.testfile(page, module_relative=False)
    assert done.attempted > 30 and done.failed == 0


def test_reference_tables_come_from_signature_and_docstring(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "devtools" / "sphinxext"))
    reference = importlib.import_module("pfl_api")
    rows, back = reference.rows(pfl_lib.run, inspect.getdoc(pfl_lib.run))
    found = {name: rest for name, *rest in rows}
    assert back == "History" and list(found)[:3] == ["algorithm", "fed", "rounds"]
    assert found["participation"][:2] == ["float", "1.0"]
    assert found["participation"][2].startswith("``participation`` is the share of clients")
    lines = ["Words.", "", ">>> example"]
    reference._parameters(None, "function", "pfl_lib.run", pfl_lib.run, None, lines)
    assert lines.index(".. list-table::") < lines.index(">>> example") == len(lines) - 1
    assert "Returns ``History``." in lines


@pytest.mark.parametrize("room", sorted({*ROOMS, *MODULES}))
def test_every_parameter_in_the_reference_is_explained(room, monkeypatch):
    """By a docstring of its own, its bases' or its module's, or by pfl_api_words."""
    monkeypatch.syspath_prepend(str(ROOT / "devtools" / "sphinxext"))
    reference = importlib.import_module("pfl_api")
    things = [getattr(importlib.import_module(room), name) for name in public(room)]
    silent = [
        f"{thing.__name__}.{name}"
        for thing in things
        if inspect.isfunction(thing) or inspect.isclass(thing)
        for name, _, _, meaning in reference.rows(thing, inspect.getdoc(thing) or "")[0]
        if not meaning
    ]
    assert silent == []


def test_no_word_of_the_reference_is_left_over(monkeypatch):
    """Whatever pfl_api_words says of a function is about a parameter that it has."""
    monkeypatch.syspath_prepend(str(ROOT / "devtools" / "sphinxext"))
    words = importlib.import_module("pfl_api_words")
    shown = [*NAMES, *(name.rpartition(".")[::2] for name in SINGLE)]
    shown += [(room, name) for room in MODULES for name in public(room)]
    had = {
        f"{name}.{parameter}"
        for room, name in shown
        if callable(thing := getattr(importlib.import_module(room), name))
        and thing.__module__.startswith("pfl_lib")
        for parameter in inspect.signature(thing).parameters
    }
    assert sorted(set(words.HERE) - had) == []
