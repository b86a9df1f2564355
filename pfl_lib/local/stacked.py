"""Chunks of clients, each chunk as one stack of models.

Ordinary local training (the step "descend") dominates the cost of a run, so it makes no copies:
models and Adam's buffers are updated in place, and the gradient of a stack of dense networks is
written out as batched matrix products.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pfl_lib.local.batches import batch_table, draw_noise, dropout_keys
from pfl_lib.local.layout import flipped, forward, gradient_factors
from pfl_lib.local.network import Client, Network, Task
from pfl_lib.local.optimizers import start_memory
from pfl_lib.work import STEPS, Batch


def stacked(task: Task) -> dict[str, Tensor]:
    """Train all these clients at once; they must be sorted, those with the most steps first.

    ``work.rows`` may be changed in place.
    """
    client = Client(task.network, task.work, task.settings, under_vmap=True)
    train = _descend_together if task.work.step == "descend" else _step_together
    return train(task, client, StackedBatches(task))


class StackedBatches:
    """The batches of a stack of clients, padded to one shape; padding has weight 0."""

    def __init__(self, task: Task):
        network, work, settings, samples, who, k = self.task = task
        tables = batch_table(work, settings, samples.sizes(who), who, k)
        steps = [len(t) // work.group for t in tables]
        #: For each step, how many clients take part: the first ones.
        self.busy = (torch.tensor(steps)[:, None] > torch.arange(max(steps))).sum(0).tolist()
        device, dtype = work.rows["w"].device, work.rows["w"].dtype
        self.random = torch.empty(len(who), max(steps), 0, dtype=dtype, device=device)
        if work.noise:
            drawn = draw_noise(work, settings, steps, who, k)
            self.random = pad(drawn).to(device, dtype)
        # positions in each client's data: (clients, batches, batch size)
        positions = pad(tables, -1).to(device)
        self.weight = (positions >= 0).to(dtype).transpose(0, 1).contiguous()
        self.index = _picked([samples.index[i] for i in who], positions)
        self.labels = _picked([samples.labels[i] for i in who], positions)
        if samples.weights is not None:
            self.weight *= samples.weights[self.index]
        if network.by_hand and work.step == "descend":
            self.weight /= self.weight.sum(2, keepdim=True)  # of a mean, once for all steps
        if network.dropout_shapes:
            self.sizes = [(table >= 0).sum(1).tolist() for table in tables]

    def at(self, t: int, busy: int) -> Batch | tuple[Batch, ...]:
        """The batch, or group of batches, of step t for the first ``busy`` clients."""
        work, random = self.task.work, self.random[:busy, t]
        some = []
        for at in range(t * work.group, (t + 1) * work.group):
            x = self.task.samples.inputs(self.index[at, :busy])
            some.append(Batch(x, self.labels[at, :busy], self.weight[at, :busy], random))
        return some[0] if work.group == 1 else tuple(some)

    def with_dropout(self, given: Any, step: int) -> Any:
        """The batches of a step with uniform numbers for the model's dropouts."""
        network, work, settings, _, who, k = self.task
        if not network.dropout_shapes:
            return given
        some = []
        for place, batch in enumerate([given] if work.group == 1 else given):
            at = step // work.repeats * work.group + place
            keys = [dropout_keys(work, settings, k, i, step)[place] for i in who[: len(batch.x)]]
            drawn = []
            for call, shape in enumerate(network.dropout_shapes):
                each = [key.uniform(call, (n[at], *shape)) for key, n in zip(keys, self.sizes)]
                full = torch.ones(len(each), batch.x.shape[1], *shape)  # padding drops nothing
                for row, uniform in zip(full, each):
                    row[: len(uniform)] = uniform
                drawn.append(full.to(batch.x.device))
            some.append(batch._replace(dropout=tuple(drawn)))
        return some[0] if work.group == 1 else tuple(some)


