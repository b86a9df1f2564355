"""Read the chapters: their parts, exercises and labelled equations, straight from the notebooks."""

import collections
import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import yaml

from devtools.notebooks import all_notebooks
from devtools.sphinxext.pfl_numbers import chapter_number

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"^`{3,}\{(exercise|solution)-(start|end)\}\s*(\S*)$")
EQUATION = re.compile(
    r"^\$\$\n((?:(?!\$\$).)*?)\n\$\$ \((eq-[a-z0-9-]+)\)$", re.DOTALL | re.MULTILINE
)


@dataclass
class Exercise:
    label: str
    text: str
    solution: list = field(default_factory=list)  # cells, as they stand in the chapter

    @property
    def kind(self):
        """derive, code or extend: the first word of the exercise."""
        found = re.match(r"\*\*\[(\w+)\]\*\*", self.text)
        return found.group(1) if found else None

    @property
    def level(self):
        """easy, medium or hard, for a reader of the chapter."""
        return self._effort()[0]

    @property
    def minutes(self):
        """The time it should take, including writing it up."""
        return int(self._effort()[1])

    def _effort(self):
        found = re.match(r"\*\*\[\w+\]\*\* \*(easy|medium|hard), (\d+) min\.\* ", self.text)
        if found is None:
            raise ValueError(f'{self.label} should begin like "**[code]** *easy, 20 min.* …"')
        return found.groups()


def parts():
    """The parts of the book that hold chapters: {caption: [page, ...]}, in order.

    A part with a numbered chapter is one; all its notebooks are chapters, numbered or not, and so
    is a numbered one below another ("11b" below "11").
    """
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = {}
    for part in toc["parts"]:
        pages = []
        for chapter in part["chapters"]:
            below = [section["file"] for section in chapter.get("sections", [])]
            pages += [chapter["file"], *filter(chapter_number, below)]
        if any(map(chapter_number, pages)):
            found[part["caption"]] = [page for page in pages if page.startswith("notebooks/")]
    return found


def chapters():
    """The paths of all chapters, in the order of the book."""
    return [ROOT / f"{page}.ipynb" for pages in parts().values() for page in pages]


def in_order():
    """The names of all pages, in reading order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def names(node):
        own = [node["file"]] if "file" in node else []
        below = [*node.get("parts", []), *node.get("chapters", []), *node.get("sections", [])]
        return own + [name for child in below for name in names(child)]

    return [toc["root"], *names(toc)]


def read(path):
    return nbformat.read(path, as_version=4)


def split(notebook):
    """The chapter's cells before its exercises, and its exercises with their solutions."""
    chapter = _Splitter()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            chapter.code(cell)
        else:
            chapter.markdown(cell)
    return chapter.before, chapter.exercises


class _Splitter:
    """Splits cells at the directives of sphinx-exercise: a markdown cell usually ends one solution
    and begins the next exercise."""

    def __init__(self):
        self.before, self.exercises, self.state, self.words = [], [], "before", []

    def code(self, cell):
        if self.state == "before":
            self.before.append(cell)
        elif self.state == "solution":
            self.exercises[-1].solution.append(cell)
        else:
            raise ValueError(f"a code cell among the exercises has no owner: {cell.source!r}")

    def markdown(self, cell):
        lines = iter(cell.source.splitlines())
        for line in lines:
            mark = MARK.match(line)
            if line == "## Exercises":
                self.put()
                self.state = "between"
            elif mark:
                self.put()
                self.mark(*mark.groups(), _until_fence(lines))
            else:
                self.words.append(line)
        self.put()

    def mark(self, what, edge, label, options):
        """Handle a directive that begins or ends an exercise or its solution."""
        if edge == "end":
            self.state = "between"
        elif what == "exercise":
            self.exercises.append(Exercise(options["label"], ""))
            self.state = "exercise"
        elif label != self.exercises[-1].label:
            raise ValueError(f"the solution of {label} follows {self.exercises[-1].label}")
        else:
            self.state = "solution"

    def put(self):
        """Store the text gathered so far according to the state."""
        text = "\n".join(self.words).strip()
        self.words.clear()
        if not text:
            return
        if self.state == "before":
            self.before.append(nbformat.v4.new_markdown_cell(text))
        elif self.state == "exercise":
            self.exercises[-1].text += text
        elif self.state == "solution":
            self.exercises[-1].solution.append(nbformat.v4.new_markdown_cell(text))


def _until_fence(lines):
    """The options of a directive, up to the fence that closes its first line."""
    options = {}
    for line in lines:
        if line.startswith("```"):
            return options
        name, _, value = line.strip(":").partition(":")
        options[name] = value.strip()
    raise ValueError("a mark of an exercise is not closed")


def pages():
    """The paths of all pages of the book: the chapters first, in order."""
    rest = sorted(all_notebooks()) + sorted((ROOT / "book").rglob("*.md"))
    first = chapters()
    return first + [path for path in rest if path not in first]


def name(path):
    """The name of a page as in _toc.yml."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


@functools.cache
def markdown(path):
    """The text of a page: a markdown file, or the markdown cells of a notebook."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


def counted(labels):
    """{label: (page, number)} of items given as (label, page), numbered by chapter: "4.3".

    On pages that are no numbered chapters they share one plain count, as on the site
    (devtools/sphinxext/pfl_numbers.py).
    """
    place = {page: k for k, page in enumerate(in_order())}
    found, counts = {}, collections.Counter()
    for label, page in sorted(labels, key=lambda pair: place[pair[1]]):
        chapter = chapter_number(page)
        counts[chapter] += 1
        number = f"{chapter}.{counts[chapter]}" if chapter else str(counts[chapter])
        found[label] = page, number
    return found


def page_title(page):
    """The title of a page named as in _toc.yml, without its number."""
    path = next(path for path in (ROOT / f"{page}.ipynb", ROOT / f"{page}.md") if path.exists())
    return re.search(r"^# (.*)$", markdown(path), re.MULTILINE).group(1)


@functools.cache
def equations():
    """Every labelled equation of the book: {label: (TeX, page)}, in the book's order."""
    found = {}
    for path in pages():
        for tex, label in EQUATION.findall(markdown(path)):
            found[label] = (tex, name(path))
    return found
