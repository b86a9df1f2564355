"""The explorers in a real browser, no kernel, no network: their numbers are the library's."""

import json
import math
import random
import re
import textwrap

import pytest

from devtools.browser import serve
from pfl_lib.book import explore, theory
from tests.support.paths import ROOT

NAMES = [name for name in explore.__all__ if name != "Explorer"]
HOSTILE = ['</script><img src=x onerror="boom()">', "\"'`${boom()}\u2028\\", "<!--<b>"]

# Turn every knob of the page to the given places (0 to 1), as a reader's hand would, and read back.
TURN = """async (el, turns) => {
  const seen = [];
  for (const places of turns) {
    let k = 0;
    const part = () => places[k++ % places.length];
    for (const input of el.querySelectorAll('.pfl-control input[type=range]:not(:disabled)')) {
      const [low, high] = [Number(input.min), Number(input.max)];
      input.value = low + part() * (high - low);
      input.dispatchEvent(new Event('input', { bubbles: true }));
      await null;
    }
    for (const box of el.querySelectorAll('.pfl-choice > div')) {
      const buttons = [...box.querySelectorAll('input')];
      buttons[Math.min(buttons.length - 1, Math.floor(part() * buttons.length))].click();
      await null;
    }
    for (const box of el.querySelectorAll('.pfl-check input')) {
      if (part() > 0.5) box.click();
      await null;
    }
    await new Promise((done) => setTimeout(done, 0));
    const cells = [...el.querySelectorAll('.pfl-cell')];
    seen.push({ state: JSON.parse(el.dataset.state), result: JSON.parse(el.dataset.result),
      ms: Number(el.dataset.ms), say: el.querySelector('.pfl-say').textContent,
      height: el.offsetHeight, wide: document.documentElement.scrollWidth,
      cells: cells.map((c) => [c.dataset.value, c.nextElementSibling.textContent]) });
  }
  return seen;
}"""


# Try every button, and tell how high the page is each time.
TRY = """async (el) => {
  const seen = [];
  for (const button of el.querySelectorAll('[data-try]')) {
    button.click();
    await null;
    seen.push(el.offsetHeight);
  }
  return seen;
}"""

# Words in a picture that would be smaller than ten pixels on the screen.
SMALL = """els => els.filter((t) => t.checkVisibility()).filter((t) => {
  const { a, b } = t.getScreenCTM(), size = parseFloat(getComputedStyle(t).fontSize);
  return t.textContent.trim() && Math.hypot(a, b) * size < 9.9;
}).map((t) => t.textContent)"""

# Words that lie on each other, on the edge or under a point: the numbers of an axis, what stands in
# a picture, the names of what can be set. Names inside points may meet: clients do.
CLASH = """(el) => {
  const found = [], seen = (node) => node.checkVisibility() && node.getClientRects().length;
  const deep = (a, b) => Math.min(
    Math.min(a.right, b.right) - Math.max(a.left, b.left),
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  const apart = (all, near) => all.forEach(([one, a], k) => {
    for (const [other, b] of all.slice(k + 1)) if (deep(a, b) > near) found.push([one, other]);
  });
  for (const svg of [...el.querySelectorAll('svg')].filter(seen)) {
    const boxed = (node) => [node.textContent || 'a point', node.getBoundingClientRect()];
    const words = [...svg.querySelectorAll('text:not(.pfl-name, .pfl-number)')]
      .filter((node) => node.textContent.trim()).map(boxed);
    apart(words, 4);
    for (const point of svg.querySelectorAll('.pfl-handle .pfl-body'))
      for (const word of words) apart([word, boxed(point)], 3);
    const edge = svg.getBoundingClientRect();
    for (const [word, box] of words)
      if (box.left < edge.left - 1 || box.right > edge.right + 1) found.push([word, 'the edge']);
  }
  const names = '.pfl-slider label, .pfl-slider output, .pfl-legend, .pfl-choice label > span';
  apart([...el.querySelectorAll(names)].filter(seen).map((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [node.textContent, range.getBoundingClientRect()];
  }), 0.5);
  return found;
}"""


