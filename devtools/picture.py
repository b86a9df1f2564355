"""Make the README's animation and the thumbnails of the first page, in a real browser.

    python -m devtools.picture play      writes static/img/play.webp: the first page's three acts
    python -m devtools.picture wall      writes static/img/explorers/*.webp: one of each explorer

Needs a browser (devtools/browser.py) and nothing of the built book. Run it when the playground or
an explorer has changed; what it shows is computed on the page, as for a reader.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

from devtools import browser

ROOT = Path(__file__).resolve().parents[1]
WALL = ROOT / "static" / "img" / "explorers"
STORY = ROOT / "static" / "img" / "play.webp"
THUMB = (480, 360)  # pixels of a picture of the wall
FAR_APART = [[2.7, 0.5], [1.5, -0.4], [1.4, 2.0], [-0.6, 1.6], [-2.6, 0.4], [-1.3, -1.8]]
SHOWN_AS = {
    "FedAMPRounds": {"round": 40},
    "Shrinkage": {"lam": 0.5},
    "FourRules": {"points": FAR_APART, "groups": [0, 0, 0, 1, 1, 1], "sigma": 4.0},
    "Stragglers": {"places": [[-1.7, -0.9], [1.7, 1.8], [1.5, -1.7]], "drift": 0.15, "lr": 0.03},
}
SEVERAL = ("FourRules",)  # all its panels are the picture
STILL = """.pg-coin { transition: none !important }
.pg-scenes, .pg-link { display: none !important }"""  # nothing to press in a picture
# words and numbers would be too small to read
BARE = ".pfl-text, .pfl-tick, .pfl-frame, .pfl-grid, .pfl-panel-title { display: none !important }"
PAGE = """<!DOCTYPE html><meta charset="utf-8">
<style>body {{ margin: 12px; font: 16px system-ui, sans-serif; background: white }}</style>{}"""


def play(path=STORY, every=200, last=3000):
    """The small playground from its first second to its last, one picture every so many ms."""
    from pfl_lib.book.explore.playground import Playground

    taken = []
    with tempfile.TemporaryDirectory() as folder, browser.chromium() as running:
        page = running.new_page(viewport={"width": 490, "height": 680})
        page.clock.install(time=0)
        page.clock.pause_at(1)  # time stands still while a picture is taken
        place = Path(folder) / "page.html"
        place.write_text(PAGE.format(Playground(small=True)._repr_html_()), encoding="utf-8")
        page.goto(place.as_uri())
        page.wait_for_selector(".pg-b .pg-coin")
        page.add_style_tag(content=STILL)
        card = page.locator(".pg-card")
        while len(taken) < 200:
            page.clock.run_for(every)
            taken.append(Image.open(io.BytesIO(card.screenshot())).convert("RGB"))
            if page.evaluate("document.querySelector('[data-play]').textContent") == "↻":
                break
    pauses = [every] * (len(taken) - 1) + [last]
    taken[0].save(
        path, save_all=True, append_images=taken[1:], duration=pauses, loop=0, quality=45, method=6
    )
    return path


def wall(folder=WALL):
    """The first panel of every explorer as it greets a reader, in light colours."""
    from pfl_lib.book import explore

    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser.chromium() as running:
        for name in explore.__all__[1:]:
            page = running.new_page(
                viewport={"width": 860 if name in SEVERAL else 420, "height": 900},
                device_scale_factor=2,
                reduced_motion="reduce",
            )
            path = Path(place) / "page.html"
            figure = getattr(explore, name)(**SHOWN_AS.get(name, {}))
            path.write_text(PAGE.format(figure._repr_html_()), encoding="utf-8")
            page.goto(path.as_uri())
            page.add_style_tag(content=BARE)
            part = ".pfl-panels" if name in SEVERAL else "svg[data-panel]"
            shot = page.locator(part).first.screenshot()
            fitted(Image.open(io.BytesIO(shot)).convert("RGB")).save(
                folder / f"{name}.webp", quality=82
            )
            page.close()
    return folder


def fitted(picture, size=THUMB):
    """The drawn part of a picture, as large as it fits, in the middle of white."""
    drawn = picture.crop(ImageChops.invert(picture).getbbox())
    part = min(size[0] / drawn.width, size[1] / drawn.height)
    drawn = drawn.resize((round(part * drawn.width), round(part * drawn.height)), Image.LANCZOS)
    card = Image.new("RGB", size, "white")
    card.paste(drawn, ((size[0] - drawn.width) // 2, (size[1] - drawn.height) // 2))
    return card


if __name__ == "__main__":
    if sys.argv[1:] == ["play"]:
        print(f"{play().name}: {STORY.stat().st_size / 1000:.0f} kB")
    elif sys.argv[1:] == ["wall"]:
        written = sorted(wall().glob("*.webp"))
        print(f"{len(written)} pictures: {sum(p.stat().st_size for p in written) / 1000:.0f} kB")
    else:
        sys.exit(__doc__)
