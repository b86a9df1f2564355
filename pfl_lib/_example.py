"""A small federation for examples and experiments at the prompt."""

from pfl_lib import data, partition
from pfl_lib.local import LocalFederation


def example(model="mlp", **options):
    """A small federation, built in milliseconds: eight clients with different shares of digits.

    The digits are scikit-learn's, 8×8 pixels; labels are dealt by a Dirichlet distribution with
    a = 0.5.  ``model`` and ``options`` are those of :class:`~pfl_lib.Federation`, with ``lr=0.1``.

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> fed.m, fed.sizes.int().tolist()
    (8, [184, 69, 338, 203, 122, 144, 174, 204])
    """
    digits = data.load("digits")
    clients = partition.dirichlet(digits, clients=8, a=0.5)
    return LocalFederation(digits, clients, model, **{"lr": 0.1, **options})
