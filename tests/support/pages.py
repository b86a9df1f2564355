"""The pages of the book, in the order of _toc.yml."""

from devtools import chapters
from devtools.browser import wait_for_maths

PAGES = chapters.in_order()
IDS = [page.replace("/", "-") for page in PAGES]


def settled(page):
    """Wait until the maths, if there is any, is typeset."""
    page.wait_for_load_state("load")
    if page.locator(".math").count():
        wait_for_maths(page)
    return page
