"""Randomness that is keyed, never drawn in order.

A generator is made from (seed, purpose, round, client ...), so the draws of one client depend
neither on which other clients take part, nor on the engine, nor on whether the run was resumed.
"""

import hashlib
import operator

import torch

from pfl_lib import _check


def keyed_generator(seed, *purpose):
    """A fresh CPU generator that depends on ``(seed, *purpose)`` and on nothing else.

    The parts are whole numbers and words.  Equal keys give equal draws; ``1`` and ``"1"``, or
    ``("ab", "c")`` and ``("a", "bc")``, are different keys.

    >>> a, b = keyed_generator(0, "batches", 3), keyed_generator(0, "batches", 3)
    >>> torch.equal(torch.rand(5, generator=a), torch.rand(5, generator=b))
    True
    """
    generator = torch.Generator()
    generator.manual_seed(keyed_number(seed, *purpose))
    return generator


def keyed_number(seed, *purpose):
    """The whole number in [0, 2**63) behind :func:`keyed_generator`.

    torch's CPU generator uses the low 32 bits only; they come from a cryptographic hash, so that
    neighbouring seeds or clients have unrelated streams.

    >>> keyed_number(0, "batches", 3)
    9108696344802268837
    >>> keyed_number(0, "batches", 4) == keyed_number(0, "batches", 3)
    False
    """
    key = b"".join(map(_written, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def keyed_order(n, *purpose):
    """The numbers 0..n-1 in a random order that does not depend on library versions.

    Used where an order is part of a data set's definition (the fixed splits of small sets).

    >>> keyed_order(5, "my split")
    [4, 0, 2, 3, 1]
    """
    n = _check.whole("n", n, at_least=0, at_most=10**9)
    return sorted(range(n), key=lambda i: (keyed_number(0, *purpose, i), i))


def _written(part):
    if type(part) is int:  # the most common case, first for speed
        text = b"i%d" % part
    elif isinstance(part, str):
        text = b"s" + part.encode()
    else:
        if isinstance(part, torch.Tensor) and part.ndim == 0 and not part.is_floating_point():
            part = part.item()
        try:
            number = None if isinstance(part, bool) else operator.index(part)
        except (TypeError, RuntimeError):  # torch has another error for tensors of several numbers
            number = None
        if number is None:
            raise TypeError(f"a random key is made of whole numbers and words, got {part!r}")
        text = b"i%d" % number
    return b"%d:%s" % (len(text), text)
