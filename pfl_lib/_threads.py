"""Jobs on threads with one core each.

Where all cores share an operator, they synchronize at its end, and if another program occupies a
core, all of them wait for the slowest.  Threads with one core each synchronize once, at the end.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import torch


def each(task: Callable[[Any], Any], jobs: Sequence[Any], workers: int) -> list[Any]:
    """``task(job)`` for every job, on ``workers`` threads; a free thread takes the next job.

    The threads do not inherit ``torch.no_grad``, ``vmap`` or dispatch modes from the caller.
    """
    given: list[Future] = []
    try:
        for job in jobs:
            given.append(_threads(workers).submit(task, job))
        return [one.result() for one in given]
    finally:  # after an error or an interrupt, no thread keeps working
        for one in given:
            one.cancel()
        wait(given)


@cache
def _threads(workers: int) -> ThreadPoolExecutor:
    """Threads that are reused: a new one is slow at first, since torch has per-thread caches."""

    def begin() -> None:
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)  # per thread; see engines.flush_denormals

    return ThreadPoolExecutor(workers, "clients", begin)


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child starts its own
    os.register_at_fork(after_in_child=_threads.cache_clear)
