"""The interface of a federation: anything that performs work for a set of clients.

Methods and ``pfl_lib.run`` rely on ``Federation`` alone.  It is implemented by the clients on this
machine (``pfl_lib.local.LocalFederation``, which users know as ``pfl_lib.Federation``), by clients
on a network (``pfl_lib.flower``), by toys that are solved exactly (``pfl_lib.book.theory``), and by
wrappers around any of them (``pfl_lib.faults``).
"""

from collections.abc import Sequence
from inspect import getattr_static
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pfl_lib import _check, _deprecated
from pfl_lib.work import Settings, Work


@runtime_checkable
class Federation(Protocol):
    """Clients that perform work.  Row i of a stack of models belongs to client i."""

    @property
    def m(self) -> int:
        """Number of clients."""

    @property
    def d(self) -> int:
        """Length of a row: trainable parameters, then the buffers that training updates."""

    @property
    def k(self) -> int:
        """The current round, from 0; part of every random draw."""

    @property
    def everyone(self) -> Tensor:
        """The indices of all clients."""

    @property
    def sizes(self) -> Tensor:
        """Number of training samples per client, as weights: an (m,) tensor of ``dtype``."""

    @property
    def sample_counts(self) -> Sequence[int]:
        """Number of training samples per client, as integers."""

    @property
    def layers(self) -> list[tuple[str, slice]]:
        """Ordered (name, columns) of the model's layers."""

    @property
    def head_mask(self) -> Tensor:
        """Which of the d columns belong to the model's head: a (d,) mask."""

    @property
    def buffer_mask(self) -> Tensor:
        """Which of the d columns are buffers (running statistics), not trained: a (d,) mask."""

    @property
    def norm_mask(self) -> Tensor:
        """Which of the d columns belong to normalization layers, parameters and statistics."""

    @property
    def tensors(self) -> list[tuple[str, slice]]:
        """Ordered (name, columns) of the model's tensors; a layer may have several."""

    @property
    def head_bias(self) -> Tensor | None:
        """The columns of the bias that is added to the logits; None if there is none."""

    @property
    def linear_head(self) -> tuple[int, int, int] | None:
        """(first column, classes, features) of a head that is one linear layer with a bias; None
        if it is none."""

    @property
    def groups(self) -> Tensor | None:
        """The true group of each client, where groups are known: an (m,) tensor."""

    @property
    def loss(self) -> str:
        """What clients minimize, by name: "cross_entropy", "mse", "bce", or a name of its own."""

    @property
    def metric(self) -> str:
        """What ``evaluate`` measures, by name: "accuracy", "auc", "f1" or "mae"."""

    @property
    def model_name(self) -> str:
        """The model's name in messages."""

    @property
    def settings(self) -> Settings:
        """The defaults of local training, and the seed."""

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""

    @property
    def dtype(self) -> torch.dtype:
        """The models' floating-point type."""

    def initial(self, who: Tensor | None = None) -> Tensor:
        """The initial models, one row per client, or one for each client of ``who``."""

    def at(self, k: int) -> "Federation":
        """The same federation in round ``k``."""

    def with_part(self, positions: Sequence[Tensor]) -> "Federation":
        """The same federation with only some of each client's training samples, by position."""

    def perform(self, work: Work, who: Tensor) -> dict[str, Tensor]:
        """Let the clients ``who`` do ``work``; returns the rows as they are afterwards."""

    def evaluate(
        self, w: Tensor, who: Tensor | None = None, split: str = "test"
    ) -> tuple[Tensor, Tensor]:
        """Accuracy (or the federation's own metric) and mean loss of row i of ``w`` on its client's
        data."""

    def describe(self) -> dict[str, Any]:
        """Everything a run must agree on to be resumed, as plain data."""


def missing_from(fed: object) -> list[str]:
    """The names of the interface that ``fed`` lacks; none for a federation."""
    absent = object()  # static look-up first: some properties are computed on first access
    return [
        name
        for name in _names()
        if getattr_static(fed, name, absent) is absent and not hasattr(fed, name)
    ]


