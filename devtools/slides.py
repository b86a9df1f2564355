"""Slides for each part of the book, made from its built pages by rule.

A chapter gives, in its own order: its title and promise; what the reader will be able to do; for
each section its first figure or explorer, its key equations and its key sentence; the question to
predict first, with the answer below it; where the method fails; its summary. The quizzes of all
chapters close the deck. Down leads to an answer, right leads on.

What is on a slide is what is on the page: the same executed figures, the same numbers. To change a
slide, change the chapter; a sentence in bold is a key sentence.
"""

import html
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urljoin

from bs4 import BeautifulSoup, NavigableString

from devtools import chapters, formula_sheet
from devtools.page import whole_page

BUILT = chapters.ROOT / "_build" / "html"
MOST_WORDS = 40
EQUATIONS_A_SLIDE = 2
SKIPPED = {
    "from-scratch",
    "the-library",
    "from-scratch-and-in-the-library",
    "summary",
    "exercises",
    "quiz",
    "reading",
}
SENTENCE_ENDS = r"(?<=[.!?])(?<!Eq\.)(?<!Eqs\.)(?<!Sec\.)\s+(?=[A-Z“\"(])"
WHOLE = r"[.!?][”\")]?(</\w+>)*$"  # else an equation was its end
ASIDE = r"<strong>(Check|What it does not show)"
LEAST_WORDS = 4
LEAD_WORDS = 6
TABLES = ("notation", "how-it-compares", "how-they-compare")
STYLES = ("vendor/reveal/reset.css", "vendor/reveal/reveal.css", "slides.css")
SCRIPTS = ("vendor/reveal/reveal.js", "slides.js")
MATHS = "{options: {enableMenu: false}, chtml: {matchFontHeight: false}}"
BODY = """\
<div class="reveal"><main class="slides">
{slides}
</main></div>"""


@dataclass
class Slide:
    title: str
    body: str = ""
    kind: str = "text"
    below: list = field(default_factory=list)  # slides one step down

    def html(self):
        level = "h1" if self.kind == "title" else "h2"
        inner = f"<{level}>{self.title}</{level}>\n{self.body}"
        own = f'<section class="{self.kind}">\n{inner}\n</section>'
        if not self.below:
            return own
        return "\n".join(["<section>", own, *(slide.html() for slide in self.below), "</section>"])


# --------------------------------------------------------------------------------- words
def words(text):
    """How many words a reader reads: a formula counts as one."""
    soup = BeautifulSoup(text, "html.parser")
    for maths in soup.select(".math"):
        maths.replace_with(" formula ")
    return len(soup.get_text(" ").split())


def inline(node):
    """The inside of an element as HTML, links as plain words (their targets are elsewhere).

    A number that no slide shows remains a link: see ``lead_to_the_page``.
    """
    copy = BeautifulSoup(str(node), "html.parser").find(True)
    for link in copy.select("a.headerlink"):
        link.decompose()
    for link in copy.select("a:not(.page)"):
        link.unwrap()
    return copy.decode_contents().strip()


def lead_to_the_page(top, page):
    """Equations and exercises have their numbers from the book: their links lead there."""
    for link in top.select('a[href*="#equation-"], a[href*="#ex-"]'):
        target = urljoin(f"/{page}.html", link["href"])
        link.attrs = {"class": "page", "href": f"..{target}"}


def sentences(paragraph):
    """The sentences of a paragraph, each as HTML. Formulas and emphasis are never cut."""
    found, current = [], ""
    for node in BeautifulSoup(inline(paragraph), "html.parser").contents:
        if not isinstance(node, NavigableString):
            current += str(node)
            # a bold sentence ends with its own full stop
            if node.name == "strong" and re.search(r"[.!?]$", node.get_text().strip()):
                found.append(current)
                current = ""
            continue
        first, *rest = re.split(SENTENCE_ENDS, str(node))
        current += html.escape(first, quote=False)
        for piece in rest:
            found.append(current)
            current = html.escape(piece, quote=False)
        # a sentence that ends where an element begins: "… end. <em>Next"
        if re.search(r"[.!?]\s+$", current):
            found.append(current)
            current = ""
    found.append(current)
    return [sentence.strip() for sentence in found if sentence.strip()]


