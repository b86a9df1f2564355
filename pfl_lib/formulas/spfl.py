"""SPFL: personal models moved by everybody's updates, weighted by a softmax of their cosines.

``stages`` cut a model into parts that have weights of their own: a list of slices or index
tensors over the columns. Columns in no stage are left alone, which keeps a head local.
"""

import torch

from pfl_lib import _check
from pfl_lib.formulas._common import checked, parts, same_shape
from pfl_lib.formulas.similarity import cosine_similarities


def sngs(G, stages=None, temperature=1.0):
    """S̃_s(i, j) = softmax_j(cos(g_{s,i}, g_{s,j})/temperature): who moves with whom.

    SPFL Eqs. (3), (5), (6): the "softmax-normalised gradient similarity" of the updates
    g = w_before − w_after. The paper has temperature 1, where weights differ by e² at most; a high
    temperature is a plain mean, a low one keeps to oneself. Returns (m, m), and with stages
    (s, m, m).

    Equation label: eq-sngs

    >>> sngs(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """
    _check.models("G", G)
    temperature = checked(_check.positive, "temperature", temperature)
    S = [torch.softmax(cosine_similarities(G[:, s]) / temperature, dim=1) for s in parts(stages)]
    return S[0] if stages is None else torch.stack(S)


def spfl_weights(S, rule="softmax", sizes=None):
    """ω(i, j), what the server multiplies update g_j with for client i.

    SPFL Eq. (7). "softmax": ω = S̃, rows sum to 1 (the reading the text needs, with α = 1);
    "size_renorm": n_j·S̃ divided by its row sum; "literal": (n_j/n)·S̃ as printed, whose rows sum
    to about 1/m, so that with the printed α = 0.01 hardly anything moves.

    Equation label: eq-spfl-weights

    >>> S, sizes = torch.tensor([[0.5, 0.5], [0.2, 0.8]]), torch.tensor([100.0, 300.0])
    >>> spfl_weights(S, "literal", sizes)
    tensor([[0.1250, 0.3750],
            [0.0500, 0.6000]])
    """
    _check.one_of("rule", rule, ("softmax", "size_renorm", "literal"))
    if rule == "softmax":
        return S
    if sizes is None:
        raise ValueError(f"sizes must hold the clients' numbers of samples for rule={rule!r}")
    weights = (sizes / sizes.sum()).to(S.dtype) * S
    return weights if rule == "literal" else weights / weights.sum(-1, keepdim=True)


def spfl_step(W, G, S, rule="softmax", sizes=None, lr=1.0, stages=None):
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
    return _by_stage(W, stages, weights, lambda omega, s: W[:, s] - lr * (omega @ G[:, s]))


def spfl_w_step(W, S, stages=None):
    """w_{s,i} ← Σ_j S̃_s(i, j)·w_{s,j} over the locally trained models: SPFL-w.

    SPFL Sec. 4.1, without its factor 1/M: rows of S̃ sum to 1 already.

    Equation label: eq-spfl-w-step

    >>> spfl_w_step(torch.tensor([[0.0], [4.0]]), torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    tensor([[1.],
            [3.]])
    """
    _check.models("W", W)
    return _by_stage(W, stages, S, lambda omega, s: omega @ W[:, s])


def spfl_local_step(w, gradient, lr, rule="twice"):
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


def _by_stage(W, stages, S, rows):
    """W with the columns of every stage replaced by ``rows(weights of the stage, columns)``."""
    columns = parts(stages)
    if S.ndim == 3 and len(S) != len(columns):
        raise ValueError(f"S must hold one matrix for each of {len(columns)} stages, got {len(S)}")
    new = W.clone()
    for s, part in enumerate(columns):
        new[:, part] = rows(S[s] if S.ndim == 3 else S, part)
    return new
