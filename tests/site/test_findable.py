"""Can a page be found: by search engines, in chats, by the book's own search, by citations?"""

import html
import json
import re

import pytest
import yaml
from bs4 import BeautifulSoup

import pfl_lib
from devtools import measure
from devtools.sphinxext import pfl_situations
from pfl_lib import methods
from tests.support.pages import IDS, PAGES
from tests.support.paths import HTML, ROOT


def tags(name):
    """The meta tags of a built page, by name or property."""
    text = (HTML / f"{name}.html").read_text(encoding="utf-8")
    pairs = re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', text)
    return dict(pairs)


@pytest.mark.parametrize("name", PAGES, ids=IDS)
def test_page_says_what_it_is(site, name):
    found = tags(name)
    assert 20 <= len(found["description"]) <= 165, found["description"]
    assert found["og:description"] == found["description"] and found["og:title"]
    picture = (HTML / f"{name}.html").parent / found["og:image"]
    assert picture.resolve().is_file(), "no social card"


@pytest.mark.parametrize("name", PAGES, ids=IDS)
def test_the_contents_mark_the_page_and_the_way_to_it(site, name):
    page = HTML / f"{name}.html"
    text = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    contents = text.select_one("nav.bd-docs-nav")
    if name != PAGES[0]:  # that one stands above the list
        (marked,) = contents.select("a.current")
        assert marked["href"] == "#"
        way = [tag for tag in marked.parents if tag.name == "li"]
        assert contents.select("li.current") == way[::-1]
    links = [link["href"] for link in contents.select("a.internal") if link["href"] != "#"]
    assert len(links) >= len(PAGES) - 1
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_descriptions_differ(site):
    found = [tags(name)["description"] for name in PAGES]
    assert len(set(found)) == len(found)