# What the words beside a "try this" button promise, as a question to the numbers shown.
PROMISES = {
    "Two groups": lambda r: max(max(row[3:]) for row in r["xi"][:3]) < 0.05,
    "α too large": lambda r: r["xi"][0][0] < 0,
    "Everybody alike": lambda r: max(r["xi"][0]) < 1.3 * min(r["xi"][0]),
    "Hard selection": lambda r: 0 in r["xi"][0],
    "FedAMP’s pull": lambda r: r["curves"][2][2] == max(c[2] for c in r["curves"]),
    "A convex one": lambda r: r["convex_until"] is None and r["at"][1][3] == pytest.approx(1),
    "Half and half": lambda r: r["expected"]["mixed"] < 0.6 * r["expected"]["own"],
    "Few patients": lambda r: r["expected"]["mixed"] == pytest.approx(r["least"], rel=1e-3),
    "Many patients": lambda r: r["best"] < 0.1,
    "No difference": lambda r: r["expected"]["mixed"] == pytest.approx(r["least"]),
    "A little nearer": lambda r: r["end"] == pytest.approx(r["low"]) and r["two"],
    "A little farther": lambda r: r["end"] == pytest.approx(r["high"]) and r["two"],
    "Too far to hold": lambda r: not r["two"] and r["path"][0] == 0 and r["end"] > 3,
    "Long training": lambda r: not r["two"],
    "Groups form": lambda r: r["groups"] == 2 and r["own"] > 0,
    "Another start": lambda r: r["groups"] != 2,
    "All merge": lambda r: r["groups"] == 1,
    "Theorem 1": lambda r: 0 < r["G"][-1] - r["best"] < r["bound"] / 100,
    "On the circle": lambda r: r["heur"][0] == pytest.approx(r["amp"][0], abs=1e-12),
    "A long client": lambda r: r["amp"][1][0] < 0.5 * r["heur"][1][0],
    "The best of four": lambda r: r["noise"] == pytest.approx(r["least_noise"]) == 0.25,
    "The papers’ τ = 0.95": lambda r: r["noise"] == pytest.approx(r["least_noise"]),
    "The same, one other": lambda r: r["noise"] > 0.9,
    "A mild cut": lambda r: (
        min(r["heard"]) > 0 and r["delta"] < 0 and min(map(min, r["weights"])) == 0
    ),
    "Too strict": lambda r: r["delta"] == 1 and sum(r["heard"]) == 0,
    "Negative weights": lambda r: min(min(row) for row in r["weights"]) < 0,
    "Opposite sides": lambda r: min(sorted(r["inside"].values())[1:]) > 0.99,
    "Far from the origin": lambda r: (
        r["inside"]["heurfedamp"] < r["inside"]["fedacs"] < r["inside"]["fedamp"] - 0.1
    ),
    "Like FedAvg": lambda r: r["ratio"] < 1.05,
    "The paper’s rate": lambda r: r["leap"] < 0.01 and r["errors"]["eq11"] < r["errors"]["eq10"],
    "A lucky place": lambda r: r["errors"]["compensated"] < 0.25 * r["errors"]["no_leap"],
    "Overshoot": lambda r: r["errors"]["no_leap"] == min(r["errors"].values()),
    "Barely late": lambda r: r["leap"] == 0,
    "Gentle": lambda r: r["W"][-1] == pytest.approx(r["limit"], abs=0.01),
    "The paper’s η = 1": lambda r: r["W"][-2:] in ([[0, 0], [1, 1]], [[1, 1], [0, 0]]),
    "Best outside": lambda r: r["limit"][0] == 1 and 0 < r["limit"][1] < 1,
    "FedALA’s default": lambda r: max(r["sizes"]) > 10 * min(r["sizes"]),
    "Nearly alike": lambda r: r["skew"] < 0.1,
    "SPFL’s subsets": lambda r: set(r["classes"]) == {6} and len(set(r["sizes"])) == 1,
}

# The same for what an explorer shows before anything is touched.
AT_THE_START = {
    "SPFLSoftmax": lambda r: r["ratio"] <= math.exp(2),
    "Stragglers": lambda r: (
        0.85 < r["errors"]["compensated"] / r["errors"]["no_leap"] < 0.95
        and r["errors"]["no_leap"] < r["errors"]["eq11"]
    ),
}


