"""FedRoD: a generic and a personal head on one body (Chen and Chao, ICLR 2022)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._features import KEPT, cross_entropy, feature_sums, head_in, linear_head
from pfl_lib.methods._hyper import non_negative
from pfl_lib.methods._tensors import checked
from pfl_lib.work import Work, local_step


def balanced_logits(logits, counts, gamma=1.0):
    """z_c + γ·log n_c: the logits whose cross-entropy is the balanced softmax loss.

    FedRoD (Chen and Chao 2022). ``counts`` are the client's
    samples by class. A class that it does not have gets −∞: it plays no part in the loss. With γ =
    0 nothing changes.

    Equation label: eq-fedrod-balanced

    >>> balanced_logits(torch.zeros(1, 3), torch.tensor([1.0, 2.0, 0.0]))
    tensor([[0.0000, 0.6931,   -inf]])
    """
    gamma = checked(_check.non_negative, "gamma", gamma)
    return logits if gamma == 0 else logits + gamma * counts.log()


@local_step("fedrod", reveals="")
def step(s, batch, client):
    """Body and generic head by the balanced loss; the personal head by the plain one, on features
    and generic logits that it cannot change."""
    gamma, head = client.numbers["gamma"], head_in(client.numbers)

    def generic(w):
        features, logits = client.features_and_logits(w, batch)
        loss = cross_entropy(balanced_logits(logits, s["counts"], gamma), batch)
        return loss, (features, logits)

    g, (features, logits) = client.grad_of(generic, has_aux=True)(s["w"])

    def personal(p):
        matrix, bias = head.split(p)
        return cross_entropy(logits + features @ matrix.T + bias, batch)

    moved = client.move(s, g)
    return moved | client.move(s, client.grad_of(personal)(s["p"].detach()), "p")


@dataclass(frozen=True)
class FedRoD(GlobalModel):
    """Body and generic head learn a loss that forgets local class counts; a personal head adds to
    them what the client's own data says.

    Both steps start from the same values and none sees the other.  ``gamma`` is the exponent of the
    class counts in the balanced loss; with 0 the global model is FedAvg's.  The linear personal
    head is the paper's; its variant with a hypernetwork is not here.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedrod")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    gamma: float = non_negative(1.0)
    name, label = "fedrod", "FedRoD"
    family, order = "some layers", 3
    place = (1, 3, 1)
    idea = (
        "Two heads on one body. The generic head is trained as if all classes were equally common "
        "at every client; the personal head adds what is special about this client, and its "
        "gradient stops before the body. Predictions add."
    )
    note = (
        "Two linear heads that add are one, so the personal model is a model like any other. The "
        "personal head begins at zero."
    )
    equations = ["eq-fedrod-balanced", "eq-fedrod-sum", "eq-fedavg"]
    chapter = "11b_methods"
    paper = "Chen and Chao, ICLR 2022"
    private = "a second head"
    tested = "the global model with the client's own head added to its head"
    newcomer = "the global model with a head trained locally added to its head"

    def start(self, fed):
        state, head, w = super().start(fed), linear_head(self, fed), fed.initial()
        _, counts, _ = feature_sums(fed, w, fed.everyone, head, KEPT)
        return state.set(p=torch.zeros_like(w[:, head.columns]), counts=counts)

    def local(self, state, received, fed, who):
        rows = {"w": received.w, "p": state.p[who], "counts": state.counts[who]}
        numbers = {"gamma": self.gamma, **linear_head(self, fed).numbers}
        work = Work(rows, "fedrod", numbers=numbers, moves=("w", "p"))
        done = fed.perform(work, who)
        return received.set(w=done["w"], p=done["p"])

    def upload(self, state, done, fed, who):
        return super().upload(state.put(who, p=done.p), done, fed, who)

    def personal(self, state, fed):
        columns = torch.arange(fed.d, device=fed.device)[linear_head(self, fed).columns]
        return state.x.expand(fed.m, -1).index_add(1, columns, state.p)
