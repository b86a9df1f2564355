"""The engines: three ways to have many clients do their work, one answer.

* ``loop``     one client after the other, one batch after the other: the reference to read;
* ``stacked``  chunks of clients, each chunk as one stack of models (``pfl_lib.local.stacked``);
* ``threads``  one client at a time on each core.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pfl_lib._threads import each
from pfl_lib.local.batches import Samples, batch_table, draw_noise, dropout_keys, step_counts
from pfl_lib.local.network import Client, Network, Task, channels_last, mean_loss
from pfl_lib.local.optimizers import start_memory
from pfl_lib.local.parts import draws_of
from pfl_lib.local.precision import in_precision
from pfl_lib.work import STEPS, Batch, Work

DESCEND_READS = ("w", "center", "strength", "correction", "mask")  # of what a work's rows may hold


def loop(task: Task) -> dict[str, Tensor]:
    """One client after the other: what every other engine must agree with."""
    network, work, settings, samples, who, k = task
    tables = batch_table(work, settings, samples.sizes(who), who, k)
    noise = draw_noise(work, settings, [len(t) // work.group for t in tables], who, k)
    step = STEPS[work.step]
    results = []
    for row, i in enumerate(who):
        client = Client(network, work, settings, under_vmap=False)
        rows = dict(work.rows)
        start_memory(rows, client.rule, work.moves)
        s = {name: rows[name][row] for name in rows} | dict(work.shared)
        device, dtype = s["w"].device, s["w"].dtype
        batches = []
        for x, y, weight in _batches(samples, i, tables[row], device):
            ones = torch.ones(len(y), dtype=dtype, device=device)
            batches.append((x, y, ones if weight is None else weight))
        for t in range(len(batches) // work.group):
            random = noise[row][t].to(device, dtype)
            seen = batches[t * work.group : (t + 1) * work.group]
            for _ in range(work.repeats):
                keys = dropout_keys(work, settings, k, i, client.t)
                some = [Batch(*b, random, key) for b, key in zip(seen, keys)]
                moved = step(s, some[0] if work.group == 1 else tuple(some), client)
                s |= _with_state(network, work, s, moved, some) if network.state else moved
                client.t += 1
        results.append({name: s[name] for name in work.rows})
    return {name: torch.stack([r[name] for r in results]) for name in work.rows}


def _batches(
    samples: Samples, client: int, table: Tensor, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Inputs, labels and weights (None: all alike) of each batch in a client's table."""
    for positions in table:
        here = positions[positions >= 0].to(device)
        index = samples.index[client][here]
        weight = None if samples.weights is None else samples.weights[index]
        yield samples.inputs(index), samples.labels[client][here], weight


def _with_state(
    network: Network,
    work: Work,
    before: Mapping[str, Tensor],
    moved: Mapping[str, Tensor],
    batches: Sequence[Batch],
) -> dict[str, Tensor]:
    """The result of a step, whose models get the buffers that a training forward pass updates.

    The pass uses each model as it was before the step.
    """
    new = dict(moved)
    for name, row in moved.items():
        if name in work.rows and row.shape == before["w"].shape:
            after = network.state_after(before[name], batches)
            new[name] = torch.cat([row[: network.trained].detach(), after])
    return new


# ---- chunks of clients, on threads --------------------------------------------------


def in_chunks(
    train: Callable[[Task], dict[str, Tensor]], task: Task, chunk: int, workers: int
) -> dict[str, Tensor]:
    """``train`` (one of ``stacked``, ``one_by_one``) for ``chunk`` clients at a time.

    Clients are sorted by work, the longest first, so that those of a chunk take about as long.
    """
    network, work, settings, samples, who, _ = task
    counts = step_counts(work, settings, samples.sizes(who))
    order = sorted(range(len(who)), key=lambda row: (-counts[row], row))
    device, given = work.rows["w"].device, work.rows
    changed = list(given)
    if work.step == "descend":  # it changes w, may count steps, and nothing else
        work = replace(work, rows={name: t for name, t in given.items() if name in DESCEND_READS})
        changed = ["w"]
    result = {
        name: torch.empty(given[name].shape, dtype=given[name].dtype, device=device)
        for name in changed
    }

    def one_chunk(network: Network, rows: list[int]) -> None:
        """Train some rows and write them to their places."""
        at = torch.tensor(rows, device=device)
        part = replace(work, rows={name: t.index_select(0, at) for name, t in work.rows.items()})
        done = train(task._replace(network=network, work=part, who=[who[r] for r in rows]))
        for name in changed:
            result[name].index_copy_(0, at, done[name])

    on_threads(
        one_chunk, network, [order[a : a + chunk] for a in range(0, len(order), chunk)], workers
    )
    if work.step == "descend" and "steps" in given:
        made = torch.tensor(counts, dtype=given["steps"].dtype, device=device)
        result["steps"] = given["steps"] + made * work.repeats
    return dict(given) | result


