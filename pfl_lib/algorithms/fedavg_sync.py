"""FedAvg (Sync): late models are thrown away (the SPFL paper, Sec. 4.2)."""

from dataclasses import dataclass

import torch

from pfl_lib.algorithms.fedavg_async import FedAvgAsync


@dataclass(frozen=True)
class FedAvgSync(FedAvgAsync):
    """The server averages those who are on time; a straggler trains and sends in vain.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-sync")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.4
    True
    """

    name = "fedavg-sync"
    label = "FedAvg (Sync)"

    def gather(self, state, fed, here, late):
        fresh = self.timetable(fed).on_time(fed.k)
        if not fresh:
            return state
        on_time = torch.tensor(fresh, device=fed.device)
        return state.set(x=self.average(state.w[on_time], fed, on_time))

    def timetable(self, fed):
        table = super().timetable(fed)
        if all(min(delays) > 0 for delays in table.delays):
            raise ValueError(
                f"{self.label} needs a client that is on time, but all {fed.m} are late in every "
                f"round; stragglers={self.stragglers!r}"
            )
        return table
