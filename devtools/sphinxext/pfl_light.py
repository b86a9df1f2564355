"""What is done to the written pages so that a first visit is light and every door opens.

- the few icons of the theme are put into the page as SVG, and its icon font is cut to the few signs
  that are in use: its icon script weighs 1.5 MB, its font 0.4;
- scripts stay only on pages that need them: MathJax where there is a formula, the search and its
  index on the search page, Thebe nowhere;
- the contents show the numbers of the chapters;
- figures keep 256 of their colours: a third of the bytes, and no pixel that looks different;
- ``index.html`` is the welcome itself, and there is a ``404.html``.
"""

import functools
import logging
import re
from pathlib import Path

from PIL import Image

try:  # as Sphinx loads it, and as tests do
    import pfl_numbers
except ImportError:
    from devtools.sphinxext import pfl_numbers

ICON = re.compile(r'<(?:i|span) class="([^"]*\bfa-[^"]*)"([^>]*)></(?:i|span)>')
SEARCH = re.compile(
    r'\s*<script[^>]* src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"[^>]*></script>'
)
DEAD = [
    re.compile(r'\s*<script[^>]* src="[^"]*fontawesome\.js[^"]*"[^>]*></script>'),
    re.compile(r'\s*<link[^>]* href="[^"]*fontawesome\.js[^"]*"[^>]*>'),
    re.compile(r'\s*<script[^>]* src="[^"]*sphinx-thebe\.js[^"]*"[^>]*></script>'),
    re.compile(r'\s*<link[^>]* href="[^"]*sphinx-thebe\.css[^"]*"[^>]*>'),
    re.compile(r"\s*<script>const THEBE_JS_URL.*?</script>", re.DOTALL),
    re.compile(r'\s*<script type="text/x-thebe-config">.*?</script>', re.DOTALL),
    re.compile(r"\s*<script>kernelName = .*?</script>", re.DOTALL),
    re.compile(
        r'\s*<script type="application/vnd\.jupyter\.widget-state\+json">.*?</script>', re.DOTALL
    ),
]
MATHS = [
    re.compile(r'\s*<script[^>]* src="[^"]*mathjax[^"]*"[^>]*></script>'),
    re.compile(r"\s*<script>window\.MathJax = .*?</script>", re.DOTALL),
]
CHAPTER = re.compile(
    r'(<li class="toctree-l[12][^"]*"><a class="[^"]*" href="(?:[^"]*/)?(\w+)\.html">)'
    r'(?!<span class="pfl-chapter")'  # a page that was not written anew has it already
)
CURRENT = re.compile(
    r'(<li class="toctree-l[12] current[^"]*"><a class="[^"]*" href="#">)'
    r'(?!<span class="pfl-chapter")'
)
LOST = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Page not found</title>
<style>
:root {{ color-scheme: light dark }}
body {{ max-width: 34rem; margin: 15vh auto; padding: 0 1.2rem }}
body {{ font: 1.1rem/1.6 system-ui, sans-serif }}
a {{ color: light-dark(#0f5f73, #7cc7d8) }}
</style>
</head>
<body>
<h1>This page is not here</h1>
<p>It may have moved, or the address has a slip in it. These are the doors:</p>
<ul>
<li><a href="{base}/index.html">the first page</a></li>
<li><a href="{base}/notebooks/play.html">the playground</a></li>
<li><a href="{base}/search.html">search</a></li>
</ul>
</body>
</html>
"""


# ------------------------------------------------------------------------------------------ icons
@functools.cache
def drawing(script, name):
    """Width, height and path of an icon, from the theme's own icon script."""
    text = _read(script)
    found = re.search(
        rf'[{{,]"?{re.escape(name)}"?:\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]', text
    )
    if not found:
        raise ValueError(f"the theme has no icon {name!r}")
    return found.groups()


@functools.cache
def _read(path):
    return Path(path).read_text(encoding="utf-8")


def with_icons(text, script):
    """Icons as SVG in the place of the marks that the icon script would replace."""

    def drawn(found):
        classes, rest = found.groups()
        words = [c for c in classes.split() if c not in ("fa", "fas", "fa-solid")]
        name = next(c for c in words if c.startswith("fa-") and c != "fa-lg")
        width, height, path = drawing(script, name.removeprefix("fa-"))
        return (
            f'<svg class="svg-inline--fa {" ".join(words)}"{rest} aria-hidden="true" '
            f'viewBox="0 0 {width} {height}"><path fill="currentColor" d="{path}"/></svg>'
        )

    return ICON.sub(drawn, text)


def small_font(static):
    """The signs of boxes stay in the theme's icon font: keep these few of its 1,400 glyphs."""
    from fontTools import subset

    logging.getLogger("fontTools").setLevel(logging.WARNING)  # else it tells every step
    used, theme = set(), static / "styles" / "pydata-sphinx-theme.css"
    for style in static.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        used |= {ord(sign) for sign in text if "\ue000" <= sign <= "\uf8ff"}
        if style != theme:  # there every icon of the font has a rule
            used |= {int(code, 16) for code in re.findall(r"\\(f[0-9a-f]{3})\b", text)}
    path = static / "vendor" / "fontawesome" / "webfonts" / "fa-solid-900.ttf"
    font = subset.load_font(str(path), subset.Options())
    cut = subset.Subsetter()
    cut.populate(unicodes=used)
    cut.subset(font)
    subset.save_font(font, str(path), subset.Options())
    text = theme.read_text(encoding="utf-8")
    text = re.sub(r'url\([^)]*fa-solid-900\.woff2\) format\("woff2"\),', "", text)
    theme.write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------------ pages
def lightened(text, name):
    """A page without what it does not need; ``name`` is its path without the ending."""
    gone = [*DEAD, *([] if name == "search" else [SEARCH]), *([] if has_maths(text) else MATHS)]
    for pattern in gone:
        text = pattern.sub("", text)
    return text


def has_maths(text):
    """Is there anything to typeset?"""
    return 'class="math' in text


def with_numbers(text, name):
    """The contents with the numbers of the chapters."""
    own = pfl_numbers.chapter_number(name)
    if own:
        text = CURRENT.sub(rf'\1<span class="pfl-chapter">{own}</span> ', text)
    return CHAPTER.sub(_with_number, text)


def _with_number(found):
    number = pfl_numbers.chapter_number(f"notebooks/{found.group(2)}")
    return found.group() + (f'<span class="pfl-chapter">{number}</span> ' if number else "")


def at_the_root(text, folder):
    """A page of ``folder`` as it must be written one level up: its links lead the same way."""

    def moved(found):
        kind, address = found.groups()
        if re.match(r"[a-z+]+:|//|#|/", address):
            return found.group(0)
        inside = f"{folder}/{address}" if not address.startswith("../") else address[3:]
        return f'{kind}="{inside or "./"}"'

    text = re.sub(r'(property="og:image" content)="([^"]*)"', moved, text)
    return re.sub(r'\b(href|src|action|content_root)="([^"]*)"', moved, text)


def _finish(app, error):
    if error or app.builder.name != "html":
        return
    folder = Path(app.outdir)
    finish(folder, app.config.master_doc, app.config.html_baseurl)


def finish(folder, welcome, base=""):
    """All of this, for the site in ``folder``."""
    static = folder / "_static"
    script = static / "scripts" / "fontawesome.js"
    small_font(static)
    for path in (folder / "_images").glob("*.png"):
        fewer_colors(path)
    for path in folder.rglob("*.html"):
        parts = path.relative_to(folder).parts
        if parts[0] in ("_static", "teaching", "download"):
            continue
        name = path.relative_to(folder).with_suffix("").as_posix()
        text = path.read_text(encoding="utf-8")
        better = with_numbers(lightened(with_icons(text, script), name), name)
        if better != text:
            path.write_text(better, encoding="utf-8")
    page = folder / f"{welcome}.html"
    if page.parent != folder:
        text = at_the_root(page.read_text(encoding="utf-8"), page.parent.name)
        (folder / "index.html").write_text(text, encoding="utf-8")
    lost = LOST.format(base=base.rstrip("/"))
    (folder / "404.html").write_text(lost, encoding="utf-8")


def fewer_colors(path):
    """Write an opaque picture with a palette, where that is smaller."""
    with Image.open(path) as picture:
        seen_through = "A" in picture.getbands() and picture.getchannel("A").getextrema()[0] < 255
        if picture.mode == "P" or seen_through:
            return
        few = picture.convert("RGB").quantize(
            256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    side = path.with_suffix(".part")
    few.save(side, "PNG", optimize=True)
    side.replace(path) if side.stat().st_size < path.stat().st_size else side.unlink()


def setup(app):
    # after the repairs of pfl_sphinx_fixes, which look for the theme's own words
    app.connect("build-finished", _finish, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
