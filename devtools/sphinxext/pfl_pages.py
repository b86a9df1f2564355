"""What a page says to readers elsewhere: search engines, chats, Colab.

- a description and a social card (title, words, a picture) for every page, made offline;
- the download button of a notebook gives the plain copy (devtools/reader.py), and the Colab button
  opens it, from the branch to which the site is published;
- buttons that need the repository's address are there only when ``_config.yml`` says it; pages ask
  by ``{only} published``;
- the library's reference leads from a formula to its equation in the book;
- ``{small-playground}`` and ``{wall-of-explorers}`` of the first page; ``{notebook-downloads}``, a
  table of all notebooks to download, ``{library-download}``, ``{versions}``, ``{long-tests}``,
  ``{broken}``, ``{choices}`` and ``{site-measured}``, what they measured;
- a search that puts the teaching first (static/search.js);
- a sitemap, when ``html_baseurl`` says where the site is.
"""

import functools
import hashlib
import html
import itertools
import json
import math
import platform
import re
import textwrap
from importlib.metadata import version
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

PUBLISHED = "gh-pages"  # the branch that holds the built site; see .github/workflows/site.yml
SIZE, MARGIN = (1200, 630), 70
GROUPS = (("#6db6e8", "#2d6f9b"), ("#f0b440", "#7d6a3a"), ("#4fc4a0", "#247a70"))  # and their links


# --------------------------------------------------------------------------------- descriptions
def described(doctree, limit=160):
    """The first paragraph of the page's own text, cut at a word."""
    best = ""
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, (nodes.section, nodes.document)):
            continue  # boxes, lists and tables speak of something else
        words = " ".join(_spoken(paragraph).split()).removeprefix("Idea. ")
        if len(words) >= 40:
            return textwrap.shorten(words, limit, placeholder=" …")
        best = best or words
    return textwrap.shorten(best, limit, placeholder=" …")


def _spoken(node):
    """The text of a node as one would read it out: no TeX, no marks of citations."""
    if isinstance(node, (nodes.math, nodes.math_block)):
        return re.sub(r"\\[a-zA-Z]+|[\\{}$^_]", "", node.astext())
    if isinstance(node, nodes.Text):
        return node.astext()
    return "".join(_spoken(child) for child in node.children)


# -------------------------------------------------------------------------------- social cards
@functools.cache
def _backdrop():
    """Twelve clients in three groups, each listening to its like: what the book is about."""
    from PIL import Image, ImageDraw

    fine = 2  # drawn twice as large: smooth edges
    picture = Image.new("RGB", (fine * SIZE[0], fine * SIZE[1]), "#0f3d57")
    pen = ImageDraw.Draw(picture)
    middle, far, size = (fine * 985, fine * 400), fine * 250, fine * 38
    for group, (color, dim) in enumerate(GROUPS):
        angles = [math.radians(30 * (4 * group + k) - 75 + 4 * group) for k in range(4)]
        places = [(middle[0] + far * math.cos(a), middle[1] + far * math.sin(a)) for a in angles]
        for (x0, y0), (x1, y1) in itertools.combinations(places, 2):
            curve = []
            for step in range(33):  # bent towards the middle, as models fly
                t, u = step / 32, 1 - step / 32
                curve.append(
                    (u * u * x0 + 2 * u * t * middle[0] + t * t * x1,
                     u * u * y0 + 2 * u * t * middle[1] + t * t * y1)
                )  # fmt: skip
            pen.line(curve, fill=dim, width=fine * 5, joint="curve")
        for x, y in places:
            pen.ellipse((x - size, y - size, x + size, y + size), fill=color)
            inner = 0.72 * size
            pen.ellipse((x - inner, y - inner, x + inner, y + inner), fill="#0f3d57")
    return picture.resize(SIZE, Image.LANCZOS)


