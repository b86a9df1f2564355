"""The engines: three ways to have many clients do their work, one answer.

* ``loop``     one client after the other, one batch after the other: the reference to read;
* ``stacked``  chunks of clients, each chunk as one stack of models;
* ``threads``  one client at a time on each core.

Ordinary local training (the step "descend") is most of what is ever run, so the last two do it
without copies: models and Adam's memory are changed in place, and the gradient of a stack of dense
networks is written out by hand as batched matrix products.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from pfl_lib.training import (
    ADAM,
    STEPS,
    Batch,
    Client,
    batch_table,
    draw_noise,
    start_rows,
    step_counts,
)

DESCEND_READS = ("w", "centre", "strength", "correction", "mask")  # of what a work's rows may hold


def loop(network, work, settings, samples, who, round_):
    """One client after the other: what every other engine must agree with."""
    tables = batch_table(work, settings, samples.sizes(who), who, round_)
    noise = draw_noise(work, settings, [len(t) // work.group for t in tables], who, round_)
    step = STEPS[work.step]
    results = []
    for row, i in enumerate(who):
        client = Client(network, work, settings, under_vmap=False)
        rows = start_rows(work, client.optimizer)
        s = {name: rows[name][row] for name in rows} | dict(work.shared)
        device, dtype = s["w"].device, s["w"].dtype
        batches = []
        for positions in tables[row]:
            here = positions[positions >= 0].to(device)
            x, y = samples.inputs(samples.index[i][here]), samples.labels[i][here]
            batches.append((x, y, torch.ones(len(here), dtype=dtype, device=device)))
        for t in range(len(batches) // work.group):
            random = noise[row][t].to(device, dtype)
            some = [Batch(*b, random) for b in batches[t * work.group : (t + 1) * work.group]]
            for _ in range(work.repeats):
                s |= step(s, some[0] if work.group == 1 else tuple(some), client)
                client.t += 1
        results.append({name: s[name] for name in work.rows})
    return {name: torch.stack([r[name] for r in results]) for name in work.rows}


# ---- chunks of clients, dealt out to threads --------------------------------------------------


def in_chunks(train, network, work, settings, samples, who, round_, chunk, workers):
    """``train`` (one of ``stacked``, ``one_by_one``) for ``chunk`` clients at a time.

    Those with most to do come first, so that the clients of a chunk have about the same to do.
    """
    counts = step_counts(work, settings, samples.sizes(who))
    order = sorted(range(len(who)), key=lambda row: (-counts[row], row))
    device, given = work.rows["w"].device, work.rows
    changed = list(given)
    if work.step == "descend":  # it moves w, may count steps, and leaves the rest alone
        work = replace(work, rows={name: t for name, t in given.items() if name in DESCEND_READS})
        changed = ["w"]
    result = {
        name: torch.empty(given[name].shape, dtype=given[name].dtype, device=device)
        for name in changed
    }

    def one_chunk(network, rows):
        """Train some rows and put them in their places."""
        at = torch.tensor(rows, device=device)
        part = replace(work, rows={name: t.index_select(0, at) for name, t in work.rows.items()})
        done = train(network, part, settings, samples, [who[r] for r in rows], round_)
        for name in changed:
            result[name].index_copy_(0, at, done[name])

    deal(one_chunk, network, [order[a : a + chunk] for a in range(0, len(order), chunk)], workers)
    if work.step == "descend" and "steps" in given:
        made = torch.tensor(counts, dtype=given["steps"].dtype, device=device)
        result["steps"] = given["steps"] + made * work.repeats
    return dict(given) | result


def deal(task, network, jobs, workers):
    """``task(network, job)`` for every job, on ``workers`` threads with one core and a network of
    their own (two-core kernels would fight each other)."""
    if min(workers, len(jobs)) < 2:
        with tiny_is_zero():
            return [task(network, job) for job in jobs]

    def take(job):
        mine = network.borrow()
        try:
            return task(mine, job)
        finally:
            network.give_back(mine)

    given = [_threads(workers).submit(take, job) for job in jobs]
    try:
        return [one.result() for one in given]
    finally:  # after an error, or when somebody interrupts, nobody goes on working
        for one in given:
            one.cancel()
        wait(given)


@cache
def _threads(workers):
    """Threads that stay: a new one is slow at first, since torch keeps things for each thread."""

    def begin():
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)  # see tiny_is_zero; it counts for one thread

    return ThreadPoolExecutor(workers, "clients", begin)


@contextmanager
def tiny_is_zero():
    """In this thread, numbers below the normal ones (in float32 below 1e-38) count as 0.

    A model that knows its data by heart has gradients full of them, and a processor calculates
    with them many times slower than with others.
    """
    before = (torch.tensor(1e-39, dtype=torch.float32) * 1).item() == 0  # torch has no way to ask
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child makes its own
    os.register_at_fork(after_in_child=_threads.cache_clear)


# ---- a stack of clients -----------------------------------------------------------------------


def stacked(network, work, settings, samples, who, round_):
    """All these clients at once; they come in order, those with most to do first.

    ``work.rows`` is changed in place where that is faster.
    """
    tables = batch_table(work, settings, samples.sizes(who), who, round_)
    steps = [len(t) // work.group for t in tables]
    device, dtype = work.rows["w"].device, work.rows["w"].dtype

    random = torch.empty(len(who), max(steps), 0, dtype=dtype, device=device)
    if work.noise:
        random = _pad(draw_noise(work, settings, steps, who, round_)).to(device, dtype)
    # for every batch and every client, which samples of the pool: (batches, clients, batch size)
    positions = _pad(tables, -1).to(device)
    weight = (positions >= 0).to(dtype).transpose(0, 1).contiguous()
    if network.dense is not None and work.step == "descend":
        weight /= weight.sum(2, keepdim=True)  # once for all steps: a mean's weights sum to 1
    flat = positions.clamp(min=0).flatten(1)
    spread = lambda t: _pad(t).gather(1, flat).view(positions.shape)  # noqa: E731
    index = spread([samples.index[i] for i in who]).transpose(0, 1).contiguous()
    labels = spread([samples.labels[i] for i in who]).transpose(0, 1).contiguous()

    def batches(busy, t):
        """What the first ``busy`` clients see in step t: a batch, or a group of them."""
        some = []
        for at in range(t * work.group, (t + 1) * work.group):
            x = samples.inputs(index[at, :busy])
            some.append(Batch(x, labels[at, :busy], weight[at, :busy], random[:busy, t]))
        return some[0] if work.group == 1 else tuple(some)

    client = Client(network, work, settings, under_vmap=True)
    busy = (torch.tensor(steps)[:, None] > torch.arange(max(steps))).sum(0).tolist()
    train = _descend_together if work.step == "descend" else _step_together
    return train(network, work, client, batches, busy)


def _pad(tensors, value=0):
    """One row a tensor, the short ones filled up."""
    if len({t.shape[0] for t in tensors}) == 1:
        return torch.stack(tuple(tensors))  # several times as fast
    return nn.utils.rnn.pad_sequence(list(tensors), True, value)


def _step_together(network, work, client, batches, busy):
    """Any local step, under vmap.  Clients that are done leave the stack."""
    s = start_rows(work, client.optimizer)
    one = STEPS[work.step]
    together = torch.func.vmap(lambda s, batch: one(s | dict(work.shared), batch, client))
    finished = []
    for t, still in enumerate(busy):
        if still < len(s["w"]):
            finished.append({name: rows[still:] for name, rows in s.items()})
            s = {name: rows[:still] for name, rows in s.items()}
        batch = batches(still, t)
        for _ in range(work.repeats):
            s |= together(s, batch)
            client.t += 1
    finished.append(s)
    return {name: torch.cat([f[name] for f in reversed(finished)]) for name in work.rows}


@torch.no_grad()
def _descend_together(network, work, client, batches, busy):
    """The step "descend" for a whole stack, in place."""
    s = dict(work.rows) | {name: tensor[None] for name, tensor in work.shared.items()}
    by_hand = network.dense is not None
    if by_hand:
        pieces = _pieces(network, s)
    else:
        gradient = torch.func.vmap(torch.func.grad(network.loss))
        pieces = {"whole": s | {n: s[n][:, None] for n in ("strength",) if n in s}}
    if client.optimizer == "adam":
        for piece in pieces.values():
            piece |= {name: torch.zeros_like(piece["w"]) for name in ("w_mean", "w_square")}
    for t, still in enumerate(busy):
        if t == 0 or still < busy[t - 1]:  # who is done leaves the stack
            now = {name: {n: r[:still] for n, r in piece.items()} for name, piece in pieces.items()}
        batch = batches(still, t)
        for _ in range(work.repeats):
            client.t += 1
            if by_hand:
                _dense_step(network.dense, now, batch, client)
            else:
                _move([now["whole"]], [gradient(now["whole"]["w"], batch)], client)
    if by_hand:
        for name, where in network.slices():
            s["w"][:, where] = pieces[name]["w"].flatten(1)
    return {"w": s["w"]}


def _pieces(network, s):
    """For each parameter its own stacks (clients, *shape), laid out as ``bmm`` wants them."""
    pieces = {}
    for (name, where), shape in zip(network.slices(), network.shapes):
        piece = {n: r[:, where].reshape(-1, *shape) for n, r in s.items() if n != "strength"}
        if "strength" in s:
            piece["strength"] = s["strength"].view(-1, *[1] * len(shape))
        pieces[name] = {n: r.clone(memory_format=torch.contiguous_format) for n, r in piece.items()}
    return pieces


def _move(pieces, gradients, client):
    """What the step "descend" does with the gradients of some pieces, in place on the pieces."""
    for s, g in zip(pieces, gradients):
        if "centre" in s:
            g += s["strength"] * (s["w"] - s["centre"])
        if "correction" in s:
            g += s["correction"]
        if "mask" in s:
            g *= s["mask"]
        if client.optimizer == "sgd":
            s["w"].sub_(g, alpha=client.lr)
    if client.optimizer == "adam":
        _adam(pieces, gradients, client)


def _adam(pieces, gradients, client):
    decay, decay_square, epsilon = ADAM
    if pieces[0]["w"].device.type == "cpu" and hasattr(torch, "_fused_adam_"):
        # torch's own Adam in one pass over memory; it reads raw memory, so the layouts must agree
        like = [s["w"] for s in pieces]
        same = [
            g if g.stride() == w.stride() else torch.empty_like(w).copy_(g)
            for w, g in zip(like, gradients)
        ]
        mean, square = ([s[name] for s in pieces] for name in ("w_mean", "w_square"))
        torch._fused_adam_(
            like, same, mean, square, [], [torch.tensor(float(client.t))] * len(pieces),
            lr=client.lr, beta1=decay, beta2=decay_square, eps=epsilon, weight_decay=0.0,
            amsgrad=False, maximize=False,
        )  # fmt: skip
        return
    for s, g in zip(pieces, gradients):
        s["w_mean"].lerp_(g, 1 - decay)
        s["w_square"].mul_(decay_square).addcmul_(g, g, value=1 - decay_square)
        root = torch.sqrt(s["w_square"], out=g)  # the gradient has served: no new memory
        root.div_(math.sqrt(1 - decay_square**client.t)).add_(epsilon)
        s["w"].addcdiv_(s["w_mean"], root, value=-client.lr / (1 - decay**client.t))


def _dense_step(layers, pieces, batch, client):
    """One step of every client for linear layers with ReLU between.

    Autograd would do the same products, but write each into a tensor of its own and copy.
    """
    inputs, out = dense_forward(layers, {n: p["w"] for n, p in pieces.items()}, batch.x)
    # d loss / d logits = (softmax − one-hot) · weight, where the weights sum to 1
    error = out.transpose(1, 2).softmax(1)  # a row a class, as it lies in memory: quicker for ten
    error *= batch.weight[:, None, :]
    error.scatter_add_(1, batch.y[:, None, :], -batch.weight[:, None, :])
    error = error.transpose(1, 2)
    moved, gradients = [], []
    for layer, x in zip(reversed(layers), reversed(inputs)):
        matrix, bias = pieces[f"{layer}.weight"], pieces[f"{layer}.bias"]
        first = layer == layers[0]
        below = None if first else torch.bmm(error, matrix["w"]).mul_(x > 0)
        if client.optimizer == "sgd" and matrix.keys() == {"w"}:  # gradient and move in one
            matrix["w"].baddbmm_(error.transpose(1, 2), x, alpha=-client.lr)
        else:
            moved.append(matrix)
            gradients.append(torch.bmm(error.transpose(1, 2), x))
        moved.append(bias)
        gradients.append(error.sum(1))
        error = below
    _move(moved, gradients, client)


def dense_forward(layers, parameters, x):
    """The inputs of each layer, and the logits, for a stack of clients.

    The logits lie in memory class by class: sums over ten classes are quicker that way.
    """
    inputs, out = [], x.flatten(2)
    for layer in layers:
        inputs.append(out.relu_() if inputs else out)
        bias, matrix = parameters[f"{layer}.bias"], parameters[f"{layer}.weight"]
        if layer == layers[-1]:
            logits = torch.baddbmm(bias[:, :, None], matrix, inputs[-1].transpose(1, 2))
            return inputs, logits.transpose(1, 2)
        out = torch.baddbmm(bias[:, None, :], inputs[-1], matrix.transpose(1, 2))


# ---- one client at a time ---------------------------------------------------------------------


def one_by_one(network, work, settings, samples, who, round_):
    """The loop, without its copies: a real module whose parameters move in place.

    Images and filters lie channels last, which CPUs prefer.  Other steps than "descend" use the
    plain loop, on images that lie so.
    """
    if work.step != "descend":
        inputs = samples.inputs
        if network.channels_last:
            samples = samples._replace(inputs=lambda index: channels_last(inputs(index)))
        return loop(network, work, settings, samples, who, round_)
    tables = batch_table(work, settings, samples.sizes(who), who, round_)
    rows = dict(work.rows)
    module = network.real(rows["w"].device, rows["w"].dtype)
    parameters = list(module.parameters())
    for row, i in enumerate(who):
        client = Client(network, work, settings, under_vmap=False)
        s = {name: r[row] for name, r in rows.items()} | dict(work.shared)
        strength = {"strength": s.pop("strength")} if "strength" in s else {}
        split = {name: network.unflatten(r).values() for name, r in s.items()}
        pieces = [dict(zip(split, values)) | strength for values in zip(*split.values())]
        for piece, parameter in zip(pieces, parameters):
            parameter.data.copy_(piece["w"])
            piece["w"] = parameter.data
            if client.optimizer == "adam":
                piece |= {name: torch.zeros_like(piece["w"]) for name in ("w_mean", "w_square")}
        for positions in tables[row]:
            here = positions[positions >= 0].to(s["w"].device)
            x, y = samples.inputs(samples.index[i][here]), samples.labels[i][here]
            x = channels_last(x) if network.channels_last else x
            for _ in range(work.repeats):
                client.t += 1
                loss = nn.functional.cross_entropy(module(x), y)
                gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
                with torch.no_grad():
                    _move(pieces, gradients, client)
        for place, piece in zip(network.unflatten(rows["w"][row]).values(), pieces):
            place.copy_(piece["w"])
    return rows


def channels_last(x):
    """Images with their channels side by side in memory; anything else as it is."""
    if x.ndim != 4:
        return x
    x = x.contiguous(memory_format=torch.channels_last)
    channels, height, width = x.shape[1:]
    # of one channel every layout is both; say which is meant
    return x.as_strided(x.shape, (channels * height * width, 1, width * channels, channels))


# ---- how good are the models? -----------------------------------------------------------------

BLOCK = 256  # samples of a client that are looked at together


@torch.no_grad()
def evaluate_loop(network, w, samples, who):
    """Accuracy and mean loss of row i of ``w`` on the data of client ``who[i]``, one by one."""
    accuracy, loss = [], []
    for row, i in enumerate(who):
        logits = network.logits(w[row], samples.inputs(samples.index[i]))
        y = samples.labels[i]
        accuracy.append((logits.argmax(1) == y).to(w.dtype).mean())
        loss.append(nn.functional.cross_entropy(logits, y))
    return torch.stack(accuracy), torch.stack(loss)


def evaluate(network, w, samples, who, chunk, workers):
    """The same for ``chunk`` clients at a time; those of about the same size together."""
    sizes = samples.sizes(who)
    order = sorted(range(len(who)), key=lambda row: -sizes[row])
    right, loss = (torch.empty(len(who), dtype=w.dtype, device=w.device) for _ in range(2))

    @torch.no_grad()
    def one_chunk(network, rows):
        """Evaluate some rows; padding has weight 0."""
        at = torch.tensor(rows, device=w.device)
        index = _pad([samples.index[who[r]] for r in rows], -1).split(BLOCK, 1)
        labels = _pad([samples.labels[who[r]] for r in rows]).split(BLOCK, 1)
        sums = torch.zeros(2, len(rows), dtype=w.dtype, device=w.device)
        for some, y in zip(index, labels):
            weight = (some >= 0).to(w.dtype)
            logits = _logits(network, w.index_select(0, at), samples.inputs(some.clamp(min=0)))
            sums[0] += ((logits.argmax(2) == y) * weight).sum(1)
            each = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
            sums[1] += (each.view(y.shape) * weight).sum(1)
        sums /= torch.tensor([sizes[r] for r in rows], device=w.device)
        right.index_copy_(0, at, sums[0])
        loss.index_copy_(0, at, sums[1])

    deal(one_chunk, network, [order[a : a + chunk] for a in range(0, len(order), chunk)], workers)
    return right, loss


def _logits(network, w, x):
    """Logits (clients, samples, classes) of a stack of models, each on its own samples."""
    if network.dense is not None:
        parts = zip(network.slices(), network.shapes)
        parameters = {name: w[:, where].unflatten(1, shape) for (name, where), shape in parts}
        return dense_forward(network.dense, parameters, x)[1]
    if len(w) == 1:
        x = channels_last(x[0]) if network.channels_last else x[0]
        return network.logits(w[0], x)[None]
    return torch.func.vmap(network.logits)(w, x)
