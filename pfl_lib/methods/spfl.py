"""SPFL: subclass personalized federated learning (the SPFL paper, Algorithm 1)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._hyper import choice, positive
from pfl_lib.methods._similar_updates import SimilarUpdates, by_stage
from pfl_lib.methods._tensors import checked, same_shape
from pfl_lib.methods.base import preset

RULES = ("softmax", "size_renorm", "literal")


def spfl_weights(S, rule="softmax", sizes=None) -> torch.Tensor:
    """ω(i, j), the weight of update g_j in the step of client i.

    SPFL Eq. (7). "softmax": ω = S̃, rows sum to 1 (the reading that the text requires, with α = 1);
    "size_renorm": n_j·S̃ divided by its row sum; "literal": (n_j/n)·S̃ as printed, whose rows sum
    to about 1/m, so that with the printed α = 0.01 models hardly move.

    Equation label: eq-spfl-weights

    >>> S, sizes = torch.tensor([[0.5, 0.5], [0.2, 0.8]]), torch.tensor([100.0, 300.0])
    >>> spfl_weights(S, "literal", sizes)
    tensor([[0.1250, 0.3750],
            [0.0500, 0.6000]])
    """
    _check.one_of("rule", rule, RULES)
    if rule == "softmax":
        return S
    if sizes is None:
        raise ValueError(f"sizes must hold the clients' numbers of samples for rule={rule!r}")
    weights = (sizes / sizes.sum()).to(S.dtype) * S
    return weights if rule == "literal" else weights / weights.sum(-1, keepdim=True)


def spfl_step(W, G, S, rule="softmax", sizes=None, lr=1.0, stages=None) -> torch.Tensor:
    """w_{s,i} ← w_{s,i} − α·Σ_j ω_s(i, j)·g_{s,j}: the server's step, stage by stage.

    SPFL Eq. (7), with g_{s,j} where g_j is printed; ω by ``rule`` (see ``spfl_weights``). ``S`` is
    ``sngs(...)`` of the same stages, or one (m, m) matrix for all of them.

    Equation label: eq-spfl-step

    >>> W, G = torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])
    >>> spfl_step(W, G, torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    tensor([[-2.],
            [-3.]])
    """
    _check.models("W", W)
    same_shape(W=W, G=G)
    lr = checked(_check.positive, "lr", lr)
    weights = spfl_weights(S, rule, sizes)
    return by_stage(W, stages, weights, lambda omega, s: W[:, s] - lr * (omega @ G[:, s]))


def spfl_local_step(w, gradient, lr, rule="twice") -> torch.Tensor:
    """Two steps of length β on one batch ("twice"), or the pseudo-code's single 2β ("double").

    SPFL Algorithm 1, ClientUpdate. They differ by β²·∇²F·∇F; the text says twice.

    Equation label: eq-spfl-local-step

    >>> spfl_local_step(torch.tensor([0.0]), lambda w: w - 1, lr=0.1)
    tensor([0.1900])
    """
    _check.one_of("rule", rule, ("twice", "double"))
    lr = checked(_check.positive, "lr", lr)
    if rule == "double":
        return w - 2 * lr * gradient(w)
    w = w - lr * gradient(w)
    return w - lr * gradient(w)


@dataclass(frozen=True)
class SPFL(SimilarUpdates):
    """Each client's model moves by the updates of all clients, weighted by similarity to its own.

    ``rule`` and ``lr_server`` are ω and α of Eq. (7): "softmax" with α = 1 (weights that sum to
    one), "size_renorm", or "literal", with whose weights the printed α = 0.01 hardly moves.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("spfl", period=10)
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.8
    True
    """

    rule: str = choice("softmax", RULES)
    lr_server: float = positive(1.0)
    name, label = "spfl", "SPFL"
    family, order = "pair by pair", 4
    place = (3, 4, 2)
    idea = (
        "Clients are alike when their *updates* point the same way. Softmax weights of these "
        "angles, layer group by layer group, decide how much of everybody's update goes into each "
        "personal model."
    )
    note = (
        "Every $\\Gamma$ rounds all models are reset to the mean and the angles are measured anew."
    )
    equations = ["eq-sngs", "eq-spfl-weights", "eq-spfl-step", "eq-spfl-local-step"]
    chapter = "08_spfl"
    paper = "the SPFL paper, Algorithm 1"
    shared = "updates, pairwise"

    def mix(self, w, trained, S, stages, fed):
        begin = trained.clone()  # local columns stay as trained
        for part in stages:
            begin[:, part] = w[:, part]
        G = w - trained
        return spfl_step(begin, G, S, self.rule, fed.sizes, self.lr_server, stages)  # (7)


SPFL1Step = preset(
    SPFL,
    "SPFL1Step",
    steps_per_batch=1,
    name="spfl-1step",
    label="SPFL (1-step)",
    order=5,
    idea="SPFL with one gradient step on each batch instead of two.",
    note="The ablation of the paper's Table 1.",
    equations=["eq-sngs", "eq-spfl-step"],
    place=None,
)
