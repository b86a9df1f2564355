"""Exercise notebooks, teaching guide, slides and formula sheet cannot part from the chapters."""

import json
import re
import subprocess
import sys
import zipfile
from collections import Counter

import pytest
from bs4 import BeautifulSoup

from devtools import chapters, formula_sheet, graded, slides, teaching
from devtools.browser import wait_for_maths
from pfl_lib import attention, formulas
from pfl_lib.book import explore
from tests.support.paths import HTML, ROOT

MADE = teaching.exercise_notebooks()
CHAPTERS = {path.stem: chapters.read(path) for path in chapters.chapters()}
EXERCISES = {stem: chapters.split(chapter)[1] for stem, chapter in CHAPTERS.items()}
WITH_EXERCISES = [stem for stem, exercises in EXERCISES.items() if exercises]


def words(text):
    return " ".join(text.split())


def code(cells):
    return [cell.source for cell in cells if cell.cell_type == "code"]


def text(notebook):
    return "\n".join(cell.source for cell in notebook.cells)


# ------------------------------------------------------------------------- exercise notebooks
def test_every_exercise_of_the_book_has_kind_text_and_solution():
    everything = [exercise for found in EXERCISES.values() for exercise in found]
    assert len(everything) >= 79
    assert [e.label for e in everything if e.kind not in {"derive", "code", "extend"}] == []
    assert [e.label for e in everything if not e.text or not e.solution] == []


def test_every_exercise_says_how_hard_and_how_long_it_is():
    everything = [exercise for found in EXERCISES.values() for exercise in found]
    assert {e.level for e in everything} == {"easy", "medium", "hard"}
    assert all(10 <= e.minutes <= 90 and e.minutes % 5 == 0 for e in everything)
    with pytest.raises(ValueError, match="ex-x should begin like"):
        chapters.Exercise("ex-x", "**[code]** Do it.").minutes  # noqa: B018


def test_every_exercise_is_in_exactly_one_student_notebook():
    raw = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("notebooks/*.ipynb")}
    labels = [label for t in raw.values() for label in re.findall(r":label: (ex-[\w-]+)", t)]
    students = [text(made) for name, made in MADE.items() if name.startswith("exercises/")]
    found = Counter(
        label for t in students for label in re.findall(r"^### Exercise [\w.]+: (\S+)$", t, re.M)
    )
    assert found == Counter(labels) and set(found.values()) == {1}


@pytest.mark.parametrize("stem", WITH_EXERCISES)
def test_student_notebook_holds_no_solution(stem):
    student = words(text(MADE[f"exercises/{stem}.ipynb"]))
    chapter_text = words(text(CHAPTERS[stem]))
    for exercise in EXERCISES[stem]:
        for cell in exercise.solution:
            for line in cell.source.splitlines():
                line = words(line)
                # a line that the chapter has elsewhere too (an import, a loop) gives nothing away
                if len(line) > 12 and chapter_text.count(line) == 1:
                    assert line not in student, f"{exercise.label} leaks: {line}"


@pytest.mark.parametrize("stem", WITH_EXERCISES)
def test_exercise_notebooks_begin_with_one_cell_out_of_the_chapter(stem):
    """Every line of it is the chapter's, and what is left of the chapter is what one needs."""
    student, solved = (
        code(MADE[f"{kind}/{stem}.ipynb"].cells) for kind in ("exercises", "solutions")
    )
    count = len(EXERCISES[stem])
    assert student[-count:] == [teaching.YOUR_CODE] * count and len(student) == count + 2
    assert student[:2] == solved[:2]
    before = "\n".join(code(CHAPTERS[stem].cells)).splitlines()
    assert [line for line in student[1].splitlines() if line and line not in before] == []
    solutions = [source for e in EXERCISES[stem] for source in code(e.solution)]
    assert solved[2:] == solutions


