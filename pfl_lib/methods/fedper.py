"""FedPer: shared base layers, private personalization layers (Arivazhagan et al. 2019)."""

from dataclasses import dataclass

import torch

from pfl_lib.methods._hyper import whole
from pfl_lib.methods._split import SplitModel
from pfl_lib.methods.base import State


@dataclass(frozen=True)
class FedPer(SplitModel):
    """The top ``personal_layers`` layers stay with the client; all layers are trained together.

    With 0 private layers it is FedAvg, with all of them training alone.  Everybody's private layers
    begin at the same random values.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedper", personal_layers=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.7
    True
    """

    personal_layers: int = whole(1, at_least=0)
    name, label = "fedper", "FedPer"
    family, order = "some layers", 0
    place = (2, 3, 1)
    idea = (
        "The clients share the lower layers and keep the last ones to themselves. Both parts are "
        "trained together, as in FedAvg, but only the lower layers are sent and averaged."
    )
    note = (
        "FedRep is its two-step sister: the head first, then the body. `personal_layers` counts "
        "from the top; 0 is FedAvg, all of them is training alone."
    )
    equations = ["eq-split-model", "eq-fedavg"]
    chapter = "11b_methods"
    paper = "Arivazhagan et al. 2019, Algorithms 1 and 2"
    private = "the top layers"
    tested = "the shared body with the client's own top layers"
    newcomer = "the shared body with top layers trained locally"

    def start(self, fed):
        if self.personal_layers > len(fed.layers):
            raise ValueError(
                f"personal_layers must be at most {len(fed.layers)}, the layers of "
                f"{fed.model_name!r}, got {self.personal_layers}"
            )
        w = fed.initial()
        return State(x=w[0], w=w)

    def private_mask(self, fed):
        top = fed.layers[len(fed.layers) - self.personal_layers :]
        mask = torch.zeros(fed.d, dtype=torch.bool, device=fed.device)
        for _, columns in top:
            mask[columns] = True
        return mask