def document(*explorers):
    """A page as bare as can be; the explorers bring everything."""
    head = '<!doctype html><meta charset="utf-8">'
    head += '<meta name="viewport" content="width=device-width">'
    return head + "\n".join(explorer._repr_html_() for explorer in explorers)


@pytest.fixture
def show(open_page, tmp_path):
    """Write explorers to a file, open it, and give the first one's element, all knobs in sight."""

    def shower(*explorers, still=True, **options):
        path = tmp_path / "page.html"
        path.write_text(document(*explorers), encoding="utf-8")
        page = open_page(path.as_uri(), still=still, **options)
        page.wait_for_selector(".pfl-card")
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        return page.locator(".pfl-explorer").first

    return shower


def make(name, **settings):
    return getattr(explore, name)(**settings)


def turns(count, seed=0):
    draw = random.Random(seed)
    return [[draw.random() for _ in range(12)] for _ in range(count)]


def same(shown, wanted, path=""):
    """The page's numbers are Python's to nine digits; JSON has no infinity and says null."""
    if isinstance(wanted, dict):
        assert set(shown) == set(wanted), path
        for key in wanted:
            same(shown[key], wanted[key], f"{path}.{key}")
    elif isinstance(wanted, (list, tuple)):
        assert len(shown) == len(wanted), path
        for k, (a, b) in enumerate(zip(shown, wanted)):
            same(a, b, f"{path}[{k}]")
    elif isinstance(wanted, float) and not math.isfinite(wanted):
        assert shown is None, f"{path}: {shown} is not {wanted}"
    elif isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
        assert shown == pytest.approx(wanted, rel=1e-9, abs=1e-11), path
    else:
        assert shown == wanted, path


def read(element):
    return json.loads(element.get_attribute("data-result"))


