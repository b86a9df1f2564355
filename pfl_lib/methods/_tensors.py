"""Small helpers of the equations: scalars that may be tensors, shapes that must agree."""

import torch


def checked(check, name, value, *bounds):
    """Check a number; a tensor passes, since reading it would synchronize with a GPU."""
    return value if isinstance(value, torch.Tensor) else check(name, value, *bounds)


def column(value):
    """One value per client (k,) as a column (k, 1) beside rows (k, d); a number is unchanged."""
    return value[..., None] if isinstance(value, torch.Tensor) and value.ndim else value


def own(W):
    """The mask of the diagonal."""
    return torch.eye(W.shape[0], dtype=torch.bool, device=W.device)


def same_shape(**tensors):
    """Refuse tensors of different shapes."""
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
