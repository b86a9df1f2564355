"""The content security policy of a page, from its text; tests/site tries it in a browser."""

import base64
import hashlib
import html
import re

import pytest

from devtools import policy

PAGE = """<!DOCTYPE html><html><head>
<meta charset="utf-8"><title>a page</title>
<script src="a.js"></script><script>one()</script>
</head><body><button onclick="say(&quot;hello&quot;)">x</button>{}</body></html>"""


def named(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def rules(page):
    (content,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    return {rule.split()[0]: rule.split()[1:] for rule in content.split("; ")}


def test_only_what_stands_on_the_page_may_run():
    found = rules(policy.guarded(PAGE.format("")))
    assert found["default-src"] == ["'none'"] == found["base-uri"]
    wanted = {"'self'", "file:", named("one()"), named('say("hello")'), "'unsafe-hashes'"}
    assert set(found["script-src"]) == wanted


def test_a_page_inside_a_page_has_its_scripts_named_too():
    inner = f'<iframe srcdoc="{html.escape("<script>two()</script>")}"></iframe>'
    assert named("two()") in rules(policy.guarded(PAGE.format(inner)))["script-src"]


def test_without_handlers_none_are_allowed():
    page = PAGE.format("").replace("onclick=", "data-click=")
    assert "'unsafe-hashes'" not in rules(policy.guarded(page))["script-src"]


def test_the_policy_stands_before_the_first_script_and_is_written_once():
    once = policy.guarded(PAGE.format(""))
    assert once.index("Content-Security-Policy") < once.index("<script")
    assert once.index("charset") < 200  # browsers look for it at the very beginning
    assert policy.guarded(once) == once


def test_what_is_no_page_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must name its charset"):
        policy.guarded("<p>half a page</p>")
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "template.html").write_text("{% macro %}")
    (tmp_path / "page.html").write_text(PAGE.format(""))
    assert policy.write(tmp_path) == 1
    assert (tmp_path / "_static" / "template.html").read_text() == "{% macro %}"
