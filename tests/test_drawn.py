"""The drawn figures: well-formed, legible, described, and true to the library they draw."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
import torch

from devtools import chapters, reader
from pfl_lib import attention
from pfl_lib.book import draw, story, theory
from pfl_lib.book.draw import basics, derivation, field, kit, later, listening
from pfl_lib.comparison import places
from pfl_lib.formulas import cosine_similarities, fedacs_threshold
from pfl_lib.methods import BY_NAME
from tests.support.paths import ROOT

NAMES = sorted(draw.FIGURES)
USED = re.compile(r"^```\{drawn\} (\S+)\n:name: (\S+)\n((?:.|\n)*?)\n```$", re.MULTILINE)
NARROWEST = 324  # pixels for a panel: half a column on a desk; a phone has 342
SMALLEST = 11


# ----------------------------------------------------------------------------------- every one
@pytest.mark.parametrize("name", NAMES)
def test_figure_is_well_formed_and_says_what_is_seen(name):
    for number, panel in enumerate(draw.panels(name), start=1):
        root = ET.fromstring(panel.svg(f"{name}-{number}"))
        assert root.get("role") == "img"
        ids = {element.get("id") for element in root.iter()} - {None}
        assert set(root.get("aria-labelledby").split()) == ids
        texts = {element.tag.rpartition("}")[2]: element.text for element in root}
        assert len(texts["title"]) > 5 and len(texts["desc"]) > 40
        known = set(re.findall(r"\.([a-z]\w*)", draw.css()))
        used = {c for e in root.iter() for c in e.get("class", "").split()}
        assert used <= known, "a class without a style"
        assert not re.search(r"#[0-9a-f]{3}|rgb\(", "".join(panel.parts)), "a colour in a drawing"
    ET.fromstring(draw.standalone(name))


def sizes():
    """The sizes of words, from the style sheet, in pixels of the drawing."""
    return [float(n) for n in re.findall(r"font-size: ([\d.]+)px", draw.css())]


def test_words_are_legible_on_desk_and_phone():
    assert sizes() and min(sizes()) * NARROWEST / kit.WIDTH >= SMALLEST


# -------------------------------------------------------------------------------------- colours
def palettes():
    """The colours of light and dark: {meaning: #rrggbb} each."""
    blocks = re.findall(r"([^{}]*)\{([^{}]*--paper:[^{}]*)\}", draw.css())
    by = {"dark" if "dark" in head else "light": body for head, body in blocks[:2]}
    return {mode: dict(re.findall(r"--(\w+): (#\w{6})", body)) for mode, body in by.items()}


def contrast(a, b):
    def light(color):
        parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_can_be_told_from_the_paper(mode):
    colors = palettes()[mode]
    for meaning in ("ink", "mute", "g1", "g2", "g3", "msg", "hot"):
        assert contrast(colors[meaning], colors["paper"]) >= 4.5, meaning
    assert set(colors) == set(kit.MEANINGS)


# --------------------------------------------------------------------------------- in the pages
def placed():
    return [
        (page, *found)
        for page in chapters.in_order()
        for found in USED.findall(reader.pages()[page])
    ]


def test_every_figure_stands_in_one_place_and_is_referred_to():
    assert sorted(name for _, name, _, _ in placed()) == NAMES
    labels = [label for _, _, label, _ in placed()]
    assert len(set(labels)) == len(labels)
    text = "\n".join(reader.pages().values())
    assert [label for label in labels if f"{{numref}}`{label}`" not in text] == []
    for _, name, _, caption in placed():
        assert 60 < len(caption) < 450, f"{name}: {len(caption)} letters of caption"


def test_plain_copies_carry_the_picture_and_its_number():
    path = ROOT / "notebooks" / "01_fedavg.ipynb"
    text = "\n".join(cell.source for cell in reader.plain_copy(path).cells)
    number = reader.figures()["fig-round"][1]
    assert f"**Figure {number}.** One round" in text and f"Figure {number} shows them" in text
    assert "data:image/svg+xml;base64," in text


# ------------------------------------------------------------------------------- true to formulas
def test_drift_ends_where_the_chapter_says():
    for epochs in (1, 30):
        x, ways = basics.fedavg_path(epochs, rounds=400)
        s = 1 - (1 - basics.RATE * basics.H) ** epochs
        torch.testing.assert_close(x[-1], (s * basics.C).sum(0) / s.sum(0))
    torch.testing.assert_close(basics.fedavg_path(1, 400)[0][-1], basics.best_common())
    assert (x[-1] - basics.best_common()).norm() > 0.5
    assert (ways[-1] - basics.C).abs().max() < 0.3  # thirty steps lead nearly there


def test_what_travels_is_what_the_chapter_counts():
    people, data = story.people(), story.exercises()
    assert people.m == basics.PEOPLE and sum(map(len, people.train)) == basics.WINDOWS
    assert story.federation(windows=7).d == basics.PARAMETERS == 7 * (18 + 1)
    assert 4 * 70 * data.x[0].numel() == basics.SUMMED
    assert 40 < basics.TRAVELS / basics.SUMMED < 80 and basics.RECORDED > 10 * basics.TRAVELS


def test_shrinkage_halves_the_error_where_the_two_cross():
    own, common, best = basics.errors((basics.PATIENT / basics.HOSPITAL) ** 2)
    assert own == pytest.approx(common) and best == pytest.approx(own / 2, rel=0.06)
    truth, own, moved = basics.shrunk()
    torch.testing.assert_close(moved - own.mean(), (own - own.mean()) / 2)
    assert (moved - truth).square().mean() < (own - truth).square().mean()


def test_pulls_hold_on_or_let_go():
    r = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64).requires_grad_()
    for A, name in ((listening.TAMED, "tamed"), (listening.EXPONENTIAL, "exponential")):
        (slope,) = torch.autograd.grad(A.value(r**2).sum(), r)
        torch.testing.assert_close(listening.pulls(r.detach())[name], slope)
    pulls = listening.pulls(r.detach())
    assert pulls["tamed"][1] == pulls["tamed"][2] and pulls["exponential"][2] < 0.01


