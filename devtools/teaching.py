"""Build course material from the chapters and from the folder teaching.

    python -m devtools.teaching exercises [FOLDER]   notebooks with and without solutions
    python -m devtools.teaching graded [FOLDER]      graded notebooks, with nbgrader's marks
    python -m devtools.teaching slides [FOLDER]      a deck for each part (needs the built book)
    python -m devtools.teaching formulas [FOLDER]    the formula sheet

FOLDER is _build/html/teaching by default; `make book` makes all of them there.
"""

import ast
import re
import sys
from pathlib import Path

import nbformat

from devtools import chapters, graded, reader
from devtools.notebooks import setup_cell, text_of

FOLDER = chapters.ROOT / "_build" / "html" / "teaching"
INTRODUCTION = """\
# Exercises: {title}

These are the exercises of the chapter *{title}*. Run the next cell once: it is that part of the \
chapter's code on which the exercises build. Below each exercise there is room for your words and \
for your code."""
WITH_SOLUTIONS = """\
# Solutions: {title}

The exercises of the chapter *{title}* with their solutions, after that part of the chapter's code \
on which they build."""
YOUR_WORDS = "*Your answer in words and formulas:*"
YOUR_CODE = "# your code"


# --------------------------------------------------------------------------------- exercises
def plain(text, page):
    """Markdown that any notebook front end shows; the equations it names stand below it."""
    named = dict.fromkeys(re.findall(r"\{eq\}`([^`]+)`", text))
    beside = [reader.numbered(chapters.equations()[label][0], label) for label in named]
    # other chapters are not beside an exercise notebook: give their titles, without links
    words = re.sub(r"\[([^]]+)\]\([^)]+\.ipynb\)", r"*\1*", reader.plain(text, page))
    return "\n\n".join([words, *beside])


CHANGES = {"append", "extend", "update", "add", "setdefault", "insert", "pop"}


def _root(node):
    """The name at the bottom of ``a.b[c](d)``, or None."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _uses(node):
    """The names that a piece of code needs from outside."""
    own = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
    for part in ast.walk(node):
        if isinstance(part, ast.comprehension):
            own |= {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
        elif isinstance(part, ast.FunctionDef):
            inside = [n for n in ast.walk(part) if isinstance(n, ast.Name)]
            own |= {n.id for n in inside if isinstance(n.ctx, ast.Store)}
    named = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in named if isinstance(n.ctx, ast.Load)} - own


def _needs(statement):
    """The names a statement needs from before it; in a loop, what a turn uses before it sets it."""
    if not isinstance(statement, ast.For):
        return _uses(statement)
    live = set()
    for inside in reversed(statement.body):
        live = (live - _effects(inside)[0]) | _needs(inside)
    live -= {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}
    return live.union(_uses(statement.iter), *map(_needs, statement.orelse))


def _effects(statement):
    """(names it makes anew, names it may change) of one statement at top level."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}, set()
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(a.asname or a.name).split(".")[0] for a in statement.names}, set()
    if isinstance(statement, ast.Assign):
        made = {
            n.id
            for target in statement.targets
            for n in ast.walk(target)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        return made, {_root(t) for t in statement.targets} - made - {None}
    if isinstance(statement, ast.AugAssign):
        return set(), {_root(statement.target)}
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value.func
        inner = call.attr if isinstance(call, ast.Attribute) else ""
        changes = inner in CHANGES or inner.endswith("_")
        return set(), {_root(call)} if changes else set()
    changed = set()  # in loops, conditions and with blocks statements may or may not run
    for field in ("body", "orelse", "finalbody"):
        for inside in getattr(statement, field, []):
            changed |= set.union(*_effects(inside))
    if isinstance(statement, ast.For):
        changed |= {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}
    return set(), changed - {None}


def needed(cells, later):
    """That part of a chapter's code on which ``later`` code builds: whole statements, in order."""
    called = set()  # what kept functions need when they are called: at the end
    while True:
        kept, more = _sliced(cells, later, called)
        if more <= called:
            break
        called |= more
    imports = [k for k in kept if k.startswith(("import ", "from "))]
    rest = [k for k in kept if k not in imports]
    return "\n".join([*dict.fromkeys(imports), *_spaced(rest)])


def _sliced(cells, later, called):
    """One pass from the end: (statements to keep, names that kept functions use)."""
    live, kept, more = set(), [], set()
    for source in reversed(later):
        for statement in reversed(ast.parse(source).body):
            live = (live - _effects(statement)[0]) | _needs(statement)
    live |= called
    for source in reversed(cells):
        for statement in reversed(ast.parse(source).body):
            made, changed = _effects(statement)
            if not (made | changed) & live:
                continue
            live = (live - made) | _needs(statement)
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                more |= _uses(statement)
            first = min([statement.lineno, *(d.lineno for d in _decorators(statement))])
            kept.append("\n".join(source.splitlines()[first - 1 : statement.end_lineno]))
    return kept[::-1], more


def _decorators(statement):
    return getattr(statement, "decorator_list", [])


def _spaced(pieces):
    """Functions and classes with room around them."""
    return [f"\n\n{p}\n" if p.startswith(("def ", "class ", "@")) else p for p in pieces]


def code_of(cell):
    """The code of a cell: a code cell's own, or what stands in the fences of a markdown cell."""
    if cell.cell_type == "code":
        return [cell.source]
    return re.findall(r"^```python\n(.*?)^```$", cell.source, re.MULTILINE | re.DOTALL)


def exercise_notebook(path, solutions):
    """One chapter's exercises as a notebook, with or without their solutions; or None."""
    chapter, page = chapters.read(path), chapters.name(path)
    before, exercises = chapters.split(chapter)
    if not exercises:
        return None
    title = chapters.page_title(page)
    opening = (WITH_SOLUTIONS if solutions else INTRODUCTION).format(title=title)
    cells = [nbformat.v4.new_markdown_cell(opening), setup_cell()]
    own = [c for c in before if c.cell_type == "code" and "setup" not in c.metadata.get("tags", [])]
    later = [source for e in exercises for c in e.solution for source in code_of(c)]
    if built_on := needed([c.source for c in own], later):
        cells.append(nbformat.v4.new_code_cell(built_on))
    for exercise in exercises:
        number = reader.exercises()[exercise.label][1]
        name = f"### Exercise {number}: {exercise.label}\n\n"
        cells.append(nbformat.v4.new_markdown_cell(name + plain(exercise.text, page)))
        if not solutions:
            cells.append(nbformat.v4.new_markdown_cell(YOUR_WORDS))
            cells.append(nbformat.v4.new_code_cell(YOUR_CODE))
            continue
        cells.append(nbformat.v4.new_markdown_cell("**Solution**"))
        for cell in exercise.solution:
            if cell.cell_type == "code":
                cells.append(nbformat.v4.new_code_cell(cell.source))
            else:
                cells.append(nbformat.v4.new_markdown_cell(plain(cell.source, page)))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:03d}"
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata = nbformat.from_dict(dict(chapter.metadata))
    return notebook


