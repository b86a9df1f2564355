"""The slides of the five lectures, from teaching/lectures: written by hand, with speaker notes.

A lecture is one Markdown file. ``---`` begins the next slide, ``--`` one below it (an answer), and
``Note:`` what the lecturer says. A line in braces includes something of the book by its name, so
that slides and book stay consistent:

    {drawn: round}                     a drawn figure
    {figure: fig-crossing}             a figure of a chapter, as it came out when the chapter ran
    {explorer: FedAMPPlane(beside="pull")}   an explorer, alive, over the whole slide
    {equation: eq-fedavg}              an equation with its number in the book
    {quiz: 01_fedavg 2}                a question of a chapter's quiz, its reasons below it
    {predict}                          marks a question to be answered before one goes on

The letter S opens the view with notes, a clock and the next slide; Esc shows all slides.
"""

import ast
import hashlib
import html
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

from bs4 import BeautifulSoup
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from devtools import chapters, reader
from devtools.page import whole_page

BUILT = chapters.ROOT / "_build" / "html"
LECTURES = chapters.ROOT / "teaching" / "lectures"
THING = re.compile(r"^\{(\w+)(?:: (.+))?\}$", re.MULTILINE)
STYLES = ("vendor/reveal/reset.css", "vendor/reveal/reveal.css", "drawn.css", "slides.css")
SCRIPTS = ("vendor/reveal/reveal.js", "vendor/reveal/notes.js", "slides.js")
MATHS = "{options: {enableMenu: false}, chtml: {matchFontHeight: false}}"
# An explorer on a slide: pictures on the left, what one turns on the right, nothing around it.
STAGE = """\
body { margin: 0; overflow: hidden; background: #fff }
.pfl-explorer { max-width: none }
.pfl-card { display: grid; grid-template-columns: minmax(0, 1fr) 330px; grid-auto-rows: min-content;
  column-gap: 26px; border: 0; padding: 8px 22px }
.pfl-card > * { grid-column: 2 }
.pfl-card > .pfl-head, .pfl-card > .pfl-ask { grid-column: 1 / -1 }
.pfl-card > .pfl-panels { grid-column: 1; grid-row: 3 / span 12; margin: 0 }
.pfl-card .pfl-slider { flex-basis: 100% }"""
BODY = """\
<div class="reveal"><main class="slides">
{slides}
</main></div>"""


@dataclass
class Slide:
    title: str
    body: str = ""
    kind: str = "text"
    note: str = ""
    below: list = field(default_factory=list)  # slides one step down

    def html(self):
        level = "h1" if self.kind == "title" else "h2"
        inner = f"<{level}>{self.title}</{level}>\n{self.body}"
        if self.note:
            inner += f'\n<aside class="notes">{self.note}</aside>'
        own = f'<section class="{self.kind}">\n{inner}\n</section>'
        if not self.below:
            return own
        return "\n".join(["<section>", own, *(slide.html() for slide in self.below), "</section>"])


# --------------------------------------------------------------------------------- words
def words(text):
    """The number of words: a formula counts as one, pictures and notes as none."""
    soup = BeautifulSoup(text, "html.parser")
    for maths in soup.select(".math"):
        maths.replace_with(" formula ")
    for silent in soup.select("svg, iframe, aside"):
        silent.decompose()
    return len(soup.get_text(" ").split())


def _writer():
    def maths(content, options):
        tex = html.escape(content.strip(), quote=False)
        return f"\\[{tex}\\]" if options.get("display_mode") else f"\\({tex}\\)"

    made = MarkdownIt("commonmark", {"html": True}).enable("table")
    return made.use(dollarmath_plugin, renderer=maths)


WRITER = _writer()


def written(text):
    """Markdown as HTML; formulas are left for MathJax."""
    return WRITER.render(text).strip()


def in_line(text):
    return re.sub(r"^<p>(.*)</p>$", r"\1", written(text), flags=re.DOTALL)


# ---------------------------------------------------------------------- parts of the book
def drawn(name):
    from pfl_lib.book import draw

    return draw.html(name)


def figure(name):
    """A figure of the built book: its picture, with the words for those who do not see it."""
    for pages in chapters.parts().values():
        for page in pages:
            built = BUILT / f"{page}.html"
            text = built.read_text(encoding="utf-8") if built.exists() else ""
            if f'id="{name}"' in text:
                image = BeautifulSoup(text, "html.parser").find(id=name).find("img")
                return f'<img src="{image["src"]}" alt="{html.escape(image["alt"])}">'
    raise ValueError(f"no built chapter has the figure {name}: run `make book` first")


def explorer(call):
    """An explorer in a frame of its own: it has sections, which reveal.js takes for slides."""
    from pfl_lib.book import explore

    call_node = ast.parse(call, mode="eval").body
    settings = {k.arg: ast.literal_eval(k.value) for k in call_node.keywords}
    made = getattr(explore, call_node.func.id)(**settings)
    inside = html.escape(f"<!DOCTYPE html>{made._repr_html_()}<style>{STAGE}</style>")
    return f'<iframe title="{call_node.func.id}" srcdoc="{inside}"></iframe>'


