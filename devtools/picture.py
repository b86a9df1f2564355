"""Draw the README's moving picture: a real explorer in a real browser, its slider moved.

    python -m devtools.picture      writes static/img/explorer.gif

Needs a browser (devtools/browser.py) and nothing of the built book. Run it when the explorer has
changed; what it shows is computed on the page, as for a reader.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from devtools import browser

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "static" / "img" / "explorer.gif"
WIDTH, SHOWN, COLORS = 900, 620, 48  # pixels on the page, pixels in the picture, colours
SIGMAS = (8.0, 5.0, 3.2, 2.2, 1.6, 1.2, 0.9, 0.65, 0.45, 0.3)  # from all alike to every one alone
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


if __name__ == "__main__":
    written = write(*map(Path, sys.argv[1:2]))
    print(f"{written.name}: {written.stat().st_size / 1000:.0f} kB")
