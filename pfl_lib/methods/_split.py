"""A model in two parts, a shared body and a private rest: what FedRep, FedPer and others share."""

from dataclasses import dataclass

import torch

from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods.base import State


def split_model(x, W, private):
    """w_i = (x_B, w_{i,P}): the body from the shared model x, all that is private from row i of W.

    FedPer (Arivazhagan et al. 2019, Algorithms 1 and 2); FedRep's models too. ``private`` marks the
    private parameters.

    Equation label: eq-split-model

    >>> split_model(torch.zeros(3), torch.ones(2, 3), torch.tensor([False, False, True]))
    tensor([[0., 0., 1.],
            [0., 0., 1.]])
    """
    for name, value in (("x", x), ("W", W), ("private", private)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, got {value!r}")
    if private.dtype != torch.bool or private.shape != W.shape[-1:]:
        raise ValueError(
            f"private must be a mask of the {W.shape[-1]} parameters, True where they are private; "
            f"got shape {tuple(private.shape)} of {private.dtype}"
        )
    return torch.where(private, W, x)


def refuse_unless_split(method, fed):
    """A ValueError where the model has no body, or no head."""
    head = int(fed.head_mask.sum())
    if 0 < head < fed.d:
        return
    what = (
        "Nothing but its head is trained, so there is no body to share"
        if head
        else "Name the last layer of your own module `head`, or let pfl_lib.models.with_head do it"
    )
    raise ValueError(
        f"{method.label} needs a model with a body and a head; in {fed.model_name!r} "
        f"{head} of {fed.d} parameters belong to its head. {what}"
    )


@dataclass(frozen=True)
class SplitModel(GlobalModel):
    """Client i trains (x_B, w_{i,P}); only the body is sent and averaged, the rest stays."""

    shared, private, cost = "the body", "the head", "2·body"
    tested = "the shared body with the client's own head"
    newcomer = "the shared body with a head trained locally"

    def private_mask(self, fed):
        """Which parameters never leave their client: the head."""
        return fed.head_mask

    def start(self, fed):
        refuse_unless_split(self, fed)
        w = fed.initial()
        return State(x=w[0], w=w)

    def download(self, state, fed, who):
        return State(w=self.personal(state, fed)[who])  # the body; the rest never left

    def upload(self, state, done, fed, who):
        return state.put(who, w=done.w).set(x=self.averaged(state, done.w, fed, fed.sizes[who]))

    def averaged(self, state, w, fed, weights):
        """The new x: the trained bodies, averaged; the rest of x is nobody's and stays."""
        average = self.average(w, weights, state, fed)
        return split_model(average, state.x[None], self.private_mask(fed))[0]

    def personal(self, state, fed):
        return split_model(state.x, state.w, self.private_mask(fed))

    def extra_models(self, state, fed):
        return {}  # x is no model: its head is nobody's

    def sent(self, fed, who, k):
        return 2 * int((~self.private_mask(fed)).sum()) * len(who)

    def handed_layers(self, fed):
        mask = self.private_mask(fed)
        return [layer for layer in fed.layers if not mask[layer[1]].any()]
