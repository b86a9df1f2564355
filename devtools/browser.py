"""A real browser, and a server for a folder: shared by the tests and the PDF.

    python -m devtools.browser      find a browser, or else install one (`make test` starts with it)

It imports only the standard library at the top, since tests load it without Playwright, too.
"""

import contextlib
import functools
import http.server
import os
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
# where Playwright puts what it downloads, below one of these folders
DOWNLOADS = ("~/.cache/ms-playwright", "~/Library/Caches/ms-playwright")
DOWNLOADED = ("chromium-*/chrome-*/chrome", "chromium-*/chrome-*/*.app/Contents/MacOS/*")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]  # this machine only
FETCH = [sys.executable, "-m", "playwright", "install", "chromium"]
QUIET = 20  # seconds without output after which a download is aborted
UPDATE, PACKAGES = 25, 600  # seconds to update the list of packages, and to install them
NONE = """\
The built book is tested in a real browser, and there is none on this machine:
{why}, and the system's
packages could not be installed. Nothing has been run. Either

    install Chromium or Chrome, or name one:   PFL_CHROMIUM=/path/to/chrome make test
    or leave the tests in a browser out:       PFL_NO_BROWSER=1 make test"""
NOWHERE = "no Chromium or Chrome was found, Playwright could not download one"
BROKEN = """\
{path}
is there and does not start (`.venv/bin/playwright install-deps chromium` as root gets
the libraries that Playwright's own needs)"""


# -------------------------------------------------------------------------------------- finding
def candidates():
    """Paths at which a Chromium or Chrome may be, the best first."""
    named = os.environ.get("PFL_CHROMIUM")
    if named:
        return [named]
    found = [*filter(None, map(shutil.which, NAMES)), MAC]
    folders = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), *DOWNLOADS]
    for folder in filter(None, folders):
        for pattern in DOWNLOADED:  # the newest first
            found += sorted(map(str, Path(folder).expanduser().glob(pattern)), reverse=True)
    return found


def starts(path):
    """Whether it starts; without its system libraries it does not."""
    try:
        command = [path, "--version"]
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@functools.cache
def find_browser():
    """The path of a Chromium or Chrome that starts on this machine, or None."""
    return next((path for path in candidates() if starts(path)), None)


# -------------------------------------------------------------------------------------- getting
def ensure():
    """Find a browser, or install one: by Playwright, or by the system's packages if allowed."""
    find_browser.cache_clear()
    for get in (lambda: None, download, packages):
        get()
        find_browser.cache_clear()
        if find_browser() or os.environ.get("PFL_CHROMIUM"):
            break
    return find_browser()


def download():
    """Download Playwright's Chromium; aborted after ``QUIET`` seconds without output."""
    print("no browser found; downloading Playwright's", flush=True)
    patience = {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": str(500 * QUIET)}  # milliseconds
    try:
        process = subprocess.Popen(
            FETCH,
            env=os.environ | patience,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what it starts can be ended with it
        )
    except OSError:
        return
    output = queue.Queue()

    def listen():
        for line in process.stdout:
            if b"retry" not in line.lower() and b"error" not in line.lower():
                output.put(line)
        output.put(None)

    threading.Thread(target=listen, daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while output.get(timeout=QUIET) is not None:
            pass
    with contextlib.suppress(OSError):
        os.killpg(process.pid, 15)
    process.wait()


def packages():
    """Install Chromium from Debian's or Ubuntu's packages, where this user may."""
    if shutil.which("apt-get") is None:
        return
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    quick = ["-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10"]
    wanted = ["-y", "--no-install-recommends", "chromium", "fonts-liberation"]
    print("no browser found; trying to install one with apt-get", flush=True)
    for command, seconds in (
        ([*root, "true"], 5),
        ([*root, "apt-get", "update", *quick], UPDATE),
        ([*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", *quick, *wanted],
         PACKAGES),
    ):  # fmt: skip
        try:
            subprocess.run(command, capture_output=True, timeout=seconds, check=True)
        except (OSError, subprocess.SubprocessError):
            return


# ---------------------------------------------------------------------------------------- using
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
    protocol_version = "HTTP/1.1"  # one connection for all files of a page

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serve(folder):
    """Serve a folder to this machine only; gives its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def wait_for_maths(page):
    """Wait until MathJax has typeset every formula of the page."""
    page.wait_for_function("window.MathJax && MathJax.startup && MathJax.startup.promise")
    page.evaluate("() => MathJax.startup.promise.then(() => 1)")


def main():
    if os.environ.get("PFL_NO_BROWSER") == "1":
        print("PFL_NO_BROWSER=1: tests in a real browser are left out")
        return 0
    found, named = ensure(), os.environ.get("PFL_CHROMIUM")
    if named and not found:
        print(f"PFL_CHROMIUM must be the path of a Chromium or Chrome that starts; got {named!r}")
    elif not found:
        there = [path for path in candidates() if Path(path).exists()]
        print(NONE.format(why=BROKEN.format(path=there[0]) if there else NOWHERE))
    else:
        print(f"browser: {found}")
    return int(not found)


if __name__ == "__main__":
    sys.exit(main())
