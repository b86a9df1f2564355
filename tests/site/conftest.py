"""The built site and a real browser."""

import functools
import os

import pytest

from devtools.browser import chromium, find_browser, serve
from tests.support.paths import HTML


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium.

    It does not keep the pages' content security policy, unless a test says ``bypass_csp=False``:
    Playwright waits for an expression by ``eval``, which the policy forbids.
    """
    if os.environ.get("PFL_NO_BROWSER") == "1":
        pytest.skip("PFL_NO_BROWSER=1: tests in a real browser are left out")
    if find_browser() is None:
        pytest.fail(
            "these tests need a real browser: install Chromium or Chrome, or name one in "
            "PFL_CHROMIUM; PFL_NO_BROWSER=1 leaves them out",
            pytrace=False,
        )
    with chromium() as running:
        for name in ("new_context", "new_page"):
            setattr(running, name, functools.partial(getattr(running, name), bypass_csp=True))
        yield running


@pytest.fixture(scope="session")
def site():
    """The address of the built book."""
    if not (HTML / "index.html").exists():
        pytest.fail("the book is not built: run `make book` first", pytrace=False)
    with serve(HTML) as address:
        yield address


@pytest.fixture
def open_page(browser):
    """Open pages that may reach this machine only; whatever goes wrong on one fails the test.

    Use: page = open_page(address, width=1280, dark=False, still=False), ``still``: without motion.
    """
    contexts, bad = [], []

    def opener(address, width=1280, dark=False, still=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
        )
        contexts.append(context)

        def request(asked):  # listened to, not routed: a route takes the browser's cache away
            if not asked.url.startswith(("http://127.0.0.1:", "file:", "blob:", "data:")):
                bad.append(f"asked outside: {asked.url}")

        def response(answer):
            if answer.status >= 400 and "favicon" not in answer.url:
                bad.append(f"{answer.status}: {answer.url}")

        def console(message):
            if message.type == "error" and "favicon" not in str(message.location):
                bad.append(f"console: {message.text}")

        context.on("request", request)
        page = context.new_page()
        page.on("pageerror", lambda error: bad.append(f"page error: {error}"))
        page.on("response", response)
        page.on("console", console)
        page.goto(address)
        return page

    yield opener
    for context in contexts:
        context.close()
    assert bad == []
