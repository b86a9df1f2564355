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
        found = re.search(rf'id="{label}".*?caption-number">Figure (\d+)', text, re.DOTALL)
        assert found and int(found.group(1)) == number, label
