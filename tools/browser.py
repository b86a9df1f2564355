"""A real browser and a folder to show it: what the tests and the PDF share.

At its top it needs the standard library only: the tests load it where Playwright is missing too.
"""

import contextlib
import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


def find_browser():
    """The path of a Chromium or Chrome on this machine, or None."""
    named = os.environ.get("PFL_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    return found or (MAC if Path(MAC).exists() else None)


@contextlib.contextmanager
def chromium():
    """A headless Chromium, closed at the end."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        raise ValueError("needs Chromium or Chrome; name one in PFL_CHROMIUM")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serve(folder):
    """The address of a folder, served to this machine only until the end."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def wait_for_maths(page):
    """Until MathJax has set every formula of the page."""
    page.wait_for_function("window.MathJax && MathJax.startup && MathJax.startup.promise")
    page.evaluate("() => MathJax.startup.promise.then(() => 1)")
