"""FedPAC: aligned features, and heads mixed by a quadratic program (Xu et al., ICLR 2023)."""

from dataclasses import dataclass

import numpy as np
import torch

from pfl_lib import _check
from pfl_lib.methods._features import class_means, feature_sums, linear_head, mean_over
from pfl_lib.methods._hyper import non_negative, whole
from pfl_lib.methods._split import SplitModel
from pfl_lib.methods._tensors import checked
from pfl_lib.work import Work, local_step, train


def fedpac_pull(features, targets, lam):
    """λ·‖φ(s) − C̄_y‖²/D for each sample: features are pulled to the common mean of their class.

    FedPAC (Xu et al. 2023), with the mean square over the D features that the authors' public code
    has. ``features`` and ``targets`` (samples, features).

    Equation label: eq-fedpac-pull

    >>> fedpac_pull(torch.tensor([[1.0, 3.0]]), torch.ones(1, 2), lam=1.0)
    tensor([2.])
    """
    lam = checked(_check.non_negative, "lam", lam)
    return lam * (features - targets).square().mean(-1)


def fedpac_matrix(H, V, i):
    """P_jl = δ_jl V_j + Σ_c ⟨H_ic − H_jc, H_ic − H_lc⟩: the risk of a mix of heads at client i.

    FedPAC (Xu et al. 2023). ``H`` (clients, classes, features) are class means times the share of
    the class at that client, ``V`` (clients,) the variance of the features divided by the number
    of samples.

    Equation label: eq-fedpac-matrix

    >>> H = torch.tensor([[[0.0]], [[2.0]]])
    >>> fedpac_matrix(H, torch.tensor([1.0, 0.5]), 0)
    tensor([[1.0000, 0.0000],
            [0.0000, 4.5000]])
    """
    apart = (H[i] - H).flatten(1)
    return apart @ apart.T + torch.diag(V)


def fedpac_statistics(sums, counts, squares):
    """H and V of ``fedpac_matrix``, from what one pass over each client's data adds up."""
    n = counts.sum(1)
    H = sums / n[:, None, None]  # n_c/n times the mean of class c
    return H, (squares / n - H.square().sum((1, 2))).clamp(min=0) / n


def simplex_minimum(P):
    """argmin αᵀPα over α ≥ 0, Σα = 1, for a symmetric positive semi-definite P (NumPy).

    Up to its length, α minimizes ½βᵀPβ − Σβ over β ≥ 0: a least-squares problem that SciPy's
    active-set ``nnls`` solves in finitely many steps.  10⁻¹² of the mean diagonal is added to the
    diagonal, so that there is one solution; else it is exact to rounding.
    """
    from scipy.linalg import cholesky, solve_triangular  # imported late, since it takes time
    from scipy.optimize import nnls

    P = np.asarray(P, dtype=np.float64)
    ridge = 1e-12 * (np.trace(P) / len(P) or 1.0)
    R = cholesky(P + ridge * np.eye(len(P)))
    beta, _ = nnls(R, solve_triangular(R, np.ones(len(P)), trans="T"))
    return beta / beta.sum()


@local_step("fedpac", reveals="")
def step(s, batch, client):
    """One step of the body on loss and pull."""
    common, known, lam = s["common"], s["known"] > 0, client.numbers["lam"]

    def objective(w):
        features, logits = client.features_and_logits(w, batch)
        apart = torch.where(known[batch.y], fedpac_pull(features, common[batch.y], lam), 0)
        return client.loss_of(logits, batch) + mean_over(apart, batch)

    return client.move(s, client.grad_of(objective)(s["w"]) * s["mask"])


@dataclass(frozen=True)
class FedPAC(SplitModel):
    """First the head is trained, then the body, pulled to common class means; heads are mixed.

    ``lam`` is λ; ``head_epochs`` is how long the head is trained, ``body_epochs`` None is the
    federation's.  The statistics of the mix are those of the body that the client received.  Only
    the heads of a round's clients are mixed; the others keep theirs.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("fedpac", lam=1.0)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    lam: float = non_negative(1.0)
    head_epochs: int = whole(1, at_least=0)
    body_epochs: int | None = whole(None)
    name, label = "fedpac", "FedPAC"
    family, order = "some layers", 5
    place = (2, 3, 2)
    idea = (
        "The body is common, and its features are held at common class means, so that heads of "
        "different clients speak one language. Then each client's head becomes a mixture of all, "
        "with weights that balance foreign bias against the noise of little data."
    )
    note = (
        "The weights solve a quadratic program for each client: exactly, by an active-set method. "
        "The server sees every head and the clients' feature statistics."
    )
    equations = ["eq-class-means", "eq-fedpac-pull", "eq-fedpac-matrix", "eq-fedpac-weights"]
    chapter = "11b_methods"
    paper = "Xu et al., ICLR 2023"
    shared, private, weights_by = "the body, heads and class means", "the head", "a risk bound"
    cost = "2Σ+3·class means"
    tested = "the shared body with the client's own mix of heads"
    handed = ""  # a body for all, and a head for each

    def start(self, fed):
        state, head = super().start(fed), linear_head(self, fed)
        none = state.w.new_zeros(head.classes, head.width)
        return state.set(common=none, known=none[:, 0])

    def local(self, state, received, fed, who):
        head = linear_head(self, fed)
        H, V = fedpac_statistics(*feature_sums(fed, received.w, who, head))
        mask, long = fed.head_mask, self.head_epochs
        w = train(fed, received.w, who, mask=mask, epochs=long, tag="head", uploaded=False)
        body = (~fed.head_mask).to(w.dtype)
        shared = {"common": state.common, "known": state.known, "mask": body}
        numbers = {"lam": self.lam}
        work = Work({"w": w}, "fedpac", shared, numbers, epochs=self.body_epochs)
        w = fed.perform(work, who)["w"]
        sums, counts, _ = feature_sums(fed, w, who, head)
        return received.set(w=w, H=H, V=V, sums=sums, counts=counts)

    def upload(self, state, done, fed, who):
        state = super().upload(state, done, fed, who)
        matrices = torch.stack([fedpac_matrix(done.H, done.V, i) for i in range(len(who))]).cpu()
        alpha = torch.as_tensor(np.stack([simplex_minimum(P) for P in matrices])).to(done.w)
        new = (done.counts.sum(0) > 0)[:, None]
        common = torch.where(new, class_means(done.sums, done.counts), state.common)
        known = torch.where(new[:, 0], 1, state.known)
        mixed = torch.where(fed.head_mask, alpha @ done.w, done.w)
        return state.put(who, w=mixed).set(common=common, known=known)

    def newcomer_models(self, state, fed, newcomers):
        """Newcomers train a head locally, without mixing."""
        joined = self.joined(state, newcomers).set(common=state.common, known=state.known)
        who = newcomers.everyone
        done = self.local(joined, self.download(joined, newcomers, who), newcomers, who)
        return self.personal(joined.set(w=done.w), newcomers)

    def sent(self, fed, who, k):
        head = linear_head(self, fed)
        return (2 * fed.d + 3 * head.classes * head.width + 1) * len(who)
