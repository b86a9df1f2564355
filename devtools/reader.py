"""Write plain copies of the notebooks, for Colab and any other place that runs notebooks.

    python -m devtools.reader [FOLDER]     default: _build/html/download

The book's notebooks are written in MyST Markdown: boxes, numbered equations, citations. Jupyter
Book understands it, Colab would show it raw. The copies have the same content in plain Markdown,
and identical code. `make book` writes them, and `notebooks.zip` with all of them, so that they can
be downloaded from the site.
"""

import base64
import functools
import html
import json
import re
import sys
import zipfile
from pathlib import Path

from devtools import chapters
from devtools.notebooks import ROOT, all_notebooks, clean, text_of
from pfl_lib.book import draw

FOLDER = ROOT / "_build" / "html" / "download"
SITE = "Personalised federated learning: understand it, play with it, use it"
FENCE = re.compile(r"^(:{3,}|`{3,})\{([a-z:-]+)\}[ ]*(.*)$")
ROLE = re.compile(r"\{([a-z]+(?::[a-z]+)?)\}`([^`]+)`")


# ---------------------------------------------------------------------- what references lead to
@functools.cache
def pages():
    """The text of every page of the book, by its name."""
    return {chapters.name(path): chapters.markdown(path) for path in chapters.pages()}


@functools.cache
def equations():
    """{label: (page, number)}, counted as on the site: "4.3"."""
    return chapters.counted((label, page) for label, (_, page) in chapters.equations().items())


@functools.cache
def exercises():
    """{label: (page, number)} of the exercises, counted as on the site."""
    start = re.compile(r"^`{3,}\{exercise-start\}\n:label: (\S+)$", re.MULTILINE)
    return chapters.counted(
        (label, page) for page, text in pages().items() for label in start.findall(text)
    )


@functools.cache
def statements():
    """{label: what it is called} of theorems and the like."""
    marks = re.compile(r"^:::+\{prf:([a-z]+)\} *(.*)\n(?:.*\n)*?:label: (\S+)$", re.MULTILINE)
    return {
        label: f"{kind.capitalize()} “{name}”" if name else f"the {kind}"
        for text in pages().values()
        for kind, name, label in marks.findall(text)
    }


@functools.cache
def figures():
    """{label: (page, number)} of the figures, counted as on the site."""
    return chapters.counted(
        (label, page) for page in chapters.in_order() for label in _figures_of(page)
    )


def _figures_of(page):
    """The labels of a page's figures, drawn in the text or by a cell, from top to bottom."""
    drawn = re.compile(r"^`{3,}\{drawn\} \S+\n:name: (\S+)$", re.MULTILINE)
    notebook = ROOT / f"{page}.ipynb"
    if not notebook.exists():
        return drawn.findall(pages()[page])
    labels = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        name = cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
        labels += drawn.findall("".join(cell["source"])) + ([name] if name else [])
    return labels


@functools.cache
def bibliography():
    """{key: (authors, year)} as the book cites them."""
    from pybtex.database import parse_file

    found = {}
    for key, entry in parse_file(str(ROOT / "book" / "references.bib")).entries.items():
        people = [" ".join(p.last_names) for p in entry.persons["author"]]
        people = [re.sub(r"[{}]", "", name) for name in people]
        first = people[0] + (" et al." if len(people) > 2 else "")
        authors = " and ".join(people) if len(people) == 2 else first
        found[key] = authors, entry.fields.get("year", "no year")
    return found


# --------------------------------------------------------------------------------------- words
def _cite(keys):
    return [bibliography()[key.strip()] for key in keys.split(",")]


def _page(target, page):
    """The name of the page that ``target`` leads to from ``page``."""
    parts = [] if target.startswith("/") else page.split("/")[:-1]
    for part in target.strip("/").split("/"):
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _elsewhere(there, page):
    """A page in words, and as a link where it is a notebook too."""
    words = chapters.page_title(there)
    if not there.startswith("notebooks/"):
        return f"*{words}*"
    up = "../" * (page.count("/") - 1)
    return f"[{words}]({up}{there.removeprefix('notebooks/')}.ipynb)"


def role(kind, content, page):
    """One role of MyST in plain words."""
    words, target = re.fullmatch(r"(?:(.*?) ?<)?([^<>]+)>?", content, re.DOTALL).groups()
    if kind in ("cite:t", "cite:ts"):
        return " and ".join(f"{authors} ({year})" for authors, year in _cite(content))
    if kind in ("cite", "cite:p"):
        return "[" + "; ".join(f"{authors}, {year}" for authors, year in _cite(content)) + "]"
    if kind == "eq":
        there, number = equations()[content]
        return f"({number})" if there == page else f"({number}) in {_elsewhere(there, page)}"
    if kind == "doc":
        return words or _elsewhere(_page(target, page), page)
    if kind == "prf:ref":
        return words or statements()[target]
    if kind in ("ref", "numref"):
        if words:
            return words
        if target in exercises():
            there, number = exercises()[target]
            here = there == page
            return f"exercise {number}" + ("" if here else f" in {_elsewhere(there, page)}")
        if target in figures():
            there, number = figures()[target]
            here = there == page
            return f"Figure {number}" + ("" if here else f" in {_elsewhere(there, page)}")
        return statements().get(target, f"*{target}*")
    if kind == "term":
        return words or target
    return f"`{content}`"  # an unknown role: at least its content, as code


