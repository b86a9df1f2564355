"""The first mention of a glossary word on a page of the teaching leads to its entry.

The link is quiet (static/book.css), and static/preview.js shows the entry beside it. Only running
text is looked at: no headings, boxes, captions, code, formulas or links.
"""

import re

from docutils import nodes

TEACHING = re.compile(r"notebooks/(\d\d[a-z]?_\w+|network|own_clients)$")


def link_terms(app, doctree, docname):
    if app.builder.format != "html" or not TEACHING.match(docname):
        return
    terms = dict(app.env.get_domain("std")._terms)
    if not terms:
        return
    longest = sorted(terms, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest))})s?(?![\w-])", re.I)
    done = set()
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, nodes.section):
            continue
        for text in [t for t in paragraph.children if isinstance(t, nodes.Text)]:
            parts, at = [], 0
            for found in pattern.finditer(text):
                term = found.group(1).lower()
                if term in done:
                    continue
                done.add(term)
                page, anchor = terms[term]
                address = f"{app.builder.get_relative_uri(docname, page)}#{anchor}"
                link = nodes.reference("", found.group(), internal=True, refuri=address)
                link["classes"].append("pfl-term")
                parts += [nodes.Text(text[at : found.start()]), link]
                at = found.end()
            if parts:
                text.parent.replace(text, [*parts, nodes.Text(text[at:])])


def setup(app):
    app.connect("doctree-resolved", link_terms, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
