"""Features and the linear head that reads them: class means, and one pass over a client's data."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from pfl_lib.work import Work, local_step


def class_means(sums, counts):
    """C̄_c = Σ_i n_ic C_ic / Σ_i n_ic, from what each client sums up; (classes, features).

    FedProto (Tan et al. 2022), FedPAC (Xu et al. 2023). ``sums`` (clients, classes, features) are
    the features added up by class, ``counts`` (clients, classes) the samples. A class that nobody
    has is 0.

    Equation label: eq-class-means

    >>> sums = torch.tensor([[[2.0], [0.0]], [[1.0], [6.0]]])
    >>> class_means(sums, torch.tensor([[1.0, 0.0], [2.0, 3.0]]))
    tensor([[1.],
            [2.]])
    """
    return sums.sum(0) / counts.sum(0).clamp(min=1)[:, None]


class Head(NamedTuple):
    """A linear head among the columns of a model: first its matrix, row by row, then its bias."""

    first: int
    classes: int
    width: int

    @property
    def columns(self):
        return slice(self.first, self.first + self.classes * (self.width + 1))

    def split(self, w):
        """Matrix (…, classes, width) and bias (…, classes) of models (…, d) or heads alone."""
        if w.shape[-1] != self.classes * (self.width + 1):
            w = w[..., self.columns]
        matrix, bias = w.split([self.classes * self.width, self.classes], -1)
        return matrix.unflatten(-1, (self.classes, self.width)), bias

    def put(self, w, matrix, bias):
        """The models (m, d) with another head."""
        head = torch.cat([matrix.flatten(-2), bias], -1)
        before, after = w[..., : self.columns.start], w[..., self.columns.stop :]
        return torch.cat([before, head.expand(*w.shape[:-1], -1), after], -1)

    @property
    def numbers(self):
        """The head as plain numbers for a ``Work``; ``head_in`` is the inverse."""
        return {"first": self.first, "classes": self.classes, "width": self.width}


def head_in(numbers):
    """The head that a local step was given."""
    return Head(*(int(numbers[name]) for name in Head._fields))


def linear_head(method, fed):
    """Where the linear head is; a ValueError where the model has none, or nothing below it."""
    labels_needed(method, fed)
    found = fed.linear_head
    if found is None or found[1] * (found[2] + 1) == fed.d:
        raise ValueError(
            f"{method.label} needs a model with a body and a head that is one linear layer with a "
            f"bias; {fed.model_name!r} has none. pfl_lib.models.with_head makes one of any module "
            "that ends in an nn.Linear; or give yours a method `features(x)`, and a part `head` on "
            "top of it"
        )
    return Head(*found)


def labels_needed(method, fed):
    """Refuse a federation without class labels."""
    if fed.loss != "cross_entropy":
        raise ValueError(
            f"{method.label} works with class labels and needs loss='cross_entropy'; the "
            f"federation has loss={fed.loss!r}"
        )


def mean_over(each, batch):
    """The mean over the samples of a batch, whatever the values at the padding."""
    each = torch.where(batch.weight > 0, each, 0)
    return (each * batch.weight).sum() / batch.weight.sum()


def cross_entropy(logits, batch):
    """Mean cross-entropy of logits over the samples of a batch that are no padding."""
    return mean_over(F.cross_entropy(logits, batch.y, reduction="none"), batch)


def one_hot(batch, classes):
    """(samples, classes): 1 for each sample at its class; 0 for padding."""
    where = torch.arange(classes, device=batch.y.device)
    return (batch.y[:, None] == where) * batch.real[:, None]


KEPT = "class sums, kept"  # by the client that makes them


@local_step(KEPT, reveals="")
@local_step("class sums", reveals="sums of features and counts of samples by class")
def class_sums(s, batch, client):
    """Adds up features and samples by class, and the features' squared lengths."""
    features = client.features(s["w"], batch.x)
    hits = one_hot(batch, s["counts"].shape[0])
    return {
        "sums": s["sums"] + hits.T @ features,
        "counts": s["counts"] + hits.sum(0),
        "squares": s["squares"] + batch.real @ features.square().sum(1),
    }


def feature_sums(fed, w, who, head, step="class sums"):
    """One pass over the data of the clients ``who`` with the models ``w``: for each client the
    features summed by class, the counts of the classes, and the sum of squared lengths."""
    none = w.new_zeros(len(who), head.classes)
    rows = {"w": w, "sums": none[..., None].repeat(1, 1, head.width), "counts": none}
    rows["squares"] = w.new_zeros(len(who))
    work = Work(rows, step, epochs=1, optimizer="sgd", tag="sums", uploaded=False)
    done = fed.perform(work, who)
    return done["sums"], done["counts"], done["squares"]
