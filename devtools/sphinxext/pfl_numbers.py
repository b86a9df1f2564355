"""Chapters have numbers, and what they hold is numbered by chapter: "(4.3)", "Figure 4.2".

A chapter's number is that of its file: ``notebooks/04_fedamp`` is chapter 4 and
``notebooks/03b_judging`` chapter 3b. Two chapters have kept file names without a number, which
other pages and bookmarks know; theirs are in ``NAMED``. The number stands before the title of the
page and in the links to the next and the previous page; the contents beside every page have it from
pfl_light. Sphinx counts equations, figures, theorems and exercises by the number of the page on
which they stand, as soon as it has one, and says the same number wherever one refers to them. Pages
without a number share one plain count.
"""

import re

from docutils import nodes

CHAPTER = re.compile(r"notebooks/0*(\d+[a-z]?)_\w+$")
NAMED = {"notebooks/network": "12d", "notebooks/own_clients": "13b"}


def chapter_number(page):
    """The number of a chapter named as in _toc.yml: "4", "3b"; None for any other page."""
    found = CHAPTER.match(page)
    return found.group(1) if found else NAMED.get(page)


def number_chapters(env):
    """Write the chapters' numbers where Sphinx looks for them; returns {page: its numbers}."""
    found = {}
    for page, contents in env.tocs.items():
        number = chapter_number(page)
        if number is None:
            continue
        found[page] = {}
        for entry in contents.findall(nodes.reference):
            # the title has the empty anchor; the headings below it have no number
            own = (number,) if entry.get("anchorname") == "" else ()
            if entry.get("refuri") == page and "anchorname" in entry:
                found[page][entry["anchorname"]] = own
        for titles in (env.titles, env.longtitles):
            if page in titles:
                titles[page]["secnumber"] = (number,)
    return found


def _with_chapters(assign):
    """Sphinx's own numbering of figures and equations, once the chapters have their numbers.

    Sections are numbered before, and not here: whatever numbers them (Sphinx, Jupyter Book's
    extensions) knows counted numbers only, and would stumble over "3b".
    """

    def assign_figure_numbers(collector, env):
        before = getattr(env, "pfl_chapters", {})
        env.pfl_chapters = number_chapters(env)
        env.toc_secnumbers.update(env.pfl_chapters)
        changed = [page for page, own in env.pfl_chapters.items() if before.get(page) != own]
        return changed + assign(collector, env)

    assign_figure_numbers.with_chapters = True
    return assign_figure_numbers


def _install(app):
    from sphinx.environment.collectors.toctree import TocTreeCollector

    assign = TocTreeCollector.assign_figure_numbers
    if not hasattr(assign, "with_chapters"):
        TocTreeCollector.assign_figure_numbers = _with_chapters(assign)


def setup(app):
    app.connect("builder-inited", _install)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
