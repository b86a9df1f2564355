"""FedBABU: the body is learned under a frozen random head (Oh, Kim and Yun, ICLR 2022)."""

from dataclasses import dataclass

import torch

from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._hyper import choice, whole
from pfl_lib.methods._split import refuse_unless_split
from pfl_lib.work import train

PARTS = ("head", "body", "all")


@dataclass(frozen=True)
class FedBABU(GlobalModel):
    """All train the body under one common random head that never moves; the test fine-tunes it.

    Before a test each client fine-tunes ``part`` of its copy, the "head" (the paper's abstract),
    the "body" or "all" (the authors' public code), for ``ft_epochs`` epochs (None: as many as in
    local training) or ``ft_steps`` batches.  The copy is thrown away.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedbabu", ft_epochs=2)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    part: str = choice("head", PARTS)
    ft_epochs: int | None = whole(None, at_least=0)
    ft_steps: int | None = whole(None, at_least=0)
    name, label = "fedbabu", "FedBABU"
    family, order = "fine-tuning", 6
    place = (2, 1, 1)
    idea = (
        "A common random head is frozen for the whole training, so that the clients agree on what "
        "the features should mean and only the body is learned. The head is fine-tuned locally, "
        "before the test."
    )
    note = (
        "The head is the same for all and never moves while the federation trains; nobody needs to "
        "send it."
    )
    equations = ["eq-fedbabu-step", "eq-fedavg"]
    chapter = "11b_methods"
    paper = "Oh et al., ICLR 2022, Algorithm 1"
    shared, private, cost = "the body", "a fine-tuned head", "2·body"
    tested = "the shared body under a head fine-tuned locally"
    newcomer = "the shared body under a head fine-tuned locally"

    def start(self, fed):
        refuse_unless_split(self, fed)
        return super().start(fed)

    def local(self, state, received, fed, who):
        return received.set(w=train(fed, received.w, who, mask=~fed.head_mask))

    def upload(self, state, done, fed, who):
        average = self.average(done.w, fed.sizes[who], state, fed)
        return state.set(x=torch.where(fed.head_mask, state.x, average))  # exact, no rounding

    def personal(self, state, fed):
        x, who = state.x.expand(fed.m, -1), fed.everyone
        masks = {"head": fed.head_mask, "body": ~fed.head_mask, "all": None}
        options = {"epochs": self.ft_epochs, "steps": self.ft_steps, "mask": masks[self.part]}
        return train(fed, x, who, tag="fine-tune", uploaded=False, **options)

    def sent(self, fed, who, k):
        return 2 * int((~fed.head_mask).sum()) * len(who)

    def handed_layers(self, fed):
        return [layer for layer in fed.layers if not fed.head_mask[layer[1]].any()]