def draw_card(path, title, site):
    """A picture with the title of a page, as shown beside a link to it."""
    from matplotlib import font_manager
    from PIL import ImageDraw, ImageFont

    def font(size, weight="normal"):
        wanted = font_manager.FontProperties(family="DejaVu Sans", weight=weight)
        return ImageFont.truetype(font_manager.findfont(wanted), size)

    picture = _backdrop().copy()
    pen = ImageDraw.Draw(picture)
    lines = textwrap.wrap(title, 15)
    size = 66 if len(lines) < 5 else 52
    lines = lines if len(lines) < 5 else textwrap.wrap(title, 19)[:6]
    for number, line in enumerate(lines):
        pen.text((MARGIN, 80 + number * size * 1.22), line, font=font(size, "bold"), fill="white")
    pen.text((MARGIN, SIZE[1] - 110), site, font=font(28), fill="#cfe3ee")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def _metadata(app, pagename, templatename, context, doctree):
    if doctree is None or app.builder.name != "html":
        return
    title = app.env.titles[pagename].astext()
    site, _, _ = app.config.html_title.partition(":")
    if pagename == app.config.root_doc:  # "Welcome" would say nothing elsewhere
        title = next((r.astext() for r in doctree.findall(nodes.rubric)), title)
    given = (context.get("meta") or {}).get("description")
    words = given or described(doctree) or title
    name = hashlib.sha256(title.encode()).hexdigest()[:12]
    card = f"_images/cards/{name}.png"
    if not (Path(app.outdir) / card).exists():
        draw_card(Path(app.outdir) / card, title, site)
    base = app.config.html_baseurl.rstrip("/")
    picture = f"{base}/{card}" if base else context["pathto"](card, 1)
    tags = {
        "og:type": "article",
        "og:site_name": site,
        "og:title": title,
        "og:description": words,
        "og:image": picture,
        "og:image:width": str(SIZE[0]),
        "og:image:height": str(SIZE[1]),
        "og:image:alt": f"The title “{title}” beside twelve rings in three groups, linked.",
    }
    if base:
        tags["og:url"] = f"{base}/{pagename}.html"
    lines = [f'<meta property="{k}" content="{html.escape(v)}" />' for k, v in tags.items()]
    lines.append('<meta name="twitter:card" content="summary_large_image" />')
    lines.append(f'<meta name="description" content="{html.escape(words)}" />')
    if pagename in (app.config.root_doc, "book/cite"):  # for reference managers
        citation = {"title": app.config.html_title, "author": app.config.author}
        citation["publication_date"] = app.config.copyright
        lines += [
            f'<meta name="citation_{name}" content="{html.escape(words)}" />'
            for name, words in citation.items()
        ]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines) + "\n"