def test_search_knows_every_algorithm_by_name(site):
    """The title of its reference page is its label, which the search weighs most."""
    text = (HTML / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(re.fullmatch(r"Search\.setIndex\((.*)\)\s*", text, re.DOTALL).group(1))
    for method in methods.ALL:
        places = [index["docnames"][doc] for doc, _ in index["alltitles"].get(method.label, [])]
        assert f"notebooks/reference/{method.name}" in places, method.label


@pytest.mark.parametrize("name", ["heurfedamp", "fedavg-async", "plga"])
def test_search_leads_to_the_reference_page(site, open_page, name):
    label = methods.BY_NAME[name].label
    page = open_page(f"{site}/search.html?q={label}")
    page.wait_for_selector("#search-results li a")
    first = page.locator("#search-results > ul > li > a").evaluate_all(
        "links => links.slice(0, 3).map(a => a.getAttribute('href'))"
    )
    assert any(f"reference/{name}.html" in link for link in first), first


FOUND = {  # what is asked: the pages that must be among the first so many
    "sigma": (["book/notation", "notebooks/06_heurfedamp", "notebooks/04_fedamp"], 3),
    "σ": (["book/notation", "notebooks/06_heurfedamp", "notebooks/04_fedamp"], 3),
    "tau": (["book/notation", "notebooks/06_heurfedamp"], 2),
    "δ": (["book/notation", "notebooks/07_fedacs"], 2),
    "delta": (["book/notation", "notebooks/07_fedacs"], 2),
    "stragglers": (["notebooks/09_plga", "book/glossary"], 3),
    "non-IID": (["book/glossary", "notebooks/02_data"], 2),
    "client": (["book/glossary", "notebooks/01_fedavg"], 2),
    "ALA": (["notebooks/10_fedala"], 1),
    "convergence": (["notebooks/05_convergence"], 1),
    "FedALA": (["notebooks/10_fedala", "notebooks/reference/fedala"], 2),
    "FedAMP": (["notebooks/04_fedamp", "notebooks/reference/fedamp"], 6),
    "client drift": (["book/glossary", "notebooks/01_fedavg"], 3),
    "self-weight": (["book/glossary", "notebooks/06_heurfedamp"], 3),
    "privacy": (["notebooks/12_privacy"], 1),
    "BatchNorm": (["notebooks/reference/fedbn", "notebooks/own_clients"], 5),
    "how do I cite": (["book/cite"], 1),
    "how do I run it": (["book/run"], 3),
    "which method": (["notebooks/13_which"], 1),
    "newcomers": (["notebooks/own_clients", "notebooks/13_which"], 2),
    "DP": (["notebooks/12c_guarantees", "book/glossary"], 3),
    "Byzantine": (["notebooks/12b_trust"], 1),
    "label prior": (["book/glossary", "notebooks/11_family", "notebooks/reference/label-prior"], 3),
    "my own data": (["notebooks/own_clients"], 1),
    "hysteresis": (["notebooks/05b_beyond"], 1),
    "prox": (["notebooks/reference/fedprox", "notebooks/04_fedamp"], 4),
}


@pytest.mark.parametrize("query", FOUND)
def test_search_puts_the_teaching_first(site, open_page, query):
    wanted, among = FOUND[query]
    first = measure.found(open_page("about:blank"), site, query)[:among]
    assert [name for name in wanted if name not in first] == [], first


def test_a_reference_shows_what_it_refers_to(site, open_page):
    """By mouse an equation of this page, by keyboard a word of the glossary; Escape ends it."""
    page = open_page(f"{site}/notebooks/04_fedamp.html")
    tip = page.locator("#pfl-preview")
    equation = page.locator(".bd-article a.reference.internal[href^='#equation-']").first
    for _ in range(10):  # while the page still moves, the link slips away from under the mouse
        page.mouse.move(5, 5)
        equation.hover()
        page.wait_for_timeout(600)
        if tip.is_visible():
            break
    assert tip.is_visible()
    assert tip.locator("mjx-container").count() > 0
    assert equation.get_attribute("aria-describedby") == "pfl-preview"
    page.locator("a.pfl-term").first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")  # reached by keyboard, as :focus-visible asks
    page.wait_for_function("document.querySelector('#pfl-preview dd')")
    page.keyboard.press("Escape")
    tip.wait_for(state="hidden")


def test_search_shows_the_text_and_not_its_frame(site, open_page):
    page = open_page(f"{site}/search.html?q=FedALA")
    page.wait_for_selector("#search-results .context")
    shown = page.locator("#search-results .context").all_inner_texts()
    assert not [text for text in shown if "Show code cell" in text or "Print to PDF" in text]
    page = open_page(f"{site}/search.html?q=sigma")
    page.wait_for_selector("#search-results .context")
    first = page.locator("#search-results .context").first.inner_text()
    assert "σ" in first and "\\" not in first  # formulas as letters write them
    letters = page.evaluate(
        """() => Search.htmlToText('<article class="bd-article">FedALA: '
        + '<span class="math">\\\\hat\\\\Theta_i = \\\\sigma W_i</span></article>')"""
    )
    assert letters.split() == ["FedALA:", "Θ_i", "=", "σ", "W_i"]


def test_every_chapter_leads_to_its_own_situation(site, open_page):
    page = open_page(f"{site}/notebooks/12b_trust.html")
    link = page.locator(".admonition a.pfl-situation")
    words, asked = pfl_situations.SITUATIONS["12b_trust"]
    assert link.inner_text() == words
    link.click()
    page.wait_for_url(f"**/play.html#{asked}")
    state = json.loads(page.locator(".pg").get_attribute("data-state"))
    assert (state["b"], state["liar"]) == ("fedamp", 5)
    chapters = [*(ROOT / "notebooks").glob("[01]*.ipynb")]
    chapters += [ROOT / "notebooks" / name for name in ("network.ipynb", "own_clients.ipynb")]
    assert {path.stem for path in chapters} == set(pfl_situations.SITUATIONS)
    for name, (_, asked) in pfl_situations.SITUATIONS.items():
        text = (HTML / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert f'href="play.html#{html.escape(asked)}"' in text, name


def test_the_book_can_be_cited_by_machines(site):
    found = tags("book/cite")
    assert found["citation_title"] and found["citation_author"]


# -------------------------------------------------------------------------- citations, no site
def test_citation_file_is_sound():
    """The keys that the Citation File Format 1.2.0 asks for, and none it does not know."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    needed = {"cff-version", "message", "title", "authors"}
    known = needed | {"abstract", "type", "version", "license", "keywords", "date-released", "url"}
    known |= {"doi", "repository-code", "references", "preferred-citation", "identifiers"}
    assert needed <= set(citation) <= known
    assert citation["cff-version"] == "1.2.0" and citation["type"] in ("software", "dataset")
    for author in citation["authors"]:
        assert "name" in author or {"family-names", "given-names"} <= set(author)


def test_bibtex_of_the_book_is_that_of_the_citation_file():
    from pybtex.database import parse_file

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    entry = parse_file(str(ROOT / "book" / "cite.bib")).entries["pfl_lib"]
    assert entry.fields["title"] == citation["title"]
    assert entry.fields["version"] == pfl_lib.__version__
    assert citation["authors"][0]["name"].replace("_", r"\_") in str(entry.persons["author"][0])


def test_the_cite_page_shows_the_five_papers():
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    shown = text.split("% The five papers of this book")[1]
    shown = shown.split("% Federated learning: one model for all")[0]
    assert len(re.findall(r"^@", shown, re.MULTILINE)) == 5