# ---- every explorer ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_page_computes_what_the_library_computes(name, show):
    """Every knob turned at random, on a phone: same numbers, same words, same height, in time."""
    element = show(make(name), width=390)
    assert element.locator("svg text").evaluate_all(SMALL) == []
    seen = element.evaluate(TURN, [[0.0], [1.0], [0.5], *turns(10)])
    assert len({json.dumps(one["state"]) for one in seen}) > 6
    for one in seen:
        same(one["result"], make(name, **one["state"]).compute())
        assert len(one["say"]) > 20 and "NaN" not in one["say"] and "undefined" not in one["say"]
        assert one["wide"] <= 390, "the page scrolls sideways"
        for value, text in one["cells"]:
            if text not in {"·", "0"}:
                number = float(text.replace("−", "-"))
                assert number == pytest.approx(float(value), abs=max(0.0051, abs(number) * 0.06))
    heights = {one["height"] for one in seen} | set(element.evaluate(TRY))
    assert len(heights) == 1, "the page jumps when a setting changes"
    times = sorted(one["ms"] for one in seen)
    assert times[len(times) // 4] < 16.7, times  # a quarter: the machine may be busy with others


@pytest.mark.parametrize("name", NAMES)
def test_buttons_names_and_states_are_said(name, show):
    element = show(make(name), width=1280, dark=True)
    page = element.page
    assert "pfl-dark" in element.get_attribute("class")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    unnamed = "els => els.filter(e => !(e.labels?.length || e.textContent.trim())).length"
    assert element.locator("input, button").evaluate_all(unnamed) == 0
    assert element.locator("svg:not([aria-label])").count() == 0
    start = element.get_attribute("data-state")
    if name in AT_THE_START:
        assert AT_THE_START[name](read(element))
    buttons = element.locator("[data-try]")
    assert buttons.count() >= 2
    assert element.locator("[aria-pressed=true]").count() == 0, "a button that would do nothing"
    for k in range(buttons.count()):
        buttons.nth(k).click()
        pressed = element.locator("[aria-pressed=true]").all_text_contents()
        assert pressed == [buttons.nth(k).text_content()]
        assert len(element.locator(".pfl-why").text_content()) > 20
        state = json.loads(element.get_attribute("data-state"))
        result, button = read(element), buttons.nth(k).text_content()
        same(result, make(name, **state).compute())
        if name in NAMES and button in PROMISES:
            assert PROMISES[button](result), f"{button} does not show what it promises"
    page.wait_for_function("document.querySelector('.pfl-aloud').textContent.length > 20")
    element.locator(".pfl-reset").click()
    assert element.get_attribute("data-state") == start
    assert element.locator("[aria-pressed=true]").count() == 0


@pytest.mark.parametrize("width", [940, 390])
@pytest.mark.parametrize("name", NAMES)
def test_no_word_lies_on_another(name, width, show):
    element = show(make(name), width=width)
    assert element.evaluate(CLASH) == []
    for button in element.locator("[data-try]").all():
        button.click()
        assert element.evaluate(CLASH) == [], button.text_content()


# ---- hands ---------------------------------------------------------------------------------------


class Finger:
    """Real touch events on a phone, as the browser gets them from the glass."""

    def __init__(self, page):
        self.page, self.wire = page, page.context.new_cdp_session(page)

    def swipe(self, locator, right, down, steps=8):
        locator.scroll_into_view_if_needed()
        box = locator.bounding_box()
        x, y = box["x"] + 0.6 * box["width"], box["y"] + box["height"] / 2
        for k in range(steps + 1):
            at = [{"x": x + right * k / steps, "y": y + down * k / steps}]
            kind = "touchMove" if k else "touchStart"
            self.wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
            self.page.wait_for_timeout(16)
        self.wire.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        self.page.wait_for_timeout(100)


@pytest.fixture
def phone(browser, tmp_path):
    """Open an explorer on a phone, with text above and below, so that the page can scroll."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
        reduced_motion="reduce",
    )

    def opener(explorer):
        path = tmp_path / "phone.html"
        tall = '<div style="height: 1500px">text</div>'
        opened = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
        path.write_text(document(explorer).replace("<style>", f"{tall}<style>", 1) + tall)
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector(".pfl-card")
        page.evaluate(opened)
        return page.locator(".pfl-explorer")

    yield opener
    context.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_finger_moves_points_and_scrolls_past_sliders(name, phone):
    element = phone(make(name))
    page, finger = element.page, Finger(element.page)
    handles = element.locator(".pfl-handle .pfl-body")
    assert (handles.count() == 0) == (name == "Partitions"), "everything else has points to drag"
    if name == "SelfWeight":  # its point is in the second picture
        element.locator("[data-view=curve]").click()
    if handles.count():
        handles.first.scroll_into_view_if_needed()
        state, top = element.get_attribute("data-state"), page.evaluate("scrollY")
        finger.swipe(handles.first, -25, 45)
        moved = json.loads(element.get_attribute("data-state"))
        assert moved != json.loads(state) and page.evaluate("scrollY") == top
        same(read(element), make(name, **moved).compute())
    for slider in element.locator("input[type=range]:not(:disabled)").all():
        slider.scroll_into_view_if_needed()
        state, top = element.get_attribute("data-state"), page.evaluate("scrollY")
        finger.swipe(slider, 4, -150)
        assert element.get_attribute("data-state") == state, "scrolling has changed a slider"
        assert page.evaluate("scrollY") > top + 50
    finger.swipe(slider, 90, 2)
    assert element.get_attribute("data-state") != state, "the slider is stuck"


@pytest.mark.parametrize("name", NAMES)
def test_every_press_of_an_arrow_key_tells(name, show):
    element = show(make(name))
    for slider in element.locator("input[type=range]:not(:disabled)").all():
        key = slider.get_attribute("data-key")
        slider.press("Home")
        seen = [json.loads(element.get_attribute("data-state"))[key]]
        top = int(slider.get_attribute("max")) if "." not in slider.get_attribute("max") else 99
        for _ in range(min(30, top - int(float(slider.get_attribute("min"))))):
            slider.press("ArrowRight")
            seen.append(json.loads(element.get_attribute("data-state"))[key])
        if slider.get_attribute("step") == "1":  # lists, whole numbers and logarithms
            assert len(set(seen)) == len(seen), f"dead presses of {key}: {seen}"
        slider.press("End")
        last = json.loads(element.get_attribute("data-state"))[key]
        slider.press("ArrowRight")
        assert json.loads(element.get_attribute("data-state"))[key] == last
        slider.press("ArrowLeft")
        assert json.loads(element.get_attribute("data-state"))[key] < last


@pytest.mark.parametrize("name", NAMES)
def test_the_address_holds_what_the_reader_set(name, show, tmp_path):
    element = show(make(name))
    page = element.page
    element.evaluate(TURN, turns(1, seed=3))
    handles = element.locator(".pfl-handle")
    if handles.count():
        handles.last.press("ArrowDown")
    page.wait_for_function(f"location.hash.startsWith('#{name}?')")
    page.wait_for_timeout(200)
    state, address = element.get_attribute("data-state"), page.evaluate("location.href")
    again = page.context.new_page()
    again.goto(address)
    again.wait_for_selector(".pfl-card")
    there = again.locator(".pfl-explorer")
    again.wait_for_function("([s]) => document.querySelector('[data-state]').dataset.state === s",
                            arg=[state])  # fmt: skip
    same(read(there), make(name, **json.loads(state)).compute())
    there.locator(".pfl-reset").click()
    again.wait_for_function("location.hash === ''")


def test_the_address_cannot_break_an_explorer(show):
    element = show(explore.FedAMPPlane())
    page, start = element.page, element.get_attribute("data-state")
    for bad in ("sigma=-1", "sigma=x", "attention=nonsense", "points=1,2;3", "points=NaN", "x=1"):
        page.evaluate(f"location.hash = 'FedAMPPlane?{bad}'")
        page.wait_for_timeout(30)
        assert element.get_attribute("data-state") == start, bad
    page.evaluate("location.hash = 'FedAMPPlane?alpha=8&attention=mcp'")
    page.wait_for_function("document.querySelector('[data-state]').dataset.state.includes('mcp')")
    assert json.loads(element.get_attribute("data-state"))["alpha"] == 8


@pytest.mark.parametrize("name", ["FedAMPPlane", "Stragglers", "Partitions"])
def test_tab_stops_only_where_something_can_be_done(name, show):
    element = show(make(name))
    seen = []
    for _ in range(30):
        element.page.keyboard.press("Tab")
        seen.append(element.page.evaluate("document.activeElement.tagName.toLowerCase()"))
    assert {"button", "input"} <= set(seen) <= {"button", "input", "summary", "g", "body", "html"}


def test_nothing_hides_the_number_of_a_client(show):
    """Clients far apart hear nobody, so every diamond lies on its own client."""
    element = show(explore.FedAMPPlane(sigma=0.01))
    order = element.locator("[data-panel=plane]").evaluate(
        """(svg) => [...svg.querySelectorAll('.pfl-name, .pfl-cloud')]
            .map((e) => e.classList.contains('pfl-name') ? 'name' : 'cloud')"""
    )
    assert order == ["cloud"] * 6 + ["name"] * 6


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_checked_and_copied(name):
    explorer = make(name)
    assert type(explorer)(**explorer.settings).settings == explorer.settings
    assert re.match(rf"{name}\(", repr(explorer))
    with pytest.raises(ValueError, match="setting of"):
        make(name, sgima=1)
    for key, value in explorer.settings.items():
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            with pytest.raises((ValueError, TypeError), match=key):
                make(name, **{key: -1e9 if not isinstance(value, str) else "nonsense"})


def test_the_example_of_the_documentation_works(show, monkeypatch):
    """The explorer written out in the docstring of pfl_lib.book.explore passes the same tests."""
    text = explore.__doc__.split("FedAvg takes::\n")[1].split("\nWhat the kit gives")[0]
    names = {}
    exec(textwrap.dedent(text), names)
    monkeypatch.setattr(explore, "Mean", names["Mean"], raising=False)
    test_the_page_computes_what_the_library_computes("Mean", show)
    test_buttons_names_and_states_are_said("Mean", show)


def test_all_explorers_live_on_one_page_and_over_http(open_page, tmp_path):
    (tmp_path / "all.html").write_text(document(*map(make, NAMES)), encoding="utf-8")
    with serve(tmp_path) as address:
        page = open_page(address + "/all.html", still=True)
        page.wait_for_function(f"document.querySelectorAll('.pfl-card').length == {len(NAMES)}")
        for name, element in zip(NAMES, page.locator(".pfl-explorer").all()):
            same(read(element), make(name).compute())


def test_the_book_gathers_all_explorers():
    page = ROOT / "notebooks" / "explorers.ipynb"
    text = page.read_text(encoding="utf-8")
    assert [name for name in NAMES if f"{name}(" not in text] == []


# ---- the stage --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_on_a_phone_picture_and_controls_are_seen_together(name, browser, tmp_path):
    """One picture at a time, its sliders below it, both within one screen."""
    path = tmp_path / "page.html"
    path.write_text(document(make(name)), encoding="utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 844}, reduced_motion="reduce")
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector(".pfl-card")
    assert page.locator(".pfl-ask").text_content().count("?") == 1
    views = page.locator(".pfl-views button")
    for k in range(max(1, views.count())):
        if views.count():
            views.nth(k).click()
            assert views.nth(k).get_attribute("aria-current") == "true"
        shown = page.locator(".pfl-panel:visible svg")
        assert shown.count() == 1
        page.locator(".pfl-ask").evaluate(
            "e => scrollTo(0, e.getBoundingClientRect().top + scrollY)"
        )
        picture, knobs = shown.bounding_box(), page.locator(".pfl-near").bounding_box()
        assert picture["y"] >= 0 and knobs["y"] + knobs["height"] <= 844
        assert picture["y"] + picture["height"] <= knobs["y"] + 1, "the controls hide the picture"
    context.close()


@pytest.mark.parametrize("name", ["FedAMPRounds", "FeedbackLoop", "Stragglers", "ALABox"])
def test_what_has_a_time_opens_in_motion_and_ends_where_it_stood(name, show):
    element = show(make(name), still=False)
    key = "step" if name == "ALABox" else "round"
    goal = getattr(make(name), key)
    page = element.page
    now = f"JSON.parse(document.querySelector('.pfl-explorer').dataset.state).{key}"
    page.wait_for_function(f"{now} < {goal}")
    page.wait_for_function(f"{now} === {goal}", timeout=8000)
    assert page.evaluate("location.hash") == "", "what moves by itself is not in the address"
    same(read(element), make(name).compute())


def test_a_touch_ends_the_opening(show):
    element = show(explore.FedAMPRounds(), still=False)
    page = element.page
    now = "JSON.parse(document.querySelector('.pfl-explorer').dataset.state).round"
    goal = explore.FedAMPRounds().round
    page.wait_for_function(f"{now} < {goal}")
    element.locator("[data-key=sigma]").press("ArrowRight")
    assert page.evaluate(now) == explore.FedAMPRounds().round
    page.wait_for_timeout(300)
    assert page.evaluate(now) == explore.FedAMPRounds().round


def test_the_loop_has_two_ends_exactly_between_the_critical_widths():
    """What is red on the page, against the folds that pfl_lib.book.theory finds."""
    low, high = theory.critical_sigmas(gap=3.0, drift=0.2)
    for sigma in (0.98 * low, 1.02 * low, 0.98 * high, 1.02 * high):
        assert explore.FeedbackLoop(sigma=sigma).compute()["two"] == (low < sigma < high)
    assert theory.critical_sigmas(gap=3.0, drift=0.9) is None
    assert not any(
        explore.FeedbackLoop(sigma=s / 4, drift=0.9).compute()["two"] for s in range(1, 20)
    )


# ---- the kit ---------------------------------------------------------------------------------


def test_hostile_labels_stay_harmless(show):
    points = [[0, 0], [1, 1], [-1, 1]]
    element = show(explore.FedAMPPlane(points=points, labels=HOSTILE))
    page = element.page
    assert page.locator("img, b").count() == 0
    element.locator(".pfl-handle").nth(1).focus()
    caption = element.locator(".pfl-say").text_content()
    assert f"Client {HOSTILE[1]} keeps" in caption
    element.locator(".pfl-handle").first.focus()
    assert f"Client {HOSTILE[0]} keeps" in element.locator(".pfl-say").text_content()


def test_theme_follows_the_book_and_the_notebook(show):
    element = show(explore.FedAMPPlane())
    dark = "() => document.querySelector('.pfl-explorer').classList.contains('pfl-dark')"
    page = element.page
    assert not page.evaluate(dark)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(dark)
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    page.wait_for_function(f"!({dark})()")
    page.evaluate("delete document.documentElement.dataset.theme")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_function(dark)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not page.evaluate(dark), "paper is white"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(dark)


def test_colours_have_contrast():
    css = explore.FedAMPPlane._css
    for theme in re.findall(r"\.pfl-explorer(?:\.pfl-dark)? \{(.*?)\}", css, re.S)[:2]:
        color = dict(re.findall(r"--([a-z-]+): (#\w{6})", theme))
        for ink in ("ink", "soft", "accent", "alarm"):
            assert contrast(color[ink], color["paper"]) >= 4.5
        assert contrast(color["ink"], color["shade"]) >= 4.5
        assert contrast(color["track"], color["paper"]) >= 3
        assert contrast(color["accent"], color["on-accent"]) >= 4.5


def contrast(one, other):
    def light(color):
        parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# The module as a notebook's front end uses it: a model that is told and tells.
LIVE = """async ([esm, state]) => {
  const heard = {}, sent = [];
  const model = {
    saved: 0, save_changes() { this.saved++; },
    get: (k) => state[k], set: (k, v) => { state[k] = v; sent.push(k); },
    on: (e, f) => (heard[e] ||= []).push(f),
    off: (e, f) => { heard[e] = heard[e].filter((g) => g !== f); },
  };
  const el = document.body.appendChild(document.createElement('div'));
  const module = await import(URL.createObjectURL(new Blob([esm], { type: 'text/javascript' })));
  const leave = module.default.render({ model, el });
  const before = el.dataset.result;
  state.sigma = 9; heard['change:sigma'].forEach((f) => f());
  await null; await null;
  const kernel = el.dataset.result !== before;
  el.querySelector('input[data-key=sigma]').value = 300;
  el.querySelector('input[data-key=sigma]').dispatchEvent(new Event('input'));
  const hand = [sent, model.saved, state.sigma];
  leave();
  return { kernel, hand, left: Object.values(heard).flat().length };
}"""


def test_live_the_kernel_and_the_page_tell_each_other(open_page, tmp_path):
    (tmp_path / "blank.html").write_text("<!doctype html><body></body>")
    page = open_page((tmp_path / "blank.html").as_uri())
    plane = explore.FedAMPPlane()
    state = {"_settings": plane._settings, **plane.settings}
    answer = page.evaluate(LIVE, [str(plane._esm), state])
    assert answer == {"kernel": True, "hand": [["sigma"], 1, 10], "left": 0}

    # and the other end of the wire: what such a message does in Python
    plane.set_state({"sigma": 10, "points": [[0, 0], [1, 0.5]], "groups": []})
    assert plane.sigma == 10 and plane.points == [[0, 0], [1, 0.5]]
    assert len(plane.compute()["xi"]) == 2
    data, _ = plane._repr_mimebundle_()
    assert {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"} <= set(data)


def test_in_a_real_kernel_a_message_from_the_page_arrives():
    """A kernel, the widget's comm, and the message that a front end sends when a slider moves."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")

    def run(code):
        seen = []
        client.execute_interactive(code, timeout=120, output_hook=seen.append)
        output = "".join(m["content"]["text"] for m in seen if m["msg_type"] == "stream")
        return output, [m["content"] for m in seen if m["msg_type"] == "comm_open"]

    try:
        lazy = "import sys, pfl_lib.book.explore; print('anywidget' in sys.modules)"
        assert run(lazy)[0] == "False\n", "importing pfl_lib.book.explore is to cost nothing"
        _, opened = run("plane = pfl_lib.book.explore.FedAMPPlane()")
        comm = next(o for o in opened if "sigma" in o["data"]["state"])
        assert "export default explorer" in comm["data"]["state"]["_esm"]
        data = {"method": "update", "state": {"sigma": 7.5, "chosen": 3}, "buffer_paths": []}
        message = client.session.msg("comm_msg", {"comm_id": comm["comm_id"], "data": data})
        client.shell_channel.send(message)
        assert run("print(plane.sigma, plane.chosen)")[0] == "7.5 3\n"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_points_move_by_mouse_touch_and_keyboard(show, browser, tmp_path):
    element = show(explore.FedAMPPlane())
    page = element.page
    handle = element.locator(".pfl-handle").nth(2)
    old = json.loads(element.get_attribute("data-state"))["points"][2]
    handle.scroll_into_view_if_needed()
    box = handle.locator(".pfl-body").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 30, steps=4)
    page.mouse.up()
    page.mouse.move(x, y)  # let go: it must not follow
    state = json.loads(element.get_attribute("data-state"))
    moved = state["points"][2]
    assert moved[0] > old[0] + 0.5 and moved[1] < old[1] - 0.2 and state["chosen"] == 2
    same(read(element), explore.FedAMPPlane(**state).compute())

    handle.press("ArrowLeft")
    handle.press("ArrowUp")
    again = json.loads(element.get_attribute("data-state"))["points"][2]
    assert again == pytest.approx([moved[0] - 0.1, moved[1] + 0.1], abs=1e-3)
    page.mouse.move(x, y)
    for _ in range(80):
        handle.press("Shift+ArrowRight")
    assert json.loads(element.get_attribute("data-state"))["points"][2][0] == 3

    small = {"width": 390, "height": 844}
    phone = browser.new_context(viewport=small, has_touch=True, is_mobile=True)
    page = phone.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".pfl-card")
    element = page.locator(".pfl-explorer")
    element.locator(".pfl-handle").first.scroll_into_view_if_needed()
    box = element.locator(".pfl-handle .pfl-body").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    wire = phone.new_cdp_session(page)
    for kind, shift in (("touchStart", 0), ("touchMove", 40), ("touchMove", 70), ("touchEnd", 70)):
        at = [] if kind == "touchEnd" else [{"x": x + shift, "y": y}]
        wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
    page.wait_for_function(
        "JSON.parse(document.querySelector('.pfl-explorer').dataset.state).points[0][0] > -1.5"
    )
    phone.close()


