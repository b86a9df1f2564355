"""Draw the README's moving picture and the small pictures of the first page, in a real browser.

    python -m devtools.picture      writes static/img/explorer.gif: an explorer, its slider moved
    python -m devtools.picture wall      writes static/img/explorers/*.webp: one of each explorer

Needs a browser (devtools/browser.py) and nothing of the built book. Run it when the explorer has
changed; what it shows is computed on the page, as for a reader.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

from devtools import browser

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "static" / "img" / "explorer.gif"
WALL = ROOT / "static" / "img" / "explorers"
WIDTH, SHOWN, COLORS = 900, 620, 48  # pixels on the page, pixels in the picture, colours
SIGMAS = (8.0, 5.0, 3.2, 2.2, 1.6, 1.2, 0.9, 0.65, 0.45, 0.3)  # from all alike to every one alone
THUMB = (480, 360)  # pixels of a picture of the wall
SHOWN_AS = {"FedAMPRounds": {"round": 40}, "Shrinkage": {"lam": 0.5}}
SEVERAL = ("FourRules",)  # all its panels are the picture
# numbers and names of axes would be too small to read
BARE = ".pfl-tick, .pfl-axis, .pfl-frame, .pfl-grid, .pfl-panel-title { display: none !important }"
PAGE = """<!DOCTYPE html><meta charset="utf-8">
<style>body {{ margin: 12px; font: 16px system-ui, sans-serif; background: white }}</style>{}"""


def frames():
    """The explorer at each σ, as pictures."""
    from pfl_lib.book.explore import FedAMPPlane

    taken = []
    with tempfile.TemporaryDirectory() as folder, browser.chromium() as running:
        for sigma in SIGMAS:
            page = running.new_page(viewport={"width": WIDTH, "height": 900})
            path = Path(folder) / "page.html"
            path.write_text(PAGE.format(FedAMPPlane(sigma=sigma)._repr_html_()), encoding="utf-8")
            page.goto(path.as_uri())
            page.wait_for_selector("svg")
            shot = page.locator("body > div").first.screenshot()
            taken.append(Image.open(io.BytesIO(shot)).convert("RGB"))
            page.close()
    return taken


def write(path=PICTURE):
    """All frames there and back, as one file that plays for ever."""
    taken = frames()
    size = (SHOWN, round(SHOWN * taken[0].height / taken[0].width))
    small = [frame.resize(size, Image.LANCZOS) for frame in taken]
    palette = small[len(small) // 2].quantize(COLORS)
    drawn = [frame.quantize(COLORS, palette=palette, dither=Image.Dither.NONE) for frame in small]
    play = drawn + drawn[-2:0:-1]
    pauses = [1200] + [220] * (len(drawn) - 2) + [1200] + [220] * (len(drawn) - 2)
    play[0].save(
        path, save_all=True, append_images=play[1:], duration=pauses, loop=0, optimize=True
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


if __name__ == "__main__" and sys.argv[1:2] == ["wall"]:
    written = sorted(wall().glob("*.webp"))
    print(f"{len(written)} pictures: {sum(p.stat().st_size for p in written) / 1000:.0f} kB")
elif __name__ == "__main__":
    written = write(*map(Path, sys.argv[1:2]))
    print(f"{written.name}: {written.stat().st_size / 1000:.0f} kB")
