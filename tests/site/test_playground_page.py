"""The playground as a reader meets it: fingers, keys, the address, no network, no motion."""

import base64
import json
import re
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from devtools import measure
from devtools.sphinxext import pfl_situations
from pfl_lib import train
from pfl_lib.book.explore import playground
from pfl_lib.book.explore.playground import Playground
from tests.support.paths import ROOT

AXE = (ROOT / "tests" / "site" / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Play</title>
<meta name="viewport" content="width=device-width"></head><body><main><h1>Play</h1><h2>Now</h2>"""
ADDRESS = (ROOT / "pfl_lib/book/explore/playground.js").read_text(encoding="utf-8")
ADDRESS = ADDRESS.partition("const ADDRESS = {")[2].partition("}")[0]
ARRIVED = """([tab, wanted]) => {
  const state = JSON.parse(document.querySelector('.pg').dataset.state);
  return document.querySelector(`[data-tab=${tab}]`).ariaSelected === 'true'
    && Object.entries(wanted).every(([k, v]) => state[k] === v);
}"""
QUICK = "#n=10&l=1"  # ten digits, one step: a round takes no time


@pytest.fixture
def show(browser, tmp_path):
    """Open a playground from a file, offline; whatever goes wrong on the page fails the test."""
    contexts, bad = [], []

    def shower(address="", width=1100, widget=None, before="", still=True, **how):
        path = tmp_path / "play.html"
        html = (widget or Playground())._repr_html_()
        path.write_text(f"{HEAD}{before}{html}</main></body></html>", encoding="utf-8")
        how |= {"reduced_motion": "reduce" if still else "no-preference"}
        context = browser.new_context(viewport={"width": width, "height": 900}, **how)
        context.set_offline(True)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: bad.append(str(error)))
        page.on("console", lambda m: bad.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: bad.append(r.url) if r.url.startswith("http") else None)
        page.goto(path.as_uri() + address)
        page.wait_for_selector(".pg-b .pg-coin")
        return page

    yield shower
    for context in contexts:
        context.close()
    assert bad == []


def data(page, name):
    return json.loads(page.locator(".pg").get_attribute(f"data-{name}"))


def address(page):
    page.wait_for_timeout(200)
    return page.evaluate("location.hash")


def coin(page, client, which="b"):
    return page.locator(f".pg-{which} [data-client='{client - 1}']")


def middle(box):
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


# ---- values ------------------------------------------------------------------------------------


def test_at_every_width_the_name_of_a_method_can_be_read(show):
    page = show("#b=heurfedamp", width=1100)
    for _ in range(3):
        page.locator("[data-step]").click()
    assert page.locator(".pg-b .pg-lead").inner_text().endswith("ahead")
    whole = page.locator(".pg-b select").bounding_box()["width"]
    for width in (1000, 860, 740, 700, 640, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        title = page.locator(".pg-b .pg-title").evaluate("t => t.scrollWidth - t.clientWidth")
        assert page.locator(".pg-b select").bounding_box()["width"] >= whole - 14 and title <= 0


def test_on_a_desk_the_controls_keep_to_one_line(show):
    """As wide as in the book at 1280 pixels; whatever the clients are when the page opens."""
    tops = set()
    for kind in ("alike", "classes", "names", "natural"):
        page = show(f"#d={kind}", width=1280, before="<style>.pg { width: 936px }</style>")
        tops.add(page.locator(".pg-b .pg-stage").bounding_box()["y"])
    assert len(tops) == 1, tops


@pytest.mark.parametrize("width", [1280, 390])
def test_what_can_be_set_keeps_its_name_beside_it(show, width):
    """No name or value leaves its own control, whatever it says."""
    page = show("#liar=12&b=heurfedamp", width=width)
    outside = """all => all.flatMap((control) => {
      const frame = control.getBoundingClientRect(), range = document.createRange();
      return [...control.querySelectorAll('label, output')].filter((node) => {
        range.selectNodeContents(node);
        const box = range.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1;
      }).map((node) => node.textContent);
    })"""
    controls = page.locator(".pg-more .pfl-slider, .pg-front .pfl-slider:visible")
    assert controls.count() >= 6 and controls.evaluate_all(outside) == []
    label, value = (
        page.locator("label:has-text('a liar')"),
        page.locator("output:has-text('client 12')"),
    )
    tall = [box.bounding_box()["height"] for box in (label, value)]
    assert max(tall) < 30, "one line each"
    page.locator("[data-step]").click()
    assert "all signs turned" in page.locator(".pg-say").inner_text()


def test_a_key_says_how_to_read_the_pictures(show):
    """Right below the clients, and on a desk in one line."""
    page = show(before="<style>.pg { width: 936px }</style>", width=1280)
    key, stage = (
        page.locator(k).bounding_box() for k in (".pg-key", ".pg-b .pg-half, .pg-b.pg-half")
    )
    assert 0 <= key["y"] - stage["y"] - stage["height"] < 20 and key["height"] < 26
    words = page.locator(".pg-key li").all_inner_texts()
    assert [w.partition(":")[0] for w in words] == ["ring", "inside", "below", "line"]


def test_at_every_size_the_links_fill_the_stage(show):
    """A canvas begins as 300 by 150: at a width of just 300 the links were drawn half as high."""
    for side in (300, 360):
        page = show(before=f"<style>.pg-stage {{ max-width: {side}px !important }}</style>")
        skies = page.locator(".pg-b canvas.pg-sky")
        sizes = skies.evaluate_all("all => all.map(c => [c.width, c.height])")
        assert sizes == [[side, side]] * 2


def test_the_page_shows_what_the_library_computes(show):
    page = show("#m=ditto&b=fedacs&d=classes&h=3&seed=4")
    for _ in range(3):
        page.locator("[data-step]").click()
    s = data(page, "state")
    assert (s["a"], s["b"], s["data"], s["how"], s["seed"]) == ("ditto", "fedacs", "classes", 3, 4)
    wanted = [list(playground.rounds(s[w], s, 3))[-1] for w in "ab"]
    assert data(page, "means") == pytest.approx([one["mean"] for one in wanted], abs=1e-12)
    for which, one in zip("ab", wanted):
        shown = f"{100 * one['mean']:.0f}"
        assert shown in page.locator(f".pg-{which} .pg-mean").inner_text()
        for client in (1, 7):
            label = coin(page, client, which).get_attribute("aria-label")
            right = int(100 * one["accuracy"][client - 1].item() + 0.5)
            assert f", {right} % right" in label
    a, b = (int(100 * one["mean"] + 0.5) for one in wanted)
    ahead = [f"{n} point{'s' * (n > 1)} ahead" if n > 0 else "" for n in (a - b, b - a)]
    assert page.locator(".pg-lead").all_inner_texts() == ahead != ["", ""]
    page.wait_for_timeout(400)
    spoken = page.locator(".pfl-aloud").inner_text()
    assert spoken.startswith("Round 3 of 30: Ditto reads") and "FedACS" in spoken


def test_a_hundred_seeds_run_beside_the_page_and_can_be_cancelled(show):
    page = show(QUICK + "&m=separate&b=fedavg&d=alike")
    page.get_by_role("tab", name="100 seeds").click()
    page.locator("[data-seeds]").click()
    page.get_by_role("button", name="Cancel").click()  # the page still answers
    assert page.locator(".pg").get_attribute("data-seeds") is None
    page.locator("[data-seeds]").click()
    page.wait_for_function("document.querySelector('.pg').dataset.seeds", timeout=60_000)
    found = data(page, "seeds")
    assert [one["seed"] for one in found] == list(range(100))
    s = data(page, "state")
    for seed in (0, 99):
        last = [list(playground.rounds(s[w], dict(s, seed=seed)))[-1]["mean"] for w in "ab"]
        assert [found[seed]["a"], found[seed]["b"]] == pytest.approx(last, abs=1e-12)
    wins = sum(one["b"] > one["a"] for one in found)
    assert f"FedAvg beats Separate in {wins} of 100" in page.locator("main").inner_text()


def test_the_map_names_the_best_of_each_field(show):
    page = show("#l=1")
    page.get_by_role("tab", name="The map").click()
    page.locator("[data-map]").click()
    page.wait_for_function("document.querySelectorAll('[data-best]').length >= 3", timeout=60_000)
    best = page.locator("[data-best]").first.get_attribute("data-best")
    page.get_by_role("button", name="Cancel").click()
    s = dict(data(page, "state"), how=0, size=10, seed=0)
    means = {m: list(playground.rounds(m, s))[-1]["mean"] for m in ("separate", "fedavg")}
    assert best in ("fedavg", "ditto", "fedamp") and means["fedavg"] > means["separate"]
    fields = page.locator(".pg-field")
    assert fields.evaluate_all("all => all.filter((f) => f.tabIndex === 0).length") == 1
    fields.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")  # the second field: its two best methods run
    best, second = (fields.nth(1).get_attribute(f"data-{k}") for k in ("best", "second"))
    s = data(page, "state")
    assert (s["data"], s["how"], s["size"], s["b"], s["a"]) == ("names", 0, 20, best, second)
    assert data(page, "round") == 30
    fields.first.click()
    assert data(page, "state")["size"] == 10


# ---- hands -------------------------------------------------------------------------------------


def touch(page):
    session = page.context.new_cdp_session(page)

    def send(kind, *points):
        where = [{"x": x, "y": y} for x, y in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": where})

    return send


def slide(send, begin, end, steps=8):
    send("touchStart", begin)
    for k in range(1, steps + 1):
        part = k / steps
        send("touchMove", tuple(a + part * (b - a) for a, b in zip(begin, end)))
    send("touchEnd")


def test_a_finger_drags_a_client_into_another_group(show):
    page = show(width=390, has_touch=True, is_mobile=True)
    coin(page, 2).scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    before = page.evaluate("scrollY")
    slide(touch(page), middle(coin(page, 2).bounding_box()), middle(coin(page, 7).bounding_box()))
    page.wait_for_function("JSON.parse(document.querySelector('.pg').dataset.state).groups[1] == 1")
    assert page.evaluate("scrollY") == before, "the page scrolled instead"
    assert data(page, "state")["groups"] == [0, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert "g=010011112222" in address(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_mouse_does_it_too_and_a_click_only_chooses(show):
    page = show()
    coin(page, 9).click()
    assert "Client 9" in page.locator(".pg-panel:visible").inner_text()
    (x, y), goal = middle(coin(page, 9).bounding_box()), middle(coin(page, 2).bounding_box())
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(*goal, steps=6)
    page.mouse.up()
    assert data(page, "state")["groups"][8] == 0


def test_a_digit_drawn_by_finger_is_answered_by_twelve_models(show):
    page = show(QUICK + "&n=40", width=390, has_touch=True, is_mobile=True)
    for _ in range(4):
        page.locator("[data-step]").click()
    page.get_by_role("button", name="Draw a digit").click()
    assert page.get_by_role("tab", name="Draw a digit").get_attribute("aria-selected") == "true"
    pad = page.locator(".pg-pad")
    pad.scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    box, send, before = pad.bounding_box(), touch(page), page.evaluate("scrollY")
    x, y = middle(box)
    slide(send, (x, y - 60), (x, y + 60))
    assert page.evaluate("scrollY") == before
    replies = page.locator(".pg-reply b").all_inner_texts()
    assert len(replies) == 24 and all(re.fullmatch(r"\d", one) for one in replies)
    assert "say" in page.locator(".pg-panel:visible [role=status]").inner_text()
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".pg-reply b").first.inner_text() == "·"
    page.locator("[data-example]").click()  # one of the test digits, shown on the pad
    digit = playground.digits()[1][playground._stretches()[0]["test"][0]]
    names = [playground.names_of(data(page, "state"), g)[digit] for g in range(3)]
    words = "Group 1 calls it {}, group 2 calls it {} and group 3 calls it {}.".format(*names)
    told = page.locator(".pg-panel:visible [role=status]").inner_text()
    assert told.startswith(words) and len(set(names)) == 3
    for k, chip in enumerate(page.locator(".pg-reply").all_inner_texts()):
        answer, _, sure = chip.partition("\n")  # marked where the client's own group says so
        assert ("✓" in sure) == (int(answer) == names[(k % 12) // 4]), (k, chip)
    slide(send, (x, y - 60), (x, y + 60))  # whoever draws then begins on white
    alone = """() => { const c = document.querySelector('.pg-pad'), { data } = c.getContext('2d')
      .getImageData(0, 0, 168, 168); let n = 0;
      for (let k = 0; k < 168 * 30; k++) n += data[4 * ((k % 30) + 168 * Math.floor(k / 30)) + 3];
      return n; }"""  # the left edge: no stroke was there
    assert page.evaluate(alone) == 0


def test_in_the_book_the_panel_keeps_its_own_margins(site, open_page):
    """A page has its own style for headings and figures, which must not spread the playground."""
    page = open_page(f"{site}/notebooks/play.html", still=True)
    page.wait_for_selector(".pg-holds figure")
    assert page.locator(".pg-h").bounding_box()["height"] < 30
    for row in page.locator(".pg-panel:visible .pg-row").all():
        boxes = [figure.bounding_box() for figure in row.locator("figure").all()]
        assert len(boxes) == 10 and len({round(box["y"]) for box in boxes}) == 1
        assert boxes[-1]["x"] + boxes[-1]["width"] - boxes[0]["x"] <= 500
    page.get_by_role("tab", name="Draw a digit").click()
    page.locator("[data-example]").click()
    tall = page.locator(".pg-reply").evaluate_all("all => all.map((e) => e.offsetHeight)")
    assert max(tall) == min(tall) < 56  # every answer on two lines


# ---- keys --------------------------------------------------------------------------------------


def test_everything_can_be_done_with_the_keyboard(show):
    page = show()
    page.locator("[data-step]").focus()
    page.keyboard.press("Enter")
    assert data(page, "round") == 1
    coin(page, 1).focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.client") == "1"
    assert "Client 2" in page.locator(".pg-panel:visible").inner_text()
    page.keyboard.press("ArrowRight")
    assert data(page, "state")["groups"][1] == 1
    assert page.evaluate("document.activeElement.dataset.client") == "1", "the focus was lost"
    page.get_by_role("tab", name="One client").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Draw a digit").get_attribute("aria-selected") == "true"
    page.get_by_role("radio", name="All alike").focus()
    page.keyboard.press("ArrowRight")
    assert data(page, "state")["data"] == "classes"
    stops = page.locator(".pg-b .pg-coin").evaluate_all(
        "c => c.filter(e => e.tabIndex === 0).length"
    )
    assert stops == 1  # a stage is one stop, not twelve


# ---- the address -------------------------------------------------------------------------------


def test_the_address_is_read_and_kept(show):
    page = show("#m=fedamp&d=names&s=.1&seed=3")
    s = data(page, "state")
    assert (s["a"], s["data"], s["sigma"], s["seed"]) == ("fedamp", "names", 0.1, 3)
    page.locator("select[data-key=b]").select_option("spfl")
    assert address(page) == "#m=fedamp&b=spfl&seed=3"
    page.evaluate("location.hash = '#d=natural&liar=2'")
    page.wait_for_function("JSON.parse(document.querySelector('.pg').dataset.state).liar == 2")
    s = data(page, "state")
    assert (s["a"], s["data"], s["seed"]) == ("fedavg", "natural", 0)


def test_the_address_opens_what_it_speaks_of(show):
    page = show("#look=seeds&liar=5")
    assert page.get_by_role("tab", name="100 seeds").get_attribute("aria-selected") == "true"
    assert page.locator(".pg-more").get_attribute("open") is not None
    page.get_by_role("tab", name="The map").click()
    assert address(page) == "#look=map&liar=5"
    page.get_by_role("tab", name="One client").click()
    assert address(page) == "#liar=5"
    page = show("#m=fedamp")
    assert page.locator(".pg-more").get_attribute("open") is None


def test_the_link_to_what_one_sees_can_be_copied(show):
    page = show("#b=ditto&seed=7")
    page.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; }")
    page.locator("[data-share]").click()
    page.wait_for_function("document.querySelector('[data-share]').textContent === 'Copied'")
    assert page.evaluate("copied").endswith("play.html#b=ditto&seed=7")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_one_sees_can_be_kept_as_a_picture(show, tmp_path, scheme):
    """Both stages, drawn where they belong: links, rings, and two curves of two colors."""
    page = show("#m=fedavg&b=fedamp", color_scheme=scheme)
    for _ in range(4):
        page.locator("[data-step]").click()
    with page.expect_download() as download:
        page.locator("[data-keep]").click()
    assert download.value.suggested_filename == "fedavg-fedamp-round-4.png"
    download.value.save_as(tmp_path / "kept.png")
    picture = np.asarray(Image.open(tmp_path / "kept.png").convert("RGB")).astype(int)
    assert picture.shape == (1260, 2400, 3)
    paper, b = ((255, 255, 255), (138, 63, 192))
    if scheme == "dark":
        paper, b = ((22, 27, 34), (211, 168, 255))
    assert (picture[5, 5] == paper).all()

    def painted(part, color):
        return int((np.abs(part - color).sum(2) < 12).sum())

    left, right, chart = picture[150:1000, :840], picture[150:1000, 840:1650], picture[:, 1700:]
    for group in ((0, 114, 178), (230, 159, 0), (0, 158, 115)):  # the longer rings are FedAMP's
        assert painted(right, group) > painted(left, group) > 500
    assert painted(chart, b) > 300 and painted(right, b) > 1000 and painted(left, b) == 0


def test_a_method_brings_its_knob(show):
    page = show("#m=fedavg&b=fedamp")
    knob = {
        name: page.locator(f".pg-front [data-key={name}]") for name in ("sigma", "sharpness", "p")
    }
    assert [k for k, node in knob.items() if node.is_visible()] == ["sigma"]
    page.locator("select[data-key=b]").select_option("fedacs")
    assert [k for k, node in knob.items() if node.is_visible()] == ["p"]
    page.locator("select[data-key=a]").select_option("heurfedamp")
    assert [k for k, node in knob.items() if node.is_visible()] == ["sharpness", "p"]


def test_every_chapter_has_its_situation(show):
    """Each part of each address is one that the page knows, and sets what it says."""
    short = dict(re.findall(r"(\w+): \"(\w+)\"", ADDRESS))
    whole = {name: key for key, name in short.items()}
    page = show("#seed=1")
    for chapter, (words, asked) in pfl_situations.SITUATIONS.items():
        given = dict(part.split("=") for part in asked.split("&"))
        look, first = given.pop("look", "client"), Playground().settings
        wanted = {whole[name]: type(first[whole[name]])(v) for name, v in given.items()}
        page.evaluate("(hash) => { location.hash = hash; }", asked)
        page.wait_for_function(ARRIVED, arg=[look, wanted])
        state = data(page, "state")
        assert {**first, **wanted, "link": state["link"]} == state, chapter
        assert words and not words.endswith(".")


def test_nonsense_in_the_address_does_no_harm(show):
    page = show("#m=<b>&d=moon&s=x&seed=-4&g=999&n=1e9&liar=2.6&constructor=1")
    s = data(page, "state")
    assert (s["a"], s["data"], s["sigma"], s["seed"]) == ("fedavg", "names", 0.1, 0)
    assert (s["size"], s["liar"]) == (60, 3)
    playground.Playground(**s)  # what the page has is what Python accepts


# ---- for everyone ------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (390, "dark")])
def test_axe_finds_nothing(show, width, scheme):
    page = show(width=width, color_scheme=scheme)
    page.locator("[data-step]").click()
    page.locator(".pg-more summary").click()
    page.add_style_tag(content="* { transition: none !important }")
    page.evaluate(AXE)
    look = """() => axe.run().then(r => r.violations.map(v => v.id + ': '
      + v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' ' + n.failureSummary)))"""
    for tab in ("client", "draw", "seeds", "map"):
        page.locator(f"[data-tab={tab}]").click()
        assert page.evaluate(look) == [], tab
    page.locator("[data-tour]").click()
    assert page.evaluate(look) == [], "the tour"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = """els => els.filter(e => e.textContent.trim() && e.getClientRects().length
      && parseFloat(getComputedStyle(e).fontSize) < 10.9).map(e => e.className)"""
    assert page.locator(".pg *").evaluate_all(small) == []


def test_without_motion_nothing_moves_by_itself(show):
    page = show()
    page.wait_for_timeout(600)
    assert data(page, "round") == 0 and not page.locator("[data-play]").is_visible()


def test_it_runs_while_in_view_and_only_then(show):
    page = show(QUICK, still=False, before='<div style="height: 3000px"></div>')
    page.wait_for_timeout(700)
    assert data(page, "round") == 0
    page.locator("[data-speed]").select_option("fast")
    page.locator(".pg-stages").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('.pg').dataset.round > 2")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(200)
    here = data(page, "round")
    page.wait_for_timeout(500)
    assert data(page, "round") == here
    page.locator(".pg-stages").scroll_into_view_if_needed()
    page.wait_for_function(f"document.querySelector('.pg').dataset.round > {here}")
    page.locator("[data-play]").click()
    assert "Play" in page.locator("[data-play]").inner_text()


def test_on_paper_it_is_light(show):
    page = show(color_scheme="dark")
    assert "pfl-dark" in page.locator(".pg").get_attribute("class")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert "pfl-dark" not in page.locator(".pg").get_attribute("class")
    assert not page.locator(".pg-drive").is_visible() and page.locator(".pg-stages").is_visible()


# ---- the tour ----------------------------------------------------------------------------------


def test_the_tour_asks_before_it_tells(show):
    page = show()
    page.locator("[data-tour]").click()
    found = []
    for step in range(1, 7):
        tour = page.locator(".pg-tour")
        assert f"{step} of 6" in tour.inner_text() and data(page, "round") == 0
        page.locator("[data-guess]").fill("50")
        page.locator("[data-reveal]").click()
        page.wait_for_selector(".pg-truth")
        text = tour.inner_text().replace("\u00a0", " ")
        b = f"{100 * data(page, 'means')[1]:.0f} %"
        assert "You said 50 %." in text and b in text
        found.append(data(page, "means"))
        page.locator("[data-next]").click()
    alone, average, disagree, like, wide, _ = found
    assert alone[1] + 0.1 < average[1]  # the average is wonderful,
    assert disagree[1] < disagree[0] - 0.2  # until they disagree;
    assert like[1] > disagree[0] + 0.1  # like finds like,
    assert wide[1] < like[1] - 0.2  # unless the ear is too wide
    assert page.locator("[data-tour]").is_visible()


def test_on_a_desk_question_chart_and_clients_are_seen_together(show):
    """Wherever the button was; and curves that begin alike keep their names apart."""
    page = show(
        width=1280, before='<div style="height: 235px"></div><style>.pg { width: 936px }</style>'
    )
    page.locator("[data-tour]").click()
    for _ in range(2):
        page.locator("[data-reveal]").click()
        page.wait_for_selector(".pg-truth")
        page.locator("[data-next]").click()
        stage = page.locator(".pg-b .pg-stage").bounding_box()
        assert page.locator(".pg-tour").bounding_box()["y"] >= 0
        assert stage["y"] + stage["height"] <= 900
        names = page.locator("[data-panel=chart] text.pfl-strong").evaluate_all(
            "all => all.map((text) => text.getBoundingClientRect().y)"
        )
        assert len(names) == 2 and abs(names[1] - names[0]) > 12


@pytest.mark.parametrize("touch", [False, True])
def test_the_reader_draws_the_curve(show, touch):
    """A stroke over the chart is the guess; the step that follows says how far off it was."""
    page = show(width=390 if touch else 1100, has_touch=touch)
    page.locator("[data-tour]").click()
    chart = page.locator("svg[data-panel=chart]")
    chart.scroll_into_view_if_needed()
    box, top = chart.bounding_box(), page.evaluate("scrollY")
    ends = [
        (box["x"] + part * box["width"], box["y"] + 0.25 * box["height"]) for part in (0.3, 0.8)
    ]
    if touch:
        wire = page.context.new_cdp_session(page)
        for k, (x, y) in enumerate(ends):
            kind = "touchMove" if k else "touchStart"
            wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
        wire.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert page.evaluate("scrollY") == top, "the page moved under the finger"
    else:
        page.mouse.move(*ends[0])
        page.mouse.down()
        page.mouse.move(*ends[1], steps=6)
        page.mouse.up()
    guess = int(page.locator("[data-guess]").input_value())
    assert 60 < guess < 95 and page.locator(".pg-sketch").count() == 1
    page.locator("[data-reveal]").click()
    page.wait_for_selector(".pg-truth")
    tour = page.locator(".pg-tour").inner_text().replace("\u00a0", " ")
    assert f"You said {guess} %." in tour and re.search(r"Your curve was \d+ points? off", tour)
    chart.click()  # too late to draw another
    assert page.locator(".pg-truth").is_visible()


# ---- small, and live ---------------------------------------------------------------------------


def test_small_it_tells_its_story_in_three_acts_and_rests(show):
    page = show(widget=Playground(small=True, link="notebooks/play.html"), still=False, width=460)
    assert page.locator(".pg input, .pg select:visible").count() == 0
    assert page.locator(".pg-link").get_attribute("href") == "notebooks/play.html"
    means = []
    for act in range(3):
        page.wait_for_function(
            f"document.querySelector('.pg-scenes [data-act=\"{act}\"]').ariaPressed === 'true' && "
            f"document.querySelector('.pg').dataset.round >= {(8, 6, 14)[act]}"
        )
        means.append(float(page.locator(".pg-b .pg-server b").inner_text().strip(" \u00a0%")))
    together, odds, like = means
    assert together > 80 and odds < 50 and like > odds + 30
    caption = page.locator(".pg-say").inner_text().replace("\u00a0", " ")
    assert f"{like:.0f} %" in caption and "Nobody told them" in caption
    page.wait_for_timeout(1500)
    assert data(page, "round") == 14 and page.evaluate("location.hash") == ""
    page.locator("[data-play]").click()  # once more from the beginning, and stop
    page.wait_for_function("document.querySelector('.pg').dataset.act === '0'")
    page.get_by_role("button", name="Pause").click()
    here = data(page, "round")
    page.wait_for_timeout(900)
    assert data(page, "round") == here


def test_small_and_without_motion_each_act_stands_still(show):
    page = show(widget=Playground(small=True), width=390)
    assert data(page, "round") == 14 and not page.locator("[data-play]").is_visible()
    page.get_by_role("button", name="Together").click()
    assert data(page, "round") == 8 and "average" in page.locator(".pg-say").inner_text()
    page.evaluate(AXE)
    assert page.evaluate("() => axe.run().then(r => r.violations.map(v => v.id))") == []


def test_on_a_phone_controls_and_picture_are_seen_together(show):
    page = show(width=390, has_touch=True, is_mobile=True)
    top = page.locator(".pg-drive").bounding_box()["y"]
    stage = page.locator(".pg-b .pg-stage").bounding_box()
    for name in ("how", "sigma"):
        box = page.locator(f".pg-front [data-key={name}]").bounding_box()
        assert top < box["y"] < stage["y"] and box["x"] + box["width"] < 390
    assert stage["y"] + stage["height"] - top < 650
    page.locator("[data-flip=a]").click()
    assert page.locator(".pg-a .pg-stage").is_visible() and not page.locator(".pg-b").is_visible()
    tour = page.locator("[data-tour]")
    tour.evaluate("button => button.scrollIntoView({ block: 'start' })")
    tour.click()  # what is asked for stands before the picture
    chart = page.locator("svg[data-panel=chart]").bounding_box()
    assert chart["y"] < page.locator(".pg-b .pg-stage").bounding_box()["y"]
    tour = page.locator(".pg-tour").bounding_box()  # ... and is in sight from its first word
    assert 0 < tour["y"] < 450 and chart["y"] + chart["height"] < 900
    assert not page.locator(".pg-front").is_visible()


WIRED = """async ([esm, state]) => {
  const url = URL.createObjectURL(new Blob([esm], { type: 'text/javascript' }));
  const widget = (await import(url)).default, heard = {}, el = document.createElement('div');
  document.body.append(el);
  const model = { get: (k) => state[k], set: (k, v) => { state[k] = v; }, save_changes() {},
    on: (k, f) => { heard[k] = f; }, off() {} };
  window.live = { state, heard, el, leave: widget.render({ model, el }) };
}"""
SENT = """(which) => {
  const v = live.state[`_from_${which}`];
  let text = '';
  for (const b of new Uint8Array(v.buffer)) text += String.fromCharCode(b);
  return btoa(text);
}"""
GIVEN = """([text]) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  live.state._to_b = new DataView(bytes.buffer);
  live.heard['change:_to_b']();
}"""


def test_in_a_notebook_models_go_to_python_and_come_back(browser, tmp_path):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    path = tmp_path / "live.html"
    path.write_text("<!doctype html><title>t</title><body>")
    page.goto(path.as_uri())
    play = Playground(a="fedala", b="fedamp", model="mlp", size=10, steps=2)
    page.evaluate(WIRED, [play._esm, {"_settings": play._settings, **play.settings}])
    for _ in range(2):
        page.locator("[data-step]").click()
    for which in "ab":
        setattr(play, f"_from_{which}", base64.b64decode(page.evaluate(SENT, which)))
        last = list(playground.rounds(play.settings[which], play.settings, 2))[-1]
        assert torch.allclose(play.models[which], last["models"], atol=1e-9, rtol=0)
    fed = play.federation()
    mine = train(fed, fed.initial(), fed.everyone, steps=60)
    play.models = {"b": mine}
    page.evaluate(GIVEN, [base64.b64encode(play._to_b).decode()])
    shown = json.loads(page.locator(".pg").get_attribute("data-means"))[1]
    assert shown == pytest.approx(fed.evaluate(mine)[0].mean().item(), abs=1e-12)
    page.evaluate("live.state.data = 'alike'; live.heard['change:data']()")  # set in Python
    assert json.loads(page.locator(".pg").get_attribute("data-state"))["data"] == "alike"
    page.evaluate("live.leave()")
    context.close()


def test_bad_models_and_settings_are_refused():
    play = Playground()
    assert play.models == {"a": None, "b": None}
    with pytest.raises(ValueError, match=r"shape \(12, 650\)"):
        play.models = {"a": torch.zeros(12, 3)}
    with pytest.raises(ValueError, match="which"):
        play.models = {"c": torch.zeros(12, 650)}
    with pytest.raises(ValueError, match="groups"):
        Playground(groups=[0, 1, 2])
    with pytest.raises(ValueError, match="a"):
        Playground(a="fedsgd")
    play._from_a = struct.pack("<d", 1.5) * 12 * 650
    assert play.models["a"].shape == (12, 650) and play.models["a"][3, 4] == 1.5


# ---- speed, as a measurement -------------------------------------------------------------------


def test_frame_times_with_a_slowed_processor(show, capsys):
    page = show(still=False)
    page.locator("[data-speed]").select_option("fast")
    for slower in (1, 4):
        times = measure.frame_times(page, slower, 59)
        assert len(times) == 59
        with capsys.disabled():
            print(f"\nframe times, processor {slower} times slower: median {times[29]:.0f} ms, "
                  f"95 % {times[55]:.0f} ms")  # fmt: skip