def on_threads(
    task: Callable[[Network, Any], Any], network: Network, jobs: Sequence[Any], workers: int
) -> list[Any]:
    """``task(network, job)`` for every job, on ``workers`` threads, each with one core (multi-core
    kernels would compete for the same cores) and a network of its own."""
    if workers < 2 or (len(jobs) < 2 and not network.by_hand):
        with flush_denormals():
            return [task(network, job) for job in jobs]

    def take(job: Any) -> Any:
        mine = network.borrow()
        try:
            return task(mine, job)
        finally:
            network.give_back(mine)

    return each(take, jobs, workers)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Treat denormal numbers (in float32 below 1e-38) as 0 in this thread.

    The gradients of a model that fits its data perfectly are full of them, and processors compute
    with them many times slower.
    """
    before = (torch.tensor(1e-39, dtype=torch.float32) * 1).item() == 0  # torch has no getter
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


# ---- one client at a time ---------------------------------------------------------------------


def one_by_one(task: Task) -> dict[str, Tensor]:
    """The loop without its copies: a real module whose parameters are updated in place.

    Images and filters are channels last, which is faster on CPUs.  Steps other than "descend" use
    the plain loop on channels-last images.
    """
    network, work, settings, samples, who, k = task
    if work.step != "descend":
        inputs = samples.inputs
        if network.channels_last:
            samples = replace(samples, inputs=lambda index: channels_last(inputs(index)))
        return loop(task._replace(samples=samples))
    tables = batch_table(work, settings, samples.sizes(who), who, k)
    rows = dict(work.rows)
    module = network.real(rows["w"].device, rows["w"].dtype)
    draws = draws_of(module)
    columns = network.columns_of(module)
    parameters = columns[: len(columns) - len(network.state)]
    for row, i in enumerate(who):
        client = Client(network, work, settings, under_vmap=False)
        s = {name: r[row] for name, r in rows.items()} | dict(work.shared)
        pieces = _pieces(network, s, columns, client)
        for x, y, weight in _batches(samples, i, tables[row], rows["w"].device):
            x = channels_last(x) if network.channels_last else x
            for _ in range(work.repeats):
                if draws is not None:
                    draws.begin(dropout_keys(work, settings, k, i, client.t)[0])
                client.t += 1
                out = in_precision(network.precision, x.device, module, x)
                loss = mean_loss(network.objective, out, y, weight)
                gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
                with torch.no_grad():
                    client.move_in_place(pieces, gradients)
        for place, column in zip(network.unflatten(rows["w"][row]).values(), columns):
            place.copy_(column.data)
    return rows


def _pieces(
    network: Network, s: Mapping[str, Tensor], columns: Sequence[Tensor], client: Client
) -> list[dict[str, Tensor]]:
    """Copy the model s["w"] into the module's ``columns``.  Returns for each parameter what its
    update needs: the parameter itself as "w", its part of the other rows, and optimizer buffers."""
    strength = {"strength": s["strength"]} if "strength" in s else {}
    parts = {n: network.unflatten(r).values() for n, r in s.items() if n != "strength"}
    pieces = [dict(zip(parts, values)) | strength for values in zip(*parts.values())]
    for piece, column in zip(pieces, columns):
        column.data.copy_(piece["w"])
        piece["w"] = column.data
        start_memory(piece, client.rule, ["w"])
    return pieces[: len(columns) - len(network.state)]  # the forward pass updates the buffers
