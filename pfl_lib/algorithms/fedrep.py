"""FedRep: a shared representation, a private head (Collins et al., ICML 2021)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.algorithms.base import Algorithm, State
from pfl_lib.formulas import weighted_average


@dataclass(frozen=True)
class FedRep(Algorithm):
    """First the head h_i with the body φ frozen, then φ with h_i frozen; only φ is averaged.

    ``head_epochs`` is τ (or ``head_steps``, where τ counts batches); ``body_epochs`` None is the
    federation's.  The head is what the model itself names as ``head``: its last layer.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedrep", head_epochs=2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    head_epochs: int = 5
    head_steps: int | None = None
    body_epochs: int | None = None
    name = "fedrep"
    label = "FedRep"
    paper = "Collins et al. 2021, Algorithm 1"
    tested = "the shared body with the client's own head"

    def start(self, fed):
        if fed.head_mask.all() or not fed.head_mask.any():
            raise ValueError(
                f"FedRep needs a model with a body and a head; in {fed.model_name!r} "
                f"{int(fed.head_mask.sum())} of {fed.d} parameters belong to its head"
            )
        w = fed.initial()
        return State(x=w[0], w=w)

    def round(self, state, fed, who):
        head, body = fed.head_mask, ~fed.head_mask
        how = {"epochs": self.head_epochs, "steps": self.head_steps, "tag": "head"}
        w = fed.train(self.download(state, fed, who), who, mask=head, **how)
        w = fed.train(w, who, mask=body, epochs=self.body_epochs)
        x = torch.where(body, weighted_average(w, fed.sizes[who]), state.x)
        return state.put(who, w=w).set(x=x)

    def download(self, state, fed, who):
        return self.personal(state, fed)[who]  # the body; the head never left

    def personal(self, state, fed):
        return torch.where(fed.head_mask, state.w, state.x)

    def sent(self, fed, who, round_):
        return 2 * int((~fed.head_mask).sum()) * len(who)

    def __post_init__(self):
        _check.whole("head_epochs", self.head_epochs)
        for name in ("head_steps", "body_epochs"):
            if getattr(self, name) is not None:
                _check.whole(name, getattr(self, name))
