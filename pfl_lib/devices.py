"""One federation on several GPUs, which share its clients."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from pfl_lib import _check
from pfl_lib.faults import FederationWrapper
from pfl_lib.federation import check_models, check_work, checked_clients, checked_federation
from pfl_lib.local import LocalFederation
from pfl_lib.work import Work


@dataclass(eq=False)
class OnDevices(FederationWrapper):
    """The federation ``fed``, whose clients train and are tested on several devices.

    Every device holds the data and takes part of the clients; models are mixed on the first one.
    Work is launched on one device after the other and waited for at the end, so that all of them
    compute at the same time.  Batches are keyed, so the numbers are those of one device.

    >>> import pfl_lib
    >>> fed = pfl_lib.example()
    >>> both = OnDevices(fed, ["cpu", "cpu"])  # on a machine with GPUs ["cuda:0", "cuda:1"]
    >>> alone, shared = (pfl_lib.train(f, f.initial(), f.everyone) for f in (fed, both))
    >>> torch.allclose(alone, shared)
    True
    """

    fed: Any
    devices: Sequence[str | torch.device]

    def __post_init__(self) -> None:
        self.devices = tuple(_check.several("devices", self.devices, "devices"))
        if not self.devices:
            raise ValueError("devices must name one device or more, got none")
        if not isinstance(checked_federation("fed", self.fed), LocalFederation):
            raise TypeError(f"fed must be a pfl_lib.Federation, got {self.fed!r}")
        self._copies = [self.fed.replace(device=device) for device in self.devices]
        self.fed = self._copies[0]
        for other in self._copies[1:]:  # one layout for all, which a resumed run restores
            other.network.transposed = self.fed.network.transposed

    def _with(self, copies: list[Any]) -> Self:
        here = object.__new__(type(self))
        here.devices, here._copies, here.fed = self.devices, copies, copies[0]
        return here

    def at(self, k: int) -> Self:
        return self._with([fed.at(k) for fed in self._copies])

    def with_part(self, positions: Sequence[Tensor]) -> Self:
        return self._with([fed.with_part(positions) for fed in self._copies])

    def plan(self) -> str:
        """A sentence that says which devices share the clients, and what each does."""
        names = ", ".join(str(fed.device) for fed in self._copies)
        return f"the clients of a round are dealt out to {names}; on the first {self.fed.plan()}"

    def describe(self) -> dict[str, Any]:
        """As on one device, so that a run can be resumed with more or fewer devices."""
        return self.fed.describe()

    def perform(self, work: Work, who: Tensor) -> dict[str, Tensor]:
        """Let the clients ``who`` do ``work``, each on its device; returns the rows afterwards."""
        clients = checked_clients(self, who)
        check_work(self, work, clients)

        def begin(fed: Any, at: Tensor, some: Tensor) -> dict[str, Tensor]:
            rows = {n: t.index_select(0, at).to(fed.device) for n, t in work.rows.items()}
            shared = {n: t.to(fed.device) for n, t in work.shared.items()}
            return fed.perform(dataclasses.replace(work, rows=rows, shared=shared), some)

        return self._gathered(begin, clients) or dict(work.rows)

    def evaluate(
        self, w: Tensor, who: Tensor | None = None, split: str = "test"
    ) -> tuple[Tensor, Tensor]:
        """Metric and mean loss of row i of ``w`` on its client's data."""
        clients = checked_clients(self, self.everyone if who is None else who)
        check_models(self, w, clients, split)

        def begin(fed: Any, at: Tensor, some: Tensor) -> dict[str, Tensor]:
            found = fed.evaluate(w.index_select(0, at).to(fed.device), some, split)
            return dict(zip(("metric", "loss"), found))

        found = self._gathered(begin, clients)
        return (found["metric"], found["loss"]) if found else (w.new_empty(0), w.new_empty(0))

    def _gathered(self, begin: Callable[..., Any], clients: list[int]) -> dict[str, Tensor]:
        """What ``begin`` gives for the rows of each device, in the clients' order."""
        parts = []
        for fed, rows in self._dealt(clients):
            at = torch.tensor(rows, device=self.device)
            parts.append((at, begin(fed, at, torch.tensor([clients[r] for r in rows]))))
        whole: dict[str, Tensor] = {}
        for at, part in parts:  # waiting begins here
            for name, some in part.items():
                empty = torch.empty(len(clients), *some.shape[1:], dtype=some.dtype)
                into = whole.setdefault(name, empty.to(self.device))
                into.index_copy_(0, at, some.to(self.device))
        return whole

    def _dealt(self, clients: list[int]) -> list[tuple[Any, list[int]]]:
        """Which device gets which rows: dealt in turn, those with the most samples first."""
        order = sorted(range(len(clients)), key=lambda row: -self.sample_counts[clients[row]])
        hands = [order[first :: len(self._copies)] for first in range(len(self._copies))]
        return [(fed, hand) for fed, hand in zip(self._copies, hands) if hand]
