"""Stages: parts of a model with their own weights, as lists of slices or index tensors."""

import torch


def split_stages(fed, stages):
    """1: the whole model; 2: all layers but the last, and the last.  A list of slices.

    A model of a single layer has one stage in either case.
    """
    last = fed.layers[-1][1].start
    return [slice(0, last), slice(last, fed.d)] if stages == 2 and last else [slice(0, fed.d)]


def parts(stages):
    """The stages as a list; ``None`` is the whole model."""
    if stages is None:
        return [slice(None)]
    if isinstance(stages, (slice, torch.Tensor)) or len(stages) == 0:
        raise ValueError(
            "stages must be None or a non-empty list of slices or index tensors, "
            f"one per stage, got {stages!r}"
        )
    return list(stages)


def spread(values, stages, like):
    """Spread one number per stage (..., s) over the columns of the stage, as wide as ``like``.

    Columns in no stage get 0. Without stages ``values`` (...) applies to every column.
    """
    if stages is None:
        return values[..., None]
    wide = torch.zeros_like(like) * values[..., :1]  # takes both shapes, under vmap too
    for s, part in enumerate(parts(stages)):
        wide[..., part] = values[..., s : s + 1].expand_as(wide[..., part])
    return wide
