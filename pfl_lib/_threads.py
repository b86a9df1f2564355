"""Work dealt out to threads with one core each.

Kernels that share an operator among all cores meet at its end, and where another program has taken
a core, all of them wait for the slowest.  Threads of their own meet once, when all work is done.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import torch


def each(task: Callable[[Any], Any], jobs: Sequence[Any], workers: int) -> list[Any]:
    """``task(job)`` for every job, on ``workers`` threads; whoever is free takes the next."""
    given = [_threads(workers).submit(task, job) for job in jobs]
    try:
        return [one.result() for one in given]
    finally:  # after an error, or an interrupt, no thread goes on working
        for one in given:
            one.cancel()
        wait(given)


@cache
def _threads(workers: int) -> ThreadPoolExecutor:
    """Threads that stay: a new one is slow at first, since torch keeps things for each thread."""

    def begin() -> None:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)  # see engines.flush_denormals; it counts for one thread

    return ThreadPoolExecutor(workers, "clients", begin)


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child makes its own
    os.register_at_fork(after_in_child=_threads.cache_clear)