def inline(text, page):
    return ROLE.sub(lambda found: role(found.group(1), found.group(2), page), text)


# --------------------------------------------------------------------------------------- boxes
def _quoted(title_, body):
    lines = [f"**{title_}**", "", *body.splitlines()] if title_ else body.splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def box(kind, argument, options, body, page):
    """One directive of MyST in plain Markdown; ``body`` is plain already."""
    if kind == "dropdown" or "dropdown" in options.get("class", ""):
        summary = argument or kind.capitalize()
        return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"
    if kind == "exercise-start":
        return f"**Exercise {exercises()[options['label']][1]}.**"
    if kind in ("exercise-end", "solution-end"):
        return ""
    if kind.startswith("prf:"):
        name = kind.removeprefix("prf:").capitalize()
        if name == "Proof":
            return f"*Proof.* {body} ∎" if "$$" not in body[-3:] else f"*Proof.* {body}\n\n∎"
        return _quoted(f"{name}{f' ({argument})' if argument else ''}.", body)
    if kind == "drawn":
        picture = base64.b64encode(draw.standalone(argument).encode()).decode()
        alt = html.escape(draw.described(argument))
        image = f'<img alt="{alt}" src="data:image/svg+xml;base64,{picture}">'
        return f"{image}\n\n**Figure {figures()[options['name']][1]}.** {body}"
    if kind == "math":
        return f"$$\n{body}\n$$"
    return _quoted(argument or kind.replace("-", " ").capitalize(), body)


def blocks(text, page):
    """Turn the directives in ``text`` into plain Markdown, those inside others first."""
    lines, out = iter(text.splitlines()), []
    for line in lines:
        found = FENCE.match(line)
        if not found:
            code = re.fullmatch(r"(`{3,})\w*", line)
            if code:  # code that is shown: leave it as it is
                out.append(line)
                for inside in lines:
                    out.append(inside)
                    if inside.strip() == code.group(1):
                        break
            elif not re.fullmatch(r"\([a-z0-9-]+\)=", line):  # a target: nothing to see
                out.append(line)
            continue
        fence, kind, argument = found.groups()
        inside = []
        for other in lines:
            if other.strip() == fence:
                break
            inside.append(other)
        else:
            raise ValueError(f"{page}: {line!r} is not closed")
        options = {}
        while inside and (option := re.match(r"^:([a-z-]+):\s*(.*)$", inside[0])):
            options[option.group(1)] = option.group(2)
            inside.pop(0)
        if kind == "solution-start":  # its code cells follow: it cannot be folded
            out += ["", f"**Solution of exercise {exercises()[argument][1]}.**", ""]
            continue
        body = blocks("\n".join(inside).strip(), page)
        out += ["", *box(kind, argument, options, body, page).splitlines(), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def number_equations(text):
    """``$$ … $$ (label)`` carries the number that the book gives it."""
    return chapters.EQUATION.sub(lambda found: numbered(*found.groups()), text)


def numbered(tex, label):
    return f"$$\n{tex}\n\\tag{{{equations()[label][1]}}}\n$$"


def plain(text, page):
    """The Markdown of one cell of ``page`` as any notebook shows it."""
    return blocks(inline(number_equations(text), page), page)


# --------------------------------------------------------------------------------------- files
def plain_copy(path):
    """The notebook at ``path`` with its markdown made plain and its code as it is."""
    notebook, page = clean(chapters.read(path)), chapters.name(path)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, page)
        else:
            cell.outputs, cell.execution_count = [], None
            cell.metadata.pop("mystnb", None)
    head, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{head}\n\n*A page of the book “{SITE}”.*\n{rest}".rstrip()
    return notebook


def pack(path, texts):
    """An archive of {name: text}."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            # one date for all, so that the same notebooks make the same archive
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)


def write(folder=FOLDER):
    """All plain copies, and an archive of them. Returns the paths of the copies."""
    folder, texts = Path(folder), {}
    for path in all_notebooks():
        name = path.relative_to(ROOT).as_posix()
        texts[name] = text_of(plain_copy(path))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(texts[name], encoding="utf-8")
    pack(folder / "notebooks.zip", texts)
    return [folder / name for name in texts]


if __name__ == "__main__":
    copies = write(*sys.argv[1:2])
    print(f"{len(copies)} plain notebooks, and notebooks.zip")
