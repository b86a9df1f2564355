"""How a stack of dense networks stores its matrices while it trains: as torch does, or transposed.

Both layouts give the same numbers but for rounding, and which one is faster depends on the
processor: one way round, its library for batched products can take five times as long as the other.
Only a trial can tell, so there is one, of a few milliseconds per shape and process.  Torch's own
layout is kept unless the other is faster by far, so that a stopwatch disturbed by other programs
does not decide about the last digit; and checkpoints record which one a run began with.
"""

import time
from functools import cache

import torch
from torch import Tensor

FASTER = 1.5  # times as fast: what makes up for another rounding
TURNS = 8
CLIENTS = 4  # of the trial's stack
LARGEST = 2**24  # multiplications in a product of the trial: layers beyond are not tried


def forward(x: Tensor, matrix: Tensor, bias: Tensor, last: bool) -> Tensor:
    """The outputs (clients, samples, outputs) of a linear layer, its matrices (…, outputs, inputs).

    The last layer's are laid out class by class, which makes sums over few classes faster.
    """
    if last:
        out = torch.baddbmm(bias[:, :, None], matrix, x.transpose(1, 2))
        return out.transpose(1, 2)
    return torch.baddbmm(bias[:, None, :], x, matrix.transpose(1, 2))


def gradient_factors(x: Tensor, error: Tensor, transposed: bool) -> tuple[Tensor, Tensor]:
    """Two stacks whose product is the gradient of a layer's matrices, in the layout of these."""
    return (x.transpose(1, 2), error) if transposed else (error.transpose(1, 2), x)


def flipped(stack: Tensor, transposed: bool) -> Tensor:
    """Another view of a stack of matrices: each transposed; vectors as they are."""
    return stack.transpose(1, 2) if transposed and stack.ndim == 3 else stack


@cache
def transposed_pays(batch: int, inputs: int, outputs: int, last: bool, dtype: torch.dtype) -> bool:
    """Whether one step of a linear layer is much faster with transposed matrices, on one core."""
    if CLIENTS * batch * inputs * outputs > LARGEST:
        return False  # products so large are as fast either way
    x = torch.ones(CLIENTS, batch, inputs, dtype=dtype)
    bias = torch.zeros(CLIENTS, outputs, dtype=dtype)
    error = torch.zeros(CLIENTS, batch, outputs, dtype=dtype)
    error = error.transpose(1, 2).contiguous().transpose(1, 2) if last else error
    stored = [
        torch.zeros(CLIENTS, outputs, inputs, dtype=dtype),
        torch.zeros(CLIENTS, inputs, outputs, dtype=dtype),
    ]
    best = [float("inf"), float("inf")]
    with torch.no_grad():
        for turn in range(TURNS + 1):
            for transposed in (False, True):
                began = time.perf_counter()
                forward(x, flipped(stored[transposed], transposed), bias, last)
                one, other = gradient_factors(x, error, transposed)
                stored[transposed].baddbmm_(one, other, alpha=-0.1)
                took = time.perf_counter() - began
                if turn:  # the first call of a kernel is slow
                    best[transposed] = min(best[transposed], took)
            if turn > 1 and best[True] > 2 * best[False]:
                break
    return best[False] > FASTER * best[True]
