"""Small repairs for Jupyter Book 1 with Sphinx 7 (drop them when upstream no longer needs them)."""

import functools
import os
import re
from pathlib import Path

import pybtex.plugin
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.search.en import SearchEnglish
from sphinx_proof.domain import ProofDomain

# Names for screen readers that are not the words on the screen: who says "click Search Control K"
# or "click Show code cell source" must be understood. Without a name, the words are the name.
MISNAMED = {
    '"btn search-button-field search-button__button pst-js-only" title="Search" '
    'aria-label="Search"': '"btn search-button-field search-button__button pst-js-only"',
    '<summary aria-label="Toggle hidden content">': "<summary>",
    'data-mode="light" title="Light">': 'data-mode="light">',
    'data-mode="dark"  title="Dark">': 'data-mode="dark">',
    'data-mode="auto"  title="System Settings">': 'data-mode="auto">',
}
# A list without items: Sphinx gives the entries of a bibliography another role.
MISNAMED['<div role="list" class="citation-list">'] = '<div class="citation-list">'
# The arrows in the contents have no name at all.
NAMELESS = re.compile(r'>([^<]+)</a><details([^>]*)><summary><span class="toctree-toggle"')
NAMED = r'>\1</a><details\2><summary aria-label="Pages of: \1"><span class="toctree-toggle"'


def _dedupe_inline_js(app, pagename, templatename, context, doctree):
    """Sphinx 7.4 writes inline scripts twice; a second `const` is an error in the console."""
    seen, keep = set(), []
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body")
        if body is not None and body in seen:
            continue
        seen.add(body)
        keep.append(script)
    if "script_files" in context:
        context["script_files"][:] = keep


def _singlehtml_handlers(app):
    """sphinx-exercise has visitors of its own for 'singlehtml'; they hide all those for 'html'."""
    handlers = app.registry.translation_handlers
    for name, pair in handlers.get("html", {}).items():
        handlers.setdefault("singlehtml", {}).setdefault(name, pair)


def _side_by_side(app):
    """Pages are read and written by two processes, each its share."""
    app.parallel = int(os.environ.get("JOBS", 2))
    # sphinx-proof puts its shares together by itself (env.proof_list); its domain keeps nothing,
    # but does not say so
    ProofDomain.merge_domaindata = lambda self, docnames, otherdata: None
    # these two only act when all pages have been read, but do not say so
    for name in ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        app.extensions[name].parallel_read_safe = True


def _names_that_match(app, exception):
    """The theme's buttons and myst-nb's folds are called by the words that they show."""
    if exception is not None or app.builder.name != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = repaired = path.read_text(encoding="utf-8")
        for wrong, right in MISNAMED.items():
            repaired = repaired.replace(wrong, right)
        repaired = NAMELESS.sub(NAMED, repaired)
        if repaired != text:
            path.write_text(repaired, encoding="utf-8")


# Readers know it as pfl_lib.Federation, under which the reference shows it.
SHOWN_UNDER_ANOTHER_NAME = ("py:class", "pfl_lib.local.federation.LocalFederation")


def _other_names(app, config):
    """A list in _config.yml would not do: Sphinx looks for tuples."""
    config.nitpick_ignore = [*config.nitpick_ignore, SHOWN_UNDER_ANOTHER_NAME]


def _remember():
    """What is asked thousands of times and always has the same answer: a tenth of all the time."""
    SearchEnglish.stem = functools.cache(SearchEnglish.stem)
    pybtex.plugin._load_entry_point = functools.cache(pybtex.plugin._load_entry_point)


_contents = StandaloneHTMLBuilder._get_local_toctree
NOWHERE = "no-page"  # the contents beside it mark no page
OPEN_OR_CLOSE = re.compile(r"<(/?)(?:ul|li)( class=\"[^\"]*)?")


@functools.cache
def _unmarked(builder, folder, options):
    return _contents(builder, folder + NOWHERE, False, **dict(options))


def _marked_contents(builder, docname, collapse=True, **options):
    """The contents beside a page: rendered once for a folder, then the page's place is marked.

    Sphinx renders them for every page anew, which is a fifth of the time of writing.
    """
    if collapse:
        return _contents(builder, docname, collapse, **options)
    folder = docname[: docname.rfind("/") + 1]
    text = _unmarked(builder, folder, tuple(sorted(options.items())))
    address = builder.get_relative_uri(folder + NOWHERE, docname)
    link = f'<a class="reference internal" href="{address}">'
    here = text.find(link)
    if here < 0:
        return text
    open_tags = []
    for tag in OPEN_OR_CLOSE.finditer(text, 0, here):
        if tag[1]:
            open_tags.pop()
        else:
            open_tags.append(tag)
    done, marked = 0, ""
    for tag in open_tags:
        marked += text[done : tag.end()] + (" current" if tag[2] else ' class="current"')
        done = tag.end()
    current = '<a class="current reference internal" href="#">'
    return marked + text[done:here] + current + text[here + len(link) :]


def setup(app):
    _remember()
    StandaloneHTMLBuilder._get_local_toctree = _marked_contents
    app.connect("config-inited", _other_names)
    app.connect("html-page-context", _dedupe_inline_js, priority=900)
    app.connect("builder-inited", _singlehtml_handlers)
    app.connect("builder-inited", _side_by_side)
    app.connect("build-finished", _names_that_match)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
