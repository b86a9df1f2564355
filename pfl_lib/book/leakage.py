"""What a gradient, or the change of a model, tells about the samples behind it.

For one sample x the gradient of a linear layer is (residual of output c)·x in the weights of
output c, and (residual of output c) in its offset: the quotient of the two is x.
"""

import torch
import torch.nn.functional as F


def gradient(model, x, y):
    """What a client that trains ``model`` on these samples would send, by parameter name.

    >>> model = torch.nn.Linear(2, 3)
    >>> sent = gradient(model, torch.ones(1, 2), torch.tensor([0]))
    >>> {name: tuple(g.shape) for name, g in sent.items()}
    {'weight': (3, 2), 'bias': (3,)}
    """
    named = dict(model.named_parameters())
    loss = F.cross_entropy(model(x), y)
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()))))


def quotients(weight, bias):
    """Rows of a layer's weight gradient, each over its bias gradient.

    Where that is zero the row tells nothing and is left out.

    >>> weight = torch.tensor([[2.0, 4.0], [0.0, 0.0]])
    >>> quotients(weight, bias=torch.tensor([2.0, 0.0]))
    tensor([[1., 2.]])
    """
    alive = bias.abs() > 1e-12
    return weight[alive] / bias[alive, None]


def quotient(weight, bias):
    """The quotient of the row whose bias moved most; both may be changes of a model.

    >>> x = torch.tensor([[3.0, 5.0]])  # what nobody was to know
    >>> sent = gradient(torch.nn.Linear(2, 3), x, torch.tensor([0]))
    >>> torch.allclose(quotient(sent["weight"], sent["bias"]), x[0], atol=1e-4)
    True
    """
    row = bias.abs().argmax()
    return weight[row] / bias[row]


def strongest(change):
    """The first right singular vector of a change of weights, (outputs, inputs), up to its sign.

    One sample changes them by a matrix of rank one, its rows multiples of the sample; under noise
    this is a better guess than any single row.

    >>> x = torch.tensor([3.0, 4.0])
    >>> strongest(torch.outer(torch.tensor([0.5, -0.5]), x)).abs()
    tensor([0.6000, 0.8000])
    """
    return torch.linalg.svd(change, full_matrices=False).Vh[0]


def whole_pictures(rows, data, tolerance=1e-4):
    """Those of the ``rows`` that are pictures of ``data``: all their pixels are whole numbers.

    Rows are inputs as a model sees them, (n, pixels); the pictures, each once, have the shape of
    ``data.x`` and pixels from 0 to 255.  A mixture of pictures has pixels in between.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> seen = data.normalized(data.x[:2]).flatten(1)
    >>> mixed = seen.mean(0, keepdim=True)
    >>> found = whole_pictures(torch.cat([seen, mixed]), data)
    >>> found.shape  # the mixture is no picture
    torch.Size([2, 1, 8, 8])
    """
    if data.kind != "image":
        raise ValueError(f"data must hold images, got {data.name} of kind {data.kind!r}")
    per_channel = rows.new_tensor(data.mean), rows.new_tensor(data.std)
    mean, std = (v.view(-1, 1, 1) for v in per_channel)
    pixels = (rows.reshape(-1, *data.x.shape[1:]) * std + mean) * 255
    near = (pixels - pixels.round()).abs() < tolerance
    pure = (near & (pixels > -0.5) & (pixels < 255.5)).flatten(1).all(1)
    return pixels[pure].round().to(torch.uint8).unique(dim=0)
