"""Models: the papers' parameter counts, layers and heads, and torch.func."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from pfl_lib import data, models
from pfl_lib.book.experiments import stored
from pfl_lib.book.papers import settings
from pfl_lib.data import Dataset


def image_data(channels=1, size=28, classes=10, width=None):
    x = torch.zeros(4, channels, size, width or size, dtype=torch.uint8)
    return Dataset(
        name=f"images of {size}",
        x=x,
        y=torch.arange(4) % classes,
        n_train=2,
        classes=tuple(map(str, range(classes))),
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
    )


def text_data():
    return Dataset(
        name="texts",
        x=torch.tensor([[2, 3, 0], [4, 0, 0], [1, 2, 3], [0, 0, 0]]),
        y=torch.tensor([0, 1, 2, 3]),
        n_train=2,
        classes=("a", "b", "c", "d"),
        kind="text",
        vocabulary=5,
    )


# every model small enough to try, with the input of two clients (2 clients, 3 samples)
SMALL = {
    "logistic_regression": (lambda: models.logistic_regression(64, 10), (1, 8, 8)),
    "mlp": (lambda: models.mlp(64, 10, hidden=(9, 7)), (1, 8, 8)),
    "mcmahan_cnn": (lambda: models.mcmahan_cnn(1, 8, 10), (1, 8, 8)),
    "fedala_cnn": (lambda: models.fedala_cnn(1, 16, 10), (1, 16, 16)),
    "fedala_cnn 8×8": (lambda: models.fedala_cnn(1, 8, 10), (1, 8, 8)),
    "spfl_cnn": (lambda: models.spfl_cnn(3, 16, 10), (3, 16, 16)),
    "resnet18": (lambda: models.resnet18(3, 10, width=4), (3, 16, 16)),
    "resnet18 imagenet": (lambda: models.resnet18(3, 10, width=6, stem="imagenet"), (3, 32, 32)),
    "fasttext": (lambda: models.fasttext(20, 10, dim=6), None),
    "cnn1d": (lambda: models.cnn1d(3, 10, filters=(4, 5)), (3, 12)),
}


def inputs(shape, *batch, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    if shape is None:
        return torch.randint(0, 20, (*batch, 5), generator=generator)
    return torch.rand((*batch, *shape), generator=generator, dtype=dtype)


def top_counts(model):
    """Parameters in the top 1, 2, ... layers."""
    sizes = dict(model.named_parameters())
    counts, total = [], 0
    for _, names in reversed(model.layers()):
        total += sum(sizes[name].numel() for name in names)
        counts.append(total)
    return counts


# ---- parameter counts that the papers print -------------------------------------------------


def test_mcmahan_cnn_has_the_count_of_its_authors():
    """McMahan et al. (2017), Sec. 3: 1,663,370 parameters for 28×28 and ten classes."""
    assert top_counts(models.mcmahan_cnn(1, 28, 10)) == [5130, 1_611_274, 1_662_538, 1_663_370]


def test_fedala_cnn_has_the_printed_counts():
    assert top_counts(models.fedala_cnn(1, 28, 10)) == [5130, 529_930, 581_194, 582_026]
    assert models.parameter_count(models.fedala_cnn(3, 64, 200)) == 5_694_600
    assert models.parameter_count(models.fedala_cnn(3, 32, 10)) == 878_538


def test_papers_settings_name_their_own_networks():
    for name in ("mnist", "fashion_mnist", "emnist"):
        assert settings("fedamp", name, "grouped")["model"] == "mcmahan_cnn"
    for name in ("mnist", "cifar10", "cifar100", "tiny_imagenet"):
        assert settings("fedala", name, "dirichlet")["model"] == "fedala_cnn"


def test_stored_results_name_the_network_that_they_ran():
    """By its number of parameters, for 28×28 images and ten or 62 classes."""
    shapes = {"mnist": (1, 28, 10), "fashion_mnist": (1, 28, 10), "emnist": (1, 28, 62)}
    seen = 0
    for found in stored().values():
        for run in found.record["runs"]:
            kept = run["settings"]
            if kept["model"].endswith("_cnn") and kept["data"] in shapes:
                network = getattr(models, kept["model"])(*shapes[kept["data"]])
                assert models.parameter_count(network) == kept["parameters"], kept
                seen += 1
    assert seen


def test_resnet18_has_the_printed_counts_and_layers():
    with torch.device("meta"):
        model = models.resnet18(3, 10, stem="imagenet")
        assert models.parameter_count(models.resnet18(3, 200, stem="imagenet")) == 11_279_112
        small = models.parameter_count(models.resnet18(3, 10))
    assert top_counts(model) == [5130, 8_398_858, 10_498_570, 11_024_138, 11_172_106, 11_181_642]
    assert small == 11_181_642 - 64 * 3 * (49 - 9)
    assert [name for name, _ in model.layers()] == [
        *("stem", "stage1", "stage2", "stage3", "stage4", "output")
    ]


def test_fasttext_has_the_printed_counts():
    assert top_counts(models.fasttext(98_635, 4)) == [132, 1188, 3_157_508]


def test_spfl_cnn_is_the_papers():
    model = models.spfl_cnn(1, 28, 10)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if "weight" in name}
    assert shapes == {
        "conv1.weight": (20, 1, 5, 5),
        "conv2.weight": (50, 20, 5, 5),
        "wide.weight": (512, 800),
        "output.weight": (10, 512),
    }


# ---- head, layers, features -----------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_the_head_reads_the_features(name):
    make, shape = SMALL[name]
    model = make().double()
    x = inputs(shape, 3)
    assert model(x).shape == (3, 10)
    assert torch.equal(model(x), model.output(model.features(x)))
    head = [n for n, _ in model.named_parameters() if n.startswith(model.head)]
    assert head == ["output.weight", "output.bias"]
    layers = model.layers()
    assert layers[-1] == ("output", tuple(head))
    flat = [n for _, names in layers for n in names]
    assert flat == [n for n, _ in model.named_parameters()]  # in order, each once


def test_layers_of_any_module():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))
            self.shift = nn.Parameter(torch.ones(1))
            self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))

    assert models.layers(Own()) == [
        ("scale", ("scale",)),
        ("shift", ("shift",)),
        ("body.0", ("body.0.weight", "body.0.bias")),
        ("body.2", ("body.2.weight", "body.2.bias")),
    ]


# ---- torch.func -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_vmap_of_grad_equals_one_client_after_the_other(name):
    make, shape = SMALL[name]
    torch.manual_seed(0)
    clients = [make().double() for _ in range(2)]
    x, y = inputs(shape, 2, 3), torch.tensor([[0, 1, 2], [3, 4, 5]])
    names = [n for n, _ in clients[0].named_parameters()]
    rows = {
        n: torch.stack([dict(c.named_parameters())[n].detach() for c in clients]) for n in names
    }

    def loss(parameters, x, y):
        logits = functional_call(clients[0], parameters, (x,))
        return nn.functional.cross_entropy(logits, y)

    stacked = vmap(grad(loss))(rows, x, y)
    for i, client in enumerate(clients):
        nn.functional.cross_entropy(client(x[i]), y[i]).backward()
        for n, parameter in client.named_parameters():
            torch.testing.assert_close(stacked[n][i], parameter.grad, rtol=1e-9, atol=1e-11)
            assert bool(parameter.grad.abs().sum() > 0), f"{n} never learns"


@pytest.mark.parametrize("name", SMALL)
def test_a_sample_does_not_depend_on_its_batch_and_nothing_is_random(name):
    make, shape = SMALL[name]
    model = make().double().train()
    x = inputs(shape, 4)
    torch.testing.assert_close(model(x)[:2], model(x[:2]), rtol=1e-10, atol=1e-12)
    assert torch.equal(model(x), model(x))
    assert not list(model.buffers())


def test_fasttext_ignores_padding():
    model = models.fasttext(20, 4)
    short, padded = torch.tensor([[5, 7]]), torch.tensor([[5, 7, 0, 0, 0]])
    torch.testing.assert_close(model(short), model(padded))
    assert torch.isfinite(model(torch.zeros(1, 3, dtype=torch.int64))).all()
    model(padded).sum().backward()
    assert model.embedding.weight.grad[0].abs().sum() == 0


# ---- build ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in models.names() if n not in ("fasttext", "cnn1d")])
@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 32)])
def test_every_image_model_is_built_for_every_image_set(name, channels, size):
    loaded = image_data(channels, size)
    options = {"width": 4} if name == "resnet18" else {}
    model = models.build(name, loaded, **options)
    assert model(loaded.normalized(loaded.x)).shape == (4, 10)


def test_build_for_digits_and_texts():
    digits = data.load("digits")
    for name in ("logistic_regression", "mlp", "fedala_cnn"):
        assert models.build(name, digits)(digits.normalized(digits.x[:2])).shape == (2, 10)
    news = text_data()
    assert models.build("fasttext", news, dim=6)(news.normalized(news.x)).shape == (4, 4)


def float_data(*shape):
    x = torch.rand(4, *shape)
    kind = "series" if len(shape) == 2 else "tabular"
    about = {"mean": (0.5,) * shape[0], "std": (0.3,) * shape[0], "kind": kind}
    return Dataset("numbers", x, torch.arange(4) % 2, 2, ("a", "b"), **about)


@pytest.mark.parametrize("shape", [(5,), (3, 16)])
def test_models_for_features_and_for_time_series(shape):
    loaded = float_data(*shape)
    x = loaded.normalized(loaded.x)
    torch.testing.assert_close(x, (loaded.x - 0.5) / 0.3)
    for name in ("logistic_regression", "mlp"):
        assert models.build(name, loaded)(x).shape == (4, 2)
    assert loaded.form.blank(3).dtype == torch.float32
    with pytest.raises(ValueError, match="fasttext is a model for text data"):
        models.build("fasttext", loaded)
    if len(shape) == 2:
        assert models.build("cnn1d", loaded)(x).shape == (4, 2)
        return
    with pytest.raises(ValueError, match="cnn1d is a model for series data; numbers is tabular"):
        models.build("cnn1d", loaded)


def test_cnn1d_does_not_mind_when_something_happens():
    model = models.cnn1d(2, 3).double()
    x = torch.zeros(2, 2, 64, dtype=torch.float64)
    bump = torch.rand(2, 6, dtype=torch.float64)
    x[0, :, 20:26], x[1, :, 30:36] = bump, bump  # an even shift, since a pool takes two moments
    torch.testing.assert_close(model(x)[0], model(x)[1])


def test_build_with_a_seed_is_repeatable_and_leaves_the_global_state_alone():
    loaded = image_data(size=8)

    def weights(seed):
        return nn.utils.parameters_to_vector(models.build("mlp", loaded, seed=seed).parameters())

    torch.manual_seed(5)
    first = torch.rand(1)
    torch.manual_seed(5)
    a, b, c = weights(1), weights(1), weights(2)
    assert torch.equal(torch.rand(1), first)
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_build_takes_a_callable_or_a_module():
    loaded = image_data(size=8)
    own = models.build(lambda d, hidden: nn.Linear(d.x[0].numel(), hidden), loaded, hidden=3)
    assert own.out_features == 3
    assert models.build(own, loaded) is own
    with pytest.raises(TypeError, match="hidden"):
        models.build(own, loaded, hidden=3)
    with pytest.raises(TypeError, match=r"nn\.Module, got int"):
        models.build(lambda d: 3, loaded)


def test_build_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="Did you mean 'mcmahan_cnn'"):
        models.build("mcmahan_cn", image_data())
    with pytest.raises(ValueError, match="text data; images of 28 is image data"):
        models.build("fasttext", image_data())
    for name in ("mlp", "resnet18", "spfl_cnn"):
        with pytest.raises(ValueError, match="image data; texts is text data"):
            models.build(name, text_data())
    with pytest.raises(ValueError, match="square"):
        models.build("mcmahan_cnn", image_data(size=28, width=20))
    with pytest.raises(ValueError, match="shrink to nothing"):
        models.mcmahan_cnn(1, 3, 10)
    with pytest.raises(ValueError, match="shrink to nothing"):
        models.mcmahan_cnn(1, 8, 10, padding=0)
    with pytest.raises(ValueError, match="classes"):
        models.mlp(4, 0)
    with pytest.raises(ValueError, match="hidden"):
        models.mlp(4, 2, hidden=(0,))
    with pytest.raises(ValueError, match="stem"):
        models.resnet18(3, 10, stem="big")
