"""The papers' models; each is an ordinary ``nn.Module``.

All of them are safe under ``torch.func`` (``functional_call``, ``grad``, ``vmap``): no batch
statistics, no dropout, nothing in place, no Python control flow that depends on the data.
:func:`with_lora` freezes a model's layers and adds trainable low-rank terms; :func:`with_head`
marks the head of any module, such as torchvision's.
"""

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from pfl_lib import _check
from pfl_lib.data.dataset import Dataset, SampleForm
from pfl_lib.random import keyed_generator, keyed_number


class Model(nn.Module):
    """A representation, then a last layer called ``output``: ``output(features(x))``.

    ``head`` names the parameters of the last layer by their prefixes.

    >>> model = logistic_regression(64, 10)
    >>> isinstance(model, Model), model.head
    (True, ('output.',))
    """

    head: tuple[str, ...] = ("output.",)
    output: nn.Module

    def features(self, x):
        """The representation that the head reads, one row per sample."""
        raise NotImplementedError

    def forward(self, x):
        return self.output(self.features(x))

    def layers(self):
        """Layers from input to output; see :func:`layers`."""
        return layers(self)


def layers(model):
    """Layers of any module, from input to output: pairs (name, names of its parameters).

    Weight and bias of one layer stay together: "the top p layers" are ``layers(model)[-p:]``.
    Frozen parameters are left out, and so are layers that have no others.  A module can define
    which layer a parameter belongs to by a method ``layer_of(name)``.

    >>> layers(mlp(4, 3, hidden=(5,)))[-1]
    ('output', ('output.weight', 'output.bias'))
    """
    _check_module("model", model)
    layer_of = getattr(model, "layer_of", lambda name: name.rpartition(".")[0] or name)
    groups: dict[str, list[str]] = {}
    for name in (n for n, p in model.named_parameters() if p.requires_grad):
        groups.setdefault(layer_of(name), []).append(name)
    return [(layer, tuple(names)) for layer, names in groups.items()]


def _width(name, value, at_least=1):
    """The size of a layer's input or output."""
    return _check.whole(name, value, at_least, at_most=2**24)


