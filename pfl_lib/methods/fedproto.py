"""FedProto: only class means travel (Tan et al., AAAI 2022)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._features import (
    class_means,
    feature_sums,
    linear_head,
    mean_over,
    one_hot,
)
from pfl_lib.methods._hyper import choice, non_negative
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import Algorithm
from pfl_lib.work import Work, local_step

PULLS = ("means", "samples")
NEVER = -1e9  # the logit of a class whose mean no client has sent


def fedproto_pull(means, common, lam, known=None):
    """(λ/D)·Σ_c ‖C_ic − C̄_c‖²: a client's class means are held at the common ones.

    FedProto (Tan et al. 2022, Eq. 8). For its distance the paper uses "L2" and allows others; the
    mean square over the D features is that of the authors' public code. ``known`` marks the
    classes that count: those the client has, and for which a mean was sent.

    Equation label: eq-fedproto-pull

    >>> fedproto_pull(torch.tensor([[3.0, 4.0], [1.0, 1.0]]), torch.zeros(2, 2), lam=1.0)
    tensor(13.5000)
    """
    lam = checked(_check.non_negative, "lam", lam)
    squares = (means - common).square().mean(-1)
    return lam * (squares if known is None else torch.where(known, squares, 0)).sum(-1)


def nearest_mean(common, known):
    """A_c = C̄_c and b_c = −½‖C̄_c‖²: the linear head whose largest logit is the nearest mean.

    FedProto (Tan et al. 2022): softmax of −½‖φ − C̄_c‖². A class that is not ``known`` gets
    a bias with which it is never chosen. Returns matrix and bias.

    Equation label: eq-nearest-mean

    >>> nearest_mean(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([True, False]))[1]
    tensor([-1.2500e+01, -1.0000e+09])
    """
    return common, torch.where(known, -common.square().sum(-1) / 2, NEVER)


@local_step("fedproto", reveals="")
def step(s, batch, client):
    """One step on loss and pull."""
    common, known, lam = s["common"], s["known"] > 0, client.numbers["lam"]

    def objective(w):
        features, logits = client.features_and_logits(w, batch)
        if client.numbers["samples"]:
            apart = (features - common[batch.y]).square().mean(1)
            pull = lam * mean_over(torch.where(known[batch.y], apart, 0), batch)
        else:
            hits = one_hot(batch, common.shape[0])
            counts = hits.sum(0)
            means = hits.T @ features / counts.clamp(min=1)[:, None]
            pull = fedproto_pull(means, common, lam, known & (counts > 0))
        return client.loss_of(logits, batch) + pull

    return client.move(s, client.grad_of(objective)(s["w"]))


@dataclass(frozen=True)
class FedProto(Algorithm):
    """Each client has its own model and sends only the class means of its features.

    ``lam`` is λ.  ``pull`` says what is pulled to the common means: the "means" of each batch's
    classes (the paper), or the features of all "samples", in mean square (the authors' public
    code).  There is no pull before the first means; a class that no client of a round has keeps its
    last mean.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedproto", lam=1.0)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.5
    True
    """

    lam: float = non_negative(1.0)
    pull: str = choice("means", PULLS)
    name, label = "fedproto", "FedProto"
    family, order = "some layers", 6
    idea = (
        "No model is sent at all. Clients send the mean of their features for each class, and hold "
        "their features near the common means; a sample belongs to the class whose common mean is "
        "nearest."
    )
    note = (
        "Made for clients with different networks; here all have the same, and begin at the same "
        "random values. Nearest means are a linear head, so the personal model is a model like any "
        "other; the client's own head, which only training uses, is tested beside it."
    )
    equations = ["eq-class-means", "eq-fedproto-pull", "eq-nearest-mean"]
    chapter = "11b_methods"
    paper = "Tan et al., AAAI 2022"
    shared, private, weights_by = "class means", "the whole model", "sample counts, by class"
    cost = "2·class means"
    tested = "the client's own body; the nearest common class mean decides"
    newcomer = "a body trained locally for a round, held at the common class means"

    def start(self, fed):
        head, state = linear_head(self, fed), super().start(fed)
        none = state.w.new_zeros(head.classes, head.width)
        return state.set(common=none, known=none[:, 0])

    def local(self, state, received, fed, who):
        shared = {"common": state.common, "known": state.known}
        numbers = {"lam": self.lam, "samples": self.pull == "samples"}
        work = Work({"w": received.w}, "fedproto", shared, numbers, uploaded=False)
        w = fed.perform(work, who)["w"]
        sums, counts, _ = feature_sums(fed, w, who, linear_head(self, fed))
        return received.set(w=w, sums=sums, counts=counts)

    def upload(self, state, done, fed, who):
        new = (done.counts.sum(0) > 0)[:, None]
        common = torch.where(new, class_means(done.sums, done.counts), state.common)
        known = torch.where(new[:, 0], 1, state.known)
        return state.put(who, w=done.w).set(common=common, known=known)

    def personal(self, state, fed):
        head, known = linear_head(self, fed), state.known > 0
        nearest = head.put(state.w, *nearest_mean(state.common, known))
        return torch.where(known.any(), nearest, state.w)  # before the first round, their heads

    def newcomer_models(self, state, fed, newcomers):
        """No client sends a model, so newcomers begin at the initial one."""
        fresh = self.start(newcomers).set(common=state.common, known=state.known)
        who = newcomers.everyone
        done = self.local(fresh, self.download(fresh, newcomers, who), newcomers, who)
        return self.personal(fresh.set(w=done.w), newcomers)

    def extra_models(self, state, fed):
        return {"own head": state.w}

    def sent(self, fed, who, k):
        head = linear_head(self, fed)
        return 2 * head.classes * head.width * len(who)
