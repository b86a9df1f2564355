"""The engines: three ways to have many clients do their work, one answer.

* ``loop``     one client after the other, one batch after the other: the reference to read;
* ``stacked``  all clients at once: the local step under ``torch.func.vmap``;
* ``threads``  clients shared out over threads with one core each.

Ordinary local training (the step "descend") is most of what is ever run, so the last two do it
without copies: models, gradients and Adam's memory are changed in place, and the gradient of a
stack of dense networks is written out by hand as batched matrix products.
"""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from pfl_lib.training import ADAM, STEPS, Batch, Client, batch_table, draw_noise, start_rows


def loop(network, work, settings, samples, who, round_):
    """One client after the other: what every other engine must agree with."""
    tables = batch_table(work, settings, [len(samples.index[i]) for i in who], who, round_)
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


def stacked(network, work, settings, samples, who, round_):
    """All clients at once.  Those with most to do come first, so the busy ones are a prefix."""
    tables = batch_table(work, settings, [len(samples.index[i]) for i in who], who, round_)
    steps = [len(t) // work.group for t in tables]
    noise = draw_noise(work, settings, steps, who, round_)
    order = sorted(range(len(who)), key=lambda row: (-steps[row], row))
    device, dtype = work.rows["w"].device, work.rows["w"].dtype
    arrange = torch.tensor(order, device=device)

    pad = nn.utils.rnn.pad_sequence
    width = max((int((t >= 0).sum(1).max()) for t in tables if len(t)), default=1)
    positions = pad([tables[r][:, :width] for r in order], True, -1).to(device)
    random = pad([noise[r] for r in order], True).to(device, dtype)
    index = pad([samples.index[who[r]] for r in order], True)
    labels = pad([samples.labels[who[r]] for r in order], True)

    def batches(busy, t):
        """What the first ``busy`` clients see in step t: a batch, or a group of them."""
        some = []
        for at in range(t * work.group, (t + 1) * work.group):
            here = positions[:busy, at]
            weight = (here >= 0).to(dtype)
            here = here.clamp(min=0)
            x = samples.inputs(index[:busy].gather(1, here))
            some.append(Batch(x, labels[:busy].gather(1, here), weight, random[:busy, t]))
        return some[0] if work.group == 1 else tuple(some)

    client = Client(network, work, settings, under_vmap=True)
    rows = {name: r[arrange] for name, r in start_rows(work, client.optimizer).items()}
    busy = [sum(count > t for count in steps) for t in range(max(steps, default=0))]
    train = _descend_together if work.step == "descend" else _step_together
    done = train(network, work, client, rows, batches, busy)
    back = torch.argsort(arrange)
    return {name: done[name][back] for name in work.rows}


def _step_together(network, work, client, s, batches, busy):
    """Any local step, under vmap.  Clients that are done leave the stack."""
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
def _descend_together(network, work, client, s, batches, busy):
    """The step "descend" for a whole stack, in place."""
    by_hand = network.dense is not None
    gradient = dense_gradient if by_hand else torch.func.vmap(torch.func.grad(network.loss))
    s = s | {name: tensor[None] for name, tensor in work.shared.items()}
    s["w"] = s["w"].clone()
    if "strength" in s:
        s["strength"] = s["strength"][:, None]
    space = torch.empty_like(s["w"]) if by_hand else None
    for t, still in enumerate(busy):
        now = {name: rows[:still] for name, rows in s.items()}
        batch = batches(still, t)
        for _ in range(work.repeats):
            if by_hand:
                g = gradient(network, now["w"], batch, space[:still])
            else:
                g = gradient(now["w"], batch)
            _move(now, g, client)
    return s


def _move(s, g, client):
    """What the step "descend" does with a gradient, in place on ``s`` (a row or a stack)."""
    if "centre" in s:
        g += s["strength"] * (s["w"] - s["centre"])
    if "correction" in s:
        g += s["correction"]
    if "mask" in s:
        g *= s["mask"]
    client.t += 1
    if client.optimizer == "sgd":
        s["w"].sub_(g, alpha=client.lr)
        return
    decay, decay_square, epsilon = ADAM
    s["w_mean"].lerp_(g, 1 - decay)
    s["w_square"].mul_(decay_square).addcmul_(g, g, value=1 - decay_square)
    root = s["w_square"].sqrt().div_(math.sqrt(1 - decay_square**client.t)).add_(epsilon)
    s["w"].addcdiv_(s["w_mean"], root, value=-client.lr / (1 - decay**client.t))


def dense_gradient(network, w, batch, space):
    """The gradient of every client's loss for linear layers with ReLU between, into ``space``.

    Autograd would do the same products, but write each into a tensor of its own and copy.
    """
    place = {}
    for (name, where), shape in zip(network.slices(), network.shapes):
        place[name] = (where, shape)

    def part(tensor, name):
        where, shape = place[name]
        return tensor[:, where].view(-1, *shape)

    inputs, out = [], batch.x.flatten(2)
    for depth, layer in enumerate(network.dense):
        inputs.append(out.relu_() if depth else out)
        bias, matrix = part(w, f"{layer}.bias"), part(w, f"{layer}.weight")
        out = torch.baddbmm(bias[:, None, :], inputs[-1], matrix.transpose(1, 2))
    # d loss / d logits = (softmax − one-hot) · weight / Σ weight
    error = torch.softmax(out, 2)
    error.scatter_add_(2, batch.y[:, :, None], -torch.ones_like(error[:, :, :1]))
    error *= (batch.weight / batch.weight.sum(1, keepdim=True))[:, :, None]
    for depth in reversed(range(len(network.dense))):
        layer = network.dense[depth]
        torch.bmm(error.transpose(1, 2), inputs[depth], out=part(space, f"{layer}.weight"))
        torch.sum(error, 1, out=part(space, f"{layer}.bias"))
        if depth:
            error = torch.bmm(error, part(w, f"{layer}.weight"))
            error *= inputs[depth] > 0
    return space


def threads(network, work, settings, samples, who, round_, workers):
    """Clients dealt out to ``workers`` threads with one core each."""
    workers = min(workers, len(who))
    hands = [list(range(hand, len(who), workers)) for hand in range(workers)]
    one_by_one = _descend_one_by_one if work.step == "descend" else loop

    def one_hand(rows):
        torch.set_num_threads(1)  # of this thread: two-core kernels would fight each other
        mine = copy.copy(work)
        object.__setattr__(mine, "rows", {name: t[rows] for name, t in work.rows.items()})
        return one_by_one(network.copy(), mine, settings, samples, [who[r] for r in rows], round_)

    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(one_hand, hands))
    back = torch.argsort(torch.tensor([row for hand in hands for row in hand]))
    result = {name: torch.cat([part[name] for part in done]) for name in work.rows}
    return {name: rows[back.to(rows.device)] for name, rows in result.items()}


def _descend_one_by_one(network, work, settings, samples, who, round_):
    """The loop for the step "descend", in place on one row at a time."""
    tables = batch_table(work, settings, [len(samples.index[i]) for i in who], who, round_)
    done = start_rows(work, work.optimizer or settings.optimizer)
    done["w"] = done["w"].clone()
    for row, i in enumerate(who):
        client = Client(network, work, settings, under_vmap=False)
        s = {name: rows[row] for name, rows in done.items()} | dict(work.shared)
        pieces = [p.detach().requires_grad_() for p in network.unflatten(s["w"]).values()]
        named = dict(zip(network.names, pieces))  # views: they move with the row
        for positions in tables[row]:
            here = positions[positions >= 0].to(s["w"].device)
            x, y = samples.inputs(samples.index[i][here]), samples.labels[i][here]
            if x.ndim == 4:
                x = x.contiguous(memory_format=torch.channels_last)
            for _ in range(work.repeats):
                logits = torch.func.functional_call(network.module, named, (x,))
                loss = nn.functional.cross_entropy(logits, y)
                g = torch.cat([p.reshape(-1) for p in torch.autograd.grad(loss, pieces)])
                with torch.no_grad():
                    _move(s, g, client)
    return {name: done[name] for name in work.rows}
