"""Make what a course needs, out of the chapters and nothing else.

    python -m devtools.teaching exercises [FOLDER]   notebooks with and without solutions
    python -m devtools.teaching slides [FOLDER]      a deck for each part (needs the built book)
    python -m devtools.teaching formulas [FOLDER]    the formula sheet

FOLDER is _build/html/teaching by default; `make book` makes all three there.
"""

import re
import sys
from pathlib import Path

import nbformat

from devtools import chapters, reader
from devtools.notebooks import setup_cell, text_of

FOLDER = chapters.ROOT / "_build" / "html" / "teaching"
INTRODUCTION = """\
# Exercises: {title}

These are the exercises of the chapter *{title}*. First comes the chapter's own code, so that its \
names are there when you need them: run it once, and look at the chapter for what it means. Below \
each exercise there is room for your words and for your code."""
WITH_SOLUTIONS = """\
# Solutions: {title}

The exercises of the chapter *{title}* with their solutions, after the chapter's own code."""
YOUR_WORDS = "*Your answer in words and formulas:*"
YOUR_CODE = "# your code"


# --------------------------------------------------------------------------------- exercises
def plain(text, page):
    """Markdown that any notebook front end shows; the equations it names stand below it."""
    named = dict.fromkeys(re.findall(r"\{eq\}`([^`]+)`", text))
    beside = [reader.numbered(chapters.equations()[label][0], label) for label in named]
    # the other chapters do not lie beside an exercise notebook: their titles, and no links
    words = re.sub(r"\[([^]]+)\]\([^)]+\.ipynb\)", r"*\1*", reader.plain(text, page))
    return "\n\n".join([words, *beside])


def headings(cell):
    """The headings of a markdown cell of the chapter, or nothing."""
    return "\n\n".join(re.findall(r"^##+ .*$", cell.source, re.MULTILINE))


def exercise_notebook(path, solutions):
    """One chapter's exercises as a notebook, with or without their solutions; or None."""
    chapter, page = chapters.read(path), chapters.name(path)
    before, exercises = chapters.split(chapter)
    if not exercises:
        return None
    title = chapters.page_title(page)
    opening = (WITH_SOLUTIONS if solutions else INTRODUCTION).format(title=title)
    cells = [nbformat.v4.new_markdown_cell(opening)]
    for cell in before:
        if cell.cell_type == "code":
            own = setup_cell() if "setup" in cell.metadata.get("tags", []) else None
            cells.append(own or nbformat.v4.new_code_cell(cell.source))
        elif headings(cell):
            cells.append(nbformat.v4.new_markdown_cell(headings(cell)))
    cells.append(nbformat.v4.new_markdown_cell("## Exercises"))
    for number, exercise in enumerate(exercises, start=1):
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


# -------------------------------------------------------------------------------------- main
def write_all(folder=FOLDER):
    """Everything that the book's teaching page links to."""
    from devtools import formula_sheet, slides

    print(f"{write_exercises(folder)} exercise notebooks")
    print(f"{slides.write(folder)} slides")
    print(f"{formula_sheet.write(folder)} formulas on the sheet")


def main(arguments):
    if not arguments or arguments[0] not in {"exercises", "slides", "formulas"}:
        print(__doc__)
        return 2
    folder = Path(arguments[1]) if len(arguments) > 1 else FOLDER
    if arguments[0] == "exercises":
        print(f"{write_exercises(folder)} notebooks in {folder}")
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
