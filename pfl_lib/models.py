"""The papers' models, as ordinary ``nn.Module``s.

All of them are safe under ``torch.func`` (``functional_call``, ``grad``, ``vmap``): no batch
statistics, no dropout, nothing in place, no Python that looks at the data.
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from pfl_lib import _check
from pfl_lib.random import keyed_number


class Model(nn.Module):
    """A representation, then a last layer called ``output``: ``output(features(x))``.

    ``head`` names the parameters of the last layer by their prefixes.
    """

    head = ("output.",)

    def features(self, x):
        """The representation that the head reads, one row a sample."""
        raise NotImplementedError

    def forward(self, x):
        return self.output(self.features(x))

    def layers(self):
        """Layers from input to output; see :func:`layers`."""
        return layers(self)


def layers(model):
    """Layers of any module, from input to output: pairs (name, names of its parameters).

    Weight and bias of one layer stay together: "the top p layers" are ``layers(model)[-p:]``.
    """
    groups = {}
    for name, _ in model.named_parameters():
        groups.setdefault(name.rpartition(".")[0], []).append(name)
    return [(layer, tuple(names)) for layer, names in groups.items()]


def parameter_count(model):
    """How many numbers one client sends when it sends its whole model."""
    return sum(parameter.numel() for parameter in model.parameters())


class LogisticRegression(Model):
    def __init__(self, inputs, classes):
        super().__init__()
        self.output = nn.Linear(inputs, classes)

    def features(self, x):
        return x.flatten(1)


class MLP(Model):
    def __init__(self, inputs, classes, hidden):
        super().__init__()
        widths = [inputs, *hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], classes)

    def features(self, x):
        x = x.flatten(1)
        for layer in self.hidden:
            x = functional.relu(layer(x))
        return x


class ConvolutionalNetwork(Model):
    """Two 5×5 convolutions, each with a 2×2 maximum pool, then one wide layer."""

    def __init__(self, channels, size, classes, filters, wide, padding, name):
        super().__init__()
        side = size
        for _ in filters:
            side = (side + 2 * padding - 4) // 2
        if side < 1:
            raise ValueError(
                f"size must be large enough for {name}: images of {size}×{size} shrink to nothing "
                f"with padding {padding}; without padding the smallest is 16×16, with padding 2 "
                "it is 4×4"
            )
        self.conv1 = nn.Conv2d(channels, filters[0], 5, padding=padding)
        self.conv2 = nn.Conv2d(filters[0], filters[1], 5, padding=padding)
        self.wide = nn.Linear(filters[1] * side * side, wide)
        self.output = nn.Linear(wide, classes)

    def features(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return functional.relu(self.wide(x.flatten(1)))


def logistic_regression(inputs, classes):
    """One linear layer."""
    return LogisticRegression(inputs, classes)


def mlp(inputs, classes, hidden=(100,)):
    """Linear layers with ReLU between them."""
    return MLP(inputs, classes, tuple(hidden))


def mcmahan_cnn(channels, size, classes, padding=None):
    """The CNN of McMahan et al. (2017): 5×5 convolutions of 32 and 64, pools, 512, classes.

    Without padding and for 1×28×28 and 10 classes it has 582,026 parameters, the count that the
    FedALA paper prints.  ``padding=None`` means none, and 2 for images below 16×16, which would
    otherwise shrink to nothing.
    """
    if padding is None:
        padding = 0 if size >= 16 else 2
    return ConvolutionalNetwork(channels, size, classes, (32, 64), 512, padding, "mcmahan_cnn")


def build(model, data, seed=None, **options):
    """A model for a data set.

    ``model``: a name (``"mcmahan_cnn"`` ...), or a callable that is given the data set and returns
    an ``nn.Module``, or an ``nn.Module`` itself.  ``seed`` fixes the initial weights and leaves
    torch's global random numbers as they were.  ``options`` go to the model's function.
    """
    if isinstance(model, nn.Module):
        if options:
            raise TypeError(
                f"options {sorted(options)} cannot change a model that is already built"
            )
        return model
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(keyed_number(seed, "initial model"))
        if callable(model):
            built = model(data, **options)
        else:
            built = _BUILDERS[_check.one_of("model", model, _BUILDERS)](data, options)
    if not isinstance(built, nn.Module):
        raise TypeError(f"model must give an nn.Module, got {type(built).__name__}")
    return built


def names():
    """The names that :func:`build` knows."""
    return tuple(_BUILDERS)


def _flat(function):
    def make(data, options):
        _needs(data, "image", function.__name__)
        return function(data.x[0].numel(), len(data.classes), **options)

    return make


def _square(function):
    def make(data, options):
        _needs(data, "image", function.__name__)
        channels, height, width = data.shape
        if height != width:
            raise ValueError(f"{function.__name__} needs square images, got {height}×{width}")
        return function(channels, height, len(data.classes), **options)

    return make


def _needs(data, kind, name):
    if data.kind != kind:
        raise ValueError(f"{name} is a model for {kind} data; {data.name} is {data.kind} data")


_BUILDERS = {
    "logistic_regression": _flat(logistic_regression),
    "mlp": _flat(mlp),
    "mcmahan_cnn": _square(mcmahan_cnn),
}