# ---- FedAMPPlane -----------------------------------------------------------------------------


def test_fedamp_equation_7_known_answer_and_the_alarm(show):
    """Three clients, σ = 2; α = 0.5 is convex, α = 100 is not."""
    plane = explore.FedAMPPlane(points=[[1, 0], [0.5, 0.5], [-1, 2]], sigma=2, alpha=0.5)
    element = show(plane)
    assert read(element)["xi"][0] == pytest.approx([0.8007208945, 0.1947001958, 0.004578909722])
    assert element.locator(".pfl-alarm, .pfl-alarmed").count() == 0
    element.locator("input[data-key=alpha]").press("End")  # by keyboard to α = 100
    result = read(element)
    assert json.loads(element.get_attribute("data-state"))["alpha"] == 100
    assert result["xi"][0][0] == pytest.approx(1 - 200 * 0.1992791055)
    assert result["largest_alpha"] == pytest.approx(2.26193167) and result["safe_alpha"] == 1
    assert element.locator(".pfl-alarmed").count() == 3
    caption = element.locator(".pfl-say").text_content()
    assert "clients 1, 2 and 3 is below zero" in caption and "grow to 2.26" in caption


# ---- Stragglers --------------------------------------------------------------------------------


def test_lga_shares_told_beside_the_stragglers_hold_on_unselected_placements():
    """What the words say of 400 random placements, on 100 others."""
    draw, won = random.Random(7), {"compensated": 0, "printed": 0, "eq11": 0, "eq11 slow": 0}
    for _ in range(100):
        places = [[draw.uniform(-2, 2), draw.uniform(-2, 2)] for _ in range(3)]
        late = {"places": places, "steps": 20, "staleness": 5, "drift": 0.08}
        e = explore.Stragglers(lr=0.02, **late).compute()["errors"]
        slow = explore.Stragglers(lr=0.001, **late).compute()["errors"]
        won["compensated"] += e["compensated"] < e["no_leap"]
        won["printed"] += e["eq11"] < e["no_leap"]
        won["eq11"] += e["eq11"] < e["eq10"]
        won["eq11 slow"] += slow["eq11"] < slow["eq10"]
    assert won["printed"] == 0 and won["eq11 slow"] == 100
    assert 55 <= won["compensated"] <= 85 and 20 <= won["eq11"] <= 50
