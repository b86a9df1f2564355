"""Give every page of the built book a content security policy: what it may load and run.

    python -m devtools.policy [FOLDER]     default: _build/html

Scripts run if they are files of this site, or inline with a hash in the policy, which is computed
when the book is built. So nothing injected into a page later, or from elsewhere, is run or loaded.
Inline styles are allowed: formulas, figures and tables are laid out that way.
"""

import base64
import hashlib
import html
import re
import sys
from pathlib import Path

HTML = Path(__file__).resolve().parents[1] / "_build" / "html"
SCRIPT = re.compile(r"<script(?P<how>[^>]*)>(?P<text>.*?)</script>", re.DOTALL | re.IGNORECASE)
HANDLER = re.compile(r"""<[a-z][^>]*?\son[a-z]+=("[^"]*"|'[^']*')""", re.IGNORECASE)
INSIDE = re.compile(r'<iframe[^>]*?\ssrcdoc="([^"]*)"', re.IGNORECASE)  # a page inside a page
CHARSET = re.compile(r"<meta\s+charset=[^>]*>", re.IGNORECASE)
OURS = re.compile(r'\n?<meta http-equiv="Content-Security-Policy"[^>]*>')


def digest(text):
    """The name of a script in a policy.

    >>> digest("alert(1)")
    "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    """
    found = hashlib.sha256(text.replace("\r\n", "\n").encode()).digest()
    return f"'sha256-{base64.b64encode(found).decode()}'"


def written_on(page):
    """(scripts, handlers): the hashes of those that stand on a page, or on a page inside it."""
    scripts = {digest(m["text"]) for m in SCRIPT.finditer(page) if "src=" not in m["how"]}
    bare = SCRIPT.sub("", page)
    handlers = {digest(html.unescape(m[1][1:-1])) for m in HANDLER.finditer(bare)}
    for inner in INSIDE.findall(bare):
        more = written_on(html.unescape(inner))
        scripts, handlers = scripts | more[0], handlers | more[1]
    return scripts, handlers


def policy(page):
    """The policy of a page, given its text."""
    scripts, handlers = written_on(page)
    here = "'self' file:"  # file: for those who open the pages from their disk
    rules = {
        "default-src": "'none'",
        "script-src": " ".join([here, *sorted(scripts | handlers)])
        + (" 'unsafe-hashes'" if handlers else ""),  # for the handlers named, and no other
        "style-src": f"{here} 'unsafe-inline'",
        "img-src": f"{here} data: blob:",
        "font-src": f"{here} data:",
        "connect-src": here,
        "media-src": here,
        "frame-src": here,
        "base-uri": "'none'",
        "form-action": here,
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def guarded(page):
    """The page with its policy, as soon as it has said how it is written."""
    page = OURS.sub("", page)
    charset = CHARSET.search(page)
    if charset is None:
        raise ValueError("a page must name its charset, so that the policy can stand after it")
    tag = f'\n<meta http-equiv="Content-Security-Policy" content="{policy(page)}">'
    return page[: charset.end()] + tag + page[charset.end() :]


def write(folder=HTML):
    """Give every page under ``folder`` its policy; how many there are."""
    found = sorted(Path(folder).rglob("*.html"))
    pages = [p for p in found if "_static" not in p.parts]  # in there are templates of the theme
    for path in pages:
        text = path.read_text(encoding="utf-8")
        path.write_text(guarded(text), encoding="utf-8", newline="")
    return len(pages)


if __name__ == "__main__":
    print(f"{write(*sys.argv[1:2])} pages have a policy")
