"""Small helpers of the equations: scalars that may be tensors, shapes that must agree."""

import torch


def checked(check, name, value, *bounds):
    """A number is checked; a tensor passes, since looking at it would make a GPU wait."""
    return value if isinstance(value, torch.Tensor) else check(name, value, *bounds)


def column(value):
    """A number stays; one value per client (k,) becomes a column (k, 1) beside rows (k, d)."""
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
