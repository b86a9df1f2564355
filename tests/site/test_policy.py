"""Every page has a strict content security policy, a browser keeps it, and the pages still work."""

import re

import pytest

from tests.support.paths import HTML

INJECT = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = 'a script'";
  const other = document.createElement("script");
  other.src = "http://127.0.0.1:9/elsewhere.js";
  const image = document.createElement("div");
  image.innerHTML = '<img src="data:," onerror="window.ran = 1">';
  document.body.append(script, other, image);
}"""


def test_every_page_has_one_and_none_allows_scripts_at_large():
    pages = [path for path in HTML.rglob("*.html") if "_static" not in path.parts]
    assert len(pages) > 50
    for path in pages:
        found = re.findall(r'Content-Security-Policy" content="([^"]*)"', path.read_text("utf-8"))
        assert len(found) == 1, path
        rules = {rule.split()[0]: rule.split()[1:] for rule in found[0].split("; ")}
        assert rules["default-src"] == ["'none'"], path
        loose = {"'unsafe-inline'", "'unsafe-eval'", "*", "http:", "https:", "data:", "blob:"}
        assert not loose & set(rules["script-src"]), path


@pytest.mark.parametrize("name", ["index.html", "notebooks/12_privacy.html"])
def test_a_script_that_was_not_there_when_the_book_was_built_does_not_run(browser, site, name):
    page = browser.new_page(bypass_csp=False)
    refused = []
    page.on("console", lambda m: refused.append(m.text) if "Content Security" in m.text else None)
    page.goto(f"{site}/{name}")
    page.evaluate(INJECT)
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    assert len(refused) >= 3, refused
    page.close()


def test_nothing_of_ours_is_refused(browser, site):
    """One page of every kind, scrolled through, so that what starts when it is seen starts."""
    names = ["index", "search", "book/intro", "book/notation", "book/teaching", "book/api/index"]
    notebooks = ["play", "explorers", "results", "speed", "04_fedamp", "05b_beyond", "12_privacy"]
    names += [f"notebooks/{name}" for name in (*notebooks, "reference/fedamp")]
    page, refused = browser.new_page(bypass_csp=False), []
    page.on("console", lambda m: refused.append(m.text) if "Content Security" in m.text else None)
    page.on("pageerror", lambda error: refused.append(str(error)))
    for name in names:
        page.goto(f"{site}/{name}.html")
        for share in (0.3, 0.6, 1):
            page.evaluate("share => scrollTo(0, share * document.body.scrollHeight)", share)
            page.wait_for_timeout(120)
        assert refused == [], name
    page.close()
