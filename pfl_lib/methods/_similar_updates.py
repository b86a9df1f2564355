"""The base of SPFL and SPFL-w: the reset, the probe, and the similarity of the clients' updates.

``stages`` cut a model into parts with their own weights: a list of slices or index
tensors over the columns. Columns in no stage are left alone, which keeps a head local.
"""

from dataclasses import dataclass

import torch

from pfl_lib import _check, _deprecated
from pfl_lib.methods._hyper import choice, hyper, positive, whole
from pfl_lib.methods._similarity import cosine_similarities
from pfl_lib.methods._stages import parts, split_stages
from pfl_lib.methods._tensors import checked
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.work import train


def sngs(G, stages=None, temperature=1.0, layers=None):
    """S̃_s(i, j) = softmax_j(cos(g_{s,i}, g_{s,j})/temperature): who moves with whom.

    SPFL Eqs. (3), (5), (6): the "softmax-normalized gradient similarity" of the updates
    g = w_before − w_after. The paper has temperature 1, where weights differ by e² at most; a high
    temperature is a plain mean, a low one leaves each client alone. ``layers`` holds for each stage
    pairs of columns and a weight: its cosine is then the weighted sum of its layers' cosines.
    Returns (m, m), and with stages (s, m, m).

    Equation label: eq-sngs

    >>> sngs(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """
    _check.models("G", G)
    temperature = checked(_check.positive, "temperature", temperature)
    each = [[(s, 1.0)] for s in parts(stages)] if layers is None else layers
    if len(each) != len(parts(stages)):
        raise ValueError(
            f"layers must hold one list for each of {len(parts(stages))} stages, got {len(each)}"
        )
    S = [sum(weight * cosine_similarities(G[:, s]) for s, weight in one) for one in each]
    S = [torch.softmax(cosines / temperature, dim=1) for cosines in S]
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


def _layer_weights(name, value):
    if not isinstance(value, (tuple, list)) or not value:
        raise ValueError(f"{name} must be None or hold a weight for each layer, got {value!r}")
    for weight in value:
        _check.non_negative(f"each number in {name}", weight)


@dataclass(frozen=True)
class SimilarUpdates(Algorithm):
    """Every Γ rounds all models become their mean, and a probe from there measures whose updates
    point the same way; in between each client keeps its own model.

    ``period`` is Γ.  ``steps_per_batch``: two SGD steps on every batch, or one.  ``stages``: 2 has
    weights of their own for the last layer and for all before it, 1 has one set.  ``temperature``
    divides the cosines before the softmax (the paper has 1).  ``local_head`` keeps the last layer
    local: it is trained, never sent, never reset; "reset" still lets it become the mean every Γ
    rounds, as in the paper's public code.  ``layer_weights`` are that code's, too: the cosine of
    the layers before the last is a sum of one cosine for each of them, with these weights (there
    0.5, 0.3, 0.2, and biases left out); None takes them as one long vector.
    """

    period: int = whole(10)
    steps_per_batch: int = choice(2, (1, 2))
    stages: int = choice(2, (1, 2))
    temperature: float = positive(1.0)
    local_head: bool | str = choice(False, (False, True, "reset"))
    layer_weights: tuple[float, ...] | None = hyper(
        None, _layer_weights, ("a", 1.0, (), (0.5, "a"), (0.5, -0.1), True)
    )
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
        """Whether this round resets the models and measures similarities."""
        return fed.k % self.period == 0

    def download(self, state, fed, who):
        w = state.w
        if self.measures(fed):
            w = w.clone()
            for part in self.parts(fed) if self.local_head is True else [slice(0, fed.d)]:
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
            layers = self.weighted_layers(fed)
            S = sngs(done.start - done.probe, stages, self.temperature, layers)  # (2), (3), (6)
        return State(w=self.mix(done.start, done.w, S, stages, fed), trained=done.w, S=S)

    def extra_models(self, state, fed):
        return {"before mixing": state.trained}

    def sent(self, fed, who, k):
        shared = sum(part.stop - part.start for part in self.parts(fed))
        exchanges = 2 if k % self.period == 0 else 1  # the probe is one more
        reset = exchanges == 2 and self.local_head == "reset"  # the head goes up and comes back
        return 2 * len(who) * (shared * exchanges + (fed.d - shared) * reset)

    def parts(self, fed):
        """The columns of each stage; those in no stage stay local."""
        if not self.local_head:
            return split_stages(fed, self.stages)
        if len(fed.layers) == 1:
            raise ValueError(
                f"local_head={self.local_head!r} keeps the last layer local, and this model has "
                "no other layer"
            )
        return split_stages(fed, 2)[:1]

    def weighted_layers(self, fed):
        """The layers of each stage with their weights; None: a stage is one vector."""
        if self.layer_weights is None:
            return None
        *body, (_, head) = fed.layers
        if len(self.layer_weights) != len(body) or self.stages == 1:
            raise ValueError(
                "layer_weights must hold one number for each layer before the last, with stages=2; "
                f"got {self.layer_weights!r} for {len(body)} layers with stages={self.stages}"
            )
        inside = [(where, weight) for (_, where), weight in zip(body, self.layer_weights)]
        return [inside] if self.local_head else [inside, [(head, 1.0)]]


_deprecated.keep_former_names(__name__)
