"""A network that NumPy can follow: logits A·(B·s) + b, in double precision, and its gradients."""

import numpy as np
import torch

from pfl_lib import Federation

WIDTH, CLASSES = 3, 10


class TwoLayers(torch.nn.Module):
    """Features B·s, and a linear head on top."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.body = torch.nn.Linear(64, width, bias=False)
        self.head = torch.nn.Linear(width, CLASSES)

    def features(self, x):
        return self.body(x.flatten(1))

    def forward(self, x):
        return self.head(self.features(x))


def linear_federation(data, clients, **options):
    """One batch per client and round."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = TwoLayers()
    options = {"lr": 0.1, "batch_size": 64, "dtype": torch.float64, "device": "cpu", **options}
    return Federation(data, clients, model, **options)


def parts(w):
    """B, A and b of one model, as NumPy arrays."""
    w = np.asarray(w, dtype=np.float64)
    body, matrix, bias = np.split(w, [WIDTH * 64, WIDTH * 64 + CLASSES * WIDTH])
    return body.reshape(WIDTH, 64), matrix.reshape(CLASSES, WIDTH), bias


def flat(B, A, b):
    return np.concatenate([B.ravel(), A.ravel(), b])


def samples(fed, i):
    """Client i's inputs and labels."""
    data, index = fed.data, fed.partition.train[i]
    x = data.normalized(data.x[index], torch.float64)
    return x.flatten(1).numpy(), data.y[index].numpy()


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def slopes(B, A, s, logits, y, to_features=0.0):
    """Gradients of the mean cross-entropy of ``logits``, through the head A, in B, A and b;
    ``to_features`` is what further terms add to the gradient in the features B·s."""
    error = (softmax(logits) - np.eye(CLASSES)[y]) / len(y)
    features = s @ B.T
    return (error @ A + to_features).T @ s, error.T @ features, error.sum(0)
