"""A browser is found, or fetched, or its absence is reported at once; on simulated machines."""

import os
import sys
import time

import pytest

from devtools import browser

WORKS = "#!/bin/sh\necho Chromium 1.2.3\n"
BROKEN = "#!/bin/sh\necho error while loading shared libraries >&2\nexit 127\n"


def program(path, text=WORKS):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An empty machine: nothing on PATH, nothing downloaded, and no way to get anything."""
    for name in ("PFL_CHROMIUM", "PFL_NO_BROWSER", "PLAYWRIGHT_BROWSERS_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(browser, "MAC", str(tmp_path / "no such thing"))
    monkeypatch.setattr(browser, "FETCH", ["/bin/sh", "-c", "echo no network; exit 1"])
    browser.find_browser.cache_clear()
    yield tmp_path
    browser.find_browser.cache_clear()


def test_a_browser_on_the_path_is_taken(machine, capsys):
    found = program(machine / "bin" / "google-chrome")
    assert browser.main() == 0
    assert capsys.readouterr().out == f"browser: {found}\n"


def test_one_that_was_downloaded_is_taken(machine):
    old = program(machine / ".cache/ms-playwright/chromium-1100/chrome-linux/chrome")
    new = program(machine / ".cache/ms-playwright/chromium-1200/chrome-linux/chrome")
    assert browser.ensure() == new != old


def test_one_that_does_not_start_is_passed_over(machine):
    program(machine / "bin" / "chromium", BROKEN)
    found = program(machine / "bin" / "google-chrome")
    assert browser.ensure() == found


def test_the_one_that_is_named_is_taken_or_nothing(machine, monkeypatch, capsys):
    program(machine / "bin" / "chromium")
    named = program(machine / "mine")
    monkeypatch.setenv("PFL_CHROMIUM", named)
    assert browser.ensure() == named
    monkeypatch.setenv("PFL_CHROMIUM", "/no/such/file")
    assert browser.main() == 1
    printed = capsys.readouterr().out
    assert printed == (
        "PFL_CHROMIUM must be the path of a Chromium or Chrome that starts; got '/no/such/file'\n"
    )


def test_playwright_downloads_one(machine, monkeypatch):
    place = machine / ".cache/ms-playwright/chromium-1200/chrome-linux/chrome"
    fetch = f"import pathlib, sys; p = pathlib.Path({str(place)!r}); p.parent.mkdir(parents=True);"
    fetch += f" p.write_text({WORKS!r}); p.chmod(0o755); print('100% of 170 MiB')"
    monkeypatch.setattr(browser, "FETCH", [sys.executable, "-c", fetch])
    assert browser.ensure() == str(place)


def test_a_download_that_says_nothing_is_given_up(machine, monkeypatch):
    monkeypatch.setattr(browser, "FETCH", ["/bin/sh", "-c", "echo Downloading; exec sleep 60"])
    monkeypatch.setattr(browser, "QUIET", 0.5)
    began = time.monotonic()
    browser.download()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("user", ["root", "one who may", "one who may not"])
def test_the_systems_packages_are_taken_where_one_may(machine, monkeypatch, user):
    monkeypatch.setattr(os, "geteuid", lambda: 0 if user == "root" else 1000)
    target = machine / "bin" / "chromium"
    program(machine / "bin" / "true", "#!/bin/sh\n")
    program(machine / "bin" / "env", '#!/bin/sh\nshift; exec "$@"\n')
    make = f"printf '%s\\n' '#!/bin/sh' 'echo 1' > {target}; /bin/chmod +x {target}"
    program(
        machine / "bin" / "apt-get", f'#!/bin/sh\n[ "$1" = install ] && {{ {make}; }}\nexit 0\n'
    )
    allowed = 'shift; exec "$@"' if user == "one who may" else "exit 1"
    program(machine / "bin" / "sudo", f"#!/bin/sh\n{allowed}\n")
    assert browser.ensure() == (None if user == "one who may not" else str(target))


def test_where_nothing_works_one_message_says_so(machine, capsys):
    began = time.monotonic()
    assert browser.main() == 1
    printed = capsys.readouterr().out
    assert printed.endswith(browser.NONE.format(why=browser.NOWHERE) + "\n")
    assert "PFL_NO_BROWSER=1 make test" in printed
    assert time.monotonic() - began < 30
    # the longest that the real waits can add up to
    assert browser.QUIET + browser.UPDATE + 5 < 60


def test_one_that_does_not_start_is_named(machine, monkeypatch, capsys):
    """Playwright's, downloaded to a machine without the libraries it needs."""
    place = machine / ".cache/ms-playwright/chromium-1200/chrome-linux/chrome"
    monkeypatch.setattr(browser, "FETCH", [sys.executable, "-c", "print('100% of 170 MiB')"])
    program(place, BROKEN)
    assert browser.main() == 1
    printed = capsys.readouterr().out
    assert f"{place}\nis there and does not start" in printed and "install-deps" in printed


def test_one_may_do_without(machine, monkeypatch, capsys):
    monkeypatch.setenv("PFL_NO_BROWSER", "1")
    assert browser.main() == 0
    assert "left out" in capsys.readouterr().out