def equation(label):
    """An equation of the book with its number, which leads there."""
    if label not in chapters.equations():
        raise ValueError(f"no chapter has the equation {label}")
    tex, page = chapters.equations()[label]
    number = reader.equations()[label][1]
    return (
        f'<div class="math">\\[{html.escape(tex, quote=False)}\\]'
        f'<a class="page" href="../{page}.html#equation-{label}">({number})</a></div>'
    )


def questions(stem):
    """The quiz of a chapter: [(question, [(choice, reason), …]), …]."""
    page = f"notebooks/{stem}"
    text = chapters.markdown(chapters.ROOT / f"{page}.ipynb")
    quiz = text.split("\n## Quiz\n")[1].split("\n## ")[0]
    found = []
    for part in re.split(r"^\*\*\d+\. ", quiz, flags=re.MULTILINE)[1:]:
        question = part.split("**\n")[0]
        choices = re.findall(r"^:::\{dropdown\} (.+)\n(.+(?:\n.+)*?)\n:::$", part, re.MULTILINE)
        found.append((question, [(a, reader.inline(b, page)) for a, b in choices]))
    return found


def quiz(place):
    """A slide with a question and its choices in a neutral order; explanations below."""
    stem, number = place.split()
    question, choices = questions(stem)[int(number) - 1]
    seed = int(hashlib.sha256(question.encode()).hexdigest(), 16)
    random.Random(seed).shuffle(choices)
    body = "".join(f"<li>{in_line(choice)}</li>" for choice, _ in choices)
    slide = Slide("Quiz", f"<p>{in_line(question)}</p>\n<ol>{body}</ol>", "quiz")
    slide.note = "Vote by hand. Let somebody defend a wrong choice before you go down."
    for choice, reason in choices:
        verdict = "right" if reason.startswith("Yes") else "wrong"
        body = f'<p class="{verdict}">{in_line(choice)}</p>\n<p>{in_line(reason)}</p>'
        slide.below.append(Slide("Quiz: the reasons", body, "answer"))
    return slide


THINGS = {"drawn": drawn, "figure": figure, "explorer": explorer, "equation": equation}


# ---------------------------------------------------------------------------------- slides
def one(text):
    """A slide from its Markdown."""
    text, _, note = text.partition("\nNote:")
    match = re.search(r"^\{quiz: (.+)\}$", text, re.MULTILINE)
    if match:
        return quiz(match.group(1))
    heading = re.match(r"(#{1,2}) (.+)\n?", text.strip() + "\n")
    if heading is None:
        raise ValueError(f"a slide must begin with its title: {text.strip()[:60]!r}")
    body, kind = text.strip()[heading.end() :], "title" if heading.group(1) == "#" else "text"
    lent = {}

    def lend(found):
        nonlocal kind
        what, name = found.groups()
        if what == "predict":
            kind = "predict"
            return ""
        if what not in THINGS:
            raise ValueError(f"{{{what}}} is unknown; there are predict, quiz, {', '.join(THINGS)}")
        if kind in {"text", "predict"}:
            kind = {"predict": "predict"}.get(kind, what)
        key = f"LENT{len(lent)}HERE"
        lent[key] = THINGS[what](name)
        return f"\n{key}\n"

    body = written(THING.sub(lend, body))
    for key, thing in lent.items():
        body = body.replace(f"<p>{key}</p>", thing)
    return Slide(in_line(heading.group(2)), body, kind, written(note.strip()))


def lecture(text):
    """The slides of a lecture from its Markdown; what lies below a slide is an answer."""
    made = []
    for column in re.split(r"^---$", text, flags=re.MULTILINE):
        first, *below = (one(part) for part in re.split(r"^--$", column, flags=re.MULTILINE))
        for slide in below:
            slide.kind = "answer" if slide.kind == "text" else slide.kind
        first.below += below
        made.append(first)
    return made


def source(part):
    """The Markdown of the lecture on a part of the book."""
    name = file_name(part).removeprefix("slides-").removesuffix(".html")
    return (LECTURES / f"{name}.md").read_text(encoding="utf-8")


def file_name(part):
    return "slides-" + re.sub(r"\W+", "-", part.lower()) + ".html"


def deck(part):
    """The deck of a part: (HTML, its slides)."""
    slides = lecture(source(part))
    body = BODY.format(slides="\n".join(slide.html() for slide in slides))
    return whole_page(f"{part}: slides", body, STYLES, SCRIPTS, MATHS), slides


def write(folder):
    """Write a deck for each part below ``folder``; returns how many slides there are."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    total = 0
    for part in chapters.parts():
        text, slides = deck(part)
        (Path(folder) / file_name(part)).write_text(text, encoding="utf-8")
        total += len(slides)
    return total