def _sitemap(app, error):
    base = app.config.html_baseurl.rstrip("/")
    if error or not base or app.builder.name != "html":
        return
    rows = [f"<url><loc>{base}/{page}.html</loc></url>" for page in sorted(app.env.found_docs)]
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    urlset = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    text = head + "\n".join([urlset, *rows, "</urlset>"]) + "\n"
    (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------- buttons
def _published(app, config):
    """Without the address of a repository there is nothing that a button could open."""
    options = config.html_theme_options
    there = bool(options.get("repository_url"))
    options |= {"use_repository_button": there, "use_issues_button": there}
    if there:
        app.tags.add("published")
    else:
        options["launch_buttons"] = {}


def _search(app, pagename, templatename, context, doctree):
    """The search page weighs results in the book's own way."""
    if pagename == "search":
        app.add_js_file("search.js", defer="defer")


def _plain_buttons(app, pagename, templatename, context, doctree):
    """Downloads and Colab get the plain copy of a notebook."""
    if doctree is None or Path(app.env.doc2path(pagename)).suffix != ".ipynb":
        return
    plain = context["pathto"](f"download/{pagename}.ipynb", 1)

    def fix_buttons(buttons):
        for button in buttons:
            fix_buttons(button.get("buttons", []))
            if button.get("label") in ("download-source-button", "download-notebook-button"):
                button["url"] = plain
            elif "/blob/" in button.get("url", "") and button.get("text") == "Colab":
                button["url"] = re.sub(
                    rf"/blob/[^/]+/{re.escape(pagename)}\.ipynb$",
                    f"/blob/{PUBLISHED}/download/{pagename}.ipynb",
                    button["url"],
                )

    fix_buttons(context.get("header_buttons", []))


# ----------------------------------------------------------------------------------- reference
def _equations(app, what, name, thing, options, lines):
    """The label of an equation in a docstring becomes a link to the equation."""
    lines[:] = [re.sub(r"Equation label: (eq-[a-z0-9-]+)$", r"Equation :eq:`\1`", s) for s in lines]


class MarkdownDirective(SphinxDirective):
    """A directive that stands for the lines of Markdown it generates."""

    def markdown(self):
        """The lines."""
        raise NotImplementedError

    def run(self):
        holder = nodes.container()
        self.state.nested_parse(StringList(self.markdown(), self.name), 0, holder)
        return holder.children


# ----------------------------------------------------------------------------------- downloads
class NotebookDownloads(MarkdownDirective):
    """A table of all notebooks, in the order of the book: page, and plain copy to download."""

    def markdown(self):
        up = "../" * self.env.docname.count("/")
        rows = ["| page | plain copy |", "|:--|:--|"]
        for page in _in_order(self.env):
            path = f"{up}download/{page}.ipynb"
            name = page.rpartition("/")[2]
            rows.append(f'| {{doc}}`/{page}` | <a href="{path}" download>{name}.ipynb</a> |')
        return rows


class LibraryDownload(MarkdownDirective):
    """The library as one file, to download; `make book` puts it there (devtools/book.py)."""

    def markdown(self):
        name = wheel_name()
        up = "../" * self.env.docname.count("/")
        link = f'<a href="{up}download/{name}" download>{name}</a>'
        return [link]


def wheel_name():
    import pfl_lib

    return f"pfl_lib-{pfl_lib.__version__}-py3-none-any.whl"


class SmallPlayground(SphinxDirective):
    """The playground, small: a stage, a sentence, and a link to the whole of it."""

    def run(self):
        from pfl_lib.book.explore.playground import Playground

        if self.env.app.builder.name != "html":  # on paper nothing moves
            return []
        link = "../" * self.env.docname.count("/") + "notebooks/play.html"
        small = Playground(small=True, link=link)
        return [nodes.raw("", small._repr_html_(), format="html")]


class Wall(SphinxDirective):
    """A picture of every explorer that leads to it (pictures: devtools/picture.py)."""

    def run(self):
        from pfl_lib.book import explore

        if self.env.app.builder.name != "html":  # on paper no link leads to a figure that moves
            return []
        up = "../" * self.env.docname.count("/")
        folder = Path(explore.__file__).parent
        cards = []
        for name in explore.__all__[1:]:
            module = getattr(explore, name).modules[-1]
            title = re.search(r'title: "(.+?)",', (folder / module).read_text("utf-8")).group(1)
            title, picture = html.escape(title), f"{up}_static/img/explorers/{name}.webp"
            cards.append(  # the words are those of the picture: said once
                f'<a href="{up}notebooks/explorers.html#{name}?"><img loading="lazy" '
                f'alt="{title}" src="{picture}"><span aria-hidden="true">{title}</span></a>'
            )
        wall = f'<div class="pfl-wall">{"".join(cards)}</div>'
        return [nodes.raw("", wall, format="html")]


class Versions(MarkdownDirective):
    """What the pages were run with: a table of versions."""

    NAMES = ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "matplotlib", "safetensors",
             "anywidget", "mlxtend", "jupyter-book", "papermill", "nbval")  # fmt: skip

    def markdown(self):
        rows = ["| package | version |", "|:--|:--|", f"| Python | {platform.python_version()} |"]
        rows += [f"| {name} | {version(name)} |" for name in self.NAMES]
        return rows


