"""The whole book as a PDF: _build/book.pdf, printed from the book's single page by Chromium.

    python -m devtools.pdf

Chapters as on the pages; explorers in their initial state; answers, solutions and quiz explanations
at the end. It prints twice, since the contents' page numbers are read from the first print. It also
prints the formula sheet, _build/formulas.pdf.
"""

import subprocess
import sys
from pathlib import Path

import yaml

from devtools import formula_sheet
from devtools.browser import chromium, serve, wait_for_maths
from devtools.executed import ROOT, hand_to_the_book
from pfl_lib import __version__

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "_build"
SINGLE = BUILD / "singlehtml"
FOOTER = (
    '<div style="width: 100%; text-align: center; font: 8pt sans-serif; color: #4a5a62">'
    '<span class="pageNumber"></span></div>'
)
MARGIN = {"top": "16mm", "bottom": "18mm", "left": "18mm", "right": "18mm"}


def settings():
    """Title, author, version and the parts of the book, as the contents list them."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def files(node):
        if isinstance(node, dict):
            own = [node["file"]] if "file" in node else []
            return own + files(node.get("chapters", []) + node.get("sections", []))
        return [name for child in node for name in files(child)]

    parts = [{"caption": part["caption"], "pages": files(part)} for part in toc["parts"]]
    return {
        "title": config["title"],
        "author": config["author"],
        "version": __version__,
        "parts": parts,
    }


def build_single_page():
    """The book as one long HTML page; its root lies in a folder, its links are for the top."""
    hand_to_the_book()
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", ".", "-q"]
    subprocess.run([*command, "--builder", "singlehtml"], cwd=ROOT, check=True)
    root = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["root"]
    page = SINGLE / "print.html"
    text = (SINGLE / f"{root}.html").read_text(encoding="utf-8")
    folder = "../" * root.count("/")
    text = text.replace(f'href="{root}.html#', 'href="#').replace(f'="{folder}', '="')
    page.write_text(text, encoding="utf-8")
    return page


def page_numbers(path):
    """The page on which each entry of the contents begins: {address: number}."""
    from pypdf import PdfReader

    reader = PdfReader(path)
    found = reader.named_destinations
    pages = {name: reader.get_destination_page_number(found[name]) + 1 for name in found}
    return {name.removeprefix("/"): number for name, number in pages.items()}


def print_book(single_page, target):
    """Print the page to ``target``; returns the contents as [(title, page number), ...]."""
    paper = {"format": "A4", "margin": MARGIN, "display_header_footer": True, "tagged": True}
    paper |= {"header_template": "<span></span>", "footer_template": FOOTER, "outline": True}
    with serve(single_page.parent) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 900, "height": 1200})
        page.set_default_timeout(1_800_000)  # a long page, maybe on a busy machine
        # nothing from outside; and quizzes are printed, not answered
        page.route(
            lambda url: not url.startswith("http://127.0.0.1:") or "quiz.js" in url,
            lambda route: route.abort(),
        )
        page.goto(f"{address}/{single_page.name}")
        wait_for_maths(page)
        page.wait_for_timeout(1000)  # explorers draw themselves
        page.evaluate((HERE / "print" / "arrange.js").read_text(encoding="utf-8"), settings())
        page.add_style_tag(content=(HERE / "print" / "print.css").read_text(encoding="utf-8"))
        page.pdf(path=target, **paper)
        contents = page.evaluate(
            """(numbers) => [...document.querySelectorAll('.book-contents a')].map(link => {
              const number = numbers[link.hash.slice(1)] ?? numbers[decodeURI(link.hash.slice(1))];
              link.querySelector('.page').textContent = number ?? '';
              return [link.querySelector('.words').textContent, number ?? null];
            })""",
            page_numbers(target),
        )
        page.pdf(path=target, **paper)
    return contents


def print_formulas(target):
    """The formula sheet on paper, from the built book."""
    html = BUILD / "html"
    formula_sheet.write(html / "teaching")
    with serve(html) as address, chromium() as browser:
        page = browser.new_page()
        page.goto(f"{address}/teaching/{formula_sheet.NAME}")
        wait_for_maths(page)
        page.pdf(path=target, prefer_css_page_size=True, tagged=True)


def main():
    contents = print_book(build_single_page(), BUILD / "book.pdf")
    lost = [title for title, number in contents if number is None]
    if lost:
        raise ValueError(f"the contents have no page number for {', '.join(lost)}")
    print_formulas(BUILD / "formulas.pdf")
    print(f"{BUILD / 'book.pdf'}: {len(contents)} entries, the last on page {contents[-1][1]}")
    print(BUILD / "formulas.pdf")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"pdf.py: {error}")