def parameter_count(model):
    """The number of trainable parameters: what a client sends when it sends its whole model.

    >>> parameter_count(logistic_regression(64, 10)) == 64 * 10 + 10
    True
    """
    _check_module("model", model)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _check_module(name, module):
    if not isinstance(module, nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module, got {module!r}")


class LogisticRegression(Model):
    """One linear layer; :func:`logistic_regression` makes it.

    >>> [name for name, _ in LogisticRegression(64, 10).named_parameters()]
    ['output.weight', 'output.bias']
    """

    def __init__(self, inputs, classes):
        super().__init__()
        self.output = nn.Linear(inputs, classes)

    def features(self, x):
        return x.flatten(1)

    def dense_layers(self):
        """Names of the linear layers, in order: nothing but ReLU stands between them."""
        return ["output"]


class MLP(Model):
    """Linear layers with ReLU between them; :func:`mlp` makes it.

    >>> MLP(64, 10, hidden=(32,)).features(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 32])
    """

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

    def dense_layers(self):
        """Names of the linear layers, in order: nothing but ReLU stands between them."""
        return [f"hidden.{i}" for i in range(len(self.hidden))] + ["output"]


class ConvolutionalNetwork(Model):
    """Two 5×5 convolutions, each with a 2×2 maximum pool, then one wide layer.

    >>> isinstance(mcmahan_cnn(1, 28, 10), ConvolutionalNetwork)
    True
    """

    def __init__(self, channels, size, classes, filters, wide, padding, name):
        super().__init__()
        given = {"channels": channels, "size": size, "classes": classes, "wide": wide}
        for argument, value in given.items():
            _width(argument, value)
        _check.whole("padding", padding, at_least=0, at_most=64)
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
        # ReLU after the pool gives the same result at a quarter of the cost
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.relu(functional.max_pool2d(self.conv2(x), 2))
        return functional.relu(self.wide(x.flatten(1)))


class Residual(nn.Module):
    """Two 3×3 convolutions with group normalisation, added to their input.

    >>> block = Residual(16, 32, stride=2)
    >>> block(torch.zeros(1, 16, 8, 8)).shape
    torch.Size([1, 32, 4, 4])
    """

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = _group_norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = _group_norm(outputs)
        self.same = stride == 1 and inputs == outputs
        if not self.same:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut_norm = _group_norm(outputs)

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        x = x if self.same else self.shortcut_norm(self.shortcut(x))
        return functional.relu(x + y)


class ResNet18(Model):
    """A stem, four stages of two residual blocks, a mean over the image, a linear layer.

    >>> isinstance(resnet18(3, 10, width=16), ResNet18)
    True
    """

    stage1: nn.Module
    stage2: nn.Module
    stage3: nn.Module
    stage4: nn.Module

    def __init__(self, channels, classes, width, stem):
        super().__init__()
        small = stem == "small"
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, kernel, stride, padding, bias=False), _group_norm(width)
        )
        self.pool = not small
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for stage, (inputs, outputs) in enumerate(pairwise(widths), 1):
            first = Residual(inputs, outputs, stride=1 if stage == 1 else 2)
            block = nn.Sequential(first, Residual(outputs, outputs, stride=1))
            setattr(self, f"stage{stage}", block)
        self.output = nn.Linear(widths[-1], classes)

    def features(self, x):
        x = functional.relu(self.stem(x))
        if self.pool:
            x = functional.max_pool2d(x, 3, 2, padding=1)
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return x.mean((2, 3))

    def layer_of(self, name):
        """Six layers, as the FedALA paper counts them: stem, four stages, output."""
        return name.split(".")[0]


def _group_norm(channels):
    return nn.GroupNorm(math.gcd(32, channels), channels)