class LongTests(MarkdownDirective):
    """What `make soak` measured, read from its result files: a table."""

    def markdown(self):
        rows = ["| tried | measured | `python -m tests.soak.soak …` |", "|:--|:--|:--|"]
        for path in sorted((Path(self.env.srcdir) / "results" / "soak").glob("*.json")):
            self.env.note_dependency(str(path))
            record = json.loads(path.read_text(encoding="utf-8"))
            rows.append(f"| {record['what']} | {soaked(record['measured'])} | `{path.stem}` |")
        return rows


class WrongArguments(MarkdownDirective):
    """How public callables answered wrong arguments, from results/soak/api.json: a table."""

    def markdown(self):
        path = Path(self.env.srcdir) / "results" / "soak" / "api.json"
        self.env.note_dependency(str(path))
        rows = wrong_arguments(json.loads(path.read_text(encoding="utf-8"))["measured"])
        rows += ["", "Command: `python -m tests.soak.soak api`."]
        return rows


def wrong_arguments(measured):
    """The lines of a table: groups of callables by kinds of values, refused and accepted."""
    kinds = list(measured["values"])
    head = ["public callables", "how many", *kinds]
    lines = [f"| {' | '.join(head)} |", "|:--|" + "--:|" * (len(head) - 1)]
    total = {kind: {"refused": 0, "taken": 0} for kind in kinds}
    for title, group in measured["groups"].items():
        for kind, counts in group["kinds"].items():
            for what, count in counts.items():
                total[kind][what] += count
        cells = [f"{c['refused']:,} / {c['taken']:,}" for c in group["kinds"].values()]
        lines.append(f"| {title} | {group['callables']} | {' | '.join(cells)} |")
    cells = [f"{c['refused']:,} / {c['taken']:,}" for c in total.values()]
    return [*lines, f"| all | {measured['callables']} | {' | '.join(cells)} |"]


class Choices(MarkdownDirective):
    """What the readings we chose are worth, from results/own_readings: a table."""

    def markdown(self):
        path = Path(self.env.srcdir) / "results" / "own_readings" / "laptop.json"
        self.env.note_dependency(str(path))
        from pfl_lib.book.experiments import readings, stored  # pages without it need no torch

        return chosen(readings.effects(stored("own_readings")["laptop"]))


def chosen(effects):
    """The lines of a table: each reading, what ours gives and what the other one changes."""
    rule = "|:--|:--|" + "--:|" * (len(effects.head) - 2)
    rows = [f"| {' | '.join(map(str, row))} |" for row in (effects.head, *effects.rows)]
    return [rows[0], rule, *rows[1:], "", effects.note]


