"""Random models for the property tests: small float64 matrices, one row per client."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

quick = settings(max_examples=40, deadline=None)

numbers = st.floats(-10, 10, allow_subnormal=False, width=32)


@st.composite
def models(draw, clients=(1, 6), parameters=(1, 5)):
    """A matrix W with a drawn number of clients and parameters."""
    shape = draw(st.tuples(st.integers(*clients), st.integers(*parameters)))
    return torch.from_numpy(draw(arrays.arrays("float64", shape, elements=numbers)))


@st.composite
def shuffled_models(draw, clients=(1, 6)):
    """A matrix W and an order of its rows."""
    W = draw(models(clients))
    return W, torch.tensor(draw(st.permutations(range(len(W)))))


@st.composite
def vectors(draw, count, parameters=(1, 6)):
    """``count`` vectors of one length."""
    length = draw(st.integers(*parameters))
    rows = draw(arrays.arrays("float64", (count, length), elements=numbers))
    return tuple(torch.from_numpy(rows))
