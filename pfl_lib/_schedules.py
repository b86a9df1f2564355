"""Values that may change from round to round, or from client to client, as plain data.

- a number;
- ``(first, factor, every)``: first·factor^⌊k/every⌋ in round k;
- ``("power", first, p)``: first/(k + 1)^p.  With ½ < p ≤ 1 its sum is infinite and that of its
  squares is not, which is what the second halves of FedAMP's theorems ask of α_k;
- ``("cosine", first, rounds)``: first·(1 + cos(πk/rounds))/2, constant after the last of
  these rounds;
- ``("warmup", rounds, schedule)``: one of the forms above, times (k + 1)/rounds in the first
  rounds;
- ``("clients", one, two, ...)``: one of the forms above per client.
"""

import math

import torch

from pfl_lib import _check

FORMS = (
    "a number, (first, factor, every), ('power', first, p), ('cosine', first, rounds) "
    "or ('warmup', rounds, schedule)"
)
BAD = ("a", True, float("nan"), -1, (1, 2), (1, 2, 0), ("power", 1.0), ("power", 1.0, -1.0),
       ("cosine", 1.0, 0), ("warmup", 0, 1.0), ("warmup", 5, "a"))  # fmt: skip
BAD_CLIENTS = (("clients",), ("clients", 1.0, "a"))


def at_round(name, value, k, check=_check.positive):
    """The value in round ``k``; ``check`` says what a first value may be.

    >>> [at_round("alpha", ("power", 8.0, 1.0), k) for k in (0, 1, 3)]
    [8.0, 4.0, 2.0]
    >>> [round(at_round("lr", ("cosine", 1.0, 4), k), 2) for k in range(6)]
    [1.0, 0.85, 0.5, 0.15, 0.15, 0.15]
    >>> [at_round("lr", ("warmup", 4, 1.0), k) for k in range(6)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    """
    if not isinstance(value, (tuple, list)):
        return check(name, value)
    if len(value) != 3:
        raise ValueError(f"{name} must be {FORMS}, got {value!r}")
    kind, first, last = value
    if kind == "power":
        return check(name, first) / (k + 1) ** _check.positive(f"the power of {name}", last)
    if kind == "cosine":
        rounds = _check.whole(f"the rounds of {name}", last)
        return check(name, first) * (1 + math.cos(math.pi * min(k, rounds - 1) / rounds)) / 2
    if kind == "warmup":
        rounds = _check.whole(f"the warm-up rounds of {name}", first)
        return at_round(name, last, k, check) * min(1.0, (k + 1) / rounds)
    if any(isinstance(part, str) for part in value):
        raise ValueError(f"{name} must be {FORMS}, got {value!r}")
    first, factor, every = value
    factor = _check.positive(f"the factor of {name}", factor)
    steps = k // _check.whole(f"the rounds between steps of {name}", every)
    if steps * math.log(factor) > math.log(_check.LARGEST):
        raise ValueError(f"{name} grows without bound: {value!r} is infinite in round {k}")
    return check(name, first) * factor**steps


def for_clients(name, value, k, W, check=_check.positive):
    """``at_round`` for all clients, or a tensor with one value per client (row of ``W``)."""
    if not is_by_client(value):
        return at_round(name, value, k, check)
    if len(value) - 1 != len(W):
        raise ValueError(
            f"{name} must have one value per client, {len(W)} of them, got {len(value) - 1}"
        )
    return W.new_tensor([at_round(name, one, k, check) for one in value[1:]])


def is_by_client(value):
    """Whether the schedule gives each client its own value."""
    return isinstance(value, (tuple, list)) and len(value) > 0 and value[0] == "clients"


def check_value(name, value, check=_check.positive, by_client=True):
    """Refuse anything that has none of these forms."""
    if by_client and is_by_client(value):
        if len(value) == 1:
            raise ValueError(f"{name} must have one value per client, got {value!r}")
        for one in value[1:]:
            at_round(name, one, 0, check)
    else:
        at_round(name, value, 0, check)


def as_data(value):
    """A schedule as JSON has it: tuples, also inner ones, as lists."""
    if isinstance(value, (tuple, list)):
        return [as_data(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def plain(value):
    """A tensor with one number per client as plain data; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.ndim == 1:
        return ("clients", *value.tolist())
    one = isinstance(value, torch.Tensor) and value.ndim == 0 and not value.is_meta
    return value.item() if one else value
