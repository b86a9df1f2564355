"""Losses, the metrics that fit them, and whether larger or smaller values are better."""

from typing import Any

from pfl_lib import _check

#: Loss: the metrics that fit it, the default first.
METRICS = {
    "cross_entropy": ("accuracy", "auc", "f1"),
    "mse": ("mae",),
    "bce": ("accuracy", "auc", "f1"),
}
SMALLER_IS_BETTER = ("mae", "loss")


def checked(loss: Any, metric: Any) -> tuple[str, str]:
    """A loss and a metric that fits it; None means the loss's default."""
    _check.one_of("loss", loss, METRICS)
    if metric is None:
        return loss, METRICS[loss][0]
    return loss, _check.one_of(f"metric (with loss={loss!r})", metric, METRICS[loss])


def sign(metric: str) -> int:
    """1 where larger values of the metric are better, -1 where smaller ones are."""
    return -1 if metric in SMALLER_IS_BETTER else 1
