"""How much a reader has to load, and what readers see who arrive on another page."""

import re
import urllib.request

import matplotlib.pyplot as plt
import pytest
from PIL import Image, ImageChops

from devtools import measure
from devtools.sphinxext import pfl_light
from tests.support.paths import HTML

MOST = 1_000_000  # bytes of a first visit, compressed as web servers do


@pytest.mark.parametrize("name", measure.HEAVY)
def test_a_first_visit_is_light(site, open_page, name):
    sizes = measure.visit(open_page("about:blank"), f"{site}/{name}.html")
    loaded = {path: wire for path, (wire, _) in sizes.items()}
    heaviest = sorted(loaded.items(), key=lambda item: -item[1])[:5]
    print(name, sum(loaded.values()), heaviest)
    assert sum(loaded.values()) < MOST, heaviest
    assert not [path for path in loaded if path.endswith(".woff2") or "fontawesome.js" in path]
    text = (HTML / f"{name}.html").read_text(encoding="utf-8")
    assert ("mathjax" in " ".join(loaded)) == ('class="math' in text)
    assert "widget-state" not in text


def test_figures_weigh_a_third_and_look_the_same(tmp_path):
    figure, axes = plt.subplots(1, 2)
    for shade in range(9):
        axes[0].plot([0, 1], [shade, 2 * shade], color=plt.cm.viridis(shade / 9))
    axes[1].imshow([[i * j for i in range(40)] for j in range(40)])
    axes[1].plot(3, 3, "r.")  # a colour of few pixels stays
    path, before = tmp_path / "figure.png", tmp_path / "before.png"
    for place in (path, before):
        figure.savefig(place)
    plt.close(figure)
    pfl_light.fewer_colors(path)
    assert path.stat().st_size < 0.7 * before.stat().st_size
    with Image.open(path) as few, Image.open(before) as many:
        apart = ImageChops.difference(few.convert("RGB"), many.convert("RGB"))
    assert max(high for _, high in apart.getextrema()) < 30
    held = path.read_bytes()
    pfl_light.fewer_colors(path)  # once is enough
    assert path.read_bytes() == held


def test_a_picture_that_can_be_seen_through_stays_as_it_is(tmp_path):
    path = tmp_path / "glass.png"
    Image.new("RGBA", (8, 8), (255, 0, 0, 100)).save(path)
    held = path.read_bytes()
    pfl_light.fewer_colors(path)
    assert path.read_bytes() == held


def test_icons_are_in_the_page(site, open_page):
    page = open_page(f"{site}/book/notation.html")
    assert page.locator(":is(i, span)[class*='fa-']").count() == 0
    assert page.locator("svg.svg-inline--fa").count() > 3
    bars = page.locator(".theme-switch:visible").first.bounding_box()
    assert 8 < bars["height"] < 30


def test_on_a_phone_the_contents_can_be_seen_and_opened(site, open_page):
    page = open_page(f"{site}/notebooks/04_fedamp.html", width=390)
    for toggle, contents in (
        ("primary-toggle", ".bd-sidebar-primary nav.bd-links"),
        ("secondary-toggle", ".bd-sidebar-secondary nav"),
    ):
        button = page.locator(f"button.{toggle}")
        drawn = button.locator("svg path").bounding_box()
        assert 10 < drawn["width"] < 30 and drawn["height"] > 8  # three bars, not an empty field
        button.click()
        page.locator(contents).first.wait_for()
        page.keyboard.press("Escape")
        page.locator(contents).first.wait_for(state="hidden")


def test_on_a_phone_nothing_lies_on_the_page_when_one_scrolls_back(site, open_page):
    page = open_page(f"{site}/notebooks/04_fedamp.html", width=390, still=True)
    for way in (3000, -600, -300):
        page.evaluate(f"scrollBy(0, {way})")
        page.wait_for_timeout(250)
    assert not page.locator("#pst-back-to-top").is_visible()


