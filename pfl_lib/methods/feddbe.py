"""FedDBE: a private mean of the features and a common one (Zhang et al., NeurIPS 2023)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._averaging import GlobalModel
from pfl_lib.methods._features import cross_entropy, feature_sums, head_in, linear_head
from pfl_lib.methods._hyper import between, flag, non_negative
from pfl_lib.methods._tensors import checked
from pfl_lib.work import Work, local_step, train


def feddbe_bias(matrix, bias, shift):
    """b + A·m_i: features moved by m_i are, for a linear head (A, b), another bias.

    FedDBE (Zhang et al. 2023). ``matrix`` (…, classes, features), ``shift`` (…, features).

    Equation label: eq-feddbe-bias

    >>> A, b = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2)
    >>> feddbe_bias(A, b, torch.tensor([0.5, 0.5]))
    tensor([0.5000, 1.0000])
    """
    return bias + (matrix * shift[..., None, :]).sum(-1)


def feddbe_pull(mean, consensus, kappa):
    """(κ/2D)·‖φ̄_i − φ̄‖²: the running mean of a client's features is held at the consensus.

    FedDBE (Zhang et al. 2023); D is the number of features.

    Equation label: eq-feddbe-pull

    >>> feddbe_pull(torch.tensor([1.0, 3.0]), torch.ones(2), kappa=2.0)
    tensor(2.)
    """
    kappa = checked(_check.non_negative, "kappa", kappa)
    return kappa / 2 * (mean - consensus).square().mean(-1)


@local_step("feddbe", reveals="")
def step(s, batch, client):
    """One step of the model and of the private mean, on the loss and the pull."""
    numbers, head = client.numbers, head_in(client.numbers)
    weight = batch.weight / batch.weight.sum()

    def objective(w, shift):
        features, logits = client.features_and_logits(w, batch)
        newest = (weight[:, None] * features).sum(0)
        mean = (1 - numbers["momentum"]) * s["mean"] + numbers["momentum"] * newest
        # every logit moves as the bias
        loss = cross_entropy(feddbe_bias(head.split(w)[0], logits, shift), batch)
        return loss + feddbe_pull(mean, s["consensus"], numbers["kappa"]), mean

    slopes, mean = torch.func.grad(objective, (0, 1), has_aux=True)(s["w"], s["shift"])
    moved = client.move(s, slopes[0])
    if numbers["memory"]:
        moved |= client.move(s, slopes[1], "shift")
    return moved | {"mean": mean.detach()}


@dataclass(frozen=True)
class FedDBE(GlobalModel):
    """FedAvg, where each client's features are moved by a private vector that is learned locally.

    ``kappa`` is κ, the strength with which the mean of the shared features is held at a consensus;
    ``momentum`` is the weight of the newest batch in that mean (1: the batch alone).  Both defaults
    are those of the authors' commands, for wide networks; κ = 50 may be far too strong for small
    ones, so tune it (see the book's page on deviations).  ``memory=False`` leaves the private
    vectors at zero: with that and κ = 0 it is FedAvg.  The consensus is made once, before the first
    round: every client trains the initial model locally, and the means of its features are averaged
    by samples.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("feddbe", kappa=1.0)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.3
    True
    """

    kappa: float = non_negative(50.0)
    momentum: float = between(1.0, 0, 1, "(]")
    memory: bool = flag(True)
    name, label = "feddbe", "FedDBE"
    family, order = "some layers", 4
    place = (1, 3, 1)
    idea = (
        "What makes a client special may be just where its features lie. Each client keeps a "
        "private shift of the features, and the mean of what is shared is held at a common place, "
        "so that the special part has nowhere else to go."
    )
    note = (
        "With a linear head the private shift is a private bias, so the personal model is a model "
        "like any other. Beside the model, the clients' mean features are averaged once, before "
        "the first round."
    )
    equations = ["eq-feddbe-bias", "eq-feddbe-pull", "eq-fedavg"]
    chapter = "11b_methods"
    paper = "Zhang et al., NeurIPS 2023"
    private = "a shift of the features"
    tested = "the global model with the client's own shift of the features"
    newcomer = "the global model with a shift of the features trained locally"

    def start(self, fed):
        state, head, who = super().start(fed), linear_head(self, fed), fed.everyone
        trained = train(fed, fed.initial(), who, tag="consensus", uploaded=False)
        sums, counts, _ = feature_sums(fed, trained, who, head)
        consensus = sums.sum((0, 1)) / counts.sum()
        return state.set(shift=sums.new_zeros(fed.m, head.width), consensus=consensus)

    def local(self, state, received, fed, who):
        shift, numbers = state.shift[who], self.settings() | linear_head(self, fed).numbers
        rows = {"w": received.w, "shift": shift, "mean": torch.zeros_like(shift)}
        shared = {"consensus": state.consensus}
        work = Work(rows, "feddbe", shared, numbers, moves=("w", "shift"))
        done = fed.perform(work, who)
        return received.set(w=done["w"], shift=done["shift"])

    def upload(self, state, done, fed, who):
        return super().upload(state.put(who, shift=done.shift), done, fed, who)

    def personal(self, state, fed):
        head, x = linear_head(self, fed), state.x.expand(fed.m, -1)
        matrix, bias = head.split(x)
        return head.put(x, matrix, feddbe_bias(matrix, bias, state.shift))

    def joined(self, state, newcomers):
        return super().joined(state, newcomers).set(consensus=state.consensus)
