"""Evaluation: a metric and the mean loss, client by client or for many clients at a time."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pfl_lib import metrics
from pfl_lib.local.batches import Samples
from pfl_lib.local.engines import on_threads
from pfl_lib.local.network import Network, channels_last, mean_loss
from pfl_lib.local.stacked import dense_forward, pad

BLOCK = 256  # samples of a client that are evaluated together


@torch.no_grad()
def evaluate_loop(
    network: Network, w: Tensor, samples: Samples, who: Sequence[int], metric: str
) -> tuple[Tensor, Tensor]:
    """Metric and mean loss of row i of ``w`` on the data of client ``who[i]``, one by one."""
    accuracy, loss, counted = [], [], _counted(w)
    for row, i in enumerate(who):
        logits = network.logits(w[row], samples.inputs(samples.index[i]))
        y = samples.labels[i]
        if not _summed(network, metric):
            value, its_loss = _measured(network.objective, metric, logits.to(counted), y)
            accuracy.append(value)
            loss.append(its_loss)
            continue
        accuracy.append((logits.argmax(1) == y).to(counted).mean())
        loss.append(nn.functional.cross_entropy(logits.to(counted), y))
    return torch.stack(accuracy), torch.stack(loss)


def evaluate(
    network: Network,
    w: Tensor,
    samples: Samples,
    who: Sequence[int],
    metric: str,
    chunk: int,
    workers: int,
) -> tuple[Tensor, Tensor]:
    """The same for ``chunk`` clients at a time, grouped by their numbers of samples."""
    sizes = samples.sizes(who)
    order = sorted(range(len(who)), key=lambda row: -sizes[row])
    counted = _counted(w)
    right, loss = (torch.empty(len(who), dtype=counted, device=w.device) for _ in range(2))

    @torch.no_grad()
    def one_chunk(network: Network, rows: list[int]) -> None:
        """Evaluate some rows; padding has weight 0."""
        at = torch.tensor(rows, device=w.device)
        index = pad([samples.index[who[r]] for r in rows], -1).split(BLOCK, 1)
        if not _summed(network, metric):
            models = w.index_select(0, at)
            outs = [_logits(network, models, samples.inputs(i.clamp(min=0))) for i in index]
            for row, out in zip(rows, torch.cat(outs, 1).to(counted)):
                y = samples.labels[who[row]]
                found = _measured(network.objective, metric, out[: len(y)], y)
                right[row], loss[row] = found
            return
        labels = pad([samples.labels[who[r]] for r in rows]).split(BLOCK, 1)
        sums = torch.zeros(2, len(rows), dtype=counted, device=w.device)
        for some, y in zip(index, labels):
            weight = (some >= 0).to(counted)
            logits = _logits(network, w.index_select(0, at), samples.inputs(some.clamp(min=0)))
            sums[0] += ((logits.argmax(2) == y) * weight).sum(1)
            flat = logits.flatten(0, 1).to(counted)
            each = nn.functional.cross_entropy(flat, y.flatten(), reduction="none")
            sums[1] += (each.view(y.shape) * weight).sum(1)
        sums /= torch.tensor([sizes[r] for r in rows], device=w.device)
        right.index_copy_(0, at, sums[0])
        loss.index_copy_(0, at, sums[1])

    on_threads(
        one_chunk, network, [order[a : a + chunk] for a in range(0, len(order), chunk)], workers
    )
    return right, loss


def _summed(network: Network, metric: str) -> bool:
    """Whether the metric is plain accuracy, which can be summed block by block."""
    return network.objective == "cross_entropy" and metric == "accuracy"


def _measured(objective: str, metric: str, out: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Metric and mean loss of one client, from all its outputs.

    A NaN loss becomes infinite, since NaN for both means that the client was not measured.
    """
    y = y.to(out.dtype) if y.is_floating_point() else y
    loss = mean_loss(objective, out, y).nan_to_num(nan=math.inf, posinf=math.inf)
    return out.new_tensor(_value(objective, metric, out, y)), loss


def _value(objective: str, metric: str, out: Tensor, y: Tensor) -> float:
    if metric == "mae":
        return metrics.mae(out, y)
    if metric == "auc":
        return metrics.auc(_scores(out) if objective == "cross_entropy" else out, y)
    predicted = out.argmax(1) if objective == "cross_entropy" else (out > 0).to(y.dtype)
    if metric == "f1":
        return metrics.f1(predicted, y)
    return float((predicted == y).to(out.dtype).mean())


def _scores(logits: Tensor) -> Tensor:
    """Scores for the AUC; for two classes the difference of the logits, which does not saturate."""
    return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits.double().softmax(1)


def _counted(w: Tensor) -> torch.dtype:
    """The type to accumulate in: at least float32, also for half-precision models."""
    return torch.promote_types(w.dtype, torch.float32)


def _logits(network: Network, w: Tensor, x: Tensor) -> Tensor:
    """Logits (clients, samples, classes) of a stack of models, each on its own samples."""
    if network.dense is not None:
        parts = zip(network.slices(), network.shapes)
        parameters = {name: w[:, where].unflatten(1, shape) for (name, where), shape in parts}
        return dense_forward(network.dense, parameters, x)[1]
    if len(w) == 1:
        x = channels_last(x[0]) if network.channels_last else x[0]
        return network.logits(w[0], x)[None]
    return torch.func.vmap(network.logits)(w, x)
