"""What SPFL and SPFL-w share: the reset, the probe, and the similarity of the clients' updates.

``stages`` cut a model into parts that have weights of their own: a list of slices or index
tensors over the columns. Columns in no stage are left alone, which keeps a head local.
"""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._hyper import choice, flag, positive, whole
from pfl_lib.methods._similarity import cosine_similarities
from pfl_lib.methods._stages import parts, split_stages
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.work import train


def sngs(G, stages=None, temperature=1.0):
    """S̃_s(i, j) = softmax_j(cos(g_{s,i}, g_{s,j})/temperature): who moves with whom.

    SPFL Eqs. (3), (5), (6): the "softmax-normalized gradient similarity" of the updates
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


def by_stage(W, stages, S, rows):
    """W with the columns of every stage replaced by ``rows(weights of the stage, columns)``."""
    columns = parts(stages)
    if S.ndim == 3 and len(S) != len(columns):
        raise ValueError(f"S must hold one matrix for each of {len(columns)} stages, got {len(S)}")
    new = W.clone()
    for s, part in enumerate(columns):
        new[:, part] = rows(S[s] if S.ndim == 3 else S, part)
    return new


@dataclass(frozen=True)
class SimilarUpdates(Algorithm):
    """Every Γ rounds all models become their mean, and a probe from there measures whose updates
    point the same way; in between each client keeps a model of its own.

    ``period`` is Γ.  ``steps_per_batch``: two SGD steps on every batch, or one.  ``stages``: 2 has
    weights of their own for the last layer and for all before it, 1 has one set.  ``temperature``
    divides the cosines before the softmax (the paper has 1).  ``local_head`` keeps the last layer
    at home: it is trained, never sent, never reset.
    """

    period: int = whole(10)
    steps_per_batch: int = choice(2, (1, 2))
    stages: int = choice(2, (1, 2))
    temperature: float = positive(1.0)
    local_head: bool = flag(False)
    private, weights_by, cost = "the whole model", "angles between updates", "2Σ(1+1/Γ)"
    tested = "the client's own model, as the server sends it back"
    partial = False  # the mean and the probe need everyone

    def mix(self, w, trained, S, stages, fed):
        """The server's step from the models ``w`` before and ``trained`` after local work."""
        raise NotImplementedError

    def start(self, fed):
        w = fed.initial()
        S = w.new_full((len(self.parts(fed)), fed.m, fed.m), 1 / fed.m)
        return State(w=w, trained=w, S=S)

    def measures(self, fed):
        """Is this a round that resets the models and measures similarities anew?"""
        return fed.k % self.period == 0

    def download(self, state, fed, who):
        w = state.w
        if self.measures(fed):
            w = w.clone()
            for part in self.parts(fed):
                w[:, part] = w[:, part].mean(0)
        return State(w=w)

    def local(self, state, received, fed, who):
        start, repeats = received.w, self.steps_per_batch
        done = State(start=start)
        if self.measures(fed):
            done = done.set(probe=train(fed, start, who, repeats=repeats, tag="probe"))
        return done.set(w=train(fed, start, who, repeats=repeats))

    def upload(self, state, done, fed, who):
        S, stages = state.S, self.parts(fed)
        if self.measures(fed):
            S = sngs(done.start - done.probe, stages, self.temperature)  # (2), (3), (6)
        return State(w=self.mix(done.start, done.w, S, stages, fed), trained=done.w, S=S)

    def extra_models(self, state, fed):
        return {"before mixing": state.trained}

    def sent(self, fed, who, k):
        shared = sum(part.stop - part.start for part in self.parts(fed))
        exchanges = 2 if k % self.period == 0 else 1  # the probe is one more
        return 2 * shared * len(who) * exchanges

    def parts(self, fed):
        """The columns of each stage; those in no stage stay at home."""
        if not self.local_head:
            return split_stages(fed, self.stages)
        if len(fed.layers) == 1:
            raise ValueError(
                "local_head=True keeps the last layer at home, and this model has no other layer"
            )
        return split_stages(fed, 2)[:1]