def heaps(pieces, most=MOST_WORDS):
    """Neighbouring pieces together: as few slides as hold them, filled alike."""
    counts = [words(piece) for piece in pieces]

    def filled(limit):
        made, used = [], 0
        for piece, count in zip(pieces, counts, strict=True):
            if made and used + count <= limit:
                made[-1].append(piece)
                used += count
            else:
                made.append([piece])
                used = count
        return made

    fewest = len(filled(most))
    return next(filled(limit) for limit in range(1, most + 1) if len(filled(limit)) == fewest)


def with_leads(found):
    """A few bold words that head a paragraph, joined to the sentence that says what they mean."""
    lead = re.fullmatch(r"<strong>.*</strong>", found[0]) if found[1:] else None
    if lead is None or words(found[0]) > LEAD_WORDS:
        return found
    joined = f"{found[0]} {found[1]}"
    return [joined, *found[2:]] if words(joined) <= MOST_WORDS else found


def key_sentence(section):
    """A section in a sentence: one in bold, or 'In words', or after its equation, or the first."""
    paragraphs = [p for p in section.find_all("p", recursive=False)]
    everything = [s for p in paragraphs for s in with_leads(sentences(p))]
    fitting = [s for s in everything if LEAST_WORDS <= words(s) <= MOST_WORDS]
    fitting = [s for s in fitting if re.search(WHOLE, s) and not re.search(ASIDE, s)]
    bold = [s for s in fitting if words("".join(re.findall(r"<strong>.*?</strong>", s))) >= 4]
    lines = [s for s in fitting if s.startswith("In words")]
    # a paragraph before an equation leads to it; the one after a figure says what is seen
    first, after = [], []
    picture = section.select_one(":scope > div.math, :scope > div.cell")
    if picture is not None:
        following = picture.find_next_sibling("p")
        said_there = with_leads(sentences(following)) if following else []
        after = [s for s in said_there if s in fitting]
        if "math" in picture["class"]:
            first = fitting[:1]
    return next((s for found in (bold, lines, first, after, fitting) for s in found[:1]), "")


def numbered(title, heap_count, k):
    return title if heap_count == 1 else f"{title} ({k}/{heap_count})"


def text_slides(title, pieces, kind="text", as_list=False):
    made, groups = [], heaps(pieces)
    for k, group in enumerate(groups, start=1):
        if as_list:
            body = "<ul>" + "".join(f"<li>{piece}</li>" for piece in group) + "</ul>"
        else:
            body = f"<p>{' '.join(group)}</p>"
        made.append(Slide(numbered(title, len(groups), k), body, kind))
    return made


# -------------------------------------------------------------------------------- chapters
def heading(section):
    text = inline(section.find(["h1", "h2", "h3"]))
    text = re.sub(r"^Step \d+: ", "", text)
    return text[0].upper() + text[1:]


def equation_slide(section, computed):
    """The key equations of a section: first those that the library computes."""
    found = section.select(":scope > div.math[id^=equation-]")
    found += section.select(":scope > div.admonition div.math[id^=equation-]")
    known = [e for e in found if e["id"].removeprefix("equation-") in computed]
    chosen = (known or found[:1])[:EQUATIONS_A_SLIDE]
    if not chosen:
        return []
    body = f"<p>{key_sentence(section)}</p>"
    for equation in chosen:
        tex = "".join(t for t in equation.find_all(string=True, recursive=False)).strip()
        body += f'\n<div class="math">{html.escape(tex, quote=False)}</div>'
    return [Slide(heading(section), body, "equation")]


def picture_slides(section):
    """The explorers of a section, live, and its first figure."""
    made = []
    for output in section.select(":scope > div.cell div.cell_output"):
        explorer = output.select_one(".pfl-explorer")
        if explorer is not None:
            # in a frame of its own: an explorer has sections, which reveal.js takes for slides
            inside = html.escape(f"<!DOCTYPE html>{explorer.parent.decode_contents()}")
            frame = f'<iframe title="{heading(section)}" srcdoc="{inside}"></iframe>'
            made.append(Slide(heading(section), frame, "explorer"))
    image = section.select_one(":scope > div.cell div.cell_output img")
    if image is not None:
        picture = f'<img src="{image["src"]}" alt="{html.escape(image["alt"])}">'
        made.append(Slide(heading(section), f"{picture}\n<p>{key_sentence(section)}</p>", "figure"))
    return made


