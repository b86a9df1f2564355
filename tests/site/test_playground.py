"""The playground in a real browser: its arithmetic is the library's."""

import base64

import numpy as np
import pytest

from pfl_lib.book.explore import playground
from pfl_lib.book.explore.base import KIT, _text

ENGINE = "\n".join(map(_text, (*KIT, *playground.Playground.modules[:3], "playground_lab.js")))
# A run of the page's engine: of each round the drawn weights, the models, the accuracies.
RUN = """([names, s, count]) => {
  const fed = federationOf(s);
  const bytes = (rows) => rows.map((row) => {
    let text = '';
    for (const b of new Uint8Array(Float64Array.from(row).buffer)) text += String.fromCharCode(b);
    return btoa(text);
  });
  return names.map((name) => {
    let run = begin(name, fed);
    return range(count).map(() => {
      run = advance(run, fed);
      return { accuracy: run.accuracy, who: run.who, mean: run.mean, xi: bytes(run.xi),
        models: bytes(run.models.map((w) => inTorchOrder(s.model, w))) };
    });
  });
}"""


def settings(**changed):
    return dict(playground.Playground(**changed).settings)


@pytest.fixture(scope="module")
def engine(browser):
    """A blank page that holds the engine and nothing else."""
    page = browser.new_page()
    page.goto("about:blank")
    page.add_script_tag(content=ENGINE)
    yield page
    page.close()


def test_the_page_holds_scikit_learns_digits(engine):
    pixels, labels = playground.digits()
    assert engine.evaluate("Array.from(digits().labels)") == labels.tolist()
    shown = np.array(engine.evaluate("Array.from(digits().pixels)")).reshape(-1, 64)
    assert (shown == pixels).all()
    from sklearn.datasets import load_digits

    gap = load_digits().data - shown
    assert set(np.unique(gap)) <= {0, 1}  # black and almost black are one
    assert (load_digits().data[gap == 1] == 16).all()


@pytest.mark.parametrize("data", ["alike", "classes", "names", "natural"])
def test_both_sides_deal_the_same_digits(engine, data):
    for seed, how in ((0, 5), (7, 2)):
        s = settings(data=data, seed=seed, how=how, size=25, away=4)
        table = """(s) => range(12).map((i) => [hand(s, i, 'train'), hand(s, i, 'test'),
          namesOf(s, groupsOf(s)[i]), [...away(s, i)].sort((a, b) => a - b)])"""
        for i, (train, test, names, gone) in enumerate(engine.evaluate(table, s)):
            assert train == playground.hand(s, i, "train") and len(set(train)) == 25
            assert test == playground.hand(s, i, "test") and not set(train) & set(test)
            assert names == playground.names_of(s, playground.groups_of(s)[i])
            assert gone == sorted(playground.away(s, i)) and len(gone) == 4


GRID = [
    {},
    {"data": "alike", "seed": 1},
    {"data": "classes", "how": 3, "seed": 2, "steps": 3},
    {"data": "natural", "seed": 3, "size": 20, "away": 3},
    {"sigma": 1.0, "self_weight": 0.5, "sharpness": 40.0, "p": 0.8, "steps": 2, "seed": 4},
    {"unit": "absolute", "width": 0.5, "p": 0.2, "liar": 5, "size": 12},
    {"how": 2, "groups": [0, 1, 2, 2, 1, 0, 0, 0, 0, 0, 1, 2], "away": 6, "liar": 1, "seed": 5},
    {"model": "mlp", "steps": 4, "size": 15},
    {"model": "mlp", "data": "classes", "how": 4, "steps": 3, "away": 2, "liar": 12, "seed": 6},
    {"model": "mlp", "data": "natural", "sigma": 0.03, "steps": 2, "seed": 8, "p": 0.6},
]


@pytest.mark.parametrize("changed", GRID, ids=lambda g: ",".join(map(str, g.values())) or "default")
def test_the_page_computes_what_the_library_computes(engine, changed):
    """All methods, round by round; the first case is long enough for SPFL's second reset."""
    s, count = settings(**changed), 5 if changed else 12
    fed = playground.federation(s)
    shown = engine.evaluate(RUN, [playground.METHODS, s, count])
    for name, run in zip(playground.METHODS, shown, strict=True):
        wanted = playground.rounds(name, s, count, fed)
        for k, (page, library) in enumerate(zip(run, wanted, strict=True)):
            where = f"{name}, round {k + 1}"
            assert page["who"] == library["who"].tolist(), where
            for what in ("xi", "models"):
                rows = np.stack([np.frombuffer(base64.b64decode(row)) for row in page[what]])
                gap = np.abs(rows - library[what].numpy()).max()
                assert gap < 1e-9, f"{where}: {what} differ by {gap:.2g}"
            assert page["accuracy"] == pytest.approx(library["accuracy"].tolist(), abs=1e-12), where
            assert page["mean"] == pytest.approx(library["mean"], abs=1e-12), where
        assert run[0]["models"] != run[-1]["models"], name  # something was learned


def test_a_drawing_becomes_a_digit_as_the_file_has_them(engine):
    """Test digits blown up to black and white strokes, somewhere on the pad, are still read."""
    right = engine.evaluate(
        """(s) => {
          const fed = federationOf(s), { pixels, labels, all } = digits(), side = 168;
          let run = begin('fedavg', fed);
          while (run.k < 15) run = advance(run, fed);
          return all.test.slice(0, 200).map((k) => {
            const drawn = new Uint8Array(side * side);
            for (let y = 0; y < 96; y++) for (let x = 0; x < 96; x++)
              if (pixels[k * 64 + Math.floor(y / 12) * 8 + Math.floor(x / 12)] > 7)
                drawn[(y + 50) * side + x + 20] = 1;
            return argmax(answer(fed.model, run.models[0], asDigit(drawn, side))) === labels[k];
          });
        }""",
        settings(data="alike", size=60),
    )
    assert sum(right) / len(right) > 0.75, sum(right)
    assert engine.evaluate("asDigit(new Uint8Array(168 * 168), 168)") is None


def test_a_picture_of_weights_keeps_what_is_even_and_which_sign_is_where(engine):
    """Interpolated, an even field stays even, and one weight is darkest at its own place."""
    painted = """(weights) => {
      const canvas = templateCanvas();
      paintTemplate(canvas, weights, { ...THEMES.light, dark: false });
      const { data } = canvas.getContext('2d').getImageData(0, 0, FINE, FINE);
      return Array.from(data);
    }"""
    even = np.array(engine.evaluate(painted, [0.5] * 64)).reshape(32, 32, 4)
    assert (even == even[0, 0]).all()
    one = [0.0] * 64
    one[8 * 5 + 2] = 1.0  # row 5, column 2: ink, please
    red = np.array(engine.evaluate(painted, one)).reshape(32, 32, 4)[..., 0]
    y, x = np.unravel_index(red.argmin(), red.shape)
    assert (y // 4, x // 4) == (5, 2) and red.max() == 255
    one[8 * 5 + 2] = -1.0  # none here: the other colour, and paler
    blue = np.array(engine.evaluate(painted, one)).reshape(32, 32, 4)[..., 2]
    assert red.min() < 60 and 120 < blue.min() < 220