class FastText(Model):
    """The mean of the words' vectors, then two linear layers.

    >>> isinstance(fasttext(vocabulary=100, classes=4), FastText)
    True
    """

    def __init__(self, vocabulary, classes, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.hidden = nn.Linear(dim, dim)
        self.output = nn.Linear(dim, classes)

    def features(self, x):
        word = (x != 0).unsqueeze(-1)  # 0 is padding
        vectors = self.embedding(x) * word
        return self.hidden(vectors.sum(1) / word.sum(1).clamp(min=1))


def logistic_regression(inputs, classes):
    """One linear layer.

    >>> logistic_regression(64, 10)(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """
    return LogisticRegression(_width("inputs", inputs), _width("classes", classes))


def mlp(inputs, classes, hidden=(100,)):
    """Linear layers with ReLU between them.

    >>> mlp(64, 10, hidden=(32, 16))(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """
    hidden = tuple(_width("hidden", width) for width in _check.several("hidden", hidden, "widths"))
    return MLP(_width("inputs", inputs), _width("classes", classes), hidden)


def mcmahan_cnn(channels, size, classes, padding=2):
    """The CNN of McMahan et al. (2017): 5×5 convolutions of 32 and 64, pools, 512, classes.

    Its convolutions are padded, so that they keep the size of the image: for 1×28×28 and 10
    classes it has the 1,663,370 parameters that its authors print.  FedAMP's authors ran "the same
    CNN architecture".  Without padding it is :func:`fedala_cnn`.

    >>> parameter_count(mcmahan_cnn(1, 28, 10))
    1663370
    """
    return ConvolutionalNetwork(channels, size, classes, (32, 64), 512, padding, "mcmahan_cnn")


def fedala_cnn(channels, size, classes, padding=None):
    """FedALA's CNN: McMahan's without padding, and so with a third of its parameters.

    For 1×28×28 and 10 classes it has 582,026, the count that the FedALA paper prints.
    ``padding=None`` means none, and 2 for images below 16×16, which would otherwise shrink to
    nothing.

    >>> parameter_count(fedala_cnn(1, 28, 10))
    582026
    """
    if padding is None:
        padding = 0 if _check.whole("size", size) >= 16 else 2
    return ConvolutionalNetwork(channels, size, classes, (32, 64), 512, padding, "fedala_cnn")


def spfl_cnn(channels, size, classes, wide=512, padding=None):
    """The CNN of the SPFL paper: 5×5 convolutions of 20 and 50, pools, 512, classes.

    >>> spfl_cnn(1, 28, 10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    if padding is None:
        padding = 0 if _check.whole("size", size) >= 16 else 2
    return ConvolutionalNetwork(channels, size, classes, (20, 50), wide, padding, "spfl_cnn")


def resnet18(channels, classes, width=64, stem="small"):
    """ResNet-18 with group normalisation, which needs no statistics of a batch.

    ``stem="small"``: a 3×3 convolution, for images of 28 to 64 pixels.  ``stem="imagenet"``: the
    original 7×7 convolution and pool; with 10 classes it has 11,181,642 parameters, the count that
    the FedALA paper prints.  A smaller ``width`` gives a smaller network.

    >>> resnet18(3, 10, width=16)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    _check.one_of("stem", stem, ("small", "imagenet"))
    _width("channels", channels)
    return ResNet18(channels, _width("classes", classes), _width("width", width), stem)


def fasttext(vocabulary, classes, dim=32):
    """fastText as the FedALA paper counts it: words' vectors, a linear layer, a linear head.

    98,635 words, 4 classes and 32 dimensions give 3,157,508 parameters.

    >>> parameter_count(fasttext(98_635, 4))
    3157508
    """
    _width("vocabulary", vocabulary, at_least=2)
    return FastText(vocabulary, _width("classes", classes), _width("dim", dim))


#: Layers to which a low-rank addition can be made, and how it is computed.
ADAPTABLE: dict[type[nn.Module], Callable[..., torch.Tensor]] = {
    nn.Linear: functional.linear,
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
}


# Modules whose matrices are no layers of their own.
_CLOSED = (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)


class LowRank(nn.Module):
    """A frozen linear layer or convolution W and a trained addition: W + scale·B·A.

    A has ``rank`` rows and random values, B has ``rank`` columns and begins at zero, so that at
    first nothing changes (LoRA, Hu et al. 2022).  For a convolution A is a convolution with
    ``rank`` filters (per group, where it has groups) and B one of size 1.

    >>> layer = LowRank(nn.Linear(64, 10), rank=2)
    >>> parameter_count(layer)  # instead of 650
    148
    """

    def __init__(
        self,
        base: nn.Module,
        rank: int,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if type(base) not in ADAPTABLE:
            names = ", ".join(kind.__name__ for kind in ADAPTABLE)
            raise TypeError(f"base must be one of {names}, got {type(base).__name__}")
        self.base, self.scale = base.requires_grad_(False), scale
        self.groups: int = getattr(base, "groups", 1)
        weight: torch.Tensor = base.weight  # type: ignore[assignment]
        rows = rank * self.groups
        self.A = nn.Parameter(torch.empty(rows, *weight.shape[1:], dtype=weight.dtype))
        ones = [1] * (weight.ndim - 2)
        self.B = nn.Parameter(torch.zeros(len(weight), rank, *ones, dtype=weight.dtype))
        bound = 1 / math.sqrt(math.prod(weight.shape[1:]))
        nn.init.uniform_(self.A, -bound, bound, generator=generator)
        self.to(weight.device)

    @property
    def weight(self) -> torch.Tensor:
        """W + scale·B·A, for code that asks the layer for its weight instead of calling it."""
        base: torch.Tensor = self.base.weight  # type: ignore[assignment]
        A, B = (t.unflatten(0, (self.groups, -1)).flatten(2) for t in (self.A, self.B))
        return base + self.scale * (B @ A).view_as(base)

    @property
    def bias(self) -> torch.Tensor | None:
        """The layer's own, frozen."""
        return self.base.bias  # type: ignore[return-value]

    def forward(self, x):
        base = self.base
        if isinstance(base, nn.Linear):
            added = functional.linear(functional.linear(x, self.A), self.B)
        else:  # with the layer's own stride, padding, dilation and groups
            inner = base._conv_forward(x, self.A, None)  # type: ignore[operator]
            added = ADAPTABLE[type(base)](inner, self.B, groups=self.groups)
        return base(x) + self.scale * added


def with_lora(
    module: nn.Module,
    rank: int = 4,
    layers: Sequence[str] | None = None,
    *,
    alpha: float | None = None,
    head: bool = True,
    seed: int = 0,
) -> nn.Module:
    """A copy of ``module``, frozen except for low-rank additions: LoRA (Hu et al. 2022).

    ``layers`` names the linear layers and convolutions that learn (see ``named_modules``); None is
    all of them but convolutions in groups, which are small already.  ``rank`` is the rank of what
    they may learn, ``alpha / rank`` its scale (None: 1), ``seed`` decides the random half of the
    additions.  With ``head`` the layers that the module names as its ``head`` are trained whole
    (see :func:`with_head` for a module that names none).  All else is frozen; only what is trained
    is sent.  What is inside recurrent layers and ``nn.MultiheadAttention`` is no layer of its own
    and stays frozen; a warning says so, unless ``layers`` are named.

    >>> small = with_lora(mlp(64, 10, hidden=(32,)), rank=2)
    >>> parameter_count(small)  # 2·(64 + 32), and the head's 330
    522
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be an nn.Module, got {module!r}")
    rank = _width("rank", rank)
    scale = 1.0 if alpha is None else _check.positive("alpha", alpha) / rank
    _check.whole("seed", seed, at_least=0)
    whole = head_prefixes(module) if _check.flag("head", head) else ()
    fits = {
        name: part
        for name, part in module.named_modules()
        if type(part) in ADAPTABLE and not (whole and f"{name}.".startswith(whole))
    }
    usual = [name for name, part in fits.items() if getattr(part, "groups", 1) == 1]
    named = usual if layers is None else _check.several("layers", layers, "names")
    if not named or not fits:
        inside = sorted({type(p).__name__ for p in module.modules() if isinstance(p, _CLOSED)})
        raise ValueError(
            f"layers must name a linear layer or a convolution of {type(module).__name__}, "
            f"which has {sorted(fits) or 'none'}; got {layers!r}"
            + (f". What is inside {' and '.join(inside)} cannot be adapted" if inside else "")
        )
    chosen = [_check.one_of("layers", name, fits) for name in named]
    if layers is None:
        _say_what_stays_frozen(module, chosen, whole)
    adapted = copy.deepcopy(module)
    for name, parameter in adapted.named_parameters():
        parameter.requires_grad_(bool(whole) and name.startswith(whole))
    for name in chosen:
        parent, _, word = name.rpartition(".")
        generator = keyed_generator(seed, "lora", name)
        layer = LowRank(adapted.get_submodule(name), rank, scale, generator)
        setattr(adapted.get_submodule(parent), word, layer)
    return adapted


def _say_what_stays_frozen(module: nn.Module, adapted: Sequence[str], whole: Sequence[str]) -> None:
    """Warn of parts that one would expect to learn and that low-rank additions cannot reach."""
    closed = {
        name: part
        for name, part in module.named_modules()
        if isinstance(part, _CLOSED) and not (whole and f"{name}.".startswith(tuple(whole)))
    }
    if closed:
        everything = sum(p.numel() for p in module.parameters())  # frozen ones, too
        parts = ", ".join(
            f"{name} ({type(part).__name__}, {sum(p.numel() for p in part.parameters()):,} "
            f"of {everything:,} parameters)"
            for name, part in closed.items()
        )
        warnings.warn(
            f"with_lora leaves {parts} frozen, since what is inside cannot be adapted. "
            f"It adapts {', '.join(adapted)}; layers={list(adapted)!r} says that this is meant",
            stacklevel=3,
        )


class BodyAndHead(Model):
    """A module cut before its last layer: ``features`` is all before it; see :func:`with_head`.

    >>> BodyAndHead(nn.Flatten(), nn.Linear(64, 10))(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, body: nn.Module, head: nn.Module):
        super().__init__()
        self.body, self.output = body, head

    def features(self, x):
        return self.body(x)


def with_head(module: nn.Module, data: Dataset | SampleForm, name: str | None = None) -> nn.Module:
    """A copy of ``module`` with a marked head, for methods that treat the head separately.

    ``name`` is the last layer, as in ``module.named_modules()`` ("fc" of a ResNet by torchvision);
    None takes the last linear layer.  Weights, and what is frozen, stay as they are.  That the
    new model gives the same output is checked on random samples of the form of ``data``.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
    >>> model = with_head(plain, data)
    >>> model.features(torch.zeros(5, 1, 8, 8)).shape, head_prefixes(model)
    (torch.Size([5, 12]), ('output.',))
    """
    _check_module("module", module)
    if not isinstance(data, (Dataset, SampleForm)):
        raise TypeError(f"data must be a Dataset, got {data!r}")
    if any(isinstance(part, LowRank) for part in module.modules()):
        raise ValueError(
            "module must not have low-rank additions yet, or its head would have some as well: "
            "with_head first, then with_lora, which trains the head whole"
        )
    parts = {n: part for n, part in module.named_modules() if n}
    linear = [n for n, part in parts.items() if isinstance(part, nn.Linear)]
    if name is None and linear:
        name = linear[-1]
    if not isinstance(name, str) or name not in parts:
        known = f", such as {', '.join(map(repr, linear[-3:]))}" if linear else ""
        raise ValueError(
            f"name must be a layer of {type(module).__name__}{known}; got {name!r}"
            + ("" if linear else ": it has no linear layer")
        )
    body = copy.deepcopy(module)
    head = body.get_submodule(name)
    parent, _, word = name.rpartition(".")
    setattr(body.get_submodule(parent), word, nn.Identity().train(head.training))
    made = BodyAndHead(body, head)
    made.training = module.training
    _refuse_other_outputs(module, made, data if isinstance(data, SampleForm) else data.form, name)
    return made


@torch.no_grad()
def _refuse_other_outputs(module, made, form, name):
    """A ValueError if cutting the module has changed its output."""
    x = form.blank(3)
    if x.is_floating_point():
        x = torch.rand(x.shape, generator=keyed_generator(0, "samples"))
    before, after = (copy.deepcopy(one).float().eval() for one in (module, made))
    wanted = before(x)
    try:
        same = torch.allclose(after(x), wanted, rtol=1e-4, atol=1e-5)
    except (RuntimeError, TypeError, ValueError, IndexError):
        same = False
    if not same:
        raise ValueError(
            f"name must be the layer whose output is that of {type(module).__name__}; something "
            f"comes after {name!r}, or it is used twice"
        )


def head_prefixes(module: nn.Module) -> tuple[str, ...]:
    """The name prefixes of the head's parameters: the module's ``head``, or its part of that name.

    >>> head_prefixes(mlp(64, 10))
    ('output.',)
    """
    _check_module("module", module)
    head = getattr(module, "head", ())
    if isinstance(head, nn.Module):
        return ("head.",)
    if isinstance(head, nn.Parameter):
        return ("head",)
    return (head,) if isinstance(head, str) else tuple(head)


def build(model, data, seed=None, **options):
    """A model for a data set.

    ``model``: a name (``"mcmahan_cnn"`` ...), or a callable that takes the data set and returns an
    ``nn.Module``, or an ``nn.Module`` itself.  ``seed`` fixes the initial weights without touching
    torch's global random state.  ``options`` go to the model's function.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> parameter_count(build("mlp", data, hidden=(32,)))
    2410
    >>> build(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), data)[1]
    Linear(in_features=64, out_features=10, bias=True)
    """
    if isinstance(model, nn.Module):
        if options:
            raise TypeError(
                f"options {sorted(options)} cannot change a model that is already built"
            )
        return model
    if not isinstance(data, (Dataset, SampleForm)):
        raise TypeError(f"data must be a Dataset, got {data!r}")
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            _check.whole("seed", seed, at_least=0)
            torch.manual_seed(keyed_number(seed, "initial model"))
        if callable(model):
            built = model(data, **options)
        else:
            built = _BUILDERS[_check.one_of("model", model, _BUILDERS)](data, options)
    if not isinstance(built, nn.Module):
        raise TypeError(f"model must give an nn.Module, got {type(built).__name__}")
    return built


def names():
    """The names that :func:`build` knows.

    >>> names()[:3]
    ('logistic_regression', 'mlp', 'mcmahan_cnn')
    """
    return tuple(_BUILDERS)


def _flat(function):
    def make(data, options):
        _needs(data, ("tabular", "series", "image"), function.__name__)
        return function(math.prod(data.shape), len(data.classes), **options)

    return make


def _square(function):
    def make(data, options):
        _needs(data, "image", function.__name__)
        channels, height, width = data.shape
        if height != width:
            raise ValueError(f"{function.__name__} needs square images, got {height}×{width}")
        return function(channels, height, len(data.classes), **options)

    return make


def _resnet(data, options):
    _needs(data, "image", "resnet18")
    return resnet18(data.shape[0], len(data.classes), **options)


def _fasttext(data, options):
    _needs(data, "text", "fasttext")
    return fasttext(data.vocabulary, len(data.classes), **options)


def _series(data, options):
    _needs(data, "series", "cnn1d")
    return cnn1d(data.shape[0], len(data.classes), **options)


def _needs(data, kinds, name):
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if data.kind not in kinds:
        known = " or ".join(kinds)
        raise ValueError(f"{name} is a model for {known} data; {data.name} is {data.kind} data")


_BUILDERS = {
    "logistic_regression": _flat(logistic_regression),
    "mlp": _flat(mlp),
    "mcmahan_cnn": _square(mcmahan_cnn),
    "fedala_cnn": _square(fedala_cnn),
    "spfl_cnn": _square(spfl_cnn),
    "resnet18": _resnet,
    "fasttext": _fasttext,
    "cnn1d": _series,
}


class SeriesNetwork(Model):
    """Two convolutions over time, each with a pool, then the mean over time; see :func:`cnn1d`.

    >>> isinstance(cnn1d(6, 7), SeriesNetwork)
    True
    """

    def __init__(self, channels, classes, filters):
        super().__init__()
        self.conv1 = nn.Conv1d(channels, filters[0], 9, padding=4)
        self.conv2 = nn.Conv1d(filters[0], filters[1], 9, padding=4)
        self.output = nn.Linear(filters[1], classes)

    def features(self, x):
        x = functional.relu(functional.max_pool1d(self.conv1(x), 2))
        return functional.relu(self.conv2(x)).mean(2)


def cnn1d(channels, classes, filters=(32, 64)):
    """A small network for time series: convolutions over nine moments, and a mean over time.

    It reads windows of two moments or more, and is invariant to shifts within the window.

    >>> cnn1d(9, 6)(torch.zeros(5, 9, 128)).shape
    torch.Size([5, 6])
    """
    _width("channels", channels)
    filters = _check.several("filters", filters, "two numbers")
    filters = tuple(_width("filters", width) for width in filters)
    if len(filters) != 2:
        raise ValueError(f"filters must be two numbers, one for each convolution, got {filters!r}")
    return SeriesNetwork(channels, _width("classes", classes), filters)
