"""The built book in a real browser, with everything but this machine blocked."""

import html
import re

import nbformat
import pytest

from devtools import chapters, links
from tests.support.pages import IDS, PAGES, settled
from tests.support.paths import HTML, ROOT

WIDER_THAN_THE_SCREEN = """() => [...document.querySelectorAll('main *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5)
  .map(e => e.tagName + '.' + e.className)"""

# Text against the nearest solid colour behind it, by the formula of the WCAG.
LOW_CONTRAST = """() => {
  const parse = c => { const p = (c.match(/[\\d.]+/g) || []).map(Number);
    const u = c.startsWith('color(srgb') ? 255 : 1;
    return [p[0] * u, p[1] * u, p[2] * u, p[3] ?? 1]; };
  const light = c => { const [r, g, b] = c.map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c; }
    return [255, 255, 255, 1]; };
  const bad = new Set();
  const walker = document.createTreeWalker(
    document.querySelector('article') || document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (!node.textContent.trim() || !e.offsetParent || e.closest('svg, mjx-container')) continue;
    const style = getComputedStyle(e), back = behind(e), front = parse(style.color);
    if (style.visibility === 'hidden' || style.opacity === '0') continue;
    const a = light(front.slice(0, 3).map((v, k) => front[3] * v + (1 - front[3]) * back[k]));
    const b = light(back.slice(0, 3));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2) + ' '
      + node.textContent.trim().slice(0, 30));
  }
  return [...bad].slice(0, 10);
}"""


def described(name):
    """The words of every figure that the notebook of this page means to draw."""
    path = ROOT / f"{name}.ipynb"
    if not path.exists():
        return []
    cells = nbformat.read(path, as_version=4).cells
    # a figure of stored results is drawn once there are some
    cells = [cell for cell in cells if "needs-results" not in cell.metadata.get("tags", [])]
    images = [cell.metadata.get("mystnb", {}).get("image", {}) for cell in cells]
    return [image["alt"] for image in images if "alt" in image]


SILENT_IMAGES = """() => [...document.querySelectorAll('article img')]
  .filter(i => !i.alt.trim() || /_images|\\.(png|svg|jpe?g)$/.test(i.alt)).map(i => i.src)"""
BROKEN_IMAGES = """() => [...document.querySelectorAll('article img')]
  .filter(i => i.loading !== 'lazy' && !i.naturalWidth).map(i => i.src)"""


@pytest.mark.parametrize("name", PAGES, ids=IDS)
def test_page(site, open_page, name):
    """One visit: works with no internet, fits desk and phone, reads well by day and by night."""
    page = settled(open_page(f"{site}/{name}.html", width=1280))
    assert page.locator("mjx-merror").count() == 0, "maths that MathJax could not read"
    if page.locator("article .math").count():
        assert page.locator("mjx-container").count() > 0, "maths that was not typeset"
        assert page.locator("mjx-assistive-mml").count() > 0, "maths that is silent"
    assert page.evaluate(SILENT_IMAGES) == [], "images without words for those who cannot see them"
    assert page.evaluate(BROKEN_IMAGES) == []
    shown = page.evaluate("[...document.querySelectorAll('article img')].map(i => i.alt)")
    assert [words for words in described(name) if words not in shown] == [], "figures not drawn"
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not too_wide, f"scrolls sideways: {page.evaluate(WIDER_THAN_THE_SCREEN)}"
    for mode in ("light", "dark"):
        page.emulate_media(color_scheme=mode)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{mode}'")
        page.wait_for_timeout(200)  # colours fade in
        assert page.evaluate(LOW_CONTRAST) == [], f"hard to read in {mode} mode"


def test_chapters_show_their_number_above_the_text_and_in_the_contents(site):
    numbered = {page: chapters.chapter_number(page) for page in PAGES}
    contents = (HTML / "notebooks" / "play.html").read_text(encoding="utf-8")
    for page, number in numbered.items():
        text = (HTML / f"{page}.html").read_text(encoding="utf-8")
        title = html.escape(chapters.page_title(page), quote=False)
        headings = re.findall(r'<(h\d)><span class="section-number">(.*?)</span>', text)
        assert headings == ([("h1", f"{number}. ")] if number else []), page
        if number:
            assert f'<span class="pfl-chapter">{number}</span> {title}</a>' in contents, page


def test_search_finds_fedamp(site, open_page):
    page = open_page(f"{site}/search.html?q=FedAMP")
    page.wait_for_selector("#search-results li a")
    assert page.locator("#search-results li a").count() > 0


def test_every_internal_link_leads_somewhere(site):
    assert links.broken_inside() == []


@pytest.mark.parametrize(
    "name", ["notebooks/reference/fedamp", "notebooks/experiments/fedala_main"]
)
def test_tables_of_up_to_seven_columns_fit_a_desk(site, open_page, name):
    page = open_page(f"{site}/{name}.html", width=1280)
    boxes = page.locator(".bd-article :is(.pst-scrollable-table-container, [role=region])")
    assert boxes.count() > 2
    assert page.locator(".pfl-goes-on").count() == 0


def test_a_table_that_goes_on_fades_until_its_end_is_reached(site, open_page):
    page = open_page(f"{site}/notebooks/results.html", width=390)
    box = page.locator(".pfl-goes-on").first
    assert "gradient" in box.evaluate("e => getComputedStyle(e).maskImage")
    box.evaluate("e => { e.dataset.tried = ''; e.scrollLeft = e.scrollWidth; }")
    page.wait_for_function("!document.querySelector('[data-tried]').matches('.pfl-goes-on')")
    page.emulate_media(media="print")
    faded = page.locator(".pfl-goes-on").first.evaluate("e => getComputedStyle(e).maskImage")
    assert faded == "none", "paper cannot scroll: nothing fades there"


def test_on_a_phone_printed_columns_stay_columns(site, open_page):
    """A table of text scrolls, also by keyboard; a printed sentence wraps."""
    page = open_page(f"{site}/notebooks/play.html", width=390)
    table, words = (page.locator(".cell_output pre").nth(k) for k in (-2, -1))
    box = "pre => [pre.scrollWidth > pre.clientWidth, pre.tabIndex]"
    page.wait_for_function("document.querySelector('pre.pfl-columns').tabIndex === 0")
    assert "separate" in table.inner_text() and table.evaluate(box) == [True, 0]
    assert "half-way" in words.inner_text() and words.evaluate(box) == [False, -1]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
