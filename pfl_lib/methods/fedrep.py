"""FedRep: a shared representation, a private head (Collins et al., ICML 2021)."""

from dataclasses import dataclass

from pfl_lib.methods._hyper import whole
from pfl_lib.methods._split import SplitModel
from pfl_lib.work import train


@dataclass(frozen=True)
class FedRep(SplitModel):
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
    equations = ["eq-split-model", "eq-fedavg"]
    chapter = "11b_methods"
    paper = "Collins et al. 2021, Algorithm 1"

    def local(self, state, received, fed, who):
        head, long, batches = fed.head_mask, self.head_epochs, self.head_steps
        w = train(
            fed, received.w, who, mask=head, epochs=long, steps=batches, tag="head", uploaded=False
        )
        return received.set(w=train(fed, w, who, mask=~head, epochs=self.body_epochs))
