"""The former versions of functions that were rewritten, word for word as they were when
the stored results were measured: ``pfl_lib.experiments.code.REWRITTEN`` names their fingerprints,
and tests/test_determinism.py shows that the new ones give the same."""

import hashlib
import math

import torch
import torch.nn.functional as F

from pfl_lib import _check
from pfl_lib.formulas._common import checked
from pfl_lib.formulas.fedamp import _heard
from pfl_lib.training import _a_pass, _used, step_counts


def keyed_generator(seed, *purpose):
    generator = torch.Generator()
    generator.manual_seed(keyed_number(seed, *purpose))
    return generator


def keyed_number(seed, *purpose):
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, *purpose):
        digest.update(_written(part))
    return int.from_bytes(digest.digest(), "little") >> 1


def _written(part):
    if isinstance(part, torch.Tensor) and part.ndim == 0 and not part.is_floating_point():
        part = part.item()
    if hasattr(part, "__index__") and not isinstance(part, bool):
        text = f"i{int(part)}"
    elif isinstance(part, str):
        text = f"s{part}"
    else:
        raise TypeError(f"a random key is made of whole numbers and words, got {part!r}")
    return f"{len(text.encode())}:{text}".encode()


def batch_table(work, settings, sizes, who, round_):
    batch_size = settings.batch_size if work.batch_size is None else work.batch_size
    width = min(batch_size, max(_used(work, n) for n in sizes))
    tables = []
    for client, n, steps in zip(who, sizes, step_counts(work, settings, sizes)):
        key = (settings.seed, work.tag, round_, client)
        used, a_pass = _used(work, n), _a_pass(work, settings, n)
        size = min(batch_size, used)
        passes = math.ceil(steps * work.group / a_pass)
        if work.group > 1 and work.steps is None:  # the last group is filled from the beginning
            passes = settings.epochs if work.epochs is None else work.epochs
        padded = torch.full((passes, a_pass * size), -1)
        for epoch in range(passes):
            generator = keyed_generator(*key, "batches", epoch)
            torch.randperm(used, generator=generator, out=padded[epoch, :used])
        if work.share < 1:
            pool = torch.randperm(n, generator=keyed_generator(*key, "share"))[:used]
            padded[:, :used] = pool[padded[:, :used]]
        table = F.pad(padded.view(-1, size), (0, width - size), value=-1)
        rows = steps * work.group
        if rows > len(table):
            table = table[torch.arange(rows) % len(table)]
        tables.append(table[:rows])
    return tables


def fedamp_weights(W, attention, alpha, grad_factor=1):
    alpha = checked(_check.non_negative, "alpha", alpha)
    heard = alpha * _heard(W, attention, grad_factor)
    return heard + torch.diag(1 - heard.sum(1))