class Broken(MarkdownDirective):
    """What was measured where networks and clients fail: a table from results/flower or trust."""

    required_arguments = 1

    def markdown(self):
        (folder,) = self.arguments
        records = {}
        for path in sorted((Path(self.env.srcdir) / "results" / folder).glob("*.json")):
            self.env.note_dependency(str(path))
            records[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        rows = ["| tried | measured |", "|:--|:--|"]
        for what, found in (over_flower if folder == "flower" else in_trust)(records):
            rows.append(f"| {what} | {found} |")
        prefix = "make flower PARTS=" if folder == "flower" else "python -m devtools.trust "
        commands = [prefix + name for name in records]
        rows += ["", "Commands: " + ", ".join(f"`{command}`" for command in commands) + "."]
        return rows


def over_flower(records):
    """(what was tried, what was measured) of runs over Flower, in words."""
    for row in records.get("cables", {"rows": []})["rows"]:
        missed = row["absences"]
        who = f"{missed} absence{'s' * (missed != 1)}" if missed else "nobody missed"
        lost = row["packets"]["lost"]
        yield (
            row["what"].capitalize() if row["what"][0].islower() else row["what"],
            f"{who} in {row['rounds']} rounds{f', {lost:,} packets lost' if lost else ''}; "
            f"difference to `run`: {row['largest difference']:g}; "
            f"{row['seconds']:.0f} s, of {row['seconds at most']:,.0f} allowed",
        )
    if "cables" in records:
        knocked = records["cables"]["stranger"]
        yield (
            "A machine whose key nobody registered",
            f"refused: {' '.join(knocked['said'])}",
        )
    for name, what in (("death", "A SuperNode killed in a round"), ("worker", "Its worker killed")):
        if name in records:
            found = records[name]
            missed = sum(len(found["who"][0]) - len(clients) for clients in found["who"])
            yield (
                what,
                f"{missed} absence{'s' * (missed != 1)} in {len(found['who'])} rounds; "
                f"difference to `run`: {found['largest difference']:g}",
            )
    for name in ("network", "many"):
        if name in records:
            found = records[name]
            times = [s for row in found["rows"] for s in row["seconds an exchange"]]
            middle = sorted(times)[len(times) // 2]
            yield (
                f"An exchange with {found['clients']} nodes on {found['cores']} cores",
                f"{middle:.1f} s (median of {len(times)}; load {found['load']:.0f}); "
                f"difference to `run`: {max(r['largest difference'] for r in found['rows']):g}",
            )
    if "size" in records:
        yield (
            "Each further million parameters",
            f"{records['size']['seconds per million']:.2f} s more",
        )


def in_trust(records):
    """(what was tried, what was measured) of liars, attacks and noise, in words."""
    liars = {(row["method"], row["attack"]): row["mean"] for row in records["liars"]["rows"]}
    share = f"{records['liars']['liars']} of {records['liars']['clients']} clients"
    for attack, what in (("sign turned", "turn the sign of their model"),
                         ("ten times as long", "send ten times their model")):  # fmt: skip
        rules = {"the mean": "FedAvg", "the median": "FedAvg, median",
                 "multi-Krum": "FedAvg, multi-krum"}  # fmt: skip
        yield (
            f"{share} {what}: accuracy of the honest under FedAvg",
            ", ".join(f"{liars[method, attack]:.2f} with {rule}" for rule, method in rules.items())
            + f"; {liars['FedAvg', 'nobody lies']:.2f} if nobody lies",
        )
    leak = {row["epsilon"]: row["window"]["mean"] for row in records["leaks"]["rows"]}
    yield (
        "A window read from one step of training: correlation with the true one",
        f"{leak[None]:.2f} without noise, {leak[8]:.2f} at ε = 8, {leak[1]:.2f} at ε = 1",
    )
    rows = {(row["method"], row["epsilon"]): row for row in records["samples"]["rows"]}
    for method in dict.fromkeys(name for name, _ in rows):
        each = [f"{rows[method, level]['accuracy']['mean']:.2f}" for level in (1, 4, 8, None)]
        server = [rows[method, level]["server"] for level in (1, 8, None)]
        found = [f"{max(one['loss']['mean'], one['lira']['mean']):.2f}" for one in server]
        yield (
            f"{method}, each sample hidden at ε = 1, 4, 8, ∞",
            f"accuracy {', '.join(each)}; the server's stronger attack of two (0.5 is "
            f"guessing) {found[0]} at ε = 1, {found[1]} at 8, {found[2]} at ∞",
        )


class SiteMeasured(MarkdownDirective):
    """What ``devtools.measure`` found in the built book: one paragraph."""

    def markdown(self):
        path = Path(self.env.srcdir) / "results" / "site" / "measured.json"
        self.env.note_dependency(str(path))
        words = loaded(json.loads(path.read_text(encoding="utf-8")))
        return [words]


def loaded(record):
    """The built book, as measured, in words."""
    sizes = {name: size["compressed"] / 1e6 for name, size in record["bytes"].items()}
    heavy = max(sizes, key=sizes.get)
    redraws = record["explorers, milliseconds of work a redraw"]
    slow = max(redraws, key=redraws.get)
    frames, ranks = record["playground, milliseconds a frame"], record["ranks"].values()
    first = sum(found["rank"] == 1 for found in ranks)
    worst = max(found["rank"] or found["among"] + 1 for found in ranks)
    quiet = (
        f" With a processor slowed {frames['slower']} times it shows a picture every "
        f"{frames['median']:.0f} ms."
    )
    return (
        f"A first visit to the first page loads {sizes['index']:.2f} MB, compressed; the heaviest "
        f"of {len(sizes)} pages weighed, `{heavy}`, {sizes[heavy]:.2f} MB. A round of the "
        "playground, two methods with all their pictures, costs "
        f"{record['playground, milliseconds of work a round']:.0f} ms of processor time, a redraw "
        f"of an explorer {min(redraws.values()):.0f} to {redraws[slow]:.0f} ms (the slowest is "
        f"{slow}).{quiet if frames['load'] <= 1 else ''} Of {len(ranks)} searches {first} show the "
        "page that explains the word first"
        + (f", the others at place {worst} or before" if first < len(ranks) else "")
        + f" ({record['browser']})."
    )


def soaked(measured):
    """One result of a long test in words."""
    if "growth" in measured:
        early, late = (v for k, v in measured.items() if k.startswith("MiB at most"))
        differs = measured["differs from the run in peace"]
        return (
            f"{measured['parameters']:,} parameters per model; "
            f"{measured['kills']} kills; results that differ: {len(differs)}; "
            f"{early:.0f} MiB at first, {late:.0f} later ({measured['growth']:.1%} more)"
        )
    if "kills" in measured:
        writing = measured["inside a checkpoint's writing"]
        return (
            f"{measured['kills']} kills of {measured['algorithms']} algorithms, of which "
            f"{writing} inside the writing of a checkpoint; "
            f"results that differed: {measured['results that differed']}"
        )
    if "callables" in measured:
        return (
            f"{measured['tried']:,} calls: {measured['arguments']:,} arguments of "
            f"{measured['callables']:,} callables, {measured['refused']:,} refused by name, "
            f"{measured['taken']:,} made sense; others: {len(measured['wrong'])}"
        )
    if "afterwards" in measured:
        return f"the run stops; with room again it goes on, {measured['afterwards']}"
    if "MiB at most, ever" in measured:
        first, later = measured["MiB at most, first rounds"], measured["MiB at most, all others"]
        ever = max(later, measured["MiB at most, ever"])  # the system's two counts differ a little
        return (
            f"{measured['method']}, {measured['rounds']} rounds, {measured['parameters']:,} "
            f"parameters per model: {first:,} MiB when the first rounds begin, at most {later:,} "
            f"when later ones do, never more than {ever:,}"
        )
    tried, refused = (sum(m[what] for m in measured.values()) for what in ("tried", "refused"))
    slowest = 1000 * max(m["slowest"] for m in measured.values())
    return (
        f"{tried:,} files, {refused:,} refused, none took longer than {slowest:.0f} ms, no code run"
    )


def _in_order(env):
    """All notebooks, as the table of contents has them."""
    toc = env.external_site_map
    ordered, seen = [], set()

    def walk(name):
        if name in seen or name not in toc:
            return
        seen.add(name)
        if (Path(env.srcdir) / f"{name}.ipynb").exists():
            ordered.append(name)
        for tree in toc[name].subtrees:
            for item in tree.items:
                walk(str(item))

    walk(toc.root.docname)
    return ordered


def setup(app):
    app.add_directive("notebook-downloads", NotebookDownloads)
    app.add_directive("library-download", LibraryDownload)
    app.add_directive("small-playground", SmallPlayground)
    app.add_directive("wall-of-explorers", Wall)
    app.add_directive("versions", Versions)
    app.add_directive("long-tests", LongTests)
    app.add_directive("wrong-arguments", WrongArguments)
    app.add_directive("broken", Broken)
    app.add_directive("choices", Choices)
    app.add_directive("site-measured", SiteMeasured)
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("config-inited", _published)
    app.connect("autodoc-process-docstring", _equations)
    app.connect("html-page-context", _metadata, priority=600)
    app.connect("html-page-context", _plain_buttons, priority=600)
    app.connect("html-page-context", _search)
    app.connect("build-finished", _sitemap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
