"""Graded notebooks from teaching/tasks: for students, and for teachers with solutions and tests.

A file of tasks is a Python script in cells. ``# %% [task] name: 3 points, easy, 15 min`` begins a
task: its words as comments, then the function with its solution between ``### BEGIN SOLUTION`` and
``### END SOLUTION``. ``# %% [tests]`` holds what the student may run; between ``### BEGIN HIDDEN
TESTS`` and ``### END HIDDEN TESTS`` stands what only the grader runs.

The notebooks carry nbgrader's marks, so that `nbgrader generate_assignment`, `autograde` and
`validate` take them as they are; nothing here needs nbgrader.
"""

import re
from dataclasses import dataclass

import nbformat

from devtools import chapters
from devtools.notebooks import setup_cell, text_of

FOLDER = chapters.ROOT / "teaching" / "tasks"
CELL = re.compile(r"^# %%(?: \[(\w+)\])?(?: (.+))?$", re.MULTILINE)
TASK = re.compile(r"(\w+): (\d+) points, (easy|medium|hard), (\d+) min")
SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION$", re.MULTILINE | re.DOTALL)
HIDDEN = re.compile(
    r"^### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS\n?", re.MULTILINE | re.DOTALL
)
EMPTY = r"\1raise NotImplementedError  # write this"


@dataclass
class Task:
    name: str
    points: int
    level: str
    minutes: int
    words: str
    code: str
    tests: str = ""

    @property
    def stub(self):
        """The function without its solution."""
        return SOLUTION.sub(EMPTY, self.code)

    @property
    def shown(self):
        """The tests without the hidden ones."""
        return HIDDEN.sub("", self.tests).strip()


def _words(source):
    """The comments at the beginning of a cell as Markdown, and the code that follows."""
    lines = source.strip("\n").splitlines()
    end = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
    words = "\n".join(re.sub(r"^# ?", "", line) for line in lines[:end])
    return words, "\n".join(lines[end:]).strip()


def read(path):
    """A file of tasks: (title and introduction, code that comes first, tasks)."""
    pieces = CELL.split(path.read_text(encoding="utf-8"))[1:]
    opening, before, tasks = "", "", []
    for kind, head, source in zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=True):
        words, code = _words(source)
        if kind == "markdown":
            opening = words
        elif kind == "task":
            found = TASK.fullmatch(head or "")
            if found is None:
                raise ValueError(
                    f"{path.name}: {head!r} should be like 'f: 2 points, easy, 10 min'"
                )
            name, points, level, minutes = found.groups()
            tasks.append(Task(name, int(points), level, int(minutes), words, code))
        elif kind == "tests":
            tasks[-1].tests = source.strip()
        else:
            before = source.strip()
    return opening, before, tasks


def files():
    """The files of tasks, in the order of the book's parts."""
    names = [re.sub(r"\W+", "-", part.lower()) for part in chapters.parts()]
    return [FOLDER / f"{name}.py" for name in names]


def _marked(cell, name, **marks):
    usual = {"grade": False, "solution": False, "locked": False, "task": False}
    cell.metadata["nbgrader"] = {**usual, "grade_id": name, "schema_version": 3, **marks}
    return cell


def notebook(path, solved):
    """One file of tasks as a notebook: with solutions and hidden tests, or without."""
    opening, before, tasks = read(path)
    points, minutes = sum(t.points for t in tasks), sum(t.minutes for t in tasks)
    words = f"{opening}\n\n{points} points, {minutes} minutes."
    markdown, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [_marked(markdown(words), "opening", locked=True), setup_cell()]
    cells.append(_marked(code(before), "before", locked=True))
    for task in tasks:
        head = f"## `{task.name}` ({task.points} points, {task.level}, {task.minutes} min)\n\n"
        cells.append(_marked(markdown(head + task.words), f"{task.name}-words", locked=True))
        own = code(task.code if solved else task.stub)
        cells.append(_marked(own, task.name, solution=True))
        tests = code(task.tests if solved else task.shown)
        marks = {"grade": True, "locked": True, "points": task.points}
        cells.append(_marked(tests, f"{task.name}-tests", **marks))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:03d}"
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata = nbformat.from_dict(dict(chapters.read(chapters.chapters()[0]).metadata))
    return made


def notebooks():
    """{file name: text} of all of them: graded/ for students, source/ for teachers."""
    made = {}
    for path in files():
        for kind, solved in (("graded", False), ("source", True)):
            made[f"{kind}/{path.stem}.ipynb"] = text_of(notebook(path, solved))
    return made
