"""Label prior: FedAvg's model, corrected by how often each client meets each class.

A yardstick: what personalization gains without any personal training.  If clients differ only in
how often they meet each class, Bayes' rule says exactly how one model serves them all (Saerens et
al. 2002; as logit adjustment, Menon et al. 2021).
"""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._features import labels_needed
from pfl_lib.methods._hyper import positive
from pfl_lib.methods._tensors import checked
from pfl_lib.work import Work, local_step


def label_prior_shift(counts, smoothing=1.0):
    """s_iy = log(π_i(y)/π(y)): what client i adds to the logit of class y.

    ``counts`` (m, classes) are the clients' training labels. π are everybody's label frequencies,
    and π_i(y) = (n_iy + c·π(y))/(n_i + c) the client's own, as if it had seen c = ``smoothing``
    further samples of everybody's. So a class that it never met keeps a chance, and a client
    without samples is not shifted; nor is anybody as c grows.

    Equation label: eq-label-prior

    >>> label_prior_shift(torch.tensor([[3.0, 0.0], [1.0, 4.0]]))
    tensor([[ 0.5596, -1.3863],
            [-0.6931,  0.4055]])
    """
    _check.models("counts", counts)
    smoothing = checked(_check.positive, "smoothing", smoothing)
    of_class = counts.sum(0)
    everybody = of_class / of_class.sum().clamp(min=1)
    met = torch.where(of_class > 0, counts / torch.where(of_class > 0, everybody, 1), 0)
    return torch.log((met + smoothing) / (counts.sum(1, keepdim=True) + smoothing))


@local_step("label counts", reveals="how often each class occurs")
def count(s, batch, client):
    """How often each class occurs among the client's labels."""
    classes = torch.arange(s["counts"].shape[-1], device=batch.y.device)
    hits = (batch.y[:, None] == classes) * batch.real[:, None]
    return {"counts": s["counts"] + hits.sum(0)}


@dataclass(frozen=True)
class LabelPrior(GlobalModel):
    """FedAvg, and each client shifts the logits by its own label frequencies.

    Training is FedAvg's to the last digit.  The shift is added to the bias of the last layer, so
    the result is a model like any other; models without such a bias are refused.  ``smoothing`` is
    how many samples of everybody's a client adds to its own counts.

    >>> import pfl_lib
    >>> data = pfl_lib.data.load("digits")
    >>> clients = pfl_lib.partition.pathological(data, clients=10, classes_per_client=2)
    >>> fed = pfl_lib.Federation(data, clients, "logistic_regression", lr=0.1)
    >>> plain, prior = (
    ...     pfl_lib.run(pfl_lib.algorithm(name), fed, 3, progress=False).last
    ...     for name in ("fedavg", "label-prior")
    ... )
    >>> prior > plain + 0.1
    True
    """

    smoothing: float = positive(1.0)
    name, label = "label-prior", "Label prior"
    family, order = "fine-tuning", 0
    place = (1, 1, 1)
    idea = (
        "FedAvg's model, with each client's label frequencies put in by Bayes' rule. Nothing is "
        "trained locally, so it is a yardstick: what a personalised method gains beyond it, it "
        "gains by more than knowing which classes its client meets."
    )
    note = (
        "Exact where clients differ only in how often they meet each class; blind where they call "
        "the same thing by different names, and too loud in the first rounds, when the logits are "
        "still small. Beside the model, each client's label counts are "
        "added up once, before the first round; a sum is enough, so secure aggregation can hide "
        "them."
    )
    equations = ["eq-label-prior", "eq-fedavg"]
    chapter = "11_family"
    paper = "after Saerens et al. 2002; Menon et al. 2021"
    private = "its label frequencies"
    tested = "the global model with the client's label frequencies in its last bias"
    newcomer = "the global model with its own label frequencies, counted locally"

    def start(self, fed):
        state = super().start(fed)
        none = state.x.new_zeros(fed.m, len(self.bias(fed)))
        work = Work({"w": fed.initial(), "counts": none}, "label counts", epochs=1, optimizer="sgd")
        return state.set(counts=fed.perform(work, fed.everyone)["counts"])

    def personal(self, state, fed):
        shift = label_prior_shift(state.counts, self.smoothing).to(state.x.dtype)
        return state.x.expand(fed.m, -1).index_add(1, self.bias(fed), shift)

    def newcomer_models(self, state, fed, newcomers):
        """Each newcomer's frequencies are compared with the members' and its own."""
        counts = self.start(newcomers).counts
        rows = [
            label_prior_shift(torch.cat([state.counts, c[None]]), self.smoothing)[-1]
            for c in counts
        ]
        shift = torch.stack(rows).to(state.x.dtype)
        return state.x.expand(newcomers.m, -1).index_add(1, self.bias(newcomers), shift)

    def bias(self, fed):
        """Where the last layer's bias is among the parameters."""
        labels_needed(self, fed)
        if fed.head_bias is None:
            raise ValueError(
                f"{self.label} adds label frequencies to the bias of the last layer, and "
                f"{fed.model_name} has no bias that is added to its logits: give the last layer "
                "one (nn.Linear(..., bias=True)), and say that it is the head "
                "(pfl_lib.models.with_head)"
            )
        return fed.head_bias
