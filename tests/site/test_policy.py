"""Every page has a strict content security policy, and a browser keeps it.

That the pages still work under it is what all the other tests of this folder see: ``open_page``
fails on any error in the console, and a refused script is one.
"""

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
    page = browser.new_page()
    refused = []
    page.on("console", lambda m: refused.append(m.text) if "Content Security" in m.text else None)
    page.goto(f"{site}/{name}")
    page.evaluate(INJECT)
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    assert len(refused) >= 3, refused
    page.close()
