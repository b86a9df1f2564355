"""A private model or a private choice of layers: FedPHP and PartialFed (after the originals)."""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, column, spread


def fedphp_momentum(mu, taken, expected):
    """μ_t = μ·min(1, taken/expected): the inherited model's share grows to μ along a line.

    FedPHP (Li et al. 2021). ``taken`` counts the rounds the client took part in,
    ``expected`` how many it is to take part in; at first the private model follows the new one.

    Equation label: eq-fedphp-momentum

    >>> fedphp_momentum(0.9, torch.tensor([0, 50, 100]), expected=100)
    tensor([0.0000, 0.4500, 0.9000])
    """
    mu = checked(_check.between, "mu", mu, 0, 1)
    expected = _check.positive("expected", expected)
    if isinstance(taken, torch.Tensor):
        return mu * (taken / expected).clamp(0, 1)
    return mu * min(_check.non_negative("taken", taken) / expected, 1.0)


def fedphp_update(inherited, w, momentum):
    """h ← μ_t·h + (1 − μ_t)·w: the private model, a moving average of the client's own models.

    FedPHP (Li et al. 2021). ``momentum`` may hold one number a client.

    Equation label: eq-fedphp-update

    >>> fedphp_update(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]), momentum=0.45)
    tensor([0.5500, 1.0000])
    """
    momentum = column(checked(_check.between, "momentum", momentum, 0, 1))
    return momentum * inherited + (1 - momentum) * w


def partialfed_temperature(step, start=5.0, decay=0.965):
    """5·0.965^step: the temperature of the Gumbel-softmax, cooling down.

    PartialFed (Sun et al. 2021), with the values FedALA reports. ``step`` may be a tensor.

    Equation label: eq-partialfed-temperature

    >>> round(partialfed_temperature(10), 4)
    3.5014
    """
    start = checked(_check.positive, "start", start)
    decay = checked(_check.between, "decay", decay, 0, 1)
    step = checked(_check.non_negative, "step", step)
    return start * decay**step


def gumbel_softmax(logits, uniform, temperature, hard=False):
    """softmax((logits − log(−log u))/temperature): a soft draw from softmax(logits).

    Jang et al. 2017, Eq. (2), from uniform numbers u in [0, 1] that the caller supplies. ``hard``
    gives the one-hot choice forwards and the soft gradient backwards (straight through).

    Equation label: eq-gumbel-softmax

    >>> logits, u = torch.tensor([2.0, 0.0]), torch.tensor([0.5, 0.5])
    >>> gumbel_softmax(logits, u, temperature=1.0)
    tensor([0.8808, 0.1192])
    """
    temperature = checked(_check.positive, "temperature", temperature)
    info = torch.finfo(logits.dtype)
    noise = -torch.log(-torch.log(uniform.to(logits.dtype).clamp(info.tiny, 1 - info.eps)))
    soft = torch.softmax((logits + noise) / temperature, dim=-1)
    if not hard:
        return soft
    places = torch.arange(logits.shape[-1], device=logits.device)
    choice = (places == soft.argmax(-1, keepdim=True)).to(soft.dtype)
    return choice + soft - soft.detach()


def partialfed_mix(use_global, w_local, w_global, stages):
    """Layer by layer, the global (1) or the local (0) parameters; in between while learning.

    PartialFed (Sun et al. 2021). ``use_global`` holds one number a layer, ``stages`` their columns.

    Equation label: eq-partialfed-mix

    >>> layers = [slice(0, 2), slice(2, 3)]
    >>> partialfed_mix(torch.tensor([1.0, 0.0]), torch.zeros(3), torch.ones(3), layers)
    tensor([1., 1., 0.])
    """
    return w_local + spread(use_global, stages, like=w_local) * (w_global - w_local)
