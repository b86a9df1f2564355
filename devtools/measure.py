"""The cost of the built book for a reader's machine: bytes, work, and ranks in the search.

    python -m devtools.measure      writes results/site/measured.json

Weights are of a first visit, compressed as web servers do. Work is processor time of the page,
which does not depend on what else the machine does: of the playground for a round of two methods
with its flights and its painting, of each explorer for a redraw while its first slider moves.
Frames are from picture to picture of the playground while it trains, on a processor slowed four
times, like an older phone; they are meaningful on a quiet machine only, so the load is
stored with them. Ranks count pages.
"""

import gzip
import json
import os
import sys
from pathlib import Path
from urllib.parse import quote

from devtools.browser import chromium, serve, wait_for_maths

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
RESULT = ROOT / "results" / "site" / "measured.json"
SLOWER = 4  # times
SQUEEZED = (".html", ".js", ".css", ".svg", ".json")
HEAVY = ("index", "notebooks/play", "notebooks/explorers", "notebooks/04_fedamp", "book/notation",
         "notebooks/results")  # fmt: skip
SEARCHES = {
    "sigma": "book/notation",
    "τ": "book/notation",
    "delta": "book/notation",
    "FedAMP": "notebooks/04_fedamp",
    "FedALA": "notebooks/10_fedala",
    "BatchNorm": "notebooks/reference/fedbn",
    "non-IID": "book/glossary",
    "convergence": "notebooks/05_convergence",
    "privacy": "notebooks/12_privacy",
    "how do I cite": "book/cite",
}
# One frame after another until there are enough; before each, the step is taken.
FRAMES = """([count, selector]) => new Promise((done) => {
  const times = [], redraws = [], input = selector && document.querySelector(selector),
    explorer = input && input.closest('[data-explorer]');
  let last = null;
  function frame(now) {
    if (last !== null) times.push(now - last);
    last = now;
    if (input && times.length > 1) redraws.push(Number(explorer.dataset.ms));
    if (times.length >= count) return done(input ? redraws : times);
    if (input) {
      const low = Number(input.min), high = Number(input.max), step = Number(input.step) || 1,
        places = Math.round((high - low) / step), k = times.length % (2 * places);
      input.value = low + step * (k < places ? k : 2 * places - k);
      input.dispatchEvent(new Event('input', { bubbles: true }));
    }
    requestAnimationFrame(frame);
  }
  requestAnimationFrame(frame);
})"""


def visit(page, address):
    """{path: (bytes on the wire, bytes in the end)} of a first visit; the page must be fresh."""
    loaded = {}

    def note(answer):
        if answer.url.startswith("http") and answer.status == 200:
            body, path = answer.body(), answer.url.partition("?")[0]
            wire = gzip.compress(body) if path.endswith(SQUEEZED) else body
            loaded[path.partition("/")[2]] = (len(wire), len(body))

    page.on("response", note)
    page.goto(address)
    if page.locator(".math").count():
        wait_for_maths(page)
    page.wait_for_load_state("networkidle")
    return loaded


def frame_times(page, slower=SLOWER, count=60, slider=None):
    """Milliseconds, sorted: from frame to frame, or of the redraws while ``slider`` moves."""
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    times = sorted(page.evaluate(FRAMES, [count, slider]))
    session.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    session.detach()
    return times


def work(page, count=60, slider=None):
    """Milliseconds of processor time that the page spends on so many frames, in all."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(m["value"] for m in metrics if m["name"] == "TaskDuration")

    before = spent()
    page.evaluate(FRAMES, [count, slider])
    took = 1000 * (spent() - before)
    session.detach()
    return took


def found(page, site, query):
    """The pages that a search shows, in its order, each once."""
    page.goto(f"{site}/search.html?q={quote(query)}")
    page.wait_for_selector("#search-results li a")
    # all are shown when this heading comes; until then it is "Searching", with dots and without
    page.wait_for_function(
        "document.querySelector('#search-results h2').innerText === 'Search Results'"
    )
    links = page.locator("#search-results > ul > li > a").evaluate_all(
        "links => links.map(a => a.getAttribute('href').split('.html')[0])"
    )
    return list(dict.fromkeys(links))


def measure(site, browser):
    """All of it, as a record."""

    def fresh():  # Playwright waits by ``eval``, which the pages' security policy forbids
        size = {"width": 1280, "height": 900}
        return browser.new_context(viewport=size, bypass_csp=True).new_page()

    def summary(times):
        return {"median": round(times[len(times) // 2], 1), "worst in 20": round(times[-3], 1)}

    weights, redraws, ranks = {}, {}, {}
    load = round(os.getloadavg()[0] / (os.cpu_count() or 1), 1)  # per core, before we add to it
    for name in HEAVY:
        sizes = visit(fresh(), f"{site}/{name}.html").values()
        weights[name] = {"compressed": sum(s[0] for s in sizes), "plain": sum(s[1] for s in sizes)}
    page = fresh()
    page.goto(f"{site}/notebooks/play.html")
    page.wait_for_selector(".pg-coin")
    rounds = "Number(document.querySelector('.pg').dataset.round)"
    page.wait_for_function(f"{rounds} >= 2")
    first = page.evaluate(rounds)
    busy = work(page, 600 // 4)
    done = page.evaluate(rounds) - first
    page.locator("[data-restart]").click()
    page.locator("[data-speed]").select_option("fast")
    page.wait_for_timeout(500)
    playing = summary(frame_times(page))
    page = fresh()
    page.goto(f"{site}/notebooks/explorers.html")
    page.wait_for_selector(".pfl-card")
    shown = page.locator("[data-explorer]").evaluate_all("all => all.map(e => e.dataset.explorer)")
    for name in dict.fromkeys(shown):
        first = f"[data-explorer={name}]"
        page.locator(first).first.scroll_into_view_if_needed()
        page.wait_for_timeout(3000)  # its opening is over
        redraws[name] = round(work(page, slider=f"{first} input[type=range]:enabled") / 60, 1)
    page = fresh()
    for query, wanted in SEARCHES.items():
        pages = found(page, site, query)
        rank = pages.index(wanted) + 1 if wanted in pages else None
        ranks[query] = {"page": wanted, "rank": rank, "among": len(pages)}
    return {
        "bytes": weights,
        "playground, milliseconds of work a round": round(busy / max(1, done), 1),
        "explorers, milliseconds of work a redraw": redraws,
        "playground, milliseconds a frame": playing | {"slower": SLOWER, "load": load},
        "ranks": ranks,
    }


def main():
    if not (HTML / "index.html").exists():
        print("the book is not built: run `make book` first")
        return 1
    with serve(HTML) as site, chromium() as browser:
        record = measure(site, browser) | {"browser": f"Chromium {browser.version}"}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(record, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