def test_proximal_step_is_the_bottom_of_the_sum():
    for beta in (0.35, 2.0):
        w = torch.linspace(0, 4, 400_001, dtype=torch.float64)
        total = 0.5 * (w - listening.LOSS["c"]) ** 2 + (w - listening.MESSAGE) ** 2 / (2 * beta)
        assert listening.stepped(beta) == pytest.approx(float(w[total.argmin()]), abs=2e-5)


def test_envelope_lies_below_and_has_one_better_point():
    w = torch.linspace(-3, 3, 61, dtype=torch.float64)
    value, better = listening.envelope(w)
    assert (value <= listening.bumpy(w) + 1e-12).all()
    v = w.clone().requires_grad_()
    curvature = torch.func.vmap(torch.func.grad(torch.func.grad(listening.bumpy)))(v)
    assert curvature.min() > -2 * listening.BOWL  # so that the inner problem is strongly convex
    slope = torch.func.vmap(torch.func.grad(listening.bumpy))(better)
    torch.testing.assert_close(slope, 2 * listening.BOWL * (w - better), atol=0.01, rtol=0)


def test_convexity_line_parts_one_bottom_from_two():
    A = attention.by_name("negative_exponential", listening.WIDTH_OF_ATTENTION)
    edge = 2.0 / theory.weak_convexity(A, listening.GROUP)
    r = torch.linspace(0.01, 4, 400, dtype=torch.float64)
    for lam, bottoms in ((0.4 * edge, 1), (0.99 * edge, 1), (2.6 * edge, 2)):
        g = listening.stretched(r, 2.0, lam)
        found = ((g[1:-1] < g[:-2]) & (g[1:-1] < g[2:])).sum()
        assert found == bottoms
        assert theory.count_limits(mu=[2.0], lam=[lam], m=listening.GROUP).item() == bottoms


def test_on_the_line_the_objective_is_convex_but_not_strongly():
    """So "one minimiser" needs μ > λρ, not μ ≥ λρ."""
    A = attention.by_name("negative_exponential", listening.WIDTH_OF_ATTENTION)
    edge = 2.0 / theory.weak_convexity(A, listening.GROUP)
    bend = torch.func.vmap(
        torch.func.grad(torch.func.grad(lambda r: listening.stretched(r, 2.0, edge)))
    )(torch.linspace(0, 4, 4001, dtype=torch.float64))
    assert bend.min().item() == pytest.approx(0, abs=1e-6)


def test_angle_and_distance_disagree_about_client_1():
    W = listening.rays()
    apart = (W[0] - W[1:]).norm(dim=1)
    assert int(apart.argmin()) + 2 == 4
    alike = cosine_similarities(W)[0, 1:].argsort(descending=True) + 2
    assert set(alike[:2].tolist()) == {2, 3}


def test_selection_finds_the_groups():
    W = listening.six_estimates()
    S = cosine_similarities(W)
    kin = torch.arange(6)[:, None] // 3 == torch.arange(6)[None] // 3
    assert torch.equal(fedacs_threshold(S, 0.5) < S, kin)


def test_the_safe_step_grows_when_groups_part():
    near, apart = derivation.safe_steps()
    assert apart > 3 * near > 3 * 2.0 / (2 * 6)  # the constant step is σ/(2m)


def test_softmax_is_as_flat_as_the_bound():
    assert float(later.relative_weight(-1.0, 1.0)) == pytest.approx(math.exp(-2))
    cosines = cosine_similarities(later.ten_updates())
    assert cosines[0, 1:].tolist() == pytest.approx([0.5] * 9)


def test_the_leap_is_corrected_towards_the_truth():
    at = later.leap_places()
    off = {
        name: (at[name] - at["truth"]).norm() for name in ("local", "(11)", "re-based", "taylor")
    }
    assert off["re-based"] < off["(11)"]  # the printed leap has the wrong sign
    assert off["taylor"] < off["(11)"] and off["taylor"] < off["local"]


def test_mix_stays_in_its_box_and_gives_up_the_large_difference_first():
    mixes, weights = later.ala_models()
    assert ((weights >= 0) & (weights <= 1)).all()
    assert weights[5, 1] < 0.5 < weights[5, 0]
    torch.testing.assert_close(mixes[0], later.COMMON)


def test_family_map_has_every_method_of_the_comparison_once():
    drawn = [m for part in field.families() for ms in part.values() for m in ms]
    names = [name for name, _, _ in drawn]
    assert len(set(names)) == len(names) and set(places()) <= set(names)
    who = ("nobody", "rule", "server", "client")
    for name, label, decider in drawn:
        if name in BY_NAME:
            assert label == BY_NAME[name].label
        if name in places():
            assert decider == who[places()[name][2]], name


def test_a_wrong_name_is_refused():
    with pytest.raises(ValueError, match="name"):
        draw.panels("rounds")


def test_held_out_windows_are_what_the_chapter_says():
    random, late, group = field.held_out().values()
    assert random.sum() == late.sum() == 12 and random.any(1).all()
    inside = random[:, 1:-1] & ~random[:, :-2] & ~random[:, 2:]
    assert inside.any(), "no test window lies between two training windows"
    assert late[:, 7:].all() and not late[:, :7].any()
    assert sorted(group.sum(1).tolist()) == [0, 0, field.WINDOWS, field.WINDOWS]
