"""A stand-in accelerator for machines without one.

Its tensors hold real numbers in the computer's own memory, but say that they are on "gpu:0", and
any operation that mixes them with ordinary tensors is refused, as a real GPU would refuse it.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

torch.utils.backend_registration._setup_privateuseone_for_python_backend("gpu")
DEVICE = torch.device("gpu:0")
COPY_ACROSS = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
ONLY_MEMORY = ("aten::empty", "aten::new_empty", "aten::empty_like", "aten::empty_strided")
RELABELED = ("aten::_unsafe_view", "aten::_reshape_alias")  # the same numbers under another shape
ASK = ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select")
counted = {"launches": 0, "waits": 0}  # since a test last set them to 0


class Away(torch.Tensor):
    """A tensor that says it is on the accelerator; ``here`` is where its numbers are."""

    @staticmethod
    def __new__(cls, here, device=DEVICE):
        return torch.Tensor._make_wrapper_subclass(
            cls, here.shape, strides=here.stride(), storage_offset=here.storage_offset(),
            dtype=here.dtype, device=device,
        )  # fmt: skip

    def __init__(self, here, device=DEVICE):
        self.here = here

    def __repr__(self):
        return f"Away({self.here})"

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return carry_out(operation, args, kwargs or {})


def carry_out(operation, args, kwargs):
    """Do the operation on the numbers here; refuse tensors of two devices."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    away = [t for t in tensors if isinstance(t, Away)]
    strays = [t for t in tensors if not isinstance(t, Away) and t.ndim > 0]
    if away and strays and operation not in COPY_ACROSS:
        shapes = [tuple(t.shape) for t in strays]
        raise RuntimeError(f"{operation}: tensors {shapes} are on the CPU, the others on {DEVICE}")
    places = {t.device for t in away}
    if len(places) > 1 and operation not in COPY_ACROSS:
        raise RuntimeError(f"{operation}: tensors are on {sorted(map(str, places))}")
    target = kwargs.get("device")
    place = torch.device(target) if target is not None else next(iter(places), DEVICE)
    goes_away = torch.device(target).type == "gpu" if target is not None else bool(away)
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    here = lambda t: t.here if isinstance(t, Away) else t  # noqa: E731
    result = operation(*tree_map(here, args), **tree_map(here, kwargs))
    count(operation, args, away, goes_away)
    if operation is torch.ops.aten.copy_.default:
        return args[0]
    if not goes_away:
        return result
    same = {id(t.here): t for t in away}  # what an operation in place returns is what it got

    def wrap(t):
        if not isinstance(t, torch.Tensor) or isinstance(t, Away):
            return t
        return same[id(t)] if id(t) in same else Away(t, place)

    return tree_map(wrap, result)


def count(operation, args, away, goes_away):
    """A GPU gets one launch for each operator that is no view; Python waits for it wherever an
    answer comes back: a number, a size that depends on numbers, a copy to the computer's memory."""
    name = operation._schema.name
    if not (away or goes_away) or operation.is_view or name in ONLY_MEMORY + RELABELED:
        return
    counted["launches"] += 1
    back = operation in COPY_ACROSS and away and not goes_away
    if operation is torch.ops.aten.copy_.default:
        back = not isinstance(args[0], Away)
    picks = name == "aten::index" and any(t is not None and t.dtype == torch.bool for t in args[1])
    if back or picks or name in ASK:
        counted["waits"] += 1


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return carry_out(operation, args, kwargs or {})


class _FromLists(TorchFunctionMode):
    """``torch.tensor(list, device=…)`` fills memory directly: make it here, then send it."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            target = kwargs.pop("device")
            return function(*args, **kwargs).to(target)
        return function(*args, **kwargs)


class accelerator:
    """``with accelerator():`` the device "gpu:0" exists."""

    def __enter__(self):
        self.modes = [_Operations(), _FromLists()]
        for mode in self.modes:
            mode.__enter__()

    def __exit__(self, *error):
        for mode in reversed(self.modes):
            mode.__exit__(*error)
