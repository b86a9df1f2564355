"""FedAS: the body is aligned first, and counts by its information (Yang et al., CVPR 2024)."""

from dataclasses import dataclass

import torch

from pfl_lib.methods._features import KEPT, feature_sums, linear_head, one_hot
from pfl_lib.methods._hyper import choice, positive, whole
from pfl_lib.methods._split import SplitModel
from pfl_lib.work import Batch, Work, local_step, train

FISHER = ("samples", "batches", "none")
OWN: dict = {"optimizer": "sgd", "uploaded": False}  # of the two steps beside training


def fedas_align(features, hits, own):
    """(1/D)·Σ_c mean_{y=c} ‖φ(s) − C_ic‖²: features are held at the class means of the client's
    own last body.

    FedAS (Yang et al. 2024), with the mean square of the authors' public code. ``hits`` (samples,
    classes) says which sample belongs to which class, ``own`` (classes, features) are the means.

    Equation label: eq-fedas-align

    >>> hits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> fedas_align(torch.tensor([[1.0], [3.0], [0.0]]), hits, torch.ones(2, 1))
    tensor(3.)
    """
    counts = hits.sum(0)
    apart = (features[:, None, :] - own).square().mean(-1)
    return ((apart * hits).sum(0) / counts.clamp(min=1)).sum()


def fedas_weights(traces):
    """ω_i = T_i/Σ_j T_j: clients count by the trace of their Fisher information.

    FedAS (Yang et al. 2024). If all traces are zero, the weights are equal.

    Equation label: eq-fedas-weights

    >>> fedas_weights(torch.tensor([3.0, 1.0]))
    tensor([0.7500, 0.2500])
    """
    total = traces.sum()
    return torch.where(total > 0, traces / torch.where(total > 0, total, 1), 1 / len(traces))


@local_step("fedas align", reveals="")
def align(s, batch, client):
    """The body, towards features of the client's own last body."""

    def objective(w):
        hits = one_hot(batch, s["own"].shape[0])
        return fedas_align(client.features(w, batch.x), hits, s["own"])

    return client.move(s, client.grad_of(objective)(s["w"]) * s["mask"])


@local_step("fisher trace", reveals="the trace of the client's Fisher information")
def fisher(s, batch, client):
    """Sums the squared norm of the gradient of log p(y|s) over samples, or over whole batches."""
    if client.numbers["batches"]:
        g = client.grad_of(client.tested_loss)(s["w"], batch)
        return {"trace": s["trace"] + g.square().sum()}

    def squared(x, y, weight):
        one = Batch(x[None], y[None], torch.ones_like(weight)[None], batch.noise)
        return weight * client.grad_of(client.tested_loss)(s["w"], one).square().sum()

    each = client.of_each_sample(squared, batch.x, batch.y, batch.real)
    return {"trace": s["trace"] + each.sum()}


@dataclass(frozen=True)
class FedAS(SplitModel):
    """The received body first learns to make the features that the client's own head knows.

    ``align_epochs`` passes with plain SGD and ``align_lr`` pull the body's features to the class
    means of the client's last model; then body and head are trained together, as in FedPer.
    ``fisher`` says how the server weighs the bodies: by the trace of the Fisher information over
    single "samples", by squared gradients of whole "batches" (the authors' public code), or by
    sample counts ("none").  Without alignment and with "none" it is FedPer.  "trained" beside the
    personal model is the client's own, which the authors' public code tests.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedas", align_epochs=1)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    align_epochs: int = whole(1, at_least=0)
    align_lr: float = positive(0.01)
    fisher: str = choice("samples", FISHER)
    name, label = "fedas", "FedAS"
    family, order = "some layers", 7
    place = (2, 3, 1)
    idea = (
        "A body that was averaged elsewhere no longer fits the head that stayed local. So each "
        "client first aligns the new body with the features its own last body made, and then "
        "trains both. Bodies count by how much information their data still gives."
    )
    note = (
        "FedPer with two additions, each of which can be switched off. Everybody's last model is "
        "the initial one until they take part."
    )
    equations = ["eq-split-model", "eq-fedas-align", "eq-fedas-weights"]
    chapter = "11b_methods"
    paper = "Yang et al., CVPR 2024"
    cost = "2·body+1"
    weights_by = "Fisher information"

    def start(self, fed):
        linear_head(self, fed)
        return super().start(fed)

    def local(self, state, received, fed, who):
        w = received.w
        if self.align_epochs:
            w = self.aligned(state, w, fed, who)
        w = train(fed, w, who)
        return received.set(w=w, weights=self.weights(w, fed, who))

    def aligned(self, state, w, fed, who):
        """The received models with their bodies aligned."""
        sums, counts, _ = feature_sums(fed, state.w[who], who, linear_head(self, fed), KEPT)
        rows = {"w": w, "own": sums / counts.clamp(min=1)[..., None]}
        shared = {"mask": (~fed.head_mask).to(w.dtype)}
        options = OWN | {"tag": "align", "epochs": self.align_epochs, "lr": self.align_lr}
        return fed.perform(Work(rows, "fedas align", shared, **options), who)["w"]

    def weights(self, w, fed, who):
        """The weight of each client's body, before normalization."""
        if self.fisher == "none":
            return fed.sizes[who]
        rows, batches = {"w": w, "trace": w.new_zeros(len(who))}, self.fisher == "batches"
        options = OWN | {"tag": "fisher", "epochs": 1, "numbers": {"batches": batches}}
        work = Work(rows, "fisher trace", **options)
        trace = fed.perform(work, who)["trace"]
        return trace if batches else trace / fed.sizes[who]

    def upload(self, state, done, fed, who):
        x = self.averaged(state, done.w, fed, fedas_weights(done.weights))
        return state.put(who, w=done.w).set(x=x)

    def extra_models(self, state, fed):
        return {"trained": state.w}

    def sent(self, fed, who, k):
        return super().sent(fed, who, k) + len(who)
