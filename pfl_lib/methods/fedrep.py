"""FedRep: a shared representation, a private head (Collins et al., ICML 2021)."""

from dataclasses import dataclass

import torch

from pfl_lib.methods._averaging import GlobalModel, weighted_average
from pfl_lib.methods._hyper import whole
from pfl_lib.methods.base import State
from pfl_lib.work import train


@dataclass(frozen=True)
class FedRep(GlobalModel):
    """First the head h_i with the body φ frozen, then φ with h_i frozen; only φ is averaged.

    ``head_epochs`` is τ (or ``head_steps``, where τ counts batches); ``body_epochs`` None is the
    federation's.  The head is what the model itself names as ``head``: its last layer.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedrep", head_epochs=2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    head_epochs: int = whole(5)
    head_steps: int | None = whole(None)
    body_epochs: int | None = whole(None)
    name, label = "fedrep", "FedRep"
    family, order = "some layers", 1
    place = (2, 3, 1)
    idea = (
        "The clients share the layers that make features and keep the last layer to themselves. "
        "First the head is trained with the body frozen, then the body with the head frozen."
    )
    note = (
        "Only the body is sent and averaged. The model must say what its head is (`head` of the "
        "module)."
    )
    equations = ["eq-fedavg"]
    chapter = "11_family"
    paper = "Collins et al. 2021, Algorithm 1"
    shared, private, cost = "the body", "the head", "2·body"
    tested = "the shared body with the client's own head"

    def start(self, fed):
        if fed.head_mask.all() or not fed.head_mask.any():
            raise ValueError(
                f"FedRep needs a model with a body and a head; in {fed.model_name!r} "
                f"{int(fed.head_mask.sum())} of {fed.d} parameters belong to its head. Name the "
                "last layer of your own module `head`, with other layers before it"
            )
        w = fed.initial()
        return State(x=w[0], w=w)

    def download(self, state, fed, who):
        return State(w=self.personal(state, fed)[who])  # the body; the head never left

    def local(self, state, received, fed, who):
        head, long, batches = fed.head_mask, self.head_epochs, self.head_steps
        w = train(
            fed, received.w, who, mask=head, epochs=long, steps=batches, tag="head", uploaded=False
        )
        return received.set(w=train(fed, w, who, mask=~head, epochs=self.body_epochs))

    def upload(self, state, done, fed, who):
        average = weighted_average(done.w, fed.sizes[who])
        return state.put(who, w=done.w).set(x=torch.where(fed.head_mask, state.x, average))

    def personal(self, state, fed):
        return torch.where(fed.head_mask, state.w, state.x)

    def sent(self, fed, who, k):
        return 2 * int((~fed.head_mask).sum()) * len(who)

    def handed_layers(self, fed):
        return [layer for layer in fed.layers if not fed.head_mask[layer[1]].any()]
