"""What clients minimize and how they are judged: losses, their metrics, and which way is better."""

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
    """A loss and a metric that fits it; None is the loss's own."""
    _check.one_of("loss", loss, METRICS)
    if metric is None:
        return loss, METRICS[loss][0]
    return loss, _check.one_of(f"metric (with loss={loss!r})", metric, METRICS[loss])


def sign(metric: str) -> int:
    """1 where larger values of the metric are better, -1 where smaller ones are."""
    return -1 if metric in SMALLER_IS_BETTER else 1


def metric_of(fed: Any) -> str:
    """How a federation is judged; those that do not say so measure accuracy."""
    return getattr(fed, "metric", "accuracy")


def loss_of(fed: Any) -> str:
    """What a federation's clients minimize; those that do not say so are no exception."""
    return getattr(fed, "loss", "cross_entropy")
