"""Every page of the built book for everyone: axe-core by day and by night, and the keyboard.

axe-core is vendored in tests/site/vendor/axe (devtools/vendor.sh); no page loads it.
"""

import pytest

from devtools import chapters, formula_sheet, slides
from tests.support.pages import IDS, PAGES, settled
from tests.support.paths import ROOT

AXE = (ROOT / "tests" / "site" / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
# What repeats is checked once: formulas (test_site hears them), each kind of token in code.
LOOK_ONCE = """() => {
  document.querySelectorAll('mjx-container').forEach(e => e.replaceWith('formula'));
  const seen = new Set();
  document.querySelectorAll('.highlight span').forEach(e => {
    const key = e.className + (e.closest('.cell_output, .cell_input')?.className || '');
    if (seen.has(key)) e.replaceWith(...e.childNodes); else seen.add(key);
  });
}"""
# serious and critical ones, and some that axe calls moderate; not Sphinx's own way to break a long
# signature into lines (a list in the term), and not that a mark in a drawing has a longer name
# than the letter it shows
VIOLATIONS = """(more) => axe.run({exclude: [['dt.sig dl']]}, {resultTypes: ['violations'], ...more,
    rules: {'label-content-name-mismatch': {enabled: false}, ...more.rules}})
  .then(result => result.violations
    .filter(v => ['serious', 'critical'].includes(v.impact)
      || ['heading-order', 'skip-link', 'page-has-heading-one'].includes(v.id))
    .map(v => `${v.id} (${v.impact}): ` + v.nodes.slice(0, 3).map(n => n.target.join(' '))))"""
AT_ONCE = "*, *::before, *::after { transition: none !important }"  # half-faded colours are none
COLORS = {"runOnly": ["color-contrast", "link-in-text-block"]}  # all that differs by night
# axe looks at every word for longer than at all the rest: test_site measures the text of every
# page, by day and by night, and axe what surrounds it, on a page of each kind
NO_COLORS = {"rules": {"color-contrast": {"enabled": False}}}
KINDS = ["book/intro", "notebooks/play", "notebooks/04_fedamp", "notebooks/experiments/fedala_main"]
KINDS += ["book/api/federation", "book/glossary", "book/teaching"]
THE_REST = ["search.html", "genindex.html", f"teaching/{formula_sheet.NAME}"]
THE_REST += [f"teaching/{slides.file_name(part)}" for part in chapters.parts()]


@pytest.fixture(scope="module")
def tab(browser):
    """One tab for all pages: what they share is loaded once."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield context.new_page()
    context.close()


def look(tab, address):
    tab.emulate_media(color_scheme="light")
    tab.goto(address)
    settled(tab)
    tab.add_style_tag(content=AT_ONCE)
    tab.evaluate(LOOK_ONCE)
    tab.evaluate(AXE)


@pytest.mark.parametrize("name", PAGES, ids=IDS)
def test_page_is_accessible(site, tab, name):
    look(tab, f"{site}/{name}.html")
    assert tab.evaluate(VIOLATIONS, NO_COLORS) == []


@pytest.mark.parametrize("name", KINDS)
def test_colours_can_be_read(site, tab, name):
    look(tab, f"{site}/{name}.html")
    assert tab.evaluate(VIOLATIONS, COLORS) == [], "in light mode"
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert tab.evaluate(VIOLATIONS, COLORS) == [], "in dark mode"


@pytest.mark.parametrize("name", [*KINDS, "book/notation"])
def test_a_phone_is_accessible_too(site, tab, name):
    """There formulas, printed tables and code are wider than the page and scroll."""
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.emulate_media(color_scheme="light")
    tab.goto(f"{site}/{name}.html")
    settled(tab)
    tab.evaluate(AXE)
    found = tab.evaluate(VIOLATIONS, NO_COLORS)
    tab.set_viewport_size({"width": 1280, "height": 900})
    assert found == []


@pytest.mark.parametrize("name", THE_REST)
def test_what_is_no_page_of_the_book_is_accessible(site, tab, name):
    look(tab, f"{site}/{name}")
    assert tab.evaluate(VIOLATIONS, {}) == []


def test_axe_would_see_what_is_wrong(tab):
    """A green result must mean something."""
    tab.set_content('<html lang="en"><title>t</title><main><h1>a</h1><img src="data:,">')
    tab.evaluate(AXE)
    assert any("image-alt" in found for found in tab.evaluate(VIOLATIONS, {}))
    tab.set_content(
        '<html lang="en"><title>t</title><main><h1>a</h1><p style="color: #aaa">pale</p>'
    )
    tab.evaluate(AXE)
    assert any("contrast" in found for found in tab.evaluate(VIOLATIONS, COLORS))


def test_keyboard_sees_where_it_is_and_can_skip_the_menu(site, open_page):
    page = open_page(f"{site}/{PAGES[0]}.html")
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert "skip" in skip.inner_text().lower() and skip.is_visible()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main-content"
    page.reload()
    marked = 0
    for _ in range(25):
        page.keyboard.press("Tab")
        style = page.evaluate(
            """() => {
              const e = document.activeElement, s = getComputedStyle(e);
              return [e === document.body, s.outlineStyle, parseFloat(s.outlineWidth),
                e.outerHTML.slice(0, 90)];
            }"""
        )
        if not style[0]:
            assert style[1] != "none" and style[2] >= 2, style
            marked += 1
    assert marked >= 20