def _picked(each: Sequence[Tensor], positions: Tensor) -> Tensor:
    """The clients' values at their positions: (batches, clients, batch size, …); 0 for padding."""
    padded, flat = pad(each), positions.clamp(min=0).flatten(1)
    if padded.ndim == 2:
        picked = padded.gather(1, flat).view(positions.shape)
    else:  # targets in several columns
        flat = flat[..., None].expand(-1, -1, padded.shape[2])
        picked = padded.gather(1, flat).view(*positions.shape, -1)
    return picked.transpose(0, 1).contiguous()


def why_not_stacked(network: Network, w: Tensor, x: Tensor) -> str:
    """Why models like ``w`` cannot be trained as a stack; "" if they can.

    Tried on two clients with the samples ``x``, which also records the shapes of dropout draws.
    """
    if network.state:
        return (
            "the statistics of a batch must not see the padding of a stack "
            f"({network.state[0].rpartition('.')[0]})"
        )
    y = torch.zeros(len(x), dtype=torch.long, device=x.device)
    whole = Batch(x, y, torch.ones(len(x), dtype=w.dtype, device=x.device), w[:0])
    fewer = Batch(x[:-1], y[:-1], whole.weight[:-1], w[:0])
    with torch.no_grad():
        network.dropout_shapes = ()
        outs = [network.in_training(w, batch._replace(dropout=None)) for batch in (whole, fewer)]
    if network.objective != "cross_entropy":  # targets instead of labels
        whole, fewer = (b._replace(y=torch.zeros_like(o)) for b, o in zip((whole, fewer), outs))
    drawn_shapes = [] if network.draws is None else network.draws.shapes
    if any(shape[0] != len(x) - 1 for shape in drawn_shapes):
        return "dropout acts on something that does not begin with the samples of a batch"
    if not torch.allclose(outs[0][:-1], outs[1], rtol=1e-3, atol=1e-5):
        return "in training, the samples of a batch change each other"
    network.dropout_shapes = [shape[1:] for shape in drawn_shapes]
    drawn = tuple(
        torch.ones(2, len(x), *shape, device=x.device) for shape in network.dropout_shapes
    )
    both = [t.expand(2, *t.shape) for t in (whole.x, whole.y, whole.weight, whole.noise)]
    two = Batch(both[0], both[1], both[2], both[3], drawn)
    rows = w.expand(2, -1).clone()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*performance drop")  # one by one, slowly
            torch.func.vmap(torch.func.grad(network.loss))(rows, two)
            torch.func.vmap(network.logits)(rows, two.x)
    except (RuntimeError, TypeError, ValueError, IndexError, Warning) as error:
        return f"torch cannot stack it (vmap): {_first_sentence(error)}"
    return ""


def _first_sentence(error: Exception) -> str:
    text = " ".join(str(error).removeprefix("vmap: ").split())
    return re.split(r"(?<=[.!?:])\s", text, maxsplit=1)[0].rstrip(".:")


def pad(tensors: Sequence[Tensor], value: int = 0) -> Tensor:
    """A stack with one row per tensor, padded to the longest."""
    if len({t.shape[0] for t in tensors}) == 1:
        return torch.stack(tuple(tensors))  # several times faster
    return nn.utils.rnn.pad_sequence(list(tensors), True, value)


def _step_together(task: Task, client: Client, batches: StackedBatches) -> dict[str, Tensor]:
    """Any local step, under vmap.  Clients that have finished leave the stack."""
    work, s = task.work, dict(task.work.rows)
    start_memory(s, client.rule, work.moves)
    one = STEPS[work.step]
    together = torch.func.vmap(lambda s, batch: one(s | dict(work.shared), batch, client))
    finished = []
    for t, still in enumerate(batches.busy):
        if still < len(s["w"]):
            finished.append({name: rows[still:] for name, rows in s.items()})
            s = {name: rows[:still] for name, rows in s.items()}
        batch = batches.at(t, still)
        for _ in range(work.repeats):
            s |= together(s, batches.with_dropout(batch, client.t))
            client.t += 1
    finished.append(s)
    return {name: torch.cat([f[name] for f in reversed(finished)]) for name in work.rows}


