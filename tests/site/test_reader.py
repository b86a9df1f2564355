"""The plain copies of the notebooks: nothing of MyST is left, and the code is the same."""

import re
import zipfile

import nbformat
import pytest

from devtools import notebooks as tool
from devtools import reader
from tests.support.paths import HTML, ROOT

RAW = re.compile(
    r"^:{3,}|^`{3,}\{|\{[a-z:-]+\}`|^\([a-z0-9-]+\)=$|^:[a-z-]+: |\$\$ \([a-z0-9-]+\)$",
    re.MULTILINE,
)


def without_code(text):
    return re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", tool.all_notebooks(), ids=lambda path: path.stem)
def test_a_plain_copy_is_plain_and_runs_the_same_code(path):
    source, copy = nbformat.read(path, as_version=4), reader.plain_copy(path)
    nbformat.validate(copy)
    assert [c.source for c in copy.cells if c.cell_type == "code"] == [
        c.source for c in source.cells if c.cell_type == "code"
    ]
    raw = [
        found.group()
        for cell in copy.cells
        if cell.cell_type == "markdown"
        for found in RAW.finditer(without_code(cell.source))
    ]
    assert raw == []
    assert all(not cell.get("outputs") for cell in copy.cells)


def test_links_between_plain_copies_lead_somewhere(tmp_path):
    copies, broken = reader.write(tmp_path), []
    for path in copies:
        text = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells)
        for link in re.findall(r"\]\(([^)]+\.ipynb)\)", text):
            if not (path.parent / link).exists():
                broken.append(f"{path.name}: {link}")
    assert broken == []
    names = {path.relative_to(tmp_path).as_posix() for path in copies}
    assert set(zipfile.ZipFile(tmp_path / "notebooks.zip").namelist()) == names


def test_boxes_roles_and_equations_become_plain_words():
    page = "notebooks/05_convergence"
    text = """\
::::{admonition} Careful
:class: tip

See {cite:t}`mcmahan2017fedavg` and {eq}`eq-fedavg`.
:::{dropdown} Why
Because.
:::
::::"""
    plain = reader.plain(text, page)
    assert plain.startswith("> **Careful**")
    assert "McMahan et al. (2017)" in plain
    assert "01_fedavg.ipynb" in plain  # where that equation stands
    assert "> <summary>Why</summary>" in plain
    with pytest.raises(ValueError, match="not closed"):
        reader.plain(":::{admonition} Open\nno end", page)


def test_equations_have_the_numbers_of_the_site(site):
    """What the plain copies call (4.3) is (4.3) on the page."""
    wrong, seen = [], 0
    for label, (page, number) in reader.equations().items():
        text = (HTML / f"{page}.html").read_text(encoding="utf-8")
        found = re.search(rf'id="equation-{label}">\s*<span class="eqno">\(([\w.]+)\)', text)
        seen += found is not None
        if found and found.group(1) != number:
            wrong.append(f"{label}: {number} here, {found.group(1)} on the site")
    assert wrong == []
    assert seen > 100


def test_references_say_the_number_that_stands_beside_the_equation(site):
    wrong, seen = [], 0
    for path in sorted(HTML.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        for label, number in re.findall(
            r'href="[^"]*#equation-(eq-[a-z0-9-]+)">\(([^)]*)\)<', text
        ):
            seen += 1
            if number != reader.equations()[label][1]:
                wrong.append(f"{path.relative_to(HTML)}: {label} is called {number}")
    assert wrong == []
    assert seen > 100


def test_the_site_offers_every_plain_copy(site):
    page = (HTML / "book" / "run.html").read_text(encoding="utf-8")
    for path in tool.all_notebooks():
        name = path.relative_to(ROOT).as_posix()
        assert f"download/{name}" in page, name
        assert (HTML / "download" / name).exists()
    assert (HTML / "download" / "notebooks.zip").exists()
