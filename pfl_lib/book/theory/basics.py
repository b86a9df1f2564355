"""Norms of stacks of models, and inequalities that are asserted and weighed."""

import torch

from pfl_lib._show import table


def norm2(W):
    """‖W‖² of each stack of models (..., m, d).

    >>> norm2(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(25.)
    """
    return (W * W).sum((-2, -1))


def size(W):
    """‖W‖ of each stack of models (..., m, d).

    >>> size(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    return norm2(W).sqrt()


def holds(left, right, since=0.0, tolerance=1e-9):
    """Asserts left ≤ right everywhere, up to rounding; says how much of what it permits is used.

    Both sides are compared with where they begin, ``since``: the actual change left − since with
    the permitted one, right − since. So a constant on both sides cannot make a bound look tight.
    A permitted change below zero is a promise: the left side falls by at least as much. Changes
    that are nothing but rounding do not count.

    >>> holds(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 2.5]))
    'holds 2 of 2 times; at most 0.8 of the permitted'
    >>> holds(left=101.0, right=104.0, since=100.0)
    'holds 1 of 1 times; at most 0.25 of the permitted'
    >>> holds(left=6.0, right=8.0, since=10.0)
    'holds 1 of 1 times; falls by at least 2 times the promised'
    """
    count, most, least = _weighed(left, right, since, tolerance)
    words = [f"holds {count} of {count} times"]
    if most:
        words.append(f"{'' if most.startswith('less') else 'at most '}{most} of the permitted")
    if least:
        words.append(f"falls by at least {least} times the promised")
    return "; ".join(words)


def weigh(lines):
    """The inequalities of a proof as a table: each is asserted, and weighed as in ``holds``.

    ``lines`` is name: (left, right) or (left, right, since).

    >>> weigh({"gain": (torch.tensor([1.0, 2.0]), torch.tensor([4.0, 2.5]))})
          holds    share used  times the promised fall
    gain  2 times         0.8
    At most this share of what is permitted (1 is tight); at least so many times the promised fall.
    """
    rows = {}
    for name, (left, right, *since) in lines.items():
        count, *weights = _weighed(left, right, *since)
        rows[name] = f"{count} times" if count > 1 else "yes", *weights
    note = (
        "At most this share of what is permitted (1 is tight); "
        "at least so many times the promised fall."
    )
    return table(rows, ("holds", "share used", "times the promised fall"), note)


def _weighed(left, right, since=0.0, tolerance=1e-9):
    """How many places there are; the most used of the permitted, the least of the promised."""
    left, right, since = torch.broadcast_tensors(*map(torch.as_tensor, (left, right, since)))
    worst = int((right - left).argmin())
    rounding = tolerance * (1 + float(right.abs().max()))
    if (right - left).min() < -rounding:
        raise AssertionError(
            f"violated at place {worst}: {float(left.flatten()[worst])!r} is not at most "
            f"{float(right.flatten()[worst])!r}"
        )
    permitted, most, least = right - since, "", ""
    share = (left - since) / permitted
    if (permitted > rounding).any():
        used = float(share[permitted > rounding].max())
        most = f"{used:.2g}" if used > 1e-3 else "less than 0.001"  # or even a fall
    if (permitted < -rounding).any():
        least = f"{float(share[permitted < -rounding].min()):.2g}"
    return left.numel(), most, least


def _each(function, W):
    """``function`` of every stack of models in W (..., m, d)."""
    if W.ndim == 2:
        return function(W)
    flat = torch.func.vmap(function)(W.reshape(-1, *W.shape[-2:]))
    return flat.reshape(*W.shape[:-2], *flat.shape[1:])
