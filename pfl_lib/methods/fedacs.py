"""FedACS: listen only to clients whose model points the same way (Chen et al., Algorithm 1)."""

import warnings
from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._attention_mixing import messages_to_newcomers, mix
from pfl_lib.methods._hyper import between, choice
from pfl_lib.methods._similarity import cosine_similarities
from pfl_lib.methods._tensors import checked, own
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.work import train


def fedacs_threshold(S, p):
    """δ, the p-quantile of all entries of the similarity matrix, its diagonal included.

    FedACS Sec. 2.2 ("p-quantile of all elements"), read with linear interpolation.

    Equation label: eq-fedacs-threshold

    >>> fedacs_threshold(torch.tensor([[1.0, 0.2], [0.2, 1.0]]), p=0.5)
    tensor(0.6000)
    """
    p = _check.between("p", p, 0, 1)
    entries = S.flatten().sort().values
    place = p * (len(entries) - 1)
    below = int(place)
    above = min(below + 1, len(entries) - 1)
    return entries[below] + (place - below) * (entries[above] - entries[below])


def fedacs_select(S, delta, negatives="drop"):
    """Row i: s_ij where s_ij > δ or j = i, and zero elsewhere, divided by the row's sum.

    FedACS Eq. (4). Itself a client always hears: the printed strict test loses even s_ii = 1 at
    δ = 1, e.g. when all models are equal, and divides 0 by 0. Negative cosines would give weights
    outside [0, 1]: "drop" leaves them out (default), "keep" is the printed form, except in rows
    whose sum is not positive, where they are dropped all the same. A zero model hears itself.

    Equation label: eq-fedacs-select

    >>> S = torch.tensor([[1.0, 0.6, -0.2], [0.6, 1.0, 0.0], [-0.2, 0.0, 1.0]])
    >>> fedacs_select(S, delta=0.1)
    tensor([[0.6250, 0.3750, 0.0000],
            [0.3750, 0.6250, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """
    _check.one_of("negatives", negatives, ("drop", "keep"))
    me = own(S)
    kept = torch.where((delta < S) | me, S, 0)
    positive = kept.clamp(min=0)
    if negatives == "keep":
        sound = kept.sum(1, keepdim=True) > torch.finfo(S.dtype).eps
        kept = torch.where(sound, kept, positive)
    else:
        kept = positive
    total = kept.sum(1, keepdim=True)
    some = total > 0
    return torch.where(some, kept / torch.where(some, total, 1), me.to(S.dtype))


def fedacs_weights(W, p, negatives="drop"):
    """The weights of u_i = Σ_j ξ_ij w_j, and the threshold δ: cosines, quantile, selection.

    FedACS Eq. (4) with Sec. 2.2; see ``fedacs_threshold`` and ``fedacs_select``. Returns
    (weights, delta), delta a 0-dim tensor.

    Equation label: eq-fedacs-weights

    >>> W = torch.tensor([[2.0, 0.0], [0.9, 0.5], [0.2, 1.5], [-0.7, 0.9]])
    >>> weights, delta = fedacs_weights(W, p=0.5)
    >>> weights[0], delta
    (tensor([0.5336, 0.4664, 0.0000, 0.0000]), tensor(0.6491))
    """
    S = cosine_similarities(W)
    delta = fedacs_threshold(S, p)
    return fedacs_select(S, delta, negatives), delta


def fedacs_local(u, grad, lr):
    """w = u − β∇F_i(u): the printed client step, one gradient step from the message.

    FedACS Eq. (5). The text speaks of several steps, which is ordinary local training from u.

    Equation label: eq-fedacs-local

    >>> fedacs_local(torch.tensor([1.0]), torch.tensor([2.0]), lr=0.1)
    tensor([0.8000])
    """
    lr = checked(_check.positive, "lr", lr)
    return u - lr * grad


@dataclass(frozen=True)
class FedACS(Algorithm):
    """The server mixes those models whose cosine is above the p-quantile of all cosines.

    The participants of a round hear each other only, and each always hears itself: at a common
    start all cosines are 1 and the printed strict test would leave nobody.  ``negatives`` says what
    becomes of negative cosines that pass the threshold: "drop" them, or "keep" them as printed.
    The paper gives no values; p = 0.5 is ours.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedacs", p=0.5)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    p: float = between(0.5, 0, 1)
    negatives: str = choice("drop", ("drop", "keep"))
    name, label = "fedacs", "FedACS"
    family, order = "pair by pair", 3
    place = (3, 4, 2)
    idea = (
        "Hears only those whose models point nearly the same way: cosines below a quantile are cut "
        "off, the others become weights."
    )
    note = (
        "A client's own model always passes, and negative cosines are dropped; without these two "
        "guards the printed rule divides zero by zero."
    )
    equations = [
        "eq-fedacs-threshold",
        "eq-fedacs-select",
        "eq-fedacs-weights",
        "eq-fedacs-local",
    ]
    chapter = "07_fedacs"
    paper = "Chen et al., FedACS, Algorithm 1"
    shared, private = "their models, pairwise", "the whole model"
    weights_by = "angles above a quantile"
    tested = "the client's own model w, trained"
    newcomer = "a model trained alone, then a message from the members, then a round from it"
    handed = "message"

    def start(self, fed):
        w = fed.initial()
        xi = torch.eye(fed.m, dtype=w.dtype, device=w.device)
        return State(w=w, u=w, xi=xi, delta=w.new_ones(()))

    def attend(self, w):
        """Weights and threshold among the participants."""
        return fedacs_weights(w, self.p, self.negatives)  # (4)

    def download(self, state, fed, who):
        xi, delta = self.attend(state.w[who])
        self.warn(state.w[who], delta)
        u = mix(xi, state.w[who])
        return State(w=u, u=u, xi=xi, delta=delta)  # (5), several steps, is ordinary training

    def upload(self, state, done, fed, who):
        xi = torch.eye(fed.m, dtype=done.xi.dtype, device=done.xi.device)
        xi[who[:, None], who] = done.xi
        return state.put(who, w=done.w, u=done.u).set(xi=xi, delta=done.delta)

    def extra_models(self, state, fed):
        return {"u": state.u}

    def newcomer_models(self, state, fed, newcomers):
        alone = train(newcomers, newcomers.initial(), newcomers.everyone, tag="newcomer")
        u = messages_to_newcomers(state.w, alone, lambda w: self.attend(w)[0])
        return train(newcomers, u, newcomers.everyone, uploaded=False)

    def warn(self, w, delta):
        """Say it where the printed rule has no sound meaning."""
        n = len(w)
        if n > 1 and self.p >= n / (n + 1):
            warnings.warn(
                f"p = {self.p:g} with {n} clients puts the threshold at 1, which only a client's "
                f"own model reaches: this is Separate training; take p < {n / (n + 1):.4g}",
                stacklevel=3,
            )
        if (delta < 0).any() and ((delta < (S := cosine_similarities(w))) & (S < 0)).any():
            what = "they are left out" if self.negatives == "drop" else "their weights are negative"
            warnings.warn(
                f"the threshold {float(delta.min()):.3g} lets negative cosines pass; {what}; "
                "a larger p raises it",
                stacklevel=3,
            )