def test_no_exercise_notebook_uses_a_name_that_is_not_there(tmp_path):
    for name, made in MADE.items():
        script = "\n".join(code(made.cells)[1:])  # the first cell installs, in notebooks' own words
        (tmp_path / name.replace("/", "-")).with_suffix(".py").write_text(script)
    asked = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_later_code_builds_on_is_found():
    cells = [
        "import math\nimport os\nunused = os.getcwd()",
        "a = [1]\nfor k in range(3):\n    a.append(k)\nprint(a)",
        "def f(a):\n    b = a + c\n    return math.sin(b)\n\nc = 2\nc += 1",
    ]
    kept = teaching.needed(cells, ["x = f(a[0])", "c = 5\nprint(x)"])
    assert "os" not in kept and "print" not in kept
    space = {}
    exec(kept, space)
    assert space["a"] == [1, 0, 1, 2] and space["c"] == 3


def test_what_a_loop_sets_before_it_uses_it_is_not_needed():
    cells = ["W = 7\nk = 9", "total = 0", "V = 8"]
    later = "for k in range(3):\n    W = k\n    total, W = total + W, 0\n    V = V + W"
    assert teaching.needed(cells, [later]).splitlines() == ["total = 0", "V = 8"]


@pytest.mark.parametrize("name", MADE)
def test_exercise_notebook_is_readable_anywhere(name):
    markdown = [cell.source for cell in MADE[name].cells if cell.cell_type == "markdown"]
    raw = [m for t in markdown for m in re.findall(r"\{[a-z:]+\}`[^`]*`|^[`:]{3,}\{.*$", t, re.M)]
    assert raw == [], "markup that only the book understands"


def test_an_exercise_brings_the_equations_it_names_and_no_link_to_another_chapter():
    plain = teaching.plain("Compare {eq}`eq-fedavg` with {doc}`05_convergence`.", "notebooks/x")
    words, equation = plain.split("\n\n")
    number = re.match(r"Compare \((1\.\d+)\) in \*", words).group(1)
    assert "ipynb" not in words and words.endswith("with *Does it converge?*.")
    assert f"\\tag{{{number}}}" in equation and "w_i" in equation


def test_exercises_are_written_and_packed(tmp_path):
    teaching.write_exercises(tmp_path)
    for kind in ("exercises", "solutions"):
        inside = zipfile.ZipFile(tmp_path / f"{kind}.zip").namelist()
        assert sorted(inside) == sorted(f"{kind}/{stem}.ipynb" for stem in WITH_EXERCISES)
        assert all((tmp_path / name).exists() for name in inside)
    first = (tmp_path / "exercises.zip").read_bytes()
    teaching.write_exercises(tmp_path)
    assert (tmp_path / "exercises.zip").read_bytes() == first, "the same chapters, the same bytes"


def test_an_exercise_without_its_own_solution_is_refused():
    chapter = chapters.read(chapters.chapters()[0])
    for cell in chapter.cells:
        cell.source = cell.source.replace("{solution-start} ex-", "{solution-start} not-ex-")
    with pytest.raises(ValueError, match="the solution of not-ex-"):
        chapters.split(chapter)


# ----------------------------------------------------------------------------- teaching guide
GUIDE = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")
LABELS = {exercise.label: stem for stem, found in EXERCISES.items() for exercise in found}


def test_guide_names_exercises_that_exist():
    named = re.findall(r"\{ref\}`([^`]+)`", GUIDE)
    assert len(named) > 60 and [label for label in named if label not in LABELS] == []


def test_guide_names_the_exercises_of_the_chapter_of_the_row():
    """In the twelve-week plan and the table of beliefs a row is about one chapter."""
    for heading in ("## Twelve weeks", "## What students often believe"):
        rows = GUIDE.split(heading)[1].split("\n## ")[0].splitlines()
        rows = [row for row in rows if "{doc}" in row]
        assert len(rows) == len(WITH_EXERCISES)
        for row in rows:
            chapter = re.search(r"notebooks/(\w+)`", row).group(1)
            assert {LABELS[e] for e in re.findall(r"\{ref\}`([^`]+)`", row)} == {chapter}


