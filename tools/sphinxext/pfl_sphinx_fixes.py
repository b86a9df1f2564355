"""Small repairs for Jupyter Book 1 with Sphinx 7 (drop them when upstream no longer needs them)."""


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


def setup(app):
    app.connect("html-page-context", _dedupe_inline_js, priority=900)
    app.connect("builder-inited", _singlehtml_handlers)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
