"""The drawn figures in a real browser, and as the built book numbers them."""

import re

import pytest

from devtools import reader
from pfl_lib.book import draw
from tests.support.paths import HTML

TEXTS = """() => [...document.querySelectorAll('.drawn svg')].flatMap(svg => {
  const frame = svg.viewBox.baseVal, bad = [], name = svg.querySelector('title').textContent;
  const texts = [...svg.querySelectorAll('text')].map(t => [t.getBBox(), t.textContent]);
  texts.forEach(([a, words], k) => {
    if (a.x < 0 || a.y < 0 || a.x + a.width > frame.width || a.y + a.height > frame.height + 1)
      bad.push(name + ': leaves the frame: ' + words);
    for (const [b, others] of texts.slice(k + 1)) {
      const wide = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const high = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      if (wide > 1 && high > 4) bad.push(name + ': ' + words + ' lies on ' + others);
    }
  });
  return bad;
})"""


@pytest.mark.parametrize("font", ["Arial, sans-serif", "'DejaVu Sans', sans-serif"])
def test_no_words_leave_their_frame_or_lie_on_others(browser, font):
    """In a real browser, in a usual font and in a wide one."""
    page = browser.new_page(viewport={"width": 390, "height": 800})
    shown = "".join(draw.html(name) for name in draw.FIGURES)
    page.set_content(f"<style>{draw.css()} body {{font-family: {font}}}</style>{shown}")
    assert page.evaluate(TEXTS) == []
    page.close()


def test_figures_have_the_numbers_of_the_site(site):
    for label, (page, number) in reader.figures().items():
        text = (HTML / f"{page}.html").read_text(encoding="utf-8")
        found = re.search(rf'id="{label}".*?caption-number">Figure ([\w.]+)', text, re.DOTALL)
        assert found and found.group(1) == number, label


# ---- a derivation whose picture goes with the reader ------------------------------------------

SEEN = """() => [...document.querySelectorAll('.pfl-stage:not([hidden]) .pfl-seen title')]
  .map((t) => t.textContent.slice(0, 6))"""


def at_step(page, step):
    heading = page.locator(".bd-article h3", has_text=f"Step {step}:")
    heading.evaluate("h => scrollTo(0, h.getBoundingClientRect().top + scrollY - 200)")
    page.wait_for_timeout(150)


def test_the_picture_in_the_margin_changes_as_one_reads(site, open_page):
    page = open_page(f"{site}/notebooks/04_fedamp.html")
    assert page.evaluate(SEEN) == [], "not before the derivation"
    for step, shown in ((1, 1), (3, 3), (5, 5), (6, 5), (7, 7), (2, 2)):
        at_step(page, step)
        assert page.evaluate(SEEN) == [f"Step {shown}"]
        box = page.locator(".pfl-stage").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] < 900 and box["width"] > 225
    assert page.locator("figure[id^=fig-story] svg").count() == 6


def test_on_a_phone_each_picture_stands_at_its_step(site, open_page):
    page = open_page(f"{site}/notebooks/04_fedamp.html", width=390)
    place = page.locator("h3:has-text('Step 5:') + .pfl-step svg title")
    assert place.text_content().startswith("Step 5")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("figure[id^=fig-story] svg").count() == 6, "on paper all stand together"


@pytest.mark.parametrize("options", [{"java_script_enabled": False}, {"reduced_motion": "reduce"}])
def test_without_scripts_or_motion_the_pictures_stand_still(site, browser, options):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    page = context.new_page()
    page.goto(f"{site}/notebooks/04_fedamp.html")
    assert page.locator("figure[id^=fig-story] svg:visible").count() == 6
    assert page.locator(".pfl-stage").count() == 0
    context.close()


def test_by_night_a_plotted_figure_is_one_card(site, open_page):
    """White around it as within it, dimmed as a whole: no frame of another grey."""
    page = open_page(f"{site}/notebooks/04_fedamp.html", dark=True)
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    look = "img => [getComputedStyle(img).backgroundColor, getComputedStyle(img).filter]"
    shown = page.locator(".cell_output figure img").first.evaluate(look)
    assert shown == ["rgb(255, 255, 255)", "brightness(0.86)"]