def test_after_a_search_without_matches_there_is_nothing_to_hide(site, open_page):
    page = open_page(f"{site}/search.html?q=qwertyu")
    page.wait_for_function("localStorage.getItem('sphinx_highlight_terms')")
    page.goto(f"{site}/index.html")
    page.wait_for_selector(".highlight-link", state="attached")
    assert not page.locator(".highlight-link").is_visible()


def test_the_front_door_is_the_welcome_itself(site, open_page):
    """No redirect: what a link checker or a chat sees at the root is the page."""
    with urllib.request.urlopen(f"{site}/") as answer:
        text = answer.read().decode()
    assert "og:title" in text and 'http-equiv="refresh"' not in text
    (card,) = re.findall(r'property="og:image" content="([^"]+)"', text)
    assert (HTML / card).resolve().is_relative_to(HTML) and (HTML / card).is_file()
    page = open_page(f"{site}/")
    page.locator("nav.bd-links a", has_text="Play").first.click()
    page.wait_for_url("**/notebooks/play.html")


def test_a_lost_reader_finds_a_door(site, open_page):
    text = (HTML / "404.html").read_text(encoding="utf-8")
    for door in ("/index.html", "/notebooks/play.html", "/search.html"):
        assert f'href="{door}"' in text and (HTML / door[1:]).is_file()


def test_contents_show_the_numbers_of_chapters(site, open_page):
    page = open_page(f"{site}/notebooks/04_fedamp.html")
    shown = page.locator("nav.bd-links .pfl-chapter").all_text_contents()
    numbers = [int(number.rstrip("abcd")) for number in shown]  # "3b" follows "3"
    assert numbers == sorted(numbers) and set(numbers) == set(range(1, 14))
    assert "3b" in shown and len(set(shown)) == len(shown)


def test_a_page_that_was_not_written_anew_keeps_its_numbers():
    entry = '<li class="toctree-l1{}"><a class="reference internal" href="{}">FedAMP</a></li>'
    page = entry.format("", "04_fedamp.html") + entry.format(" current active", "#")
    once = pfl_light.with_numbers(page, "notebooks/05b_beyond")
    assert re.findall(r'pfl-chapter">(\w+)<', once) == ["4", "5b"]
    assert pfl_light.with_numbers(once, "notebooks/05b_beyond") == once
    page = entry.format("", "../notebooks/network.html") + entry.format("", "api/index.html")
    assert re.findall(r'pfl-chapter">(\w+)<', pfl_light.with_numbers(page, "book/about")) == ["12d"]


@pytest.mark.parametrize(
    "name", ["notebooks/12_privacy", "notebooks/reference/plga", "book/errata"]
)
def test_contents_are_short_and_show_where_one_is(site, open_page, name):
    page = open_page(f"{site}/{name}.html")
    assert 20 <= page.locator("nav.bd-links li.toctree-l1").count() <= 29
    second = page.locator("nav.bd-links li.toctree-l1 > a").nth(1).inner_text()
    assert second.strip() == "Play"
    page.wait_for_timeout(300)
    seen = page.evaluate("""() => {
      const all = document.querySelectorAll('.bd-sidebar-primary li.current > a.reference'),
        here = [...all].at(-1),
        line = here.getBoundingClientRect();
      return [here.getAttribute('href'), line.top >= 0 && line.bottom <= innerHeight];
    }""")
    assert seen == ["#", True]


def test_print_is_black_on_white(site, open_page):
    page = open_page(f"{site}/notebooks/04_fedamp.html", dark=True)
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    page.emulate_media(media="print", color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    page.emulate_media(media="screen", color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")


def test_on_paper_the_first_page_begins_with_its_sentence(site, open_page):
    page = open_page(f"{site}/index.html", still=True)
    page.emulate_media(media="print")
    assert not page.locator("#jb-print-docs-body").is_visible()
    assert page.locator(".pfl-hero .rubric").is_visible()
    page = open_page(f"{site}/book/notation.html")  # other pages print their title and contents
    page.emulate_media(media="print")
    assert page.locator("#jb-print-docs-body").is_visible()