def test_guide_knows_every_chapter_its_minutes_explorers_and_notebooks():
    table = GUIDE.split("## What there is")[1].split("\n## ")[0]
    rows = {
        found.group(1): row
        for row in table.splitlines()
        if (found := re.search(r"^\| \{doc\}`\.\./notebooks/(\w+)`", row))
    }
    assert list(rows) == WITH_EXERCISES, "a chapter with exercises has a row, in the book's order"
    for stem, row in rows.items():
        chapter = text(CHAPTERS[stem])
        minutes = re.search(r"\*\*Reading time:\*\* (\d+)", chapter).group(1)
        shown = re.findall(r"from pfl_lib\.book\.explore import (\w+)", chapter)
        assert [cell.strip() for cell in row.split("|")][2] == minutes
        assert re.findall(r"`([A-Z]\w+)`", row) == shown
        for kind in ("exercises", "solutions"):
            assert f'href="../teaching/{kind}/{stem}.ipynb"' in row


def test_guide_names_explorers_and_decks_that_exist():
    for name in re.findall(r"`([A-Z][A-Za-z]+)`", GUIDE):
        assert hasattr(explore, name), name
    linked = re.findall(r'href="\.\./teaching/(slides-[\w-]+\.html)"', GUIDE)
    assert linked == [slides.file_name(part) for part in chapters.parts()]


def test_guide_counts_the_graded_tasks():
    table = GUIDE.split("## Tasks that grade themselves")[1].split("\n## ")[0]
    rows = [[c.strip() for c in r.split("|")] for r in table.splitlines() if "ipynb" in r]
    assert [row[1] for row in rows] == list(chapters.parts())
    for row, path in zip(rows, graded.files(), strict=True):
        own = [task for (stem, _), task in TASKS.items() if stem == path.stem]
        counts = [len(own), sum(t.points for t in own), sum(t.minutes for t in own)]
        assert list(map(int, row[2:5])) == counts and row[5].count(path.stem) == 2
    assert (
        f"{len(TASKS)} functions to write, {sum(t.points for t in TASKS.values())} points" in GUIDE
    )


def test_guide_has_a_rubric_for_every_kind_of_exercise():
    kinds = {exercise.kind for found in EXERCISES.values() for exercise in found}
    rubric = GUIDE.split("## How to grade")[1].split("\n## ")[0]
    for kind in kinds:
        table = rubric.split(f"**[{kind}]**")[1].split("**[")[0]
        assert sum(int(n) for n in re.findall(r"^\| (\d+) \|", table, re.M)) == 10


# ---------------------------------------------------------------------------- graded notebooks
TASKS = {(path.stem, task.name): task for path in graded.files() for task in graded.read(path)[2]}


def run_task(stem, task, function, tests):
    space = {}
    _, before, tasks = graded.read(graded.FOLDER / f"{stem}.py")
    exec(before, space)
    for other in tasks[: [t.name for t in tasks].index(task.name)]:
        exec(other.code, space)  # what stands above it is solved
        exec(other.tests, space)
    exec(function, space)
    exec(tests, space)


@pytest.mark.parametrize("place", TASKS, ids=" ".join)
def test_a_task_is_solved_by_its_solution_and_by_nothing_less(place):
    task = TASKS[place]
    run_task(place[0], task, task.code, task.tests)
    with pytest.raises(NotImplementedError):
        run_task(place[0], task, task.stub, task.shown)
    assert "HIDDEN" in task.tests and "HIDDEN" not in task.shown and "assert" in task.shown
    assert "SOLUTION" not in task.stub and '"""' in task.stub and len(task.words) > 40


WRONG = {
    "average": "def average(models, sizes):\n    return np.mean(models, axis=0)",
    "drift_limit": "def drift_limit(h, c, p, lr, epochs):\n    h, c, p = map(np.array, (h, c, p))\n"
    "    return (p * h * c).sum() / (p * h).sum()",
    "fedacs_weights": "def fedacs_weights(W, p):\n    return np.eye(len(W))",
    "heurfedamp_weights": "def heurfedamp_weights(W, sigma, self_weight):\n    m = len(W)\n"
    "    xi = np.full((m, m), (1 - self_weight) / (m - 1))\n"
    "    np.fill_diagonal(xi, self_weight)\n    return xi",
    "ala_step": "def ala_step(weights, own, glob, grad, lr):\n"
    "    return np.array(weights) - lr * (np.array(glob) - own) * np.array(grad)",
    "same_mix": "def same_mix(lr, steps, stretch, other_lr):\n"
    "    return lr * steps / (other_lr * stretch)",
    "label_prior": "def label_prior(counts, smoothing=1.0):\n    return np.zeros(np.shape(counts))",
}


