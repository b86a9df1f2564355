"""What several test files share: the built site, a real browser, and the marks `make` sorts by."""

import functools
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "tools"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_configure(config):
    config.addinivalue_line("markers", "site: needs the built book (`make site`)")
    config.addinivalue_line("markers", "notebooks: runs notebooks (`make notebooks`)")


def pytest_collection_modifyitems(items):
    """A test that asks for the built site runs after the book is built (`make site`)."""
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker("site")


def find_browser():
    """The path of a Chromium or Chrome on this machine, or None."""
    named = os.environ.get("PFL_CHROMIUM")
    mac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or (mac if Path(mac).exists() else None)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium."""
    if os.environ.get("PFL_NO_BROWSER") == "1":
        pytest.skip("PFL_NO_BROWSER=1: tests in a real browser are left out")
    path = find_browser()
    if path is None:
        pytest.fail(
            "these tests need a real browser: install Chromium or Chrome, or name one in "
            "PFL_CHROMIUM; PFL_NO_BROWSER=1 leaves them out",
            pytrace=False,
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def serve(folder):
    """Serve a folder on this machine; returns (address, stop)."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}", server.shutdown


@pytest.fixture(scope="session")
def site():
    """The address of the built book."""
    if not (HTML / "index.html").exists():
        pytest.fail("the book is not built: run `make book` first", pytrace=False)
    address, stop = serve(HTML)
    yield address
    stop()


@pytest.fixture
def open_page(browser):
    """Open pages that may reach this machine only; whatever goes wrong on one fails the test.

    Use: page = open_page(address, width=1280, dark=False).
    """
    contexts, bad = [], []

    def opener(address, width=1280, dark=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)

        def route(route):
            if route.request.url.startswith(("http://127.0.0.1:", "file:", "blob:", "data:")):
                route.continue_()
            else:
                bad.append(f"asked outside: {route.request.url}")
                route.abort()

        def response(answer):
            if answer.status >= 400 and "favicon" not in answer.url:
                bad.append(f"{answer.status}: {answer.url}")

        def console(message):
            if message.type == "error" and "favicon" not in str(message.location):
                bad.append(f"console: {message.text}")

        context.route("**/*", route)
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
