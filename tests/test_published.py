"""Buttons that open the repository, Colab or Binder need its address, and appear with it."""

import nbformat
import pytest
import yaml
from jupyter_book.sphinx import build_sphinx

from tests.support.paths import ROOT

ADDRESS = "https://git" + "hub.com/somebody/their-book"  # in two pieces: it is nobody's
BUTTONS = ("Colab", "Binder", "Open issue", "Repository")


def built(folder, address):
    """The page of a notebook in a small book with our settings and that address."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    settings["repository"]["url"] = address
    settings["execute"]["execute_notebooks"] = "off"
    settings["bibtex_bibfiles"] = ["none.bib"]
    (folder / "none.bib").write_text("")
    settings["html"].pop("favicon")
    sphinx = settings["sphinx"]
    sphinx["local_extensions"] = {"pfl_pages": str(ROOT / "devtools" / "sphinxext")}
    for name in ("html_static_path", "html_css_files", "html_js_files"):
        sphinx["config"].pop(name)
    (folder / "_config.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: page\n")
    text = "# A page\n\n:::{only} published\nThe rocket opens it.\n:::\n\nAnd more text."
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, folder / "page.ipynb")
    done = build_sphinx(
        folder,
        folder / "html",
        noconfig=True,
        path_config=folder / "_config.yml",
        confoverrides={
            "external_toc_path": str(folder / "_toc.yml"),
            "latex_individualpages": False,
        },
        quiet=True,
        warningiserror=True,
    )
    assert done == 0
    return (folder / "html" / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_buttons_appear_with_the_address(tmp_path, address):
    page = built(tmp_path, address)
    assert [name for name in BUTTONS if name in page] == (list(BUTTONS) if address else [])
    assert ("rocket" in page) == bool(address)
    assert (ADDRESS in page) == bool(address)
    assert "And more text." in page and "fa-download" in page