@pytest.mark.parametrize("name", WRONG)
def test_hidden_tests_find_what_the_shown_ones_let_pass(name):
    place = next(place for place in TASKS if place[1] == name)
    task = TASKS[place]
    if name not in ("average", "ala_mix"):
        run_task(place[0], task, WRONG[name], task.shown)
    with pytest.raises(AssertionError):
        run_task(place[0], task, WRONG[name], task.tests)


def test_graded_notebooks_carry_nbgrader_s_marks():
    made = {name: json.loads(text) for name, text in graded.notebooks().items()}
    assert len(made) == 2 * len(graded.files())
    for name, notebook in made.items():
        cells = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
        marks = [cell["metadata"]["nbgrader"] for cell in cells]
        ids = [mark["grade_id"] for mark in marks]
        assert len(set(ids)) == len(ids) and all(mark["schema_version"] == 3 for mark in marks)
        stem = name.split("/")[1].removesuffix(".ipynb")
        points = sum(task.points for place, task in TASKS.items() if place[0] == stem)
        assert sum(mark.get("points", 0) for mark in marks) == points
        whole = json.dumps(notebook)
        assert ("BEGIN SOLUTION" in whole) == ("HIDDEN TESTS" in whole) == name.startswith("source")


def test_a_task_without_points_is_refused(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("# %% [task] f: easy\n# Words.\ndef f():\n    pass\n")
    with pytest.raises(ValueError, match="should be like"):
        graded.read(path)


# ------------------------------------------------------------------------------- formula sheet
def test_every_labelled_formula_is_on_the_sheet():
    sheet, count = formula_sheet.sheet()
    page = BeautifulSoup(sheet, "html.parser")
    labelled = {
        re.search(r"Equation label: (\S+)", thing.__doc__).group(1): name
        for module in (formulas, attention)
        for name, thing in vars(module).items()
        if callable(thing) and "Equation label:" in (thing.__doc__ or "")
    }
    assert len(labelled) > 50
    for label in labelled:
        entry = page.find(id=label)
        assert entry is not None, f"{label} is missing"
        assert entry.select_one(".code code") is not None, f"{label} has no function beside it"
    assert [name for name in formulas.__all__ if f"<code>{name}</code>" not in sheet] == []
    assert len(page.select("li")) == count >= len(labelled)
    numbers = [n.get_text().strip("()") for n in page.select("li .number")]
    assert len(set(numbers)) == count, "each has its number in the book"
    assert {"1.1", "3b.1", "4.1", "1"} <= set(numbers)
    silent = [li["id"] for li in page.select("li") if not li.select(".code, .meaning")]
    assert len(silent) <= 0.15 * count, silent
    assert len(page.select("dl.symbols")) >= 8 and len(page.select("dl.symbols dt")) > 80


# -------------------------------------------------------------------------------------- quizzes
@pytest.mark.parametrize("stem", WITH_EXERCISES)
def test_quiz_has_one_right_choice_and_a_reason_for_each(stem):
    quiz = text(CHAPTERS[stem]).split("\n## Quiz")[1].split("\n## ")[0]
    questions = re.split(r"^\*\*\d+\. ", quiz, flags=re.M)[1:]
    assert len(questions) >= 3
    for question in questions:
        reasons = re.findall(r"^:::\{dropdown\} .+\n(.+(?:\n.+)*?)\n:::$", question, re.M)
        assert len(reasons) == question.count("{dropdown}") >= 3
        assert sum(reason.startswith("Yes") for reason in reasons) == 1


def test_quiz_answers_with_its_reason(site, open_page):
    page = open_page(f"{site}/notebooks/01_fedavg.html")
    questions = page.locator("fieldset.pfl-quiz")
    assert questions.count() == 4 and page.locator("section#quiz details").count() == 0
    first = questions.nth(0)
    assert first.locator("legend").inner_text().startswith("1. Ten clients")
    wrong = first.get_by_role("button", name="It drifts, since the data differ")
    right = first.get_by_role("button", name="Gradient descent on all data")
    assert not first.get_by_text("Drift needs more than one local step").is_visible()
    wrong.click()
    assert first.get_by_text("Drift needs more than one local step").is_visible()
    assert wrong.get_attribute("data-verdict") == "wrong"
    right.focus()
    page.keyboard.press("Enter")
    assert first.get_by_text("exactly, whoever holds what").is_visible()
    assert right.get_attribute("data-verdict") == "right"
    score = page.locator(".pfl-quiz-score")
    assert score.inner_text() == "Found 1 of 4, 0 of them at the first try."
    right.click()  # close it and open it again: the reason comes back
    assert not first.get_by_text("exactly, whoever holds what").is_visible()
    right.click()
    assert first.get_by_text("exactly, whoever holds what").is_visible()


def test_quiz_without_scripts_is_a_list_of_dropdowns(site, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/notebooks/01_fedavg.html")
    choices = page.locator("section#quiz details")
    assert choices.count() == 12
    choices.nth(1).locator("summary").click()
    assert choices.nth(1).get_by_text("Drift needs more than one local step").is_visible()
    context.close()


def test_the_place_of_the_right_choice_gives_nothing_away(site, browser):
    places, page = [], browser.new_page()
    for stem in WITH_EXERCISES:  # one after the other, without waiting for their formulas
        page.goto(f"{site}/notebooks/{stem}.html", wait_until="domcontentloaded")
        places += page.evaluate("""() => [...document.querySelectorAll('fieldset.pfl-quiz')].map(
          (quiz) => {
            const choices = [...quiz.querySelectorAll('.pfl-quiz-choice')];
            choices.forEach((choice) => choice.click());
            return choices.findIndex((choice) => choice.dataset.verdict === 'right');
          })""")
    page.close()
    assert len(places) >= 45 and max(map(places.count, range(3))) <= 0.5 * len(places)


# --------------------------------------------------------------------------------------- slides
OUTSIDE_THE_SLIDE = """() => {
  const bad = [], box = document.querySelector('.slides').getBoundingClientRect();
  for (const slide of Reveal.getSlides()) {
    const at = Reveal.getIndices(slide);
    Reveal.slide(at.h, at.v || 0);
    const seen = [...slide.querySelectorAll(':scope > *, :scope > * > *, mjx-container')];
    const inside = seen.filter((e) => !e.closest('aside'));
    for (const e of inside) {
      const r = e.getBoundingClientRect();
      if (r.right > box.right + 1 || r.bottom > box.bottom + 1 || r.left < box.left - 1)
        bad.push(slide.querySelector('h1, h2').innerText + ': ' + e.tagName);
    }
  }
  return bad;
}"""


@pytest.mark.parametrize("part", chapters.parts())
def test_deck(site, open_page, part):
    """Every slide fits, its maths is typeset, nothing is asked from outside, figures are there."""
    page = open_page(f"{site}/teaching/{slides.file_name(part)}")
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    assert page.locator("mjx-merror").count() == 0 and page.locator("mjx-container").count() > 0
    assert page.locator(".figure img").count() > 0
    assert page.evaluate("[...document.images].filter(i => !i.naturalWidth || !i.alt).length") == 0
    assert page.evaluate(OUTSIDE_THE_SLIDE) == []
    for kind in ("title", "predict", "answer", "equation", "figure", "drawn", "quiz"):
        assert page.locator(f"section.{kind}").count() > 0, f"no {kind} slide"


@pytest.mark.parametrize("part", chapters.parts())
def test_a_lecture_has_twenty_to_twenty_five_slides_with_notes(part):
    text = slides.source(part)
    columns = re.split(r"^---$", text, flags=re.MULTILINE)
    assert 20 <= len(columns) <= 25
    for column in columns:
        note = re.split(r"^--$", column, flags=re.MULTILINE)[0].partition("\nNote:")[2]
        assert "{quiz:" in column or 4 <= len(note.split()) <= 80, column[:60]
    named = [label for label in re.findall(r"\bex-[\w-]+", text)]
    assert named and [label for label in named if label not in LABELS] == []


def test_a_slide_that_names_nothing_of_the_book_is_refused():
    for text, words in (
        ("Words without a title", "must begin with its title"),
        ("## T\n\n{equation: eq-no-such}", "no chapter has the equation"),
        ("## T\n\n{figure: fig-no-such}", "no built chapter has the figure"),
        ("## T\n\n{drwan: round}", "is unknown"),
    ):
        with pytest.raises(ValueError, match=words):
            slides.one(text)


def test_markdown_of_a_slide_keeps_formulas_for_mathjax():
    slide = slides.one("## A *b*\n\n{predict}\n\nLet $a_i<b$ and **c**.\n\nNote: Say $x$.")
    assert slide.title == "A <em>b</em>" and slide.kind == "predict"
    assert "\\(a_i&lt;b\\)" in slide.body and "<strong>c</strong>" in slide.body
    assert slide.note.startswith("<p>Say <span") and "\\(x\\)" in slide.note


def test_the_place_of_the_right_choice_on_slides_gives_nothing_away():
    places = []
    for stem in WITH_EXERCISES:
        for number in range(1, 1 + len(slides.questions(stem))):
            verdicts = [below.body for below in slides.quiz(f"{stem} {number}").below]
            places.append(next(k for k, body in enumerate(verdicts) if 'class="right"' in body))
    assert len(places) >= 45 and max(map(places.count, range(3))) <= 0.5 * len(places)


def test_speaker_view_has_the_notes(site, open_page):
    page = open_page(f"{site}/teaching/{slides.file_name('Foundations')}")
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    with page.expect_popup() as opened:
        page.keyboard.press("s")
    view = opened.value
    view.wait_for_selector(".speaker-controls-notes:not(.hidden)")
    assert "Ninety minutes" in view.locator(".speaker-controls-notes .value").inner_text()


def test_arrow_keys_turn_the_slides_after_a_click_into_an_explorer(site, open_page):
    page = open_page(f"{site}/teaching/slides-attention.html")
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    page.evaluate("""() => {
      const slide = document.querySelector('section:has(> iframe)'), at = Reveal.getIndices(slide);
      Reveal.slide(at.h, at.v);
    }""")
    page.wait_for_timeout(300)
    inside = page.locator("section.present iframe").first.content_frame
    start = page.evaluate("JSON.stringify(Reveal.getIndices())")
    inside.locator(".pfl-head strong").click()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("old => JSON.stringify(Reveal.getIndices()) !== old", arg=start)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("old => JSON.stringify(Reveal.getIndices()) === old", arg=start)
    slider = inside.locator("input[type=range]").first
    slider.focus()
    page.keyboard.press("ArrowRight")  # moves the slider, not the slides
    assert page.evaluate("JSON.stringify(Reveal.getIndices())") == start


def test_slides_are_short(site):
    for part in chapters.parts():
        deck = (HTML / "teaching" / slides.file_name(part)).read_text(encoding="utf-8")
        for slide in BeautifulSoup(deck, "html.parser").select("section:not(:has(section))"):
            for heading in slide.select("h1, h2"):
                heading.extract()
            most = 70 if "quiz" in slide["class"] else 60  # a question comes with all its choices
            assert slides.words(slide.decode_contents()) <= most, slide.get_text()


# ------------------------------------------------------------------- what the teaching page needs
def test_everything_the_guide_links_to_is_built(site):
    for link in re.findall(r'href="\.\./(teaching/[^"]+)"', GUIDE):
        assert (HTML / link).exists(), link


def test_formula_sheet_fits_its_columns(site, open_page):
    page = open_page(f"{site}/teaching/{formula_sheet.NAME}")
    wait_for_maths(page)
    assert page.locator("mjx-merror").count() == 0
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 without its margins
    wide = """[...document.querySelectorAll('li mjx-container')].filter(m =>
      m.querySelector('mjx-math').getBoundingClientRect().width
        > m.closest('li').getBoundingClientRect().width + 1).map(m => m.closest('li').id)"""
    assert page.evaluate(wide) == []
