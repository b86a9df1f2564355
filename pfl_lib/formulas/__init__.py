"""Every equation of the papers as one pure function on plain tensors, one row a client."""

from pfl_lib.formulas.fedamp import (
    attention_weights,
    fedamp_gradient,
    fedamp_objective,
    fedamp_weights,
    heurfedamp_weights,
    largest_convex_alpha,
    mix,
    proximal_step_quadratic,
    safe_alpha,
)
from pfl_lib.formulas.similarity import cosine_similarities, median_sigma, squared_distances

__all__ = [
    "attention_weights",
    "cosine_similarities",
    "fedamp_gradient",
    "fedamp_objective",
    "fedamp_weights",
    "heurfedamp_weights",
    "largest_convex_alpha",
    "median_sigma",
    "mix",
    "proximal_step_quadratic",
    "safe_alpha",
    "squared_distances",
]
