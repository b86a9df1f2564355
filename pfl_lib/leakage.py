"""What a gradient, or the change of a model, tells about the samples behind it.

For one sample x the gradient of a linear layer is (residual of output c)·x in the weights of
output c, and (residual of output c) in its offset: the quotient of the two is x.
"""

import torch
import torch.nn.functional as F


def gradient(model, x, y):
    """What a client that trains ``model`` on these samples would send, by parameter name."""
    named = dict(model.named_parameters())
    loss = F.cross_entropy(model(x), y)
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()))))


def quotients(weight, bias):
    """Rows of a layer's weight gradient, each over its bias gradient.

    Where that is zero the row tells nothing and is left out.
    """
    alive = bias.abs() > 1e-12
    return weight[alive] / bias[alive, None]


def quotient(weight, bias):
    """The quotient of the row whose bias moved most; both may be changes of a model."""
    row = bias.abs().argmax()
    return weight[row] / bias[row]


def whole_pictures(rows, data, tolerance=1e-4):
    """Those of the ``rows`` that are pictures of ``data``: all their pixels are whole numbers.

    Rows are inputs as a model sees them, (n, pixels); the pictures, each once, have the shape of
    ``data.x`` and pixels from 0 to 255.  A mixture of pictures has pixels in between.
    """
    if data.kind != "image":
        raise ValueError(f"data must hold images, got {data.name} of kind {data.kind!r}")
    per_channel = rows.new_tensor(data.mean), rows.new_tensor(data.std)
    mean, std = (v.view(-1, 1, 1) for v in per_channel)
    pixels = (rows.reshape(-1, *data.x.shape[1:]) * std + mean) * 255
    near = (pixels - pixels.round()).abs() < tolerance
    pure = (near & (pixels > -0.5) & (pixels < 255.5)).flatten(1).all(1)
    return pixels[pure].round().to(torch.uint8).unique(dim=0)