def exercise_notebooks():
    """Every notebook for students and for teachers: {file name: notebook}."""
    made = {
        f"{kind}/{path.stem}.ipynb": exercise_notebook(path, kind == "solutions")
        for path in chapters.chapters()
        for kind in ("exercises", "solutions")
    }
    return {name: notebook for name, notebook in made.items() if notebook is not None}


def write_exercises(folder=FOLDER):
    """Write the notebooks below ``folder``, and one archive of each kind beside them."""
    made = exercise_notebooks()
    for name, notebook in made.items():
        target = Path(folder) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text_of(notebook), encoding="utf-8")
    for kind in ("exercises", "solutions"):
        own = {name: text_of(made[name]) for name in made if name.startswith(kind)}
        reader.pack(Path(folder) / f"{kind}.zip", own)
    return len(made)


def write_graded(folder=FOLDER):
    """Write the graded notebooks below ``folder``, and one archive of each kind beside them."""
    made = graded.notebooks()
    for name, text in made.items():
        target = Path(folder) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for kind in ("graded", "source"):
        own = {name: text for name, text in made.items() if name.startswith(kind)}
        reader.pack(Path(folder) / f"{kind}.zip", own)
    return len(made)


# -------------------------------------------------------------------------------------- main
def write_all(folder=FOLDER):
    """Everything that the book's teaching page links to."""
    from devtools import formula_sheet, slides

    print(f"{write_exercises(folder)} exercise notebooks, {write_graded(folder)} graded ones")
    print(f"{slides.write(folder)} slides")
    print(f"{formula_sheet.write(folder)} formulas on the sheet")


def main(arguments):
    if not arguments or arguments[0] not in {"exercises", "graded", "slides", "formulas"}:
        print(__doc__)
        return 2
    folder = Path(arguments[1]) if len(arguments) > 1 else FOLDER
    if arguments[0] == "exercises":
        print(f"{write_exercises(folder)} notebooks in {folder}")
    elif arguments[0] == "graded":
        print(f"{write_graded(folder)} notebooks in {folder}")
    elif arguments[0] == "slides":
        from devtools import slides

        print(f"{slides.write(folder)} slides in {folder}")
    else:
        from devtools import formula_sheet

        print(f"{formula_sheet.write(folder)} formulas in {folder}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, OSError) as error:
        sys.exit(f"teaching.py: {error}")