def predict_slides(section):
    box = next(
        (b for b in section.select("div.admonition") if "Predict first" in b.get_text()), None
    )
    if box is None:
        return []
    asked = [s for p in box.find_all("p")[1:] for s in sentences(p)]
    first, *rest = text_slides("Predict first", asked, "predict")
    answer = box.find_next_sibling("details")
    if answer is not None:  # else the text that follows answers
        lines = [s for p in answer.select(".sd-summary-content p") for s in sentences(p)]
        rest += text_slides("An answer", lines, "answer")
    first.below = rest
    return [first]


def failure_slides(section):
    """Where the method fails: the bold beginnings of the list."""
    leads = [inline(s) for s in section.select(":scope > ul > li > p > strong:first-child")]
    return text_slides(heading(section), [s.rstrip(".:") for s in leads], "text", as_list=True)


def chapter_slides(page, computed):
    soup = BeautifulSoup((BUILT / f"{page}.html").read_text(encoding="utf-8"), "html.parser")
    top = soup.select_one("article section")
    lead_to_the_page(top, page)
    slides = [Slide(heading(top), f"<p>{key_sentence(top)}</p>", "title")]
    goals = top.select_one("div.admonition.tip ul")
    slides += text_slides("You will be able to", [inline(li) for li in goals("li")], as_list=True)
    for section in top.select("section"):
        name = section.get("id", "")
        parents = {name, *(p.get("id", "") for p in section.find_parents("section"))}
        if parents & SKIPPED or name.startswith(TABLES) or section.find(["h2", "h3"]) is None:
            continue
        if name.startswith("where-"):
            slides += failure_slides(section)
        slides += picture_slides(section) + equation_slide(section, computed)
        slides += predict_slides(section)
    summary = top.select_one("section#summary")
    lines = [s for p in summary.find_all("p") for s in sentences(p)]
    slides += text_slides("Summary: " + heading(top), lines, as_list=True)
    return slides, quiz_slides(top.select_one("section#quiz"))


def quiz_slides(section):
    """A slide for each question with its choices; below it, every choice with its reason."""
    made = []
    for node in section.find_all(["p", "details"], recursive=False) if section else ():
        if node.name == "p":
            asked = re.sub(r"^\d+\. ", "", inline(node.strong))
            made.append(Slide("Quiz", f"<p>{asked}</p>\n<ol></ol>", "quiz"))
            continue
        choice = inline(node.select_one(".sd-summary-text"))
        reason = inline(node.select_one(".sd-summary-content p"))
        made[-1].body = made[-1].body.replace("</ol>", f"<li>{choice}</li></ol>")
        verdict = "right" if reason.startswith("Yes") else "wrong"
        body = f'<p class="{verdict}">{choice}</p>\n<p>{reason}</p>'
        made[-1].below.append(Slide("Quiz: the reasons", body, "answer"))
    return made


def file_name(part):
    return "slides-" + re.sub(r"\W+", "-", part.lower()) + ".html"


def deck(part, pages):
    """The deck of a part: (HTML, how many slides)."""
    computed, slides, quizzes = formula_sheet.functions(), [], []
    for page in pages:
        own, quiz = chapter_slides(page, computed)
        slides += own
        quizzes += quiz
    names = "".join(f"<li>{chapters.page_title(page)}</li>" for page in pages)
    front = Slide(part, f"<ul>{names}</ul>\n<p>Right: on. Down: the answer. Esc: all.</p>", "title")
    quizzes[0:0] = [Slide("Quiz", "<p>Choose first, then look below.</p>", "title")]
    everything = [front, *slides, *quizzes]
    body = BODY.format(slides="\n".join(slide.html() for slide in everything))
    text = whole_page(f"{part}: slides", body, STYLES, SCRIPTS, MATHS)
    return text, sum(1 + len(s.below) for s in everything)


def write(folder):
    """Write a deck for each part below ``folder``; returns how many slides there are."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    total = 0
    for part, pages in chapters.parts().items():
        missing = [page for page in pages if not (BUILT / f"{page}.html").exists()]
        if missing:
            raise ValueError(f"{missing[0]} is not built: run `make book` first")
        text, count = deck(part, pages)
        (Path(folder) / file_name(part)).write_text(text, encoding="utf-8")
        total += count
    return total