@torch.no_grad()
def _descend_together(task: Task, client: Client, batches: StackedBatches) -> dict[str, Tensor]:
    """The step "descend" for a whole stack, in place."""
    network, work = task.network, task.work
    s = dict(work.rows) | {name: tensor[None] for name, tensor in work.shared.items()}
    by_hand = network.by_hand and client.rule.plain
    if by_hand:
        pieces = _pieces(network, s)
    else:
        gradient = network.stack_gradient()
        pieces = {"whole": s | {n: s[n][:, None] for n in ("strength",) if n in s}}
    for piece in pieces.values():
        start_memory(piece, client.rule, ["w"])
    for t, still in enumerate(batches.busy):
        if t == 0 or still < batches.busy[t - 1]:  # finished clients leave the stack
            now = {name: {n: r[:still] for n, r in piece.items()} for name, piece in pieces.items()}
        batch = batches.at(t, still)
        for _ in range(work.repeats):
            batch = batches.with_dropout(batch, client.t)
            client.t += 1
            if by_hand and network.dense is not None:
                _dense_step(network, network.dense, now, batch, client)
            else:
                client.move_in_place(
                    [now["whole"]], [gradient(now["whole"]["w"], batch)], rows=True
                )
    if by_hand:
        for name, where in network.slices():
            s["w"][:, where] = flipped(pieces[name]["w"], name in network.transposed).flatten(1)
    return {"w": s["w"]}


def _pieces(network: Network, s: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """For each parameter its own stacks (clients, *shape), matrices in the layout that is faster
    here (see ``pfl_lib.local.layout``)."""
    pieces = {}
    for (name, where), shape in zip(network.slices(), network.shapes):
        piece = {n: r[:, where].reshape(-1, *shape) for n, r in s.items() if n != "strength"}
        piece = {n: flipped(r, name in network.transposed) for n, r in piece.items()}
        if "strength" in s:
            piece["strength"] = s["strength"].view(-1, *[1] * len(shape))
        pieces[name] = {n: r.clone(memory_format=torch.contiguous_format) for n, r in piece.items()}
    return pieces


def _dense_step(
    network: Network,
    layers: Sequence[str],
    pieces: Mapping[str, dict[str, Tensor]],
    batch: Batch,
    client: Client,
) -> None:
    """One step of every client for linear layers with ReLU between them.

    Autograd would compute the same products, but allocate and copy each of them.
    """
    parameters = {n: flipped(p["w"], n in network.transposed) for n, p in pieces.items()}
    inputs, out = dense_forward(layers, parameters, batch.x)
    # d loss / d logits = (softmax − one-hot) · weight, where the weights sum to 1
    error = out.transpose(1, 2).softmax(1)  # classes first, as in memory
    error *= batch.weight[:, None, :]
    error.scatter_add_(1, batch.y[:, None, :], -batch.weight[:, None, :])
    error = error.transpose(1, 2)
    moved, gradients = [], []
    for layer, x in zip(reversed(layers), reversed(inputs)):
        name = f"{layer}.weight"
        matrix, bias = pieces[name], pieces[f"{layer}.bias"]
        first = layer == layers[0]
        below = error if first else torch.bmm(error, parameters[name]).mul_(x > 0)
        factors = gradient_factors(x, error, name in network.transposed)
        if client.rule.optimizer == "sgd" and matrix.keys() == {"w"}:
            matrix["w"].baddbmm_(*factors, alpha=-client.lr)  # gradient and update in one call
        else:
            moved.append(matrix)
            gradients.append(torch.bmm(*factors))
        moved.append(bias)
        gradients.append(error.sum(1))
        error = below
    client.move_in_place(moved, gradients)


def dense_forward(
    layers: Sequence[str], parameters: Mapping[str, Tensor], x: Tensor
) -> tuple[list[Tensor], Tensor]:
    """The inputs of each layer, and the logits, for a stack of clients."""
    of = lambda layer: (parameters[f"{layer}.weight"], parameters[f"{layer}.bias"])  # noqa: E731
    inputs = [x.flatten(2)]
    for layer in layers[:-1]:
        inputs.append(forward(inputs[-1], *of(layer), last=False).relu_())
    return inputs, forward(inputs[-1], *of(layers[-1]), last=True)
