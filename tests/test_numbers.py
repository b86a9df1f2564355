"""Chapters have numbers, and their equations, figures and theorems are numbered by them."""

import re

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from devtools import chapters
from devtools.sphinxext.pfl_numbers import chapter_number
from tests.support.paths import ROOT

PAGES = {
    "index": """\
# Book

```{toctree}
plain
notebooks/03b_second
notebooks/04_third
last
```
""",
    "plain": "# A page\n\n$$\na\n$$ (eq-a)\n\nSee {eq}`eq-c` and {numref}`fig-c`.\n",
    "notebooks/03b_second": "# Second\n\n## Below\n\n$$\nb\n$$ (eq-b)\n\nSee {eq}`eq-a`.\n",
    "notebooks/04_third": """\
# Third

$$
c
$$ (eq-c)

## Deep

### Deeper

$$
d
$$ (eq-d)

```{figure} dot.svg
:name: fig-c

A dot.
```

See {eq}`eq-d` and {eq}`eq-b`.
""",
    "last": "# The last\n\n$$\ne\n$$ (eq-e)\n",
}
SETTINGS = {
    "extensions": ["myst_parser", "pfl_numbers"],
    "myst_enable_extensions": ["dollarmath"],
    "numfig": True,
    "numfig_format": {"figure": "Figure %s"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A small book."""
    monkeypatch.syspath_prepend(str(ROOT / "devtools" / "sphinxext"))
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "dot.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    for name, text in PAGES.items():
        (tmp_path / f"{name}.md").write_text(text)
    return tmp_path


def built(folder, builder="html"):
    """{page: its text}, built by two processes that share the pages; again builds what changed."""
    out = folder / builder
    with docutils_namespace():
        app = Sphinx(folder, None, out, folder / "trees", builder, SETTINGS, status=None,
                     warningiserror=True, parallel=2)  # fmt: skip
        app.build()
    assert app.statuscode == 0
    return {
        path.relative_to(out).with_suffix("").as_posix(): path.read_text()
        for path in out.rglob("*.html")
    }


def beside(text):
    """The numbers that stand beside the equations of a page."""
    return re.findall(r'<span class="eqno">\((.*?)\)', text)


def referred(text):
    """The numbers by which a page refers to equations."""
    return re.findall(r'<a class="reference internal" href="[^"]*#equation[^"]*">\((.*?)\)', text)


def test_numbers_stand_beside_equations_and_wherever_one_refers_to_them(folder):
    pages = built(folder)
    third = pages["notebooks/04_third"]
    assert beside(third) == ["4.1", "4.2"] and referred(third) == ["4.2", "3b.1"]
    assert beside(pages["plain"]) == ["1"] and referred(pages["plain"]) == ["4.1"]
    assert beside(pages["last"]) == ["2"], "pages without a number share a count"
    assert '<span class="caption-number">Figure 4.1' in third and "Figure 4.1" in pages["plain"]


def test_a_title_has_its_number_and_the_headings_below_it_have_none(folder):
    pages = built(folder)
    assert '<h1><span class="section-number">4. </span>Third' in pages["notebooks/04_third"]
    assert "<h2>Deep<" in pages["notebooks/04_third"]
    assert "<h3>Deeper<" in pages["notebooks/04_third"]
    assert "4. </span>Third" in pages["notebooks/03b_second"], "in the link to the next page"


def test_one_equation_more_changes_pages_that_are_not_read_again(folder):
    built(folder)
    path = folder / "notebooks" / "04_third.md"
    path.write_text(
        PAGES["notebooks/04_third"].replace("# Third", "# Third\n\n$$\nf\n$$ (eq-f)", 1)
    )
    pages = built(folder)
    assert beside(pages["notebooks/04_third"]) == ["4.1", "4.2", "4.3"]
    assert referred(pages["notebooks/04_third"]) == ["4.3", "3b.1"]
    (folder / "plain.md").write_text(PAGES["plain"].replace("eq-c", "eq-d"))
    assert referred(built(folder)["plain"]) == ["4.3"], "the chapter itself was not read again"


def test_on_one_long_page_the_numbers_are_the_same(folder):
    text = built(folder, "singlehtml")["index"]
    assert beside(text) == ["1", "3b.1", "4.1", "4.2", "2"]
    assert "4. </span>Third" in text


def test_chapters_are_numbered_as_their_files():
    assert chapter_number("notebooks/04_fedamp") == "4"
    assert chapter_number("notebooks/03b_judging") == "3b"
    assert chapter_number("notebooks/10_fedala") == "10"
    assert chapter_number("notebooks/network") == "12d"
    assert chapter_number("notebooks/speed") is None
    assert chapter_number("notebooks/experiments/own_edge") is None
    found = [number for page in chapters.in_order() if (number := chapter_number(page))]
    assert found == sorted(set(found), key=lambda n: (int(re.sub(r"\D", "", n)), n))


def test_tools_count_as_the_site_does():
    where = {"e": "book/about", "b": "notebooks/03b_judging", "c": "notebooks/04_fedamp",
             "d": "notebooks/04_fedamp", "a": "notebooks/play"}  # fmt: skip
    numbers = {label: number for label, (_, number) in chapters.counted(where.items()).items()}
    assert numbers == {"a": "1", "b": "3b.1", "c": "4.1", "d": "4.2", "e": "2"}
