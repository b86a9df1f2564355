"""Small helpers of the formulas: scalars that may be tensors, and parts (stages) of a model."""

import torch


def checked(check, name, value, *bounds):
    """A number is checked; a tensor passes, since looking at it would make a GPU wait."""
    return value if isinstance(value, torch.Tensor) else check(name, value, *bounds)


def column(value):
    """A number stays; one value a client (k,) becomes a column (k, 1) beside rows (k, d)."""
    return value[..., None] if isinstance(value, torch.Tensor) and value.ndim else value


def own(W):
    """The mask of the diagonal: client i's own place in row i."""
    return torch.eye(W.shape[0], dtype=torch.bool, device=W.device)


def same_shape(**tensors):
    """All tensors have the shape of the first."""
    (first, model), *others = tensors.items()
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, got {value!r}")
    for name, value in others:
        if value.shape != model.shape:
            raise ValueError(
                f"{name} must have the shape of {first}, {tuple(model.shape)}, "
                f"got {tuple(value.shape)}"
            )


def parts(stages):
    """The stages as a list; ``None`` is the whole model."""
    if stages is None:
        return [slice(None)]
    if isinstance(stages, (slice, torch.Tensor)) or len(stages) == 0:
        raise ValueError(
            "stages must be None or a non-empty list of slices or index tensors, "
            f"one a stage, got {stages!r}"
        )
    return list(stages)


def spread(values, stages, like):
    """One number a stage (..., s) written over the columns of its stage, as wide as ``like``.

    Columns that belong to no stage get 0. Without stages ``values`` (...) serves every column.
    """
    if stages is None:
        return values[..., None]
    wide = torch.zeros_like(like) * values[..., :1]  # takes both shapes, under vmap too
    for s, part in enumerate(parts(stages)):
        wide[..., part] = values[..., s : s + 1].expand_as(wide[..., part])
    return wide