def _names() -> list[str]:
    return sorted(name for name in vars(Federation) if not name.startswith("_"))


def checked_federation(name: str, fed: Any) -> Any:
    """``fed`` if it is a federation; otherwise a TypeError that lists what is missing."""
    missing = missing_from(fed)
    if isinstance(fed, type) or missing:
        lacks = f"; it lacks {', '.join(missing)}" if 0 < len(missing) < len(_names()) else ""
        raise TypeError(f"{name} must be a Federation, got {fed!r}{lacks}")
    return fed


# ---- checks shared by federations with real clients ---------------------------------------------

_READ: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # clients: m, version, their numbers


def checked_clients(fed: Federation, who: Any, name: str = "who") -> list[int]:
    """The client numbers in ``who``, checked against ``fed``.

    A tensor on a GPU is read once and cached: every read would synchronize with the device.
    """
    away = isinstance(who, Tensor) and who.device.type != "cpu" and not who.is_inference()
    known = _READ.get(who) if away else None
    if known is not None and known[:2] == (fed.m, who._version):
        return list(known[2])
    try:
        given = _check.numbers(name, who).cpu()
        if (given.is_floating_point() and len(given)) or given.dtype == torch.bool:
            raise TypeError
        clients = given.tolist()
        wrong = [i for i in clients if i not in range(fed.m)]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be client numbers, whole ones, got {who!r}") from None
    if wrong or len(set(clients)) != len(clients):
        raise ValueError(
            f"{name} must hold different client numbers from 0 to {fed.m - 1}, got {clients}"
        )
    if away:
        _READ[who] = fed.m, who._version, tuple(clients)
    return clients


def check_work(fed: Federation, work: Work, clients: Sequence[int]) -> None:
    """Refuse rows that do not fit the clients or the model."""
    for name, rows in work.rows.items():
        if not isinstance(rows, Tensor) or not rows.ndim:
            raise TypeError(f"rows[{name!r}] must be a tensor, one row per client, got {rows!r}")
        if len(rows) != len(clients):
            raise ValueError(
                f"rows[{name!r}] must have one row for each of the {len(clients)} clients in "
                f"who, got {len(rows)}"
            )
        _check.on_device(f"rows[{name!r}]", rows, fed.device)
    w = work.rows["w"]
    if w.shape[1:] != (fed.d,):
        raise ValueError(f"models must have {fed.d} parameters, got shape {tuple(w.shape)}")
    if w.dtype != fed.dtype:
        raise TypeError(f"models must be {fed.dtype} as the federation is, got {w.dtype}")
    for name in ("center", "correction"):
        if name in work.rows and work.rows[name].shape != w.shape:
            raise ValueError(
                f"{name} must have the models' shape {tuple(w.shape)}, "
                f"got {tuple(work.rows[name].shape)}"
            )


def checked_parts(fed: Federation, positions: Any) -> list[Any]:
    """``positions``, if there is one entry for each client."""
    given = _check.several("positions", positions, "tensors")
    if len(given) != fed.m:
        raise ValueError(
            f"positions must be one tensor for each of {fed.m} clients, got {len(given)}"
        )
    return list(given)


def check_models(fed: Federation, w: Any, clients: Sequence[int], split: str) -> None:
    """Refuse models to be evaluated that do not fit the clients or the federation."""
    _check.one_of("split", split, ("test", "train"))
    if not isinstance(w, Tensor):
        raise TypeError(f"w must be a tensor, one row per client, got {w!r}")
    if w.shape != (len(clients), fed.d):
        raise ValueError(
            f"w must be ({len(clients)}, {fed.d}), one row for each client in who; "
            f"got {tuple(w.shape)}"
        )
    if w.dtype != fed.dtype:
        raise TypeError(f"w must be {fed.dtype} as the federation is, got {w.dtype}")
    _check.on_device("w", w, fed.device)


_deprecated.keep_former_names(__name__)
