"""LGA: leap gradient approximation for late clients (the SPFL paper, Sec. 3.2, Eqs. 8-11)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.fedavg_async import FedAvgAsync
from pfl_lib.formulas import leap


@dataclass(frozen=True)
class LGA(FedAvgAsync):
    """Before the average, a late model is moved to where it would be had it been trained now.

    ``base``: "now" adds the client's move to the present global model (Eq. 11), "pull" to the one
    it pulled (Eq. 10).  ``rule`` is the leap term: "printed", "delay_compensated" (sign, scale and
    base point of the expansion it stands for; SGD only), or "none".

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("lga")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    weighting: str = "equal"
    base: str = "now"
    rule: str = "printed"
    name = "lga"
    label = "LGA"
    paper = "the SPFL paper, Eqs. (8)-(11)"

    def start(self, fed):
        if self.rule == "delay_compensated" and fed.settings.optimizer != "sgd":
            raise ValueError(
                "rule='delay_compensated' reads gradients off SGD steps; "
                f"the federation trains with {fed.settings.optimizer!r}"
            )
        state = super().start(fed)
        return state.set(next=state.pull)

    def dispatch(self, state, fed):
        state = super().dispatch(state, fed)
        one_round_ago = (state.pulled == fed.k - 1)[:, None]  # still away: this is their w_next
        return state.set(next=torch.where(one_round_ago, state.x, state.next))

    def gather(self, state, fed, here, late):
        w_pred = self.predict(state, fed, here, state.next[here], state.x)
        w_pred = torch.where((late > 0)[:, None], w_pred, state.w[here])  # on time: as trained
        return state.set(x=self.average(w_pred, fed, here))

    def predict(self, state, fed, here, w_next, w_now):
        """The models of ``here``, predicted for the round whose global model is ``w_now``."""
        w_pull, w_local = state.pull[here], state.w[here]
        w_now, lr, steps = w_now.expand_as(w_local), fed.settings.lr, self.steps(fed, here)
        return leap(
            w_pull, w_next, w_now, w_local, self.base, self.rule, lr, steps, self.parts(fed)
        )

    def steps(self, fed, here):
        """E: how many SGD steps each of the clients ``here`` made, as a column."""
        if self.local_steps is not None:
            return self.local_steps
        batches = (fed.sizes[here] / fed.settings.batch_size).ceil()
        return (fed.settings.epochs * batches)[:, None]

    def parts(self, fed):
        """The stages with similarities of their own: here none."""
        return None

    def __post_init__(self):
        super().__post_init__()
        _check.one_of("base", self.base, ("now", "pull"))
        _check.one_of("rule", self.rule, ("printed", "delay_compensated", "none"))
