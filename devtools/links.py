"""Where do the links of the built book lead?

python -m devtools.links            inside the book: broken ones; outside: a list
python -m devtools.links --online   also request external links
"""

import re
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote

import yaml

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
LINK = re.compile(r'\b(?:href|src)="([^"]+)"')


def pages(folder=HTML):
    """The text of every page of the built book."""
    found = sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)
    return {path: path.read_text(encoding="utf-8") for path in found}


def broken_inside(folder=HTML):
    """Links inside the book that lead nowhere, as "page: link"."""
    texts = pages(folder)
    anchors = {path: set(re.findall(r'\b(?:id|name)="([^"]+)"', t)) for path, t in texts.items()}
    broken = []
    for path, text in texts.items():
        for url in LINK.findall(text):
            if re.match(r"[a-z+]+:|//|#$|\?", url):
                continue
            where, _, anchor = url.partition("#")
            start = folder if where.startswith("/") else path.parent
            target = start / unquote(where.split("?")[0]).lstrip("/")
            target = target.resolve() if where else path
            # no place, but what the playground (m=fedamp) or an explorer (ALABox?eta=1) should show
            if "=" in anchor or anchor.endswith("?"):
                anchor = ""
            missing = anchor and target in anchors and unquote(anchor) not in anchors[target]
            if not target.exists() or missing:
                broken.append(f"{path.relative_to(folder)}: {url}")
    return broken


def outside(folder=HTML):
    """Links that leave the book: {address: pages}, without those to a repository not yet named."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    own = config["repository"]["url"].removeprefix("https://").partition("/")[2]
    found = defaultdict(set)
    for path, text in pages(folder).items():
        for url in LINK.findall(text):
            url = url.partition("#")[0]
            if re.match(r"https?://", url) and not ("YOUR-" in own and own in url):
                found[url].add(path.relative_to(folder).as_posix())
    return dict(sorted(found.items()))


def problem_of(url):
    """What is wrong with an address, or None. A refusal to talk to programs is no broken link."""
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=30):
            return None
    except urllib.error.HTTPError as error:
        return None if error.code in (401, 403, 405, 429) else f"{error.code}"
    except (OSError, ValueError) as error:
        return str(error)


def main(online):
    if not (HTML / "index.html").exists():
        sys.exit("the book is not built: run `make book` first")
    bad = broken_inside()
    for url, where in outside().items():
        problem = problem_of(url) if online else None
        print(f"{url}  ({len(where)} pages)", f"BROKEN: {problem}" if problem else "")
        if problem:
            bad.append(f"{min(where)}: {url}")
    print(f"{len(bad)} broken links", *bad, sep="\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main("--online" in sys.argv[1:]))
