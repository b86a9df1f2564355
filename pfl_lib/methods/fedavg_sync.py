"""FedAvg (Sync): late models are thrown away (the SPFL paper, Sec. 4.2)."""

from dataclasses import dataclass

import torch

from pfl_lib.methods._asynchronous import LateAverage


@dataclass(frozen=True)
class FedAvgSync(LateAverage):
    """The server averages the clients that are on time; a straggler trains and sends in vain.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedavg-sync")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.4
    True
    """

    name, label = "fedavg-sync", "FedAvg (Sync)"
    order = 1
    idea = "FedAvg that waits for nobody: whoever is late when the round is averaged is dropped."
    note = "What a late client downloaded and uploaded in vain still counts as sent."
    equations = ["eq-fedavg"]
    paper = "baseline of the SPFL paper, Sec. 4.2"
    weights_by = "sample counts, whoever is late is dropped"

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
