"""The comparison table, the map of the field, the figure of two settings, the work of a round."""

import pytest

import pfl_lib
from pfl_lib import comparison
from pfl_lib.book import plots
from pfl_lib.book.experiments import Case, measure, round_work
from pfl_lib.methods import BY_NAME, algorithm


def small(epochs=1):
    data = pfl_lib.data.load("digits")
    clients = pfl_lib.partition.iid(data, 4)
    return pfl_lib.Federation(data, clients, "mlp", batch_size=200, epochs=epochs)


def test_places_are_on_the_scales():
    scales = (comparison.SHARED, comparison.PERSONAL, comparison.DECIDES)
    for place in comparison.places().values():
        assert all(0 <= p < len(scale) for p, scale in zip(place, scales, strict=True))


def test_map_shows_each_method_once_and_no_two_at_one_place():
    ax = plots.family_map(here=["ditto"])
    figure = ax.figure
    figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    assert sorted(boxes) == sorted(BY_NAME[name].label for name in comparison.places())
    names = list(boxes)
    for i, one in enumerate(names):
        assert not any(boxes[one].overlaps(boxes[other]) for other in names[i + 1 :]), one
    assert [text.get_text() for text in ax.texts if text.get_weight() == "bold"] == ["Ditto"]
    assert all(text.get_fontsize() >= 12 for text in ax.texts)
    plots.plt.close(figure)


def test_two_settings_draws_a_dot_for_each_method_and_setting():
    fed = small()
    methods = {name: algorithm(name) for name in ("separate", "fedavg")}
    case = Case(lambda seed: fed, methods, 1)
    results, _ = measure("x", "smoke", case, folder=None, progress=False)
    ax = plots.two_settings(results, results, ("one", "other"), yardstick="separate")
    dots = [len(points.get_offsets()) for points in ax.collections]
    assert dots == [2, 2]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "other"]
    plots.plt.close(ax.figure)


def test_work_of_a_round_counts_local_training():
    one, two = (round_work(algorithm("separate"), small(epochs), after=0) for epochs in (1, 2))
    assert one > 0 and two == 2 * one


def test_work_of_ditto_is_that_of_its_two_trainings():
    fed = small()
    alone, shared = (round_work(algorithm(name), fed) for name in ("separate", "fedavg"))
    assert round_work(algorithm("ditto", personal_epochs=2), fed) == 2 * alone + shared


@pytest.mark.parametrize("after", [-1, 0.5])
def test_work_refuses_a_round_that_there_is_not(after):
    with pytest.raises((ValueError, TypeError), match="after"):
        round_work(algorithm("separate"), small(), after=after)
